//! The questions to the scripts, as bytes: keys, parameter blocks, and the form of the batch.

mod packing;

use super::layout;
use super::script::{DECIDE, DECIDE_ANY, DECIDE_ONCE, DECIDE_SHADOW, REFUND};
use crate::clock::{self, Timestamp};
use crate::limit::rate::Cost;
use crate::limit::{Limit, Mark, Rule, Ticket, bucket, wire};
use crate::store::check::{Check, Intent};
use crate::store::redis::MOST_IN_CALL;
use bb8_redis::redis::Cmd;
use smallvec::SmallVec;
use std::hash::BuildHasher as _;
use std::time::Duration;

/// First byte of a refund's block: the form of the rest.
const QUEUE: u8 = 1;
const SETTLE: u8 = 2;
const WINDOW: u8 = 3;
const PARTS: u8 = 4;
const LOG: u8 = 5;
const FREE: u8 = 6;
const RENEW: u8 = 7;
const FORGET: u8 = 8;
const WITH_RECORD: u8 = 9;
const REPEAT: u8 = 10;

/// The limits of one request, or the charge that one refund gives back.
#[derive(Debug, Default)]
pub(crate) struct Question {
    keys: layout::CounterNames,
    counters: SmallVec<[KeyPlace; 4]>,
    blocks: SmallVec<[u8; 64]>,
    /// The keys of records, in the order of the limits that use them.
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
    /// Also ids that are charged once.
    Once,
    /// Also limits that do not decide.
    Shadow,
}

impl ScriptLevel {
    fn script(self) -> &'static super::script::Script {
        match self {
            Self::Plain => &DECIDE,
            Self::Any => &DECIDE_ANY,
            Self::Once => &DECIDE_ONCE,
            Self::Shadow => &DECIDE_SHADOW,
        }
    }
}

impl Question {
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
            cost: u64::from(check.cost.units()),
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

    /// Adds the refund of one charge, with the record of its id; or of a repeat, which only its record shows.
    pub(crate) fn refund(&mut self, prefix: &[u8], key: &[u8], block: &[u8], ticket: Ticket) {
        let Some(record) = ticket.record else {
            return self.push(prefix, key, block);
        };
        if ticket.mark == Mark::Repeat {
            self.records.push(layout::record(prefix, key, record.id));
            return self.push(prefix, key, block);
        }
        let mut whole = wire::Block::new();
        whole.push(WITH_RECORD);
        whole.extend_from_slice(&wire::double(record.ends));
        whole.push(u8::try_from(block.len()).unwrap_or(u8::MAX));
        whole.extend_from_slice(block);
        self.records.push(layout::record(prefix, key, record.id));
        self.push(prefix, key, &whole);
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

/// The number of equal questions from which on they are sent once, with their number. Two are cheaper in sequence.
const WORTH: usize = 3;

/// One byte for each question of a call.
type Numbers = SmallVec<[u8; MOST_IN_CALL]>;

/// The questions of a call in the scripts' form: of adjacent equal ones the first, with their number.
struct CountedQuestions<'q> {
    different: SmallVec<[&'q Question; MOST_IN_CALL]>,
    numbers: Numbers,
}

impl<'q> CountedQuestions<'q> {
    /// Counts `questions`, in order.
    fn of(questions: impl Iterator<Item = &'q Question>) -> Self {
        let questions: SmallVec<[&Question; MOST_IN_CALL]> = questions.collect();
        let (mut different, mut numbers) = (SmallVec::new(), Numbers::new());
        let runs = questions.chunk_by(|question, next| question.is_equal(next));
        for run in runs.flat_map(|run| run.chunks(usize::from(u8::MAX))) {
            let asked = match run {
                [first, ..] if run.len() >= WORTH => std::slice::from_ref(first),
                _ => run,
            };
            let number = u8::try_from(run.len() / asked.len()).unwrap_or(u8::MAX);
            different.extend_from_slice(asked);
            numbers.extend(asked.iter().map(|_| number));
        }
        Self { different, numbers }
    }
}

/// The forms of the questions of a call: their content without their counters. Most clients meet the same limits.
struct QuestionForms<'q> {
    /// The first question of each form.
    firsts: SmallVec<[&'q Question; 8]>,
    /// The number of each question's form; numbers begin at 1.
    numbers: Numbers,
}

impl<'q> QuestionForms<'q> {
    /// The forms of `questions`; `None` if each has a different one.
    fn of(questions: &[&'q Question]) -> Option<Self> {
        let (mut firsts, mut numbers) = (SmallVec::<[&Question; 8]>::new(), Numbers::new());
        for question in questions {
            let mut known = firsts.iter();
            let form = known.rposition(|first| first.has_form_of(question));
            let form = form.unwrap_or_else(|| {
                firsts.push(question);
                firsts.len() - 1
            });
            numbers.push(u8::try_from(form + 1).ok()?);
        }
        (firsts.len() < questions.len()).then_some(Self { firsts, numbers })
    }
}

/// One call that decides `questions` in order. Adjacent equal questions are sent once, with their number. `clock`
/// replaces the server's own, for tests.
pub(crate) fn decide<'q>(
    clock: Option<Timestamp>,
    questions: impl Iterator<Item = &'q Question>,
) -> Cmd {
    let mut rest = questions;
    let (first, second) = (rest.next(), rest.next());
    if let (Some(question), None) = (first, second) {
        return decide_alone(clock, question);
    }
    let questions = first.into_iter().chain(second).chain(rest);
    let CountedQuestions { different, numbers } = CountedQuestions::of(questions);
    let limits = |question: &&Question| u8::try_from(question.limits()).unwrap_or(u8::MAX);
    let shape: Numbers = different.iter().map(limits).collect();
    let level = different.iter().map(|question| question.level).max();
    let level = level.unwrap_or_default();
    let script = level.script();
    let forms = match level {
        ScriptLevel::Plain => QuestionForms::of(&different),
        ScriptLevel::Any | ScriptLevel::Once | ScriptLevel::Shadow => None,
    };
    let firsts = forms.as_ref().map_or(&different[..], |forms| &forms.firsts);
    let all = different.iter().copied();
    let mut command = call(script, clock, None, all, firsts.iter().copied());
    command.arg(&shape[..]);
    let has_equal = numbers.iter().any(|number| *number > 1);
    if has_equal || forms.is_some() {
        command.arg(if has_equal { &numbers[..] } else { b"" });
    }
    if let Some(forms) = &forms {
        command.arg(&forms.numbers[..]);
    }
    command
}

/// The call that decides one question, as sent by an idle gateway.
fn decide_alone(clock: Option<Timestamp>, question: &Question) -> Cmd {
    let all = std::iter::once(question);
    let mut command = call(question.level.script(), clock, None, all.clone(), all);
    let limits = u8::try_from(question.limits()).unwrap_or(u8::MAX);
    command.arg(&[limits]);
    command
}

/// The key of a call's marker, and the call's number under it.
pub(crate) struct MarkerKey {
    pub(crate) key: Vec<u8>,
    pub(crate) number: u64,
}

/// One call that refunds `questions`, each a single charge. A call with a marker can be repeated when it had no answer.
pub(crate) fn refund<'q>(
    clock: Option<Timestamp>,
    questions: impl Iterator<Item = &'q Question> + Clone,
    marker: Option<MarkerKey>,
) -> Cmd {
    let number = marker.as_ref().map(|marker| wire::double(marker.number));
    let key = marker.map(|marker| marker.key);
    let mut command = call(&REFUND, clock, key, questions.clone(), questions);
    command.arg(number.as_ref().map_or(&b""[..], |number| &number[..]));
    command
}

/// A call about the counters of `questions`, with the blocks of `forms`.
fn call<'q>(
    script: &super::script::Script,
    clock: Option<Timestamp>,
    marker: Option<Vec<u8>>,
    questions: impl Iterator<Item = &'q Question> + Clone,
    forms: impl Iterator<Item = &'q Question>,
) -> Cmd {
    let (mut limits, mut bytes, mut records) = (0, 0, 0);
    for question in questions.clone() {
        limits += question.limits();
        bytes += question.keys.len();
        records += question.records.len();
    }
    let mut blocks: SmallVec<[u8; 512]> = SmallVec::new();
    for question in forms {
        blocks.extend_from_slice(&question.blocks);
    }
    let keys = limits + records + usize::from(marker.is_some());
    let mut command = script.call(keys, bytes + blocks.len() + limits);
    for question in questions.clone() {
        for key in question.keys() {
            command.arg(key);
        }
    }
    if records > 0 {
        // The script takes the arguments from the end: it need not know the number of counters.
        let all: Vec<&[u8]> = questions
            .flat_map(|question| question.records.iter().map(Vec::as_slice))
            .collect();
        for record in all.into_iter().rev() {
            command.arg(record);
        }
    }
    if let Some(marker) = marker {
        command.arg(marker);
    }
    match clock {
        None => command.arg(b""),
        Some(at) => command.arg(&wire::double(at.micros())),
    };
    command.arg(&blocks[..]);
    command
}

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
        put(REPEAT, &[ticket.record?.ends]);
        return Some(block);
    }
    let cost = u64::from(ticket.cost.units());
    match (&limit.rule, ticket.mark) {
        (Rule::LeakyBucket(rule), Mark::Bucket(was)) if rule.queue > 0 => {
            let interval = rule.bucket.interval;
            let den = interval.den.get();
            if was.part > 0 && was.den != den {
                return None;
            }
            let charge = interval.times(cost);
            let (was_part, part) = (u64::from(was.part), u64::from(charge.part));
            let numbers = [was.at, was_part, charge.whole, part, u64::from(den)];
            put(QUEUE, &numbers);
        }
        (rule, Mark::History(mark)) => {
            let (was, interval) = (mark.was, rule.open_bucket()?.interval);
            if !bucket::is_of_rate(was, interval) {
                return None;
            }
            let full = interval.times(u64::from(mark.cost.units()));
            let less = interval.times(cost);
            let parts = [was.part, full.part, less.part, interval.den.get()].map(u64::from);
            let [was_part, full_part, less_part, den] = parts;
            let taken = [mark.at, mark.charged].map(Timestamp::micros);
            let charged = [was.at, was_part, taken[0], taken[1], mark.back];
            let much = [full.whole, full_part, less.whole, less_part, den];
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

/// The block that deletes a counter of any kind.
pub(crate) fn forget_block() -> wire::Block {
    let mut block = wire::Block::new();
    block.push(FORGET);
    block
}
