//! Reads `tests/vectors` and runs each history on the pure functions, on the memory store and on Redis.
//!
//! The answers in those files were worked out from the meaning of the algorithms in the manual, never taken from the
//! code.

use super::numbers::{
    CLIENT, NOON, ask, clock_window, concurrency, fixed_window, leaky_bucket, limit, sliding_log,
    sliding_window, token_bucket,
};
use super::under_test::{UnderTest, charged, metered, ticket_of};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tollgate::clock::Timestamp;
use tollgate::limit::rate::{Cost, Rate};
use tollgate::limit::verdict::{Verdict, VerdictOutcome, Wait};
use tollgate::limit::{Limit, LimitId, Refund, Rule, State, Ticket};
use tollgate::store::{Amendment, Check, Correction};
use toml::{Table, Value};

/// One history of one counter.
struct Scenario {
    name: String,
    /// Does a slot lapse in this history? Slots in a process's own memory never lapse.
    lapses: bool,
    steps: Vec<Step>,
}

/// Calls at one instant that all get the same answer.
struct Step {
    /// The instant of the calls, in microseconds from the history's beginning.
    at: i64,
    limit: Arc<Limit>,
    /// An event of an earlier call. A step with an event has no calls, and none of the values below.
    event: Option<Event>,
    cost: Cost,
    times: u64,
    outcome: VerdictOutcome,
    /// The units that are left after the last of the calls.
    remaining: u64,
    reset: u64,
}

/// An event of a call that was admitted.
#[derive(Clone, Copy)]
enum Event {
    /// The true cost of the last call.
    Settle(u64),
    /// The call with this number, counted from 1, has ended.
    End(usize),
    /// The call with this number is still in flight.
    Renew(usize),
}

/// Reads a table. Every key in it must be known.
struct Fields(Table, String);

impl Fields {
    fn of(value: Value, place: &str) -> Self {
        match value {
            Value::Table(table) => Self(table, place.to_owned()),
            other => panic!("{place}: a table is wanted, not {other}"),
        }
    }

    fn maybe(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key)
    }

    fn value(&mut self, key: &str) -> Value {
        let value = self.maybe(key);
        value.unwrap_or_else(|| panic!("{}: no `{key}`", self.1))
    }

    fn number<N: TryFrom<i64>>(&mut self, key: &str) -> N {
        let value = self.value(key);
        self.whole(key, &value)
    }

    fn number_or<N: TryFrom<i64>>(&mut self, key: &str, default: N) -> N {
        match self.maybe(key) {
            Some(value) => self.whole(key, &value),
            None => default,
        }
    }

    fn whole<N: TryFrom<i64>>(&self, key: &str, value: &Value) -> N {
        let number = value.as_integer().and_then(|n| N::try_from(n).ok());
        number.unwrap_or_else(|| panic!("{}: `{key}` cannot be {value}", self.1))
    }

    fn end(self) {
        assert!(
            self.0.is_empty(),
            "{}: nobody reads {:?}",
            self.1,
            self.0.keys().collect::<Vec<_>>()
        );
    }
}

fn read(algorithm: &str) -> Vec<Scenario> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/vectors")
        .join(algorithm)
        .with_extension("toml");
    let table: Table = fs::read_to_string(path).unwrap().parse().unwrap();
    let mut file = Fields(table, algorithm.to_owned());
    let Value::Array(scenarios) = file.value("scenario") else {
        panic!("{algorithm}: scenarios are written [[scenario]]");
    };
    file.end();
    let scenarios = scenarios.into_iter();
    scenarios.map(|one| scenario(algorithm, one)).collect()
}

fn scenario(algorithm: &str, value: Value) -> Scenario {
    let mut fields = Fields::of(value, algorithm);
    let Value::String(name) = fields.value("name") else {
        panic!("{algorithm}: a name is a text");
    };
    fields.1 = format!("{algorithm}, {name}");
    let place = fields.1.clone();
    let numbers = |value| {
        let mut fields = Fields::of(value, &place);
        let max = fields
            .maybe("max_cost")
            .map(|max| fields.whole("max_cost", &max));
        let limit = limit(&name, rule(algorithm, fields));
        match max {
            Some(max) => metered(limit, max),
            None => limit,
        }
    };
    let lapses = fields.maybe("lapses") == Some(Value::Boolean(true));
    let mut present = numbers(fields.value("limit"));
    let Value::Array(list) = fields.value("steps") else {
        panic!("{place}: steps are a list");
    };
    fields.end();
    let mut steps = Vec::new();
    for (index, value) in list.into_iter().enumerate() {
        let mut fields = Fields::of(value, &format!("{place}, step {}", index + 1));
        if let Some(edited) = fields.maybe("limit") {
            present = numbers(edited);
        } else {
            steps.push(step(&mut fields, &present));
        }
        fields.end();
    }
    Scenario {
        name,
        lapses,
        steps,
    }
}

fn rule(algorithm: &str, mut fields: Fields) -> (Rate, Rule) {
    if algorithm == "concurrency" {
        let rule = concurrency(fields.number("max"), fields.number("ttl"));
        fields.end();
        return rule;
    }
    let (count, period) = (fields.number("count"), fields.number("period"));
    let rule = match algorithm {
        "token_bucket" => token_bucket(count, period, fields.number_or("burst", count)),
        "leaky_bucket" => leaky_bucket(
            (count, period),
            fields.number_or("burst", 1),
            fields.number_or("queue", 0),
            fields.number_or("max_wait", 5_000_000),
        ),
        "fixed_window" => fixed_window(count, period),
        "clock_window" => clock_window(count, period, fields.number_or("offset", 0)),
        "sliding_window" => {
            let strict = fields.maybe("strict") == Some(Value::Boolean(true));
            sliding_window(count, period, fields.number_or("buckets", 1), strict)
        }
        "sliding_log" => sliding_log(count, period),
        other => panic!("{other} is no algorithm"),
    };
    fields.end();
    rule
}

fn step(fields: &mut Fields, limit: &Arc<Limit>) -> Step {
    let event = match (
        fields.maybe("settle"),
        fields.maybe("end"),
        fields.maybe("renew"),
    ) {
        (Some(truth), ..) => Some(Event::Settle(fields.whole("settle", &truth))),
        (_, Some(call), _) => Some(Event::End(fields.whole("end", &call))),
        (.., Some(call)) => Some(Event::Renew(fields.whole("renew", &call))),
        _ => None,
    };
    if event.is_some() {
        return Step {
            at: fields.number("at"),
            limit: limit.clone(),
            event,
            cost: Cost::ZERO,
            times: 0,
            outcome: VerdictOutcome::Admit { delay: 0 },
            remaining: 0,
            reset: 0,
        };
    }
    let outcome = match (fields.maybe("admit"), fields.maybe("refuse")) {
        (Some(delay), None) => VerdictOutcome::Admit {
            delay: fields.whole("admit", &delay),
        },
        (None, Some(Value::String(never))) if never == "never" => {
            VerdictOutcome::Refuse(Wait::Never)
        }
        (None, Some(wait)) => VerdictOutcome::Refuse(Wait::Micros(fields.whole("refuse", &wait))),
        _ => panic!("{}: either `admit` or `refuse`", fields.1),
    };
    Step {
        at: fields.number("at"),
        limit: limit.clone(),
        event: None,
        cost: Cost::new(fields.number("cost")),
        times: fields.number_or("times", 1),
        outcome,
        remaining: fields.number("remaining"),
        reset: fields.number("reset"),
    }
}

/// The counter that a history runs on.
enum Listener {
    Functions(HashMap<LimitId, State>),
    Store(Box<UnderTest>),
}

impl Listener {
    async fn answer(
        &mut self,
        at: Timestamp,
        limit: &Arc<Limit>,
        cost: Cost,
    ) -> (Verdict, Option<Ticket>) {
        let states = match self {
            Self::Functions(states) => states,
            Self::Store(store) => {
                let key = CLIENT;
                let check = Check {
                    limit,
                    key,
                    cost,
                    id: None,
                };
                let decided = store.decide(at, &[check]).await;
                return (decided.decision.verdicts[0], ticket_of(&decided, 0, &check));
            }
        };
        let state = states.remove(&limit.id);
        let (measured, change) = limit.check(state.as_ref(), at, cost);
        let state = match change {
            Some(change) => Some(change.update.after(state)),
            None => state,
        };
        states.extend(state.map(|state| (limit.id, state)));
        let charged = measured.wait == Wait::Micros(0) && cost != Cost::ZERO;
        let ticket = charged.then(|| limit.ticket(at, measured, cost));
        (limit.rule.verdict(measured, at, cost, true), ticket)
    }

    /// The call of `ticket` has ended, or is still in flight.
    async fn release(&mut self, at: Timestamp, limit: &Arc<Limit>, ticket: Ticket, ends: bool) {
        let states = match self {
            Self::Functions(states) => states,
            Self::Store(store) if ends => return store.refund(at, ask(limit, 1), ticket).await,
            Self::Store(store) => return store.renew(at, limit, ticket).await,
        };
        let state = states.remove(&limit.id);
        let left = if ends {
            limit.rule.refund(state.as_ref(), at, ticket)
        } else {
            limit.rule.renew(state.as_ref(), at, ticket)
        };
        let after = match left {
            Refund::Nothing => state,
            Refund::Left(change) => Some(change.update.after(state)),
            Refund::Gone => None,
        };
        states.extend(after.map(|state| (limit.id, state)));
    }

    /// Settles the charge of `ticket` at `truth`.
    async fn settle(&mut self, at: Timestamp, limit: &Arc<Limit>, ticket: Ticket, truth: u64) {
        let states = match self {
            Self::Functions(states) => states,
            Self::Store(store) => return store.correct(at, limit, ticket, truth).await,
        };
        let charge = charged(limit, CLIENT, ticket);
        let state = states.remove(&limit.id);
        let after = match charge.correction(Amendment::Settlement(Cost::new(truth))) {
            None | Some(Correction::Longer(_)) => state,
            Some(Correction::Less(ticket)) => match limit.rule.refund(state.as_ref(), at, ticket) {
                Refund::Nothing => state,
                Refund::Left(change) => Some(change.update.after(state)),
                Refund::Gone => None,
            },
            Some(Correction::More(overdraft, cost)) => {
                match overdraft.check(state.as_ref(), at, cost).1 {
                    Some(change) => Some(change.update.after(state)),
                    None => state,
                }
            }
        };
        states.extend(after.map(|state| (limit.id, state)));
    }
}

async fn tell(algorithm: &str, mut listener: Listener) {
    let scenarios = read(algorithm);
    let mut names: Vec<&str> = scenarios.iter().map(|s| s.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), scenarios.len(), "a name is used twice");
    let is_memory =
        matches!(&listener, Listener::Store(store) if matches!(**store, UnderTest::Memory(_)));
    for Scenario { name, steps, .. } in scenarios
        .into_iter()
        .filter(|one| !(one.lapses && is_memory))
    {
        let mut tickets: Vec<Ticket> = Vec::new();
        for (index, step) in steps.into_iter().enumerate() {
            let at = NOON.micros().checked_add_signed(step.at).unwrap();
            let at = Timestamp::from_micros(at);
            let place = format!("{algorithm}, {name}, call {} at {}", index + 1, step.at);
            let call = |number: usize| tickets[number - 1];
            match step.event {
                None => {}
                Some(Event::Settle(truth)) => {
                    let ticket = call(tickets.len());
                    listener.settle(at, &step.limit, ticket, truth).await;
                }
                Some(Event::End(number)) => {
                    let ticket = call(number);
                    listener.release(at, &step.limit, ticket, true).await;
                }
                Some(Event::Renew(number)) => {
                    let ticket = call(number);
                    listener.release(at, &step.limit, ticket, false).await;
                }
            }
            for turn in 1..=step.times {
                let (verdict, ticket) = listener.answer(at, &step.limit, step.cost).await;
                tickets.extend(ticket);
                assert_eq!(verdict.outcome, step.outcome, "{place}, turn {turn}");
                if turn == step.times {
                    assert_eq!(verdict.remaining, step.remaining, "{place}: remaining");
                    assert_eq!(verdict.reset, step.reset, "{place}: reset");
                }
            }
        }
    }
}

macro_rules! told_to_all {
    ($($algorithm:ident)*) => {$(
        mod $algorithm {
            use super::{Listener, UnderTest, tell};

            #[tokio::test(flavor = "local")]
            async fn by_the_pure_functions() {
                tell(stringify!($algorithm), Listener::Functions(Default::default())).await;
            }

            #[tokio::test(flavor = "local")]
            async fn by_the_memory_store() {
                tell(stringify!($algorithm), Listener::Store(Box::new(UnderTest::memory()))).await;
            }

            #[tokio::test(flavor = "local")]
            async fn by_redis() {
                tell(stringify!($algorithm), Listener::Store(Box::new(UnderTest::redis().await))).await;
            }
        }
    )*};
}

told_to_all!(
    token_bucket leaky_bucket fixed_window clock_window sliding_window sliding_log concurrency
);
