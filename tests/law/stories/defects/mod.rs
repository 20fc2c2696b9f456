//! Published defects of other limiters, by the names that the notes give them: Tollgate has none of them.
//!
//! `tests/law/README.md` lists the test for each defect, and `tests/law/index.rs` checks the list.

mod answers;
mod buckets;
mod clocks;
mod costs;
mod refused_at_load;
mod windows;

use super::told_to_both;
use crate::law::numbers::{CLIENT, ask};
use crate::law::under_test::{UnderTest, admitted};
use redis::Value;
use std::sync::Arc;
use tollgate::clock::Timestamp;
use tollgate::limit::Limit;

/// The number of admitted requests, of `times` requests at `at`.
async fn granted(store: &UnderTest, at: Timestamp, limit: &Arc<Limit>, times: u64) -> u64 {
    let mut granted = 0;
    for _ in 0..times {
        granted += u64::from(admitted(&store.decide(at, &[ask(limit, 1)]).await));
    }
    granted
}

/// The milliseconds for which Redis keeps the counter, or nothing without Redis.
async fn life(store: &UnderTest, limit: &Limit) -> Option<i64> {
    let UnderTest::Redis { server, .. } = store else {
        return None;
    };
    let key = UnderTest::name(limit, CLIENT);
    Some(server.command(&["PTTL", &key]).await)
}

/// Sends one command to the store's server, if it has one.
async fn on_server(store: &UnderTest, words: &[&str]) -> Option<Value> {
    match store {
        UnderTest::Memory(_) => None,
        UnderTest::Redis { server, .. } => Some(server.command(words).await),
    }
}
