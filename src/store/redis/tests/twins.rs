//! Every script against the pure functions: random histories, replies and stored bytes equal after every step.

use super::editions::editions;
use super::expected::{Expected, compare};
use super::model::{How, Model};
use super::support::Server;
use crate::clock::Timestamp;
use crate::key::RepeatId;
use crate::limit::rate::Cost;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::verdict::{Measured, Repeat, Wait};
use crate::limit::{Limit, Mode, Rule, Ticket};
use crate::store::batch::{Check, Decided};
use crate::store::beside::groups;
use crate::store::redis::layout;
use crate::store::redis::question::{self, Question};
use bb8_redis::redis::{Cmd, cmd};
use std::sync::Arc;

/// A charge that may be given back.
#[derive(Clone)]
struct Granted {
    key: Vec<u8>,
    record: Option<Vec<u8>>,
    who: Vec<u8>,
    name: usize,
    limit: Arc<Limit>,
    ticket: Ticket,
}

struct History {
    random: fastrand::Rng,
    editions: Vec<Vec<Arc<Limit>>>,
    current: Vec<usize>,
    now: u64,
    model: Model,
    tickets: Vec<Granted>,
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
            8..=60 if !self.tickets.is_empty() => self.refund(),
            _ => self.decide(),
        }
    }

    fn place(&mut self, name: usize) -> (Arc<Limit>, Vec<u8>, Vec<u8>, Vec<u8>) {
        let limit = self.editions[name][self.current[name]].clone();
        let who = [b"a".as_slice(), b"10.0.0.1", b""][self.random.usize(..3)].to_vec();
        let prefix = layout::key_prefix("t", &limit).to_vec();
        let mut key = layout::Names::new();
        layout::counter(&mut key, &prefix, &who);
        (limit, who, prefix, key.into_vec())
    }

    fn decide(&mut self) {
        let now = Timestamp::from_micros(self.now);
        let (mut questions, mut expected, mut touched) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.random.usize(1..4) {
            let mut names: Vec<usize> = (0..self.editions.len()).collect();
            self.random.shuffle(&mut names);
            names.truncate([1, 1, 2, 3, 5][self.random.usize(..5)]);
            // Those that do not decide come last, the rates of a list side by side.
            let editions = (&self.editions, &self.current);
            names.sort_by_key(|name| match editions.0[*name][editions.1[*name]].mode {
                Mode::Enforce => 0,
                Mode::Shadow | Mode::Candidate => 1 + name,
            });
            let mut question = Question::default();
            let mut asked = Vec::new();
            for name in names {
                let (mut limit, who, prefix, key) = self.place(name);
                // What cost more than was charged for it is charged beyond the limit.
                if let Some(overdraft) = limit.overdraft().cloned()
                    && self.random.u8(..3) == 0
                {
                    limit = overdraft;
                }
                let most = match self.random.u8(..4) {
                    0 => limit.rate.count.get().min(200) + 3,
                    _ => 3,
                };
                let cost = Cost::new(self.random.u32(..=most));
                let id = (self.random.u8(..4) > 0).then(|| {
                    let nth = [self.random.u8(..4)];
                    RepeatId::of("POST", "/pay", 1, &nth)
                });
                touched.push(key.clone());
                asked.push((limit, who, prefix, key, cost, id, name));
            }
            let checks: Vec<_> = asked
                .iter()
                .map(|(limit, who, prefix, key, cost, id, _)| {
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
                    (key.clone(), record, check)
                })
                .collect();
            let plain: Vec<_> = checks.iter().map(|(.., check)| *check).collect();
            for ((check, group), (_, _, prefix, ..)) in plain.iter().zip(groups(&plain)).zip(&asked)
            {
                question.beside(group);
                question.check(prefix, check, Some(now));
            }
            let measured = self.model.decide(now, &checks);
            let decided = Decided::of(&plain, now, measured.clone());
            for (index, (key, record, check)) in checks.iter().enumerate() {
                if let Some(ticket) = decided.ticket(index, check) {
                    self.tickets.push(Granted {
                        key: key.clone(),
                        record: record.clone().filter(|_| ticket.record.is_some()),
                        who: check.key.to_vec(),
                        name: asked[index].6,
                        limit: check.limit.clone(),
                        ticket,
                    });
                }
            }
            questions.push(question);
            expected.push(measured);
        }
        let command = question::decide(Some(now), questions.iter());
        self.ask(command, Expected::Decided(now, expected));
        self.look(touched);
    }

    fn refund(&mut self) {
        let now = Timestamp::from_micros(self.now);
        let (mut questions, mut expected, mut touched) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.random.usize(1..3) {
            // Mostly the newest, of which something is left to give back; some are presented twice.
            let newest = self.tickets.len().saturating_sub(4);
            let Some(index) = (newest < self.tickets.len())
                .then(|| self.random.usize(newest..self.tickets.len()))
            else {
                break;
            };
            let granted = match self.random.bool() {
                true => self.tickets.swap_remove(index),
                false => self.tickets[index].clone(),
            };
            // The limit may have been edited since; a window of another length has another key.
            let Granted {
                key,
                record,
                who,
                name,
                limit,
                ticket,
            } = granted;
            let present = self.editions[name][self.current[name]].clone();
            let limit = match present.id == limit.id {
                true => present,
                false => limit,
            };
            // Spoils come before the call, and so before its first refund.
            let listed = matches!(limit.rule, Rule::SlidingLog(_) | Rule::Concurrency(_));
            if questions.is_empty() && !listed && self.random.u8(..8) == 0 {
                let bytes = self.nearly(&key, &limit);
                self.put(key.clone(), bytes);
            }
            let (mut how, mut ticket, mut record) = (How::Refund, ticket, record);
            if limit.rule.holds().is_some() && self.random.bool() {
                how = How::Renew;
            } else if limit.rule.can_settle() && self.random.bool() {
                // Some of it was too much, and what is remembered of its id stays.
                let less = self.random.u32(..=ticket.cost.units());
                (how, record) = (How::Settle, None);
                ticket = Ticket {
                    cost: Cost::new(less),
                    record: None,
                    ..ticket
                };
            }
            if ticket.cost == Cost::ZERO {
                continue;
            }
            let block = match how {
                How::Renew => question::renew_block(&limit, ticket),
                How::Refund => question::refund_block(&limit, ticket),
                How::Settle => question::settle_block(&limit, ticket),
            };
            let Some(block) = block else {
                let place = (&*key, record.as_deref());
                assert_eq!(self.model.refund(now, place, &limit, ticket, how), 0);
                continue;
            };
            let mut question = Question::default();
            question.refund(&layout::key_prefix("t", &limit), &who, &block, ticket);
            let place = (&*key, record.as_deref());
            expected.push(self.model.refund(now, place, &limit, ticket, how));
            questions.push(question);
            touched.push(key);
            touched.extend(record);
        }
        self.tickets.truncate(64);
        if !questions.is_empty() {
            let command = question::refund(Some(now), questions.iter(), None);
            self.ask(command, Expected::Refunded(expected));
            self.look(touched);
        }
    }

    /// Somebody else writes, or the server forgets.
    fn meddle(&mut self) {
        let name = self.random.usize(..self.editions.len());
        let (limit, who, prefix, mut key) = self.place(name);
        let mut listed = matches!(limit.rule, Rule::SlidingLog(_) | Rule::Concurrency(_));
        if limit.dedupe.is_some() && self.random.bool() {
            let id = RepeatId::of("POST", "/pay", 1, &[self.random.u8(..4)]);
            (key, listed) = (layout::record(&prefix, &who, id), false);
        }
        if listed || self.random.u8(..4) == 0 {
            let mut command = cmd("DEL");
            command.arg(&key);
            self.ask(command, Expected::Anything);
            self.model.stored.remove(&key);
            return;
        }
        let bytes = match self.random.bool() {
            true => self.garbage(),
            false => self.nearly(&key, &limit),
        };
        self.put(key, bytes);
    }

    fn put(&mut self, key: Vec<u8>, bytes: Vec<u8>) {
        let mut command = cmd("SET");
        command.arg(&key).arg(&bytes);
        self.ask(command, Expected::Anything);
        self.model.stored.insert(key, (bytes, u64::MAX));
    }

    fn garbage(&mut self) -> Vec<u8> {
        let now = self.now as f64;
        let first = [
            f64::NAN,
            -1.0,
            now + 5_000_000.5,
            now + 5_000_000.0,
            now - 5.0,
            1e300,
            f64::INFINITY,
            9_007_199_254_740_991.0,
        ][self.random.usize(..8)];
        let mut bytes = first.to_be_bytes().to_vec();
        bytes.extend_from_slice(&[0, 1, 5, u32::MAX][self.random.usize(..4)].to_be_bytes());
        bytes.extend_from_slice(&[0, 1, 7, 10, u32::MAX][self.random.usize(..5)].to_be_bytes());
        bytes.extend_from_slice(&self.random.u32(..9).to_be_bytes());
        bytes.push(0);
        bytes.truncate([0, 1, 8, 8, 12, 12, 16, 16, 20, 21][self.random.usize(..10)]);
        if self.random.u8(..4) == 0 {
            self.follow(&mut bytes);
        }
        bytes
    }

    /// A fraction beside the possible: of what is stored, or of the limit's brim.
    fn nearly(&mut self, key: &[u8], limit: &Limit) -> Vec<u8> {
        let (interval, brim) = match &limit.rule {
            Rule::TokenBucket(rule) => (rule.interval, rule.capacity),
            Rule::LeakyBucket(rule) => (rule.interval, rule.latest.min(rule.capacity)),
            Rule::SlidingWindow(rule) => return self.parts(rule),
            _ => return self.garbage(),
        };
        let held = match self.model.stored.get(key).map(|(bytes, _)| bytes.get(..8)) {
            Some(Some(at)) if self.random.bool() => f64::from_be_bytes(at.try_into().unwrap()),
            _ => (self.now + brim.whole) as f64,
        };
        let at = held + [0.0, 0.0, 0.0, 0.5][self.random.usize(..4)];
        let own = interval.den.get();
        let den = [own, own, own, own + 4][self.random.usize(..4)];
        let part = [0, brim.part, brim.part + 1, 1, own, own + 1][self.random.usize(..6)];
        let mut bytes = at.to_be_bytes().to_vec();
        bytes.extend_from_slice(&part.to_be_bytes());
        bytes.extend_from_slice(&den.to_be_bytes());
        bytes.truncate([8, 16, 16, 16][self.random.usize(..4)]);
        if self.random.bool() {
            self.follow(&mut bytes);
        }
        bytes
    }

    /// What may stand behind a bucket's state, or nearly.
    fn follow(&mut self, bytes: &mut Vec<u8>) {
        let now = self.now as f64;
        let found =
            [now - 1_000.0, now - 2_000_000.0, now, now + 1.0, 0.5, -1.0][self.random.usize(..6)];
        let back =
            [0.0, 7.0, 1_000_000.0, 9_007_199_254_740_991.0, f64::NAN][self.random.usize(..5)];
        bytes.extend_from_slice(&found.to_be_bytes());
        bytes.extend_from_slice(&back.to_be_bytes());
    }

    /// Parts of any length and time, around now and beyond.
    fn parts(&mut self, rule: &SlidingWindow) -> Vec<u8> {
        let millis = rule.window() / 1000;
        let ways: Vec<u64> = (1..=25).filter(|n| millis.is_multiple_of(*n)).collect();
        let held = ways[self.random.usize(..ways.len())];
        let part = rule.window() / held;
        let start = self.now - self.now % part + part * self.random.u64(..3);
        let start = start - part * self.random.u64(..4);
        let mut bytes = (start as f64).to_be_bytes().to_vec();
        for _ in 0..=held {
            let count = match self.random.u8(..20) {
                0 => u32::MAX,
                1..=12 => 0,
                _ => self.random.u32(..6),
            };
            bytes.extend_from_slice(&count.to_be_bytes());
        }
        bytes
    }

    fn look(&mut self, touched: Vec<Vec<u8>>) {
        for key in touched {
            let stored = self.model.stored.get(&key).cloned();
            let life = stored.as_ref().map(|(_, life)| *life);
            let is_record = key.windows(4).any(|four| four == b"}:d:");
            let of = |names: &[&[u8]]| !is_record && names.iter().any(|name| key.starts_with(name));
            let is_log = of(&[
                b"t:1:log:",
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
    for script in crate::store::redis::script::ALL {
        client.many(vec![script.load()]);
    }
    let mut history = History::new(seed);
    let (mut done, mut refusals, mut returned, mut free) = (0, 0, 0, 0);
    while done < steps {
        for _ in 0..100 {
            history.step();
        }
        let expected = std::mem::take(&mut history.expected);
        let values = client.many(std::mem::take(&mut history.commands));
        for (index, (expected, value)) in expected.into_iter().zip(values).enumerate() {
            match &expected {
                Expected::Decided(_, all) => {
                    let refused = |m: &&Measured| m.wait != Wait::Micros(0);
                    refusals += all.iter().flatten().filter(refused).count();
                    let repeats = |m: &&Measured| m.repeat == Repeat::Free;
                    free += all.iter().flatten().filter(repeats).count();
                }
                Expected::Refunded(all) => returned += all.iter().filter(|g| **g > 0).count(),
                _ => {}
            }
            if let Err(difference) = compare(expected, value) {
                panic!("TWIN_SEED={seed}, step {done} and command {index}: {difference}");
            }
        }
        done += 100;
    }
    // A history in which nothing is refused or given back shows nothing.
    assert!(refusals > steps / 20, "{refusals} refusals");
    assert!(returned > steps / 200, "{returned} refunds");
    assert!(free > steps / 100, "{free} repeats");
    println!("{done} steps, {refusals} refusals, {returned} refunds given, {free} free repeats");
}
