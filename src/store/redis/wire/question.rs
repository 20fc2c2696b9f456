//! The questions to the scripts, as bytes: keys and parameter blocks.

mod call;
mod packing;
mod repetition;
mod update_block;

use super::layout;
use super::script::{DECIDE, DECIDE_ANY, DECIDE_ONCE, DECIDE_SHADOW, Script};
use crate::clock::{self, Timestamp};
use crate::limit::rate::Cost;
use crate::limit::{BlockRule, Limit, Mark, Ticket, wire};
use crate::store::check::{Check, Intent};
use smallvec::SmallVec;
use std::hash::BuildHasher as _;
use std::time::Duration;
use update_block::{FREE, WITH_RECORD, since_mark};

pub(crate) use call::{MarkerKey, decide, refund};
use update_block::forget_block;
pub(crate) use update_block::{refund_block, renew_block};

/// The limits of one request, or the charge that one refund gives back.
#[derive(Debug, Default)]
pub(crate) struct Question {
    keys: layout::CounterNames,
    counters: SmallVec<[KeyPlace; 4]>,
    blocks: SmallVec<[u8; 80]>,
    /// The keys of records and blocks, in the order of the limits that use them.
    records: Vec<Vec<u8>>,
    /// Slots with numbers that this gateway has chosen.
    slots: Vec<ChosenSlots>,
    level: ScriptLevel,
    /// Must several such questions be sent separately?
    is_single: bool,
}

/// The position of one counter's key among the bytes of all keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyPlace {
    end: u32,
    /// A digest of the key. Keys with different digests are different.
    pub(crate) digest: u32,
}

/// Slots of one limit.
#[derive(Debug)]
struct ChosenSlots {
    /// Position among the counters.
    limit: usize,
    first: u64,
    cost: u64,
    ttl: u64,
    /// Does their limit decide?
    decides: bool,
}

/// The limits of one request, in the form for Redis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecisionRequest<'a> {
    pub(crate) checks: &'a [Check<'a>],
    /// Replaces the server's clock, for tests.
    pub(crate) clock: Option<Timestamp>,
    pub(crate) intent: Intent,
}

/// Slot numbers that gateways choose: above all instants, and below the bound up to which a double is exact with a cost
/// added.
pub(crate) const CHOSEN: std::ops::Range<u64> = 1 << 52..(1 << 52) + (1 << 51);

/// The number of a slot that no other is likely to have.
pub(in crate::store) fn random_slot() -> u64 {
    fastrand::u64(CHOSEN)
}

/// The script that can decide a question. Each level includes all earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum ScriptLevel {
    /// The algorithms that most limits use.
    #[default]
    Plain,
    /// All algorithms.
    Any,
    /// Also ids that are charged once, and keys that are blocked after a refusal.
    Once,
    /// Also limits that do not decide.
    Shadow,
}

impl ScriptLevel {
    fn script(self) -> &'static Script {
        match self {
            Self::Plain => &DECIDE,
            Self::Any => &DECIDE_ANY,
            Self::Once => &DECIDE_ONCE,
            Self::Shadow => &DECIDE_SHADOW,
        }
    }
}

impl Question {
    /// A question with room for this many bytes of parameter blocks.
    #[must_use]
    pub(crate) fn with_room_for(blocks: usize) -> Self {
        let mut question = Self::default();
        question.blocks.reserve(blocks);
        question
    }

    /// Adds one counter: its key in two parts, closed by the brace that the first one opens, and its block.
    pub(crate) fn push(&mut self, prefix: &[u8], key: &[u8], block: &[u8]) {
        let start = self.keys.len();
        layout::counter(&mut self.keys, prefix, key);
        self.counters.push(KeyPlace::of(&self.keys, start));
        self.is_single |= !wire::is_countable(block);
        if !wire::is_plain(block) {
            self.level = self.level.max(ScriptLevel::Any);
        }
        self.blocks.extend_from_slice(block);
    }

    /// Puts the next limit into this group; 0 is the group of the deciding limits.
    pub(crate) fn shadow(&mut self, group: u8) {
        if group > 0 {
            (self.level, self.is_single) = (ScriptLevel::Shadow, true);
            self.blocks.extend_from_slice(&wire::shadow(group));
        }
    }

    /// Adds one limit of a request. Its slots are numbered from `chosen` on, else at random. `clock` is the caller's
    /// clock, if it has one.
    pub(crate) fn check(
        &mut self,
        prefix: &[u8],
        check: &Check<'_>,
        clock: Option<Timestamp>,
        chosen: Option<u64>,
    ) {
        if let Some(rule) = check.limit.blocking {
            return self.blocking(prefix, check, rule, clock);
        }
        let Check {
            limit, key, cost, ..
        } = check;
        if let Some((dedupe, id)) = check.repeats() {
            self.level = self.level.max(ScriptLevel::Once);
            self.records.push(layout::record(prefix, key, id));
            let mut plain = block(limit, *cost, clock);
            self.number(check, &mut plain, clock, chosen);
            let none = block(limit, Cost::ZERO, clock);
            let both = wire::deduped(dedupe, *cost, &plain, &none);
            return self.push(prefix, key, &both);
        }
        if limit.rule.concurrency().is_some() {
            let mut plain = block(limit, *cost, clock);
            self.number(check, &mut plain, clock, chosen);
            return self.push(prefix, key, &plain);
        }
        if *cost == limit.cost && !limit.rule.follows_a_calendar() {
            return self.push(prefix, key, &limit.block);
        }
        self.push(prefix, key, &block(limit, *cost, clock));
    }

    /// Adds one limit of a request whose refusals block the key, by `rule`. It takes no slots.
    #[cold]
    fn blocking(
        &mut self,
        prefix: &[u8],
        check: &Check<'_>,
        rule: BlockRule,
        clock: Option<Timestamp>,
    ) {
        let Check { limit, key, .. } = check;
        self.level = self.level.max(ScriptLevel::Once);
        self.records.push(layout::block(prefix, key));
        let mut inner = block(limit, check.cost, clock);
        if let Some((dedupe, id)) = check.repeats() {
            self.records.push(layout::record(prefix, key, id));
            let none = block(limit, Cost::ZERO, clock);
            inner = wire::deduped(dedupe, check.cost, &inner, &none);
        }
        self.push(prefix, key, &wire::blocking(rule, &inner));
    }

    /// Adds the deletion of one counter, and of the block of its key, with a mark for `life` microseconds.
    pub(crate) fn forget(&mut self, prefix: &[u8], key: &[u8], life: u64) {
        self.records.push(layout::block(prefix, key));
        self.records.push(layout::mark(prefix, key));
        self.push(prefix, key, &forget_block(life));
    }

    /// Numbers the slots that `own`, the block of `check`, requests, so that they can be given back even without an
    /// answer. With a clock of the caller the slots have the numbers of the Rust twin, unless the caller has chosen.
    fn number(
        &mut self,
        check: &Check<'_>,
        plain: &mut [u8],
        clock: Option<Timestamp>,
        chosen: Option<u64>,
    ) {
        let Some(rule) = check.limit.rule.concurrency() else {
            return;
        };
        if (clock.is_some() && chosen.is_none()) || check.cost == Cost::ZERO {
            return;
        }
        let first = chosen.unwrap_or_else(random_slot);
        wire::number(plain, first);
        self.slots.push(ChosenSlots {
            limit: self.counters.len(),
            first,
            cost: check.cost.units(),
            ttl: rule.ttl,
            decides: check.limit.mode.decides(),
        });
    }

    /// Does the question request slots of a limit that decides?
    pub(crate) fn asks_for_slots(&self) -> bool {
        self.slots.iter().any(|slots| slots.decides)
    }

    /// The updates that free the slots of this question, each with the life of its slots.
    pub(crate) fn releases(&self) -> impl Iterator<Item = (Self, Duration)> + '_ {
        self.slots.iter().filter_map(|slots| {
            let key = self.keys().nth(slots.limit)?;
            let mut free = Self::default();
            free.keys.extend_from_slice(key);
            free.counters.push(KeyPlace::of(key, 0));
            free.blocks.push(FREE);
            for number in [slots.ttl, slots.first, slots.cost] {
                free.blocks.extend_from_slice(&wire::double(number));
            }
            Some((free, Duration::from_micros(slots.ttl)))
        })
    }

    /// The number of counters in the question.
    pub(crate) fn limits(&self) -> usize {
        self.counters.len()
    }

    /// The counters in the question.
    pub(crate) fn counters(&self) -> &[KeyPlace] {
        &self.counters
    }

    /// Is `other` the same question, so that one question with a number can represent both?
    pub(crate) fn is_equal(&self, other: &Self) -> bool {
        !self.is_single
            && !other.is_single
            && self.counters == other.counters
            && self.keys == other.keys
            && self.blocks == other.blocks
    }

    /// Are the limits of `other` checked with the same numbers, for any counters?
    fn has_form_of(&self, other: &Self) -> bool {
        self.counters.len() == other.counters.len() && self.blocks == other.blocks
    }

    /// Adds the refund of one charge, with the record of its id; or of a repeat, which only its record shows. Of a charge
    /// made at `charged`, nothing comes back to a counter that was emptied since.
    pub(crate) fn refund(
        &mut self,
        prefix: &[u8],
        key: &[u8],
        block: &[u8],
        ticket: Ticket,
        charged: Option<Timestamp>,
    ) {
        let since = charged.filter(|_| ticket.mark != Mark::Repeat);
        if since.is_some() {
            self.records.push(layout::mark(prefix, key));
        }
        let Some(record) = ticket.record else {
            return self.push(prefix, key, &since_mark(since, block));
        };
        if ticket.mark == Mark::Repeat {
            self.records.push(layout::record(prefix, key, record.id));
            return self.push(prefix, key, block);
        }
        let mut whole = wire::Block::new();
        whole.push(WITH_RECORD);
        whole.extend_from_slice(&wire::double(record.ends()));
        whole.push(u8::try_from(block.len()).unwrap_or(u8::MAX));
        whole.extend_from_slice(block);
        self.records.push(layout::record(prefix, key, record.id));
        self.push(prefix, key, &since_mark(since, &whole));
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.counters.iter().map(move |counter| {
            let end = counter.end as usize;
            let key = self.keys.get(start..end).unwrap_or_default();
            start = end;
            key
        })
    }
}

impl KeyPlace {
    /// The counter whose key is the end of `keys`, from `start` on.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a half of a digest is a digest, and all keys of a request are shorter than 4 GiB"
    )]
    fn of(keys: &[u8], start: usize) -> Self {
        let key = keys.get(start..).unwrap_or_default();
        Self {
            end: keys.len() as u32,
            digest: foldhash::fast::FixedState::default().hash_one(key) as u32,
        }
    }
}

/// A limit's block at a cost that may differ from its own.
fn block(limit: &Limit, cost: Cost, clock: Option<Timestamp>) -> wire::Block {
    let now = if limit.rule.follows_a_calendar() {
        clock.unwrap_or_else(clock::wall)
    } else {
        Timestamp::default()
    };
    limit.block_of(cost, now)
}
