//! Windows of the calendar, on a server whose clock differs from the gateway's.

use super::support::{Server, calendar, limit, token_bucket};
use crate::clock::Timestamp;
use crate::limit::rate::Cost;
use crate::limit::{Limit, Unit};
use crate::store::check::Check;
use crate::store::redis::link::reply::{self, ReplyError, ScriptReply};
use crate::store::redis::wire::question::{self, Question};
use crate::store::redis::wire::{layout, script};
use bb8_redis::redis::Value;
use std::sync::Arc;

const HOUR: u64 = 3_600_000_000;
/// 2026-10-24T12:00:00Z, the day before Berlin's clocks go back.
const OCTOBER: Timestamp = Timestamp::from_micros(1_792_843_200_000_000);

/// The answers of a server at `server` to requests of one limit each, composed by a gateway at `gateway`.
fn counters_at(
    client: &mut super::support::Client,
    (gateway, server): (Timestamp, Timestamp),
    limits: &[&Arc<Limit>],
) -> Vec<ScriptReply> {
    let questions: Vec<Question> = limits
        .iter()
        .map(|limit| {
            let mut question = Question::default();
            let (key, cost) = (b"k".as_slice(), Cost::ONE);
            let check = Check {
                limit,
                key,
                cost,
                id: None,
            };
            question.check(&layout::key_prefix("t", limit), &check, Some(gateway), None);
            question
        })
        .collect();
    let command = question::decide(Some(server), questions.iter());
    let Some(Value::BulkString(bytes)) = client.many(vec![command]).pop() else {
        panic!("a script answers bytes");
    };
    reply::read_replies(&bytes, questions.iter().map(Question::limits)).unwrap()
}

#[test]
fn the_server_picks_the_window_by_its_own_clock() {
    let server = Server::start();
    let mut client = server.client();
    client.many(script::ALL.iter().map(|script| script.load()).collect());
    let daily = limit("daily", calendar(9, Unit::Day, 1, "Europe/Berlin", 0));
    for hours in [-35_i64, -13, 0, 9, 12, 34] {
        let there = OCTOBER.micros().checked_add_signed(hours * HOUR as i64);
        let there = Timestamp::from_micros(there.unwrap());
        let replies = counters_at(&mut client, (OCTOBER, there), &[&daily]);
        let (at, measured) = replies[0].as_ref().unwrap();
        let (wanted, _) = daily.rule.check(None, there, Cost::ONE);
        assert_eq!(
            (*at, measured[0].span.whole),
            (there, wanted.span.whole),
            "{hours} h"
        );
    }
}

/// A server's clock has stepped back over the last but one boundary that the gateway knows.
#[test]
fn the_window_after_the_next_is_as_long_as_it_is() {
    let server = Server::start();
    let mut client = server.client();
    client.many(script::ALL.iter().map(|script| script.load()).collect());
    let daily = limit("daily", calendar(9, Unit::Day, 1, "Europe/Berlin", 0));
    let at = |hours: u64| OCTOBER.plus(hours * HOUR);
    // The twenty-sixth has twenty-four hours and begins in thirty-five.
    counters_at(&mut client, (at(35), at(35)), &[&daily]);
    for gateway in [at(0), at(34), at(58)] {
        let replies = counters_at(&mut client, (gateway, at(34)), &[&daily]);
        let (_, measured) = replies[0].as_ref().unwrap();
        assert_eq!(measured[0].span.whole, 25 * HOUR, "{gateway}");
    }
    let replies = counters_at(&mut client, (at(35), at(35)), &[&daily]);
    let (_, measured) = replies[0].as_ref().unwrap();
    assert_eq!(measured[0].span.part, 5, "all were counted in it");
}

#[test]
fn a_clock_that_is_a_window_off_answers_for_that_request_alone() {
    let server = Server::start();
    let mut client = server.client();
    client.many(script::ALL.iter().map(|script| script.load()).collect());
    let daily = limit("daily", calendar(9, Unit::Day, 1, "Europe/Berlin", 0));
    let tokens = limit("tokens", token_bucket(9, 1_000_000, 9));
    // The window lasts from the previous midnight to the end of the next day, which has twenty-five hours.
    let (first, past) = (OCTOBER.micros() - 38 * HOUR, OCTOBER.micros() + 35 * HOUR);
    for (there, decided) in [
        (first - 1, false),
        (first, true),
        (past - 1, true),
        (past, false),
    ] {
        let there = Timestamp::from_micros(there);
        let replies = counters_at(&mut client, (OCTOBER, there), &[&tokens, &daily, &tokens]);
        assert!(replies[0].is_ok() && replies[2].is_ok());
        match &replies[1] {
            Ok(_) => assert!(decided, "{there}"),
            Err(ReplyError::Limit { index: 0, reason }) => {
                assert!(!decided && reason.starts_with("CLOCK"), "{there}: {reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}
