//! Every script against the pure functions: random histories, replies and stored bytes equal after every step.

mod meddling;
mod unheard;

use super::editions::editions;
use super::expected::{Expected, compare};
use super::model::{Asked, How, Model};
use super::support::Server;
use crate::clock::Timestamp;
use crate::key::RepeatId;
use crate::limit::rate::{Cost, MOST_OF_FOUR_BYTES, MOST_UNITS};
use crate::limit::verdict::{Measurement, Repeat, Wait};
use crate::limit::{Limit, Mark, Mode, Rule, Ticket, wire};
use crate::store::Reservation;
use crate::store::answers::{Answers, Measurements};
use crate::store::check::Check;
use crate::store::decider::Decider;
use crate::store::decision::StoreDecision;
use crate::store::redis::wire::layout;
use crate::store::redis::wire::question::{self, Question};
use crate::store::shadow::groups;
use bb8_redis::redis::{Cmd, cmd};
use std::sync::Arc;
use unheard::{MADE_BEFORE, Unheard};

/// The script's byte for a charge whose counter was emptied since.
const EMPTIED: u8 = 5;

/// A charge that may be refunded.
#[derive(Clone)]
struct Granted {
    key: Vec<u8>,
    record: Option<Vec<u8>>,
    who: Vec<u8>,
    name: usize,
    limit: Arc<Limit>,
    ticket: Ticket,
    at: Timestamp,
}

struct History {
    random: fastrand::Rng,
    editions: Vec<Vec<Arc<Limit>>>,
    current: Vec<usize>,
    now: u64,
    model: Model,
    tickets: Vec<Granted>,
    unheard: Unheard,
    commands: Vec<Cmd>,
    expected: Vec<Expected>,
}

impl History {
    fn new(seed: u64) -> Self {
        let editions = editions();
        Self {
            random: fastrand::Rng::with_seed(seed),
            current: vec![0; editions.len()],
            editions,
            now: 1_790_000_000_000_000,
            model: Model::default(),
            tickets: Vec::new(),
            unheard: Unheard::default(),
            commands: Vec::new(),
            expected: Vec::new(),
        }
    }

    fn ask(&mut self, command: Cmd, expected: Expected) {
        self.commands.push(command);
        self.expected.push(expected);
    }

    fn step(&mut self) {
        let by = match self.random.u8(..) {
            0..=60 => 0,
            61..=120 => self.random.u64(1..1_000),
            121..=200 => self.random.u64(1..400_000),
            201..=240 => self.random.u64(1..3_000_000),
            _ => self.random.u64(1..120_000_000),
        };
        match self.random.u8(..) {
            0..=20 => self.now -= by,
            _ => self.now += by,
        }
        if self.random.u8(..) < 20 {
            let name = self.random.usize(..self.editions.len());
            self.current[name] = self.random.usize(..self.editions[name].len());
        }
        match self.random.u8(..) {
            0..=7 => self.meddle(),
            8..=17 => self.repeat_call(),
            18..=22 => self.release_unheard(),
            23..=25 => self.reset(),
            26..=70 if !self.tickets.is_empty() => self.refund(),
            _ => self.decide(),
        }
    }

    fn place(&mut self, name: usize) -> (Arc<Limit>, Vec<u8>, Vec<u8>, Vec<u8>) {
        let limit = self.editions[name][self.current[name]].clone();
        let who = [b"a".as_slice(), b"10.0.0.1", b""][self.random.usize(..3)].to_vec();
        let prefix = layout::key_prefix("t", &limit).to_vec();
        let mut key = layout::CounterNames::new();
        layout::counter(&mut key, &prefix, &who);
        (limit, who, prefix, key.into_vec())
    }

    fn decide(&mut self) {
        let now = Timestamp::from_micros(self.now);
        let (mut questions, mut expected, mut touched) = (Vec::new(), Vec::new(), Vec::new());
        let mut order: Vec<usize> = Vec::new();
        for _ in 0..self.random.usize(1..4) {
            let mut names: Vec<usize> = (0..self.editions.len()).collect();
            self.random.shuffle(&mut names);
            names.truncate([1, 1, 2, 3, 5][self.random.usize(..5)]);
            // Limits that do not decide come last; the rates of a list are adjacent.
            let editions = (&self.editions, &self.current);
            names.sort_by_key(|name| match editions.0[*name][editions.1[*name]].mode {
                Mode::Enforce => 0,
                Mode::Shadow | Mode::Candidate => 1 + name,
            });
            let mut question = Question::default();
            let (chosen, mut asked) = (self.choose(), Vec::new());
            for &name in &names {
                let (mut limit, who, prefix, key) = self.place(name);
                // A cost beyond the charge is charged beyond the limit.
                if let Some(overdraft) = limit.overdraft().cloned()
                    && self.random.u8(..3) == 0
                {
                    limit = overdraft;
                }
                let cost = self.cost(&limit);
                let id = (self.random.u8(..4) > 0).then(|| {
                    let nth = [self.random.u8(..4)];
                    RepeatId::of("POST", "/pay", 1, &nth)
                });
                touched.push(key.clone());
                asked.push((limit, who, prefix, key, cost, id));
            }
            let checks: Vec<_> = asked
                .iter()
                .map(|(limit, who, prefix, key, cost, id)| {
                    let check = Check {
                        limit,
                        key: who,
                        cost: *cost,
                        id: *id,
                    };
                    let record = check
                        .repeats()
                        .map(|(_, id)| layout::record(prefix, who, id));
                    touched.extend(record.clone());
                    touched.extend(limit.blocking.map(|_| layout::block(prefix, who)));
                    (key.clone(), record, check)
                })
                .collect();
            let plain: Vec<_> = checks.iter().map(|(.., check)| *check).collect();
            for ((check, group), (_, _, prefix, ..)) in plain.iter().zip(groups(&plain)).zip(&asked)
            {
                question.shadow(group);
                question.check(prefix, check, Some(now), chosen);
            }
            // Some requests are repeated, and are then sent together.
            let copies = [1, 1, 1, 2, 3, 9, 40][self.random.usize(..7)];
            for _ in 0..copies {
                let measured = self.model.decide(now, &checks, chosen);
                self.unheard.asked(&question, chosen, &checks);
                self.charged(now, &names, &checks, &measured);
                order.push(questions.len());
                expected.push(measured);
            }
            questions.push(question);
        }
        let asked = order.iter().map(|index| &questions[*index]);
        let command = question::decide(Some(now), asked);
        self.ask(command, Expected::StoreDecision(now, expected));
        self.look(touched);
    }

    /// A cost that the limit admits, perhaps.
    fn cost(&mut self, limit: &Limit) -> Cost {
        let most = match self.random.u8(..8) {
            0 | 1 => limit.rate.count.get().min(200) + 3,
            2 | 3 => limit.rule.most(),
            4 if limit.rule.most() > MOST_OF_FOUR_BYTES => {
                let steps = [1 << 32, MOST_OF_FOUR_BYTES, MOST_UNITS];
                return Cost::new(steps[self.random.usize(..3)]);
            }
            _ => 3,
        };
        // Slots are taken one by one, and a log enters each unit.
        let most = match limit.rule {
            Rule::SlidingLog(_) | Rule::Concurrency(_) => most.min(203),
            _ => most,
        };
        Cost::new(self.random.u64(..=most))
    }

    /// Keeps the tickets of the charges of `asked`, a request that was `measured`.
    fn charged(
        &mut self,
        now: Timestamp,
        names: &[usize],
        checks: &[Asked<'_>],
        measured: &Measurements,
    ) {
        let plain: Vec<_> = checks.iter().map(|(.., check)| *check).collect();
        let answers = Answers::measured(&plain, Decider::Redis, now, measured.clone());
        let decided = StoreDecision::of(&plain, answers);
        for (index, (key, record, check)) in checks.iter().enumerate() {
            let charge = decided.reservation(index, check);
            let is_free = measured[index].repeat == Repeat::Free;
            let free = || decided.answers[index].reservation(check);
            let charge = charge.or_else(|| is_free.then(free)?);
            if let Some(Reservation { ticket, .. }) = charge {
                // Some are charged for requests that other limits refuse afterwards.
                let ticket = if self.random.bool() {
                    check.limit.abandoned(ticket, now)
                } else {
                    ticket
                };
                self.tickets.push(Granted {
                    key: key.clone(),
                    record: record.clone().filter(|_| ticket.record.is_some()),
                    who: check.key.to_vec(),
                    name: names[index],
                    limit: check.limit.clone(),
                    ticket,
                    at: now,
                });
            }
        }
    }

    fn refund(&mut self) {
        let now = Timestamp::from_micros(self.now);
        let (mut questions, mut expected, mut touched) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.random.usize(1..3) {
            // Mostly one of the newest tickets, which can still be refunded; some are presented twice.
            let newest = self.tickets.len().saturating_sub(4);
            let Some(index) = (newest < self.tickets.len())
                .then(|| self.random.usize(newest..self.tickets.len()))
            else {
                break;
            };
            let granted = if self.random.bool() {
                self.tickets.swap_remove(index)
            } else {
                self.tickets[index].clone()
            };
            // The limit may have been edited since; a window of another length has another key.
            let Granted {
                key,
                record,
                who,
                name,
                limit,
                ticket,
                at,
            } = granted;
            let present = self.editions[name][self.current[name]].clone();
            let limit = if present.id == limit.id {
                present
            } else {
                limit
            };
            // Spoilt values are written before the call, and so before its first refund.
            let listed = matches!(limit.rule, Rule::SlidingLog(_) | Rule::Concurrency(_));
            if questions.is_empty() && !listed && self.random.u8(..8) == 0 {
                let bytes = self.nearly(&key, &limit);
                self.put(key.clone(), bytes);
            }
            let (mut how, mut ticket, mut record) = (How::Refund, ticket, record);
            if limit.rule.concurrency().is_some() && self.random.bool() {
                how = How::Renew;
            } else if !listed && !limit.rule.queues() && self.random.bool() {
                // A part of the charge was too much, and the record of its id stays.
                let less = self.random.u64(..=ticket.cost.units());
                (how, record) = (How::Settle, None);
                ticket = Ticket {
                    cost: Cost::new(less),
                    record: None,
                    ..ticket
                };
            }
            if ticket.cost == Cost::ZERO && ticket.mark != Mark::Repeat {
                continue;
            }
            let block = match how {
                How::Renew => question::renew_block(&limit, ticket),
                How::Refund | How::Settle => question::refund_block(&limit, ticket),
            };
            let Some(block) = block else {
                let place = (&*key, record.as_deref());
                assert_eq!(self.model.refund(now, place, &limit, ticket, how), 0);
                continue;
            };
            let mut question = Question::default();
            let charged = Some(at).filter(|_| limit.rule.concurrency().is_none());
            let prefix = layout::key_prefix("t", &limit);
            question.refund(&prefix, &who, &block, ticket, charged);
            let place = (&*key, record.as_deref());
            let is_stale = charged.is_some_and(|at| self.model.is_emptied_since(&key, at));
            expected.push(if is_stale && ticket.mark != Mark::Repeat {
                EMPTIED
            } else {
                self.model.refund(now, place, &limit, ticket, how)
            });
            questions.push(question);
            touched.push(key);
            touched.extend(record);
            let has_mark = charged.is_some() && ticket.mark != Mark::Repeat;
            touched.extend(has_mark.then(|| layout::mark(&prefix, &who)));
        }
        self.tickets.truncate(64);
        if !questions.is_empty() {
            let mark = self.mark_call(touched.len());
            let command = question::refund(Some(now), questions.iter(), mark);
            self.made(&command, &touched);
            self.ask(command, Expected::Refunded(expected));
            self.look(touched);
        }
    }

    /// Empties a counter, with the block of its key.
    fn reset(&mut self) {
        let now = Timestamp::from_micros(self.now);
        let name = self.random.usize(..self.editions.len());
        let (limit, who, prefix, key) = self.place(name);
        if limit.rule.concurrency().is_some() {
            return;
        }
        let mut question = Question::default();
        question.forget(&prefix, &who, limit.mark_life());
        let (block, mark) = (layout::block(&prefix, &who), layout::mark(&prefix, &who));
        let removed = [&key, &block].map(|name| self.model.stored.remove(name).is_some());
        let life = limit.mark_life().div_ceil(1000);
        let bytes = wire::double(self.now).to_vec();
        self.model.stored.insert(mark.clone(), (bytes, life));
        let byte = if removed.contains(&true) { 2 } else { 0 };
        let command = question::refund(Some(now), std::iter::once(&question), None);
        self.ask(command, Expected::Refunded(vec![byte]));
        self.look(vec![key, block, mark]);
    }

    fn look(&mut self, touched: Vec<Vec<u8>>) {
        for key in touched {
            let stored = self.model.stored.get(&key).cloned();
            let life = stored.as_ref().map(|(_, life)| *life);
            let is_record = key.windows(4).any(|four| four == b"}:d:")
                || key.ends_with(b"}:b")
                || key.ends_with(b"}:z");
            let of = |names: &[&[u8]]| !is_record && names.iter().any(|name| key.starts_with(name));
            let is_log = of(&[
                b"t:1:log:",
                b"t:1:block-log:",
                b"t:1:less-log:",
                b"t:1:once-log:",
                b"t:1:beside-log:",
            ]);
            let is_set = of(&[b"t:1:flight:", b"t:1:less-flight:", b"t:1:beside-flight:"]);
            let words: &[&str] = match (is_log, is_set) {
                (true, _) => &["LRANGE", "0", "-1"],
                (_, true) => &["ZRANGE", "0", "-1", "WITHSCORES"],
                _ => &["GET"],
            };
            let (mut get, mut ttl) = (cmd(words[0]), cmd("PTTL"));
            get.arg(&key);
            for word in &words[1..] {
                get.arg(word);
            }
            ttl.arg(&key);
            self.ask(get, Expected::Stored(key, stored));
            self.ask(ttl, Expected::Life(life));
        }
    }
}

#[test]
fn scripts_answer_and_store_what_the_pure_functions_say() {
    let steps: usize = match std::env::var("TWIN_STEPS") {
        Ok(text) => text.parse().expect("TWIN_STEPS is a number"),
        Err(_) => 20_000,
    };
    let seed = match std::env::var("TWIN_SEED") {
        Ok(text) => text.parse().expect("TWIN_SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    let server = Server::start();
    let mut client = server.client();
    for script in crate::store::redis::wire::script::ALL {
        client.many(vec![script.load()]);
    }
    let mut history = History::new(seed);
    let (mut done, mut refusals, mut returned, mut free, mut repeats) = (0, 0, 0, 0, 0);
    let mut emptied = 0;
    while done < steps {
        for _ in 0..100 {
            history.step();
        }
        let expected = std::mem::take(&mut history.expected);
        let values = client.many(std::mem::take(&mut history.commands));
        for (index, (expected, value)) in expected.into_iter().zip(values).enumerate() {
            match &expected {
                Expected::StoreDecision(_, all) => {
                    let refused = |m: &&Measurement| m.wait != Wait::Micros(0);
                    refusals += all.iter().flatten().filter(refused).count();
                    let repeats = |m: &&Measurement| m.repeat == Repeat::Free;
                    free += all.iter().flatten().filter(repeats).count();
                }
                Expected::Refunded(all) => {
                    returned += all.iter().filter(|g| (1..=2).contains(*g)).count();
                    repeats += usize::from(all.contains(&MADE_BEFORE));
                    emptied += usize::from(all.contains(&EMPTIED));
                }
                _ => {}
            }
            if let Err(difference) = compare(expected, value) {
                panic!("TWIN_SEED={seed}, step {done} and command {index}: {difference}");
            }
        }
        done += 100;
    }
    // A history without refusals or refunds proves nothing.
    assert!(refusals > steps / 20, "{refusals} refusals");
    assert!(returned > steps / 200, "{returned} refunds");
    assert!(free > steps / 100, "{free} repeats");
    assert!(repeats > steps / 200, "{repeats} calls made before");
    assert!(emptied > 0, "{emptied} refunds to emptied counters");
    let unheard = history.unheard.freed;
    assert!(
        unheard > steps / 2_000,
        "{unheard} slots nobody had heard of"
    );
    println!(
        "{done} steps, {refusals} refusals, {returned} refunds given, {free} free repeats, {repeats} calls made again, {unheard} unheard slots freed"
    );
}
