//! A request that leaves during its decision keeps no charge that only a continuing request can use.

use super::support::{Client, Server, concurrency, leaky_bucket, limit, token_bucket, until_up};
use crate::limit::{Limit, RefundCondition};
use crate::store::check::Check;
use crate::store::redis::RedisStore;
use crate::store::settings::StoreSettings;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::timeout;

/// Sends a check, and leaves when the server has the question, or when the answer has arrived unread. Then waits until
/// all work has ended.
async fn leave_waiting(server: &Server, store: &RedisStore, limit: &Arc<Limit>, answered: bool) {
    let stats = store.stats();
    let (calls, decisions) = (stats.calls.get(), stats.decisions.get());
    server.stop();
    {
        let checks = [Check::new(limit, b"a")];
        let mut asking = Box::pin(store.decide(&checks));
        tokio::select! {
            biased;
            answer = &mut asking => panic!("the server sleeps: {answer:?}"),
            () = until(|| stats.calls.get() > calls) => {}
        }
        if answered {
            server.go_on();
            until(|| stats.decisions.get() > decisions).await;
        }
    }
    server.go_on();
    until(|| stats.decisions.get() > decisions).await;
    store.settle().await;
}

/// The store's tasks run on this thread, so that their effect is visible at once.
async fn until(is: impl Fn() -> bool) {
    let seen = timeout(Duration::from_secs(10), async {
        while !is() {
            yield_now().await;
        }
    });
    seen.await.expect("it happens within ten seconds");
}

fn is_counted(client: &mut Client) -> bool {
    !client.dump().is_empty()
}

#[tokio::test(flavor = "local")]
async fn who_leaves_during_the_decision_keeps_no_slot_and_no_place() {
    let server = Server::start();
    let settings = StoreSettings {
        timeout: Duration::from_secs(20),
        ..server.settings()
    };
    let store = RedisStore::new(&server.target(), &settings);
    until_up(&store, Duration::from_secs(5)).await;
    let mut client = server.client();
    let giving = |gives_back| {
        let limit = limit("giving", token_bucket(1, 60_000_000, 5));
        Arc::new(limit.edited(|policy| policy.refund_on = gives_back))
    };
    let cancels = RefundCondition {
        errors: false,
        cancels: true,
        ..RefundCondition::default()
    };
    for (limit, stays) in [
        (limit("slots", concurrency(5, 60_000_000)), false),
        (
            limit("queue", leaky_bucket(1, 60_000_000, 1, 9, 600_000_000)),
            false,
        ),
        (giving(cancels), false),
        (giving(RefundCondition::default()), true),
    ] {
        for answered in [false, true] {
            leave_waiting(&server, &store, &limit, answered).await;
            assert_eq!(is_counted(&mut client), stays, "{} {answered}", limit.name);
            client.say("FLUSHALL");
        }
    }
    assert_eq!(store.stats().refunds_lost.get(), 0);
}
