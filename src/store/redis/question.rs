//! What the scripts are asked, as bytes: keys, parameter blocks, and the shape of the batch.

use super::script::{DECIDE, DECIDE_ANY, REFUND};
use crate::clock::{self, Timestamp};
use crate::limit::leaky_bucket::LeakyBucket;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Limit, Mark, Rule, Ticket, wire};
use crate::store::batch::Check;
use bb8_redis::redis::Cmd;
use smallvec::SmallVec;

/// First byte of a refund's block: how the rest is read.
const BUCKET: u8 = 1;
const QUEUE: u8 = 2;
const WINDOW: u8 = 3;
const PARTS: u8 = 4;
const LOG: u8 = 5;
const FORGET: u8 = 6;
const FREE: u8 = 7;
const RENEW: u8 = 8;

/// The limits of one request, or the charge that one refund gives back.
#[derive(Debug, Default)]
pub(super) struct Question {
    keys: SmallVec<[u8; 96]>,
    /// Where each key ends.
    ends: SmallVec<[usize; 4]>,
    blocks: SmallVec<[u8; 64]>,
    /// A limit counts by an algorithm that the short script does not know.
    any: bool,
}

impl Question {
    /// Adds one counter: its key in two parts, closed by the brace that the first one opens, and its block.
    pub(super) fn push(&mut self, prefix: &[u8], key: &[u8], block: &[u8]) {
        self.keys.extend_from_slice(prefix);
        self.keys.extend_from_slice(key);
        self.keys.push(b'}');
        self.ends.push(self.keys.len());
        self.blocks.extend_from_slice(block);
    }

    /// Adds one limit of a request. `clock` is the caller's, if it has one of its own.
    pub(super) fn check(&mut self, prefix: &[u8], check: &Check<'_>, clock: Option<Timestamp>) {
        let Check { limit, key, cost } = check;
        self.any |= !wire::is_plain(&limit.block);
        let calendar = limit.rule.follows_a_calendar();
        if *cost == limit.cost && !calendar {
            return self.push(prefix, key, &limit.block);
        }
        let mut block = if calendar {
            let now = clock.unwrap_or_else(clock::wall);
            wire::block_around(&limit.rule, *cost, now)
        } else {
            wire::block(&limit.rule, *cost)
        };
        if limit.partial {
            block = wire::partial(&limit.rule, *cost, &block);
        }
        self.push(prefix, key, &block);
    }

    /// How many counters it is about.
    pub(super) fn limits(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let key = self.keys.get(start..end).unwrap_or_default();
            start = end;
            key
        })
    }
}

/// One call that decides `questions` in order. `clock` replaces the server's own, for tests.
pub(super) fn decide<'q>(
    clock: Option<Timestamp>,
    questions: impl Iterator<Item = &'q Question> + Clone,
) -> Cmd {
    let shape: SmallVec<[u8; 64]> = questions
        .clone()
        .map(|question| u8::try_from(question.limits()).unwrap_or(u8::MAX))
        .collect();
    let script = match questions.clone().any(|question| question.any) {
        true => &DECIDE_ANY,
        false => &DECIDE,
    };
    let mut command = call(script, clock, questions);
    command.arg(&shape[..]);
    command
}

/// One call that gives back `questions`, each a single charge.
pub(super) fn refund<'q>(
    clock: Option<Timestamp>,
    questions: impl Iterator<Item = &'q Question> + Clone,
) -> Cmd {
    call(&REFUND, clock, questions)
}

fn call<'q>(
    script: &super::script::Script,
    clock: Option<Timestamp>,
    questions: impl Iterator<Item = &'q Question> + Clone,
) -> Cmd {
    let (mut limits, mut bytes) = (0, 0);
    let mut blocks: SmallVec<[u8; 1024]> = SmallVec::new();
    for question in questions.clone() {
        limits += question.limits();
        bytes += question.keys.len();
        blocks.extend_from_slice(&question.blocks);
    }
    let mut command = script.call(limits, bytes + blocks.len() + limits);
    for question in questions {
        for key in question.keys() {
            command.arg(key);
        }
    }
    match clock {
        None => command.arg(b""),
        Some(at) => command.arg(&wire::double(at.micros())),
    };
    command.arg(&blocks[..]);
    command
}

/// The block of a refund, or nothing when the ticket can give nothing back under the limit's present numbers.
pub(super) fn refund_block(limit: &Limit, ticket: Ticket) -> Option<wire::Block> {
    let mut block = wire::Block::new();
    let mut put = |kind, numbers: &[u64]| {
        block.push(kind);
        for number in numbers {
            block.extend_from_slice(&wire::double(*number));
        }
    };
    let cost = u64::from(ticket.cost.units());
    match (&limit.rule, ticket.mark) {
        (
            Rule::TokenBucket(TokenBucket { interval, .. })
            | Rule::LeakyBucket(LeakyBucket { interval, .. }),
            Mark::Bucket(was),
        ) => {
            let den = interval.den.get();
            if was.part > 0 && was.den != den {
                return None;
            }
            let charge = interval.times(cost);
            let kind = if limit.rule.queues() { QUEUE } else { BUCKET };
            let (was_part, part) = (u64::from(was.part), u64::from(charge.part));
            let numbers = [was.at, was_part, charge.whole, part, u64::from(den)];
            put(kind, &numbers);
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

/// The block that renews a ticket's slots, or nothing when it has none.
pub(super) fn renew_block(limit: &Limit, ticket: Ticket) -> Option<wire::Block> {
    let mut block = refund_block(limit, ticket)?;
    let kind = block.first_mut().filter(|kind| **kind == FREE)?;
    *kind = RENEW;
    Some(block)
}

/// The block that forgets a counter of any kind.
pub(super) fn forget_block() -> wire::Block {
    let mut block = wire::Block::new();
    block.push(FORGET);
    block
}
