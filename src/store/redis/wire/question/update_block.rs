//! The blocks of updates: a refund, a renewal of slots, and the deletion of a counter.

use crate::clock::Timestamp;
use crate::limit::{Limit, Mark, Rule, Ticket, bucket, wire};

/// First byte of a refund's block: the form of the rest.
const QUEUE: u8 = 1;
const SETTLE: u8 = 2;
const WINDOW: u8 = 3;
const PARTS: u8 = 4;
const LOG: u8 = 5;
pub(super) const FREE: u8 = 6;
const RENEW: u8 = 7;
const FORGET: u8 = 8;
pub(super) const WITH_RECORD: u8 = 9;
const REPEAT: u8 = 10;
const SINCE: u8 = 11;

/// The block of a refund; `None` if the ticket has nothing to give back under the limit's present numbers.
pub(crate) fn refund_block(limit: &Limit, ticket: Ticket) -> Option<wire::Block> {
    let mut block = wire::Block::new();
    let mut put = |kind, numbers: &[u64]| {
        block.push(kind);
        for number in numbers {
            block.extend_from_slice(&wire::double(*number));
        }
    };
    if ticket.mark == Mark::Repeat {
        // A free repeat has cost nothing.
        put(REPEAT, &[ticket.record?.ends()]);
        return Some(block);
    }
    let cost = ticket.cost.units();
    match (&limit.rule, ticket.mark) {
        (Rule::LeakyBucket(rule), Mark::Bucket(was)) if rule.queue > 0 => {
            let interval = rule.bucket.interval;
            let den = interval.den.get();
            if was.part > 0 && was.den != den {
                return None;
            }
            let charge = interval.times(cost);
            let (was_part, part) = (u64::from(was.part), charge.part);
            let numbers = [was.at, was_part, charge.whole, part, u64::from(den)];
            put(QUEUE, &numbers);
        }
        (rule, Mark::History(mark)) => {
            let (was, interval) = (mark.was, rule.open_bucket()?.interval);
            if !bucket::is_of_rate(was, interval) {
                return None;
            }
            let full = interval.times(mark.cost.units());
            let less = interval.times(cost);
            let [was_part, den] = [was.part, interval.den.get()].map(u64::from);
            let taken = [mark.at, mark.charged].map(Timestamp::micros);
            let charged = [was.at, was_part, taken[0], taken[1], mark.back];
            let much = [full.whole, full.part, less.whole, less.part, den];
            put(SETTLE, &[&charged[..], &much].concat());
            block.extend_from_slice(&wire::numbers(rule.open_bucket()?.numbers));
        }
        (Rule::FixedWindow(_) | Rule::ClockWindow(_), Mark::Window { start, end }) => {
            put(WINDOW, &[end - start, start, cost]);
        }
        (Rule::SlidingWindow(rule), Mark::Window { start, .. }) => {
            put(PARTS, &[rule.part, u64::from(rule.parts), start, cost]);
        }
        (Rule::SlidingLog(rule), Mark::Instant(at)) => put(LOG, &[rule.window, at, cost]),
        (Rule::Concurrency(rule), Mark::Slot(first)) => put(FREE, &[rule.ttl, first, cost]),
        _ => return None,
    }
    (ticket.cost.units() > 0).then_some(block)
}

/// The block that renews a ticket's slots; `None` if the ticket has none.
pub(crate) fn renew_block(limit: &Limit, ticket: Ticket) -> Option<wire::Block> {
    let mut block = refund_block(limit, ticket)?;
    let kind = block.first_mut().filter(|kind| **kind == FREE)?;
    *kind = RENEW;
    Some(block)
}

/// The block that deletes a counter of any kind, with the block of its key, and leaves a mark for `life` microseconds.
pub(super) fn forget_block(life: u64) -> wire::Block {
    let mut block = wire::Block::new();
    block.push(FORGET);
    block.extend_from_slice(&wire::double(life));
    block
}

/// `block` of a charge made at this instant: nothing comes back to a counter that was emptied since.
pub(super) fn since_mark(charged: Option<Timestamp>, block: &[u8]) -> wire::Block {
    let mut whole = wire::Block::new();
    if let Some(charged) = charged {
        whole.push(SINCE);
        whole.extend_from_slice(&wire::double(charged.micros()));
        whole.push(u8::try_from(block.len()).unwrap_or(u8::MAX));
    }
    whole.extend_from_slice(block);
    whole
}
