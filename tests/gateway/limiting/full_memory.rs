//! A memory store that a client fills with invented keys: it is full for the limit with these keys, and for no other
//! limit.

use crate::support::{File, Gateway, Upstream, request};

/// The number of new addresses that come after the flood.
const FRESH: usize = 20;

/// A file with four limits that share room for 400 counters. Each limit has 24 reserved counters, and one more for keys
/// without room.
fn crowded(upstream: &Upstream) -> File {
    let file = File::to(upstream, &["per-ip", "per-user", "calls"])
        .store("max_keys = 400")
        .server("trust = [\"127.0.0.1\"]")
        .limit("per-ip", "by = \"ip\"\nrate = \"1/h\"")
        .limit(
            "per-user",
            "by = \"header:x-user\"\nmissing = \"skip\"\nrate = \"1/h\"",
        )
        .limit("calls", "by = \"everyone\"\nrate = \"10000/h\"")
        .limit(
            "per-key",
            "by = \"header:x-key\"\nmissing = \"refuse\"\nrate = \"1/h\"\nalgorithm = \"fixed-window\"",
        );
    file.route("keys", "/keys", "main", &["per-key"])
}

/// The statuses of requests with invented values of this field, one request for each value.
async fn statuses(gateway: &Gateway, target: &str, field: &str, values: Vec<String>) -> Vec<u16> {
    let mut client = gateway.connect().await;
    let mut statuses = Vec::new();
    for value in values {
        let fields = [(field, value.as_str())];
        statuses.push(client.ask(request("GET", target, &fields)).await.status);
    }
    statuses
}

fn invented(count: usize) -> Vec<String> {
    (0..count).map(|nth| format!("invented-{nth}")).collect()
}

fn addresses(count: usize) -> Vec<String> {
    (1..=count).map(|nth| format!("198.51.100.{nth}")).collect()
}

fn admitted(statuses: &[u16]) -> usize {
    statuses.iter().filter(|status| **status == 200).count()
}

#[tokio::test]
async fn invented_keys_of_one_limit_leave_three_others_their_room() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&crowded(&upstream)).await;
    let told = statuses(&gateway, "/keys", "x-key", invented(1000)).await;
    // The limit gets its reserved counters and the shared ones, and one counter for all other keys together.
    assert_eq!(admitted(&told), 24 + 300 + 1);
    assert!(told[325..].iter().all(|status| *status == 429), "{told:?}");

    // None of these clients shares a counter with another client.
    let told = statuses(&gateway, "/", "x-forwarded-for", addresses(FRESH)).await;
    assert_eq!(told, [200; FRESH]);
    let again = statuses(&gateway, "/", "x-forwarded-for", addresses(FRESH)).await;
    assert_eq!(again, [429; FRESH]);
}

#[tokio::test]
async fn a_limit_that_comes_with_a_reload_has_room_kept_for_it() {
    let upstream = Upstream::echo().await;
    let file = crowded(&upstream);
    let gateway = Gateway::start(&file).await;
    let few = statuses(&gateway, "/keys", "x-key", invented(100)).await;
    assert_eq!(admitted(&few), 100);
    let more = file
        .limit(
            "per-guest",
            "by = \"header:x-guest\"\nmissing = \"refuse\"\nrate = \"1/h\"",
        )
        .route("guests", "/guests", "main", &["per-guest"]);
    gateway.rename_over(&more.text());
    gateway
        .said
        .line(0, "the reload", |line| line.contains("generation 2"))
        .await;

    // Each of the five limits now has twenty reserved counters, one of them for keys without room. Existing counters
    // stay.
    let told = statuses(&gateway, "/keys", "x-key", invented(1000)).await;
    assert_eq!(
        (admitted(&told), &told[..100]),
        (19 + 300 + 1 - 100, &[429; 100][..])
    );
    let told = statuses(&gateway, "/guests", "x-guest", invented(19)).await;
    assert_eq!(told, [200; 19]);
}
