//! While Redis is away each limit follows its `on_down`, and gateways that count alone admit together as many requests
//! as one gateway would.

use crate::support::{File, Gateway, Redis, Upstream, eventually, get};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const SOON: Duration = Duration::from_secs(10);

async fn hear_of(gateways: &[&Gateway], many: u32) {
    for gateway in gateways {
        eventually(SOON, "the gateways have heard of each other", async || {
            let told = gateway.admin_get("/v1/store").await.json();
            told["gateways"] == many && told["up"] == true
        })
        .await;
    }
}

async fn lose(redis: &mut Redis, gateways: &[&Gateway]) {
    redis.kill().await;
    for gateway in gateways {
        eventually(SOON, "the gateways know", async || {
            gateway.get("/").await;
            gateway.admin_get("/v1/store").await.json()["reaching"] == 0
        })
        .await;
    }
}

/// The number of admitted requests of one client, sent one after another to the gateways in turn.
async fn admitted(gateways: &[&Gateway], path: &str, client: &str, tries: usize) -> usize {
    let mut admitted = 0;
    for turn in 0..tries {
        let gateway = gateways[turn % gateways.len()];
        let answer = gateway.get_with(path, &[("x-key", client)]).await;
        assert!(matches!(answer.status, 200 | 429), "{}", answer.status);
        admitted += usize::from(answer.status == 200);
    }
    admitted
}

#[tokio::test]
async fn three_gateways_without_redis_admit_together_what_one_would() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let by = "by = \"header:x-key\"\nmissing = \"skip\"";
    let algorithms = [
        ("token", "rate = \"90/h\"\nburst = 90"),
        ("odd", "rate = \"100/h\"\nburst = 100"),
        ("fixed", "rate = \"50/h\"\nalgorithm = \"fixed-window\""),
        (
            "clock",
            "rate = \"50/day\"\nalgorithm = \"fixed-window\"\nanchor = \"clock\"",
        ),
        ("sliding", "rate = \"20/h\"\nalgorithm = \"sliding-window\""),
        ("log", "rate = \"20/h\"\nalgorithm = \"sliding-log\""),
        ("tiny", "rate = \"2/h\"\nalgorithm = \"fixed-window\""),
        ("dear", "rate = \"30/h\"\nburst = 30\ncost = 2"),
        ("small", "rate = \"20/h\"\nburst = 1"),
    ];
    let mut file = File::to(&upstream, &[]).redis(&redis, "timeout = \"1s\"");
    for (name, numbers) in algorithms {
        file = file.limit(name, &format!("{by}\n{numbers}")).route(
            &format!("r-{name}"),
            &format!("/{name}"),
            "main",
            &[name],
        );
    }
    let gateways = [
        Gateway::start(&file).await,
        Gateway::start(&file).await,
        Gateway::start(&file).await,
    ];
    let all: Vec<&Gateway> = gateways.iter().collect();
    hear_of(&all, 3).await;
    lose(&mut redis, &all).await;
    // A limit smaller than the number of gateways admits one request in each of them: with less, the limit would admit
    // nothing.
    for (name, most) in [
        ("token", 90),
        ("odd", 99),
        ("fixed", 48),
        ("clock", 48),
        ("sliding", 18),
        ("log", 18),
        ("tiny", 3),
        ("dear", 15),
        ("small", 3),
    ] {
        let path = format!("/{name}");
        assert_eq!(admitted(&all, &path, "k", 120).await, most, "{name}");
    }
    let answer = all[0]
        .get_with("/odd", &[("x-key", "other")])
        .await
        .expect(200);
    assert_eq!(answer.remaining("odd"), 32, "its share of what is left");
    // A bucket with a burst of one has room for the charge of one request in each of three gateways, and fills at its
    // own rate. Here and at the others, the next request is admitted after nine minutes.
    let alone = [("x-key", "alone")];
    let answer = all[0].get_with("/small", &alone).await.expect(200);
    assert_eq!(answer.remaining("small"), 0);
    let refused = all[0].get_with("/small", &alone).await.expect(429);
    let wait = refused.number("retry-after-ms");
    assert!((360_001..=540_000).contains(&wait), "{wait}");
}

/// The units that the gateways in turn grant to one client. Each request asks for `cost`.
async fn granted(gateways: &[&Gateway], path: &str, cost: u64, tries: usize) -> u64 {
    let mut granted = 0;
    for turn in 0..tries {
        let answer = gateways[turn % gateways.len()].get(path).await;
        if answer.status == 429 {
            continue;
        }
        let told = answer.expect(200).echoed();
        let one: u64 = told
            .fields
            .get("tollgate-granted")
            .unwrap()
            .parse()
            .unwrap();
        assert!((1..=cost).contains(&one), "{path}: {one} of {cost}");
        granted += one;
    }
    granted
}

#[tokio::test]
async fn what_is_granted_in_part_is_divided_like_the_rest() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let limits = [
        ("token", 5, 18, "rate = \"20/h\"\nburst = 20"),
        ("dear", 50, 18, "rate = \"20/h\"\nburst = 20"),
        ("ones", 1, 18, "rate = \"20/h\"\nburst = 20"),
        (
            "fixed",
            4,
            18,
            "rate = \"20/h\"\nalgorithm = \"fixed-window\"",
        ),
        ("log", 4, 18, "rate = \"20/h\"\nalgorithm = \"sliding-log\""),
        // A limit smaller than the number of gateways admits one unit in each of them.
        ("tiny", 5, 3, "rate = \"2/h\"\nalgorithm = \"fixed-window\""),
    ];
    let mut file = File::to(&upstream, &[]).redis(&redis, "timeout = \"1s\"");
    for (name, cost, _, numbers) in limits {
        let rule = format!("by = \"everyone\"\npartial = true\ncost = {cost}\n{numbers}");
        file = file
            .limit(name, &rule)
            .route(name, &format!("/{name}"), "main", &[name]);
    }
    let gateways = [
        Gateway::start(&file).await,
        Gateway::start(&file).await,
        Gateway::start(&file).await,
    ];
    let all: Vec<&Gateway> = gateways.iter().collect();
    hear_of(&all, 3).await;
    lose(&mut redis, &all).await;
    for (name, cost, most, _) in limits {
        let got = granted(&all, &format!("/{name}"), cost, 40).await;
        assert_eq!(got, most, "{name}");
    }
    let refused = all[0].get("/token").await.expect(429);
    let wait = refused.number("retry-after-ms");
    // Two of the limit's twenty units are left over. The third unit, with which each gateway has one more, comes within
    // three minutes.
    assert!((1..=180_000).contains(&wait), "{wait}");
}

#[tokio::test]
async fn a_gateway_that_goes_says_so() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let file = File::to(&upstream, &["calls"])
        .limit("calls", "by = \"everyone\"\nrate = \"90/h\"")
        .redis(&redis, "timeout = \"1s\"");
    let one = Gateway::start(&file).await;
    hear_of(&[&one], 1).await;
    let mut two = Gateway::start(&file).await;
    hear_of(&[&one, &two], 2).await;
    assert!(one.metrics().await.contains("tollgate_gateways 2"));
    two.stop().await;
    // The value has one name of eight bytes and its time. A smaller number of gateways is accepted after twice the life
    // of ten seconds at most.
    let there: Vec<u8> = redis.command(&["GET", "tollgate:1:gateways:{*}"]).await;
    assert_eq!(there.len(), 16);
}

#[tokio::test]
async fn each_limit_does_its_own_while_redis_is_away() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let file = File::to(&upstream, &[])
        .redis(&redis, "timeout = \"1s\"\non_down = \"open\"")
        .limit("free", "by = \"everyone\"\nrate = \"2/h\"")
        .limit(
            "mine",
            "by = \"everyone\"\nrate = \"2/h\"\non_down = \"local\"",
        )
        .limit(
            "shut",
            "by = \"everyone\"\nrate = \"100/h\"\non_down = \"closed\"",
        )
        .limit(
            "own",
            "by = \"everyone\"\nrate = \"5/h\"\nscope = \"gateway\"",
        )
        .route("free", "/free", "main", &["free"])
        .route("both", "/both", "main", &["free", "mine"])
        .route("shut", "/shut", "main", &["shut", "mine"])
        .route("own", "/own", "main", &["own", "free", "mine"]);
    let gateway = Gateway::start(&file).await;
    hear_of(&[&gateway], 1).await;
    gateway.get("/shut").await.expect(200);
    lose(&mut redis, &[&gateway]).await;
    for _ in 0..5 {
        gateway.get("/free").await.expect(200);
        gateway.get("/shut").await.expect(503);
    }
    // The requests that `shut` refused for want of its store have charged nothing to `mine`.
    let first = gateway.get("/both").await.expect(200);
    assert_eq!(first.remaining("mine"), 1);
    assert!(
        !first.field("ratelimit").contains("free"),
        "nobody counted it"
    );
    gateway.get("/own").await.expect(200);
    let refused = gateway.get("/both").await.expect(429);
    assert_eq!(refused.json()["violated-policies"][0], "mine");
    let line = gateway.line_of(&refused).await;
    assert_eq!(
        (&line["decided_by"], &line["limit"]),
        (&"local".into(), &"mine".into())
    );
    gateway.get("/own").await.expect(429);
    let metrics = gateway.metrics().await;
    for (limit, by) in [("free", "open"), ("mine", "local")] {
        let row = metrics.lines().any(|line| {
            line.starts_with("tollgate_limit_decisions_total")
                && line.contains(&format!("limit=\"{limit}\""))
                && line.contains(&format!("decided_by=\"{by}\""))
                && !line.ends_with(" 0")
        });
        assert!(row, "{limit} by {by}:\n{metrics}");
    }
    assert!(metrics.contains("tollgate_store_fallbacks_total{answer=\"closed\"} 5"));
    let ready = gateway.admin_get("/readyz").await.expect(200).text();
    assert_eq!(ready, "ready\nstore: away, limits follow their on_down\n");
    redis.come().await;
    eventually(SOON, "Redis is back", async || {
        gateway.admin_get("/readyz").await.text() == "ready\nstore: up\n"
    })
    .await;
    gateway.get("/shut").await.expect(200);
}

#[tokio::test]
async fn slots_taken_without_redis_are_freed() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let file = File::to(&upstream, &["slots"])
        .redis(&redis, "timeout = \"1s\"")
        .limit(
            "slots",
            "by = \"everyone\"\nalgorithm = \"concurrency\"\nmax = 5",
        );
    let gateways = [Gateway::start(&file).await, Gateway::start(&file).await];
    let all: Vec<&Gateway> = gateways.iter().collect();
    hear_of(&all, 2).await;
    lose(&mut redis, &all).await;
    // Every slot comes back, however many slots a request took.
    for _ in 0..20 {
        all[0].get("/").await.expect(200);
    }
}

/// The number of taken slots, by Redis' own clock.
async fn taken(redis: &Redis) -> u64 {
    let (seconds, micros): (u64, u64) = redis.command(&["TIME"]).await;
    let from = format!("({}", seconds * 1_000_000 + micros);
    let keys = redis.keys().await;
    let Some(key) = keys.iter().find(|key| key.contains(":slots:")) else {
        return 0;
    };
    redis.command(&["ZCOUNT", key, &from, "+inf"]).await
}

#[tokio::test]
async fn what_is_in_flight_counts_again_after_an_outage_longer_than_a_slot_lasts() {
    let (upstream, redis) = (Upstream::silent().await, Redis::start().await);
    let file = File::to(&upstream, &["slots"])
        .redis(&redis, "timeout = \"200ms\"\non_down = \"closed\"")
        .limit(
            "slots",
            "by = \"everyone\"\nalgorithm = \"concurrency\"\nmax = 3\nslot_ttl = \"1s\"",
        );
    let mut gateway = Gateway::start(&file).await;
    hear_of(&[&gateway], 1).await;
    let mut living = Vec::new();
    for nth in 1..=3 {
        let mut client = gateway.connect().await;
        living.push(tokio::spawn(async move { client.ask(get("/")).await }));
        upstream.sees(nth).await;
    }
    gateway.get("/").await.expect(429);
    redis.freeze();
    let frozen = Instant::now();
    eventually(SOON, "the gateway knows", async || {
        gateway.get("/").await.status == 503
    })
    .await;
    // Waits until no slot is left, by any clock.
    tokio::time::sleep_until((frozen + Duration::from_millis(1500)).into()).await;
    redis.thaw();
    eventually(SOON, "all three are counted again", async || {
        taken(&redis).await == 3
    })
    .await;
    eventually(SOON, "and nobody else is admitted", async || {
        gateway.get("/").await.status == 429
    })
    .await;
    assert_eq!(upstream.seen(), 3);
    // A gateway gives back the slots of ended requests, and the slots of a gateway that dies lapse.
    living.remove(0).abort();
    eventually(SOON, "one has ended", async || taken(&redis).await == 2).await;
    gateway.signal("KILL");
    gateway.exit(SOON).await;
    let dead = Instant::now();
    eventually(SOON, "the others lapse", async || taken(&redis).await == 0).await;
    assert!(
        dead.elapsed() < Duration::from_secs(3),
        "{:?}",
        dead.elapsed()
    );
}

/// Asks for a slot, with a request that the upstream does not answer. The task ends with its request.
async fn hold(gateway: &Gateway) -> JoinHandle<()> {
    let mut client = gateway.connect().await;
    tokio::spawn(async move {
        client.ask(get("/")).await;
    })
}

#[tokio::test]
async fn slots_count_where_requests_are_admitted_when_redis_goes_and_when_it_is_back() {
    let (upstream, mut redis) = (Upstream::silent().await, Redis::start().await);
    let file = File::to(&upstream, &["slots"])
        .redis(&redis, "timeout = \"200ms\"")
        .limit(
            "slots",
            "by = \"everyone\"\nalgorithm = \"concurrency\"\nmax = 4\nslot_ttl = \"1min\"",
        );
    let gateways = [Gateway::start(&file).await, Gateway::start(&file).await];
    let all: Vec<&Gateway> = gateways.iter().collect();
    hear_of(&all, 2).await;
    let mut held = Vec::new();
    for nth in 0..4 {
        held.push(hold(all[nth % 2]).await);
        upstream.sees(nth + 1).await;
    }
    redis.kill().await;
    for gateway in &all {
        eventually(SOON, "the gateways know", async || {
            gateway.admin_get("/v1/store").await.json()["reaching"] == 0
        })
        .await;
        // Each gateway has its share in flight, which Redis admitted.
        gateway.get("/").await.expect(429);
    }
    // A request that ends makes room for a request that this gateway admits by itself.
    held.remove(0).abort();
    eventually(SOON, "its place is free", async || {
        let another = hold(all[0]).await;
        eventually(SOON, "it is admitted or refused", async || {
            another.is_finished() || upstream.seen() == 5
        })
        .await;
        held.push(another);
        upstream.seen() == 5
    })
    .await;
    // An empty Redis gets the slots of all four requests.
    redis.come().await;
    hear_of(&all, 2).await;
    eventually(SOON, "it knows them", async || taken(&redis).await == 4).await;
    for _ in 0..30 {
        for gateway in &all {
            gateway.get("/").await.expect(429);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for task in held {
        task.abort();
    }
    eventually(SOON, "all are free", async || taken(&redis).await == 0).await;
}

/// The gateway decides requests that wait for Redis when it goes away. The gateway knows its own requests in flight.
#[tokio::test]
async fn no_more_than_max_are_in_flight_where_redis_stands_still() {
    let (upstream, redis) = (Upstream::silent().await, Redis::start().await);
    let file = File::to(&upstream, &["slots"])
        .server("workers = 2")
        .redis(&redis, "timeout = \"100ms\"")
        .limit(
            "slots",
            "by = \"everyone\"\nalgorithm = \"concurrency\"\nmax = 20\nslot_ttl = \"1min\"",
        );
    let gateway = Gateway::start(&file).await;
    hear_of(&[&gateway], 1).await;
    let mut held = Vec::new();
    for nth in 0..20 {
        held.push(hold(&gateway).await);
        upstream.sees(nth + 1).await;
    }
    redis.freeze();
    let mut refused = Vec::new();
    for _ in 0..20 {
        refused.push(hold(&gateway).await);
    }
    for task in refused {
        task.await.expect("it is refused");
    }
    assert_eq!(upstream.seen(), 20);
    redis.thaw();
    for task in held {
        task.abort();
    }
    eventually(SOON, "all are free", async || taken(&redis).await == 0).await;
}

/// Redis goes away again while the gateways still keep to their shares: a request takes one slot, not two.
#[tokio::test]
async fn a_limit_of_one_admits_one_through_an_outage_that_comes_again() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let file = File::to(&upstream, &["slots"])
        .redis(&redis, "timeout = \"1s\"")
        .limit(
            "slots",
            "by = \"everyone\"\nalgorithm = \"concurrency\"\nmax = 1",
        );
    let gateway = Gateway::start(&file).await;
    hear_of(&[&gateway], 1).await;
    for _ in 0..2 {
        lose(&mut redis, &[&gateway]).await;
        for _ in 0..5 {
            gateway.get("/").await.expect(200);
        }
        redis.come().await;
        hear_of(&[&gateway], 1).await;
        gateway.get("/").await.expect(200);
    }
}

#[tokio::test]
async fn the_log_has_the_reason_however_early_the_first_request_comes() {
    let upstream = Upstream::echo().await;
    let locked = Redis::start_with_password("s3cret-word").await;
    for (redis, reason) in [(Redis::absent(), "refused"), (locked, "NOAUTH")] {
        for _ in 0..2 {
            let file = File::to(&upstream, &["calls"])
                .redis(&redis, "on_down = \"open\"")
                .limit("calls", "by = \"everyone\"\nrate = \"90/h\"");
            let gateway = Gateway::start(&file).await;
            gateway.get("/").await.expect(200);
            let away = |line: &str| line.contains("is away");
            let line = gateway.said.line(0, "that it is away", away).await;
            assert!(line.contains(reason), "{line}");
        }
    }
}
