//! A store under test: the test chooses the instant of each question, and reads the stored bytes directly.

use super::numbers::{CLIENT, NOON, SECOND};
use crate::support::Redis;
use crate::support::stored_state::StoredState as _;
use http::HeaderName;
use redis::Value;
use std::sync::Arc;
use std::time::Duration;
use tollgate::clock::{Clock, Timestamp};
use tollgate::key::{Meter, MeterPlace, OnLeave, OnSilent};
use tollgate::limit::rate::Cost;
use tollgate::limit::verdict::{Ruling, Verdict, Wait};
use tollgate::limit::{Limit, Rule, State, Ticket};
use tollgate::store::redis::RedisStore;
use tollgate::store::{
    Amendment, Check, Decider, Invalidation, MemoryStore, RedisTarget, Reservation, StoreDecision,
    StoreSettings, WorkerCache,
};

/// Either store, empty at first.
#[derive(Debug)]
pub(super) enum UnderTest {
    Memory(MemoryStore),
    Redis {
        store: RedisStore,
        server: Box<Redis>,
    },
}

impl UnderTest {
    /// The embedded store.
    pub(super) fn memory() -> Self {
        Self::Memory(MemoryStore::new(Clock::manual(NOON), 1_000_000))
    }

    /// A store with its own Redis server.
    pub(super) async fn redis() -> Self {
        let server = Redis::start().await;
        let store = connect(&server).await;
        Self::Redis {
            store,
            server: Box::new(server),
        }
    }

    /// The store's decision on a request at `at`.
    pub(super) async fn decide(&self, at: Timestamp, checks: &[Check<'_>]) -> StoreDecision {
        let decided = match self {
            Self::Memory(store) => *store.at(at).decide(checks),
            Self::Redis { store, .. } => store.at(at).decide(checks).await.unwrap(),
        };
        assert_eq!(decided.decision.at, at);
        decided
    }

    /// The store's decision for a single limit: its verdict, and the request's delay or wait.
    pub(super) async fn one(&self, at: Timestamp, check: Check<'_>) -> (Ruling, Verdict) {
        let decision = self.decide(at, &[check]).await.decision;
        (decision.ruling, decision.verdicts[0])
    }

    /// Takes `check` and keeps its ticket.
    pub(super) async fn take(&self, at: Timestamp, check: Check<'_>) -> Ticket {
        let decided = self.decide(at, &[check]).await;
        ticket_of(&decided, 0, &check).expect("it is admitted")
    }

    /// Refunds a charge, and returns when the refund is done. From a bucket without a history, the charge comes back
    /// like that of a request that was charged at noon and does not go on.
    pub(super) async fn refund(&self, at: Timestamp, check: Check<'_>, ticket: Ticket) {
        let charge = charged(check.limit, check.key, ticket);
        self.amend(at, &charge, Amendment::Cancellation).await;
    }

    /// Amends a charge, and returns when the amendment is done.
    pub(super) async fn amend(&self, at: Timestamp, charge: &Reservation, amendment: Amendment) {
        match self {
            Self::Memory(store) => {
                store.at(at).amend(charge, amendment);
            }
            Self::Redis { store, .. } => {
                store.at(at).amend(charge, amendment);
                store.settle().await;
            }
        }
    }

    /// Renews the slots of a request in flight, and returns when they are renewed. In a process's own memory slots
    /// never lapse.
    pub(super) async fn renew(&self, at: Timestamp, limit: &Arc<Limit>, ticket: Ticket) {
        let charge = charged(limit, CLIENT, ticket);
        self.amend(at, &charge, Amendment::Renewal).await;
    }

    /// Settles a charge of `limit` at `truth`, and returns when it is settled.
    pub(super) async fn correct(
        &self,
        at: Timestamp,
        limit: &Arc<Limit>,
        ticket: Ticket,
        truth: u64,
    ) {
        let charge = charged(limit, CLIENT, ticket);
        let truth = Amendment::Settlement(Cost::new(truth));
        self.amend(at, &charge, truth).await;
    }

    /// The ticket that a charge of `units` at `at` would have. Nothing is charged.
    pub(super) async fn ticket_of(&self, limit: &Arc<Limit>, at: Timestamp, units: u64) -> Ticket {
        let peek = self
            .decide(
                at,
                &[Check {
                    limit,
                    key: CLIENT,
                    cost: Cost::ZERO,
                    id: None,
                }],
            )
            .await;
        limit.ticket(at, *peek.measured(0).unwrap(), Cost::new(units))
    }

    /// Deletes a counter before noon, so that charges from noon on are later.
    pub(super) async fn reset(&self, limit: &Limit, key: &[u8]) -> bool {
        let before = Timestamp::from_micros(NOON.micros() - SECOND);
        self.reset_at(before, limit, key).await
    }

    /// Deletes a counter.
    pub(super) async fn reset_at(&self, at: Timestamp, limit: &Limit, key: &[u8]) -> bool {
        match self {
            Self::Memory(store) => store.at(at).reset(limit, key),
            Self::Redis { store, .. } => store.at(at).reset(limit, key).await.unwrap(),
        }
    }

    /// The name in Redis of a counter, for a limit whose own name needs no escape.
    pub(super) fn name(limit: &Limit, key: &[u8]) -> String {
        let (name, kind) = (&limit.name, limit.kind);
        let key = match str::from_utf8(key).unwrap() {
            "" => "*",
            key => key,
        };
        format!("tollgate:1:{name}:{kind}:{{{key}}}")
    }

    /// The stored bytes of one counter, if it exists.
    pub(super) async fn bytes(&self, limit: &Limit, key: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Memory(store) => {
                let state = store.stored(limit, key)?;
                Some(state.encode().to_vec())
            }
            Self::Redis { server, .. } => {
                let key = Self::name(limit, key);
                let read: &[&str] = match limit.rule {
                    Rule::SlidingLog(_) => &["LRANGE", &key, "0", "-1"],
                    Rule::Concurrency(_) => &["ZRANGE", &key, "0", "-1"],
                    _ => &["GET", &key],
                };
                match server.command(read).await {
                    Value::BulkString(bytes) => Some(bytes),
                    Value::Array(list) if list.is_empty() => None,
                    Value::Array(list) => {
                        let one = |value| match value {
                            Value::BulkString(bytes) => bytes,
                            other => panic!("{key} holds {other:?}"),
                        };
                        Some(list.into_iter().flat_map(one).collect())
                    }
                    Value::Nil => None,
                    other => panic!("{key} holds {other:?}"),
                }
            }
        }
    }

    /// The state that the stored bytes mean.
    pub(super) async fn state(&self, limit: &Limit, key: &[u8]) -> Option<State> {
        let bytes = self.bytes(limit, key).await?;
        Some(State::decode(&limit.rule, &bytes).expect("only states are stored"))
    }

    /// Everything that is stored for these limits and one client. Where possible, the function also checks that nothing
    /// else is stored.
    pub(super) async fn everything(
        &self,
        limits: &[&Arc<Limit>],
        key: &[u8],
    ) -> Vec<Option<Vec<u8>>> {
        let mut all = Vec::new();
        for limit in limits {
            all.push(self.bytes(limit, key).await);
        }
        let held = all.iter().flatten().count();
        match self {
            Self::Memory(store) => assert_eq!(store.len(), held),
            Self::Redis { server, .. } => {
                let keys = server.keys().await;
                let ours = keys.iter().filter(|key| !key.contains(":probe:")).count();
                assert_eq!(ours, held, "{keys:?}");
            }
        }
        all
    }
}

/// A charge that was made at noon.
pub(super) fn charged(limit: &Arc<Limit>, key: &[u8], ticket: Ticket) -> Reservation {
    Reservation {
        limit: Arc::clone(limit),
        key: key.into(),
        ticket,
        by: Decider::Memory,
        at: NOON,
        turn: Duration::ZERO,
    }
}

/// The ticket of the charge of `check`, number `index` of the request.
pub(super) fn ticket_of(
    decided: &StoreDecision,
    index: usize,
    check: &Check<'_>,
) -> Option<Ticket> {
    Some(decided.reservation(index, check)?.ticket)
}

/// The same limit with a cost that responses state, up to `max`.
pub(super) fn metered(limit: Arc<Limit>, max: u64) -> Arc<Limit> {
    let place = MeterPlace::Header(HeaderName::from_static("x-units"));
    let meter = Meter {
        place,
        max,
        on_leave: OnLeave::Max,
        on_silent: OnSilent::Estimate,
        tells_silence: true,
    };
    Arc::new(limit.edited(|policy| policy.meter = Some(meter)))
}

/// A store on `server` that is ready. Its timeouts are long, so that a busy machine is not taken for an absent server.
pub(super) async fn connect(server: &Redis) -> RedisStore {
    let url = server.url();
    let address = url.trim_start_matches("redis://").trim_end_matches("/0");
    let (host, port) = address.split_once(':').unwrap();
    let target = RedisTarget::new(tollgate::store::RedisEndpoint::tcp(
        host,
        port.parse().unwrap(),
    ));
    let settings = StoreSettings {
        timeout: Duration::from_secs(5),
        ..StoreSettings::default()
    };
    let store = RedisStore::new(&target, &settings);
    crate::support::eventually(crate::support::PATIENCE, "the store is up", async || {
        store.is_up()
    })
    .await;
    store
}

/// Is the request admitted?
pub(super) fn admitted(decided: &StoreDecision) -> bool {
    matches!(decided.decision.ruling, Ruling::Admit { .. })
}

/// The wait of a single check that was refused, or nothing if it was admitted.
pub(super) fn wait(ruling: Ruling) -> Option<Wait> {
    match ruling {
        Ruling::Admit { .. } => None,
        Ruling::Refuse { by, wait } => {
            assert_eq!(by, 0);
            Some(wait)
        }
    }
}

/// The cache of a worker that has not asked anything yet.
pub(super) fn nothing_near() -> WorkerCache {
    WorkerCache::new(
        Invalidation::default(),
        StoreSettings::default().timeout,
        Clock::system(),
    )
}
