//! Guessed keys and missing keys: the answer is 401, and every limit that can be asked counts the request.

use crate::gateway::store_kind::{Place, on_both_stores};
use crate::support::{
    Answer, File, Gateway, PATIENCE, Upstream, eventually, get, request, tollgate,
};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use serde_json::json;

on_both_stores! {
    guesses_at_a_key_are_limited_by_address
    every_401_counts_where_it_can
    a_401_frees_its_slot_and_waits_its_turn
    nothing_of_a_401_is_given_back
    a_token_is_not_verified_for_who_is_refused_anyway
    nor_is_it_where_routes_ask_for_groups_that_go_by_it
}

const KNOWN: &str = "[groups.known]\nby = \"header:x-api-key\"\nmembers = [\"right\"]";
const KEY: &str =
    "by = \"header:x-api-key\"\nmissing = \"refuse\"\nunknown = \"refuse\"\nrate = \"100/h\"";

/// The limits that charged the request, and the cause of its answer, from the log.
async fn charged(gateway: &Gateway, answer: &Answer) -> (Vec<String>, String) {
    let line = gateway.line_of(answer).await;
    let keys = line["keys"].as_object().unwrap().keys().cloned().collect();
    (keys, line["reason"].as_str().unwrap().to_owned())
}

async fn guesses_at_a_key_are_limited_by_address(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["key", "per-ip", "each"])
        .server("trust = [\"127.0.0.0/8\"]")
        .with(KNOWN)
        .limit("key", KEY)
        .limit(
            "each",
            "by = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"50/h\"",
        )
        .limit("per-ip", "by = \"ip\"\nrate = \"3/h\"");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let from = |address: &'static str, key: &str| {
        request(
            "GET",
            "/",
            &[("X-Forwarded-For", address), ("X-Api-Key", key)],
        )
    };
    for left in [2, 1, 0] {
        let guess = format!("guess-{left}");
        let answer = client.ask(from("203.0.113.1", &guess)).await.expect(401);
        assert_eq!(answer.remaining("per-ip"), left);
        // An unknown key gets no counter.
        let told = (vec!["per-ip".to_owned()], "unknown_key".to_owned());
        assert_eq!(charged(&gateway, &answer).await, told);
    }
    for key in ["guess-3", "guess-4", "right", ""] {
        let refused = client.ask(from("203.0.113.1", key)).await.expect(429);
        assert!(refused.number("retry-after") > 0);
        let line = gateway.line_of(&refused).await;
        assert_eq!(
            (&line["limit"], &line["reason"]),
            (&"per-ip".into(), &"limit_refused".into())
        );
    }
    let other = client.ask(from("203.0.113.2", "right")).await.expect(200);
    assert_eq!((other.remaining("key"), other.remaining("each")), (99, 49));
    assert_eq!(upstream.seen(), 1);
}

async fn every_401_counts_where_it_can(place: Place) {
    let upstream = Upstream::echo().await;
    let secret = format!("{}/tests/config/jwt/hs.secret", env!("CARGO_MANIFEST_DIR"));
    let demanded = |by: &str| format!("by = \"{by}\"\nmissing = \"refuse\"\nrate = \"100/h\"");
    let mut file = File::default()
        .upstream("main", &[&upstream])
        .with(&format!("[jwt]\nkeys = {secret:?}\nalgorithms = \"HS256\""))
        .limit("header", &demanded("header:x-user"))
        .limit("cookie", &demanded("cookie:sid"))
        .limit("query", &demanded("query:k"))
        .limit("token", &demanded("jwt:sub"));
    let routes = ["header", "cookie", "query", "token"];
    for name in routes {
        let own = format!("own-{name}");
        file = file
            .limit(&own, "by = [\"ip\", \"host\", \"method\"]\nrate = \"2/h\"")
            .route(name, &format!("/{name}"), "main", &[name, &own]);
    }
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for name in routes {
        let own = format!("own-{name}");
        for left in [1, 0] {
            let answer = client.ask(get(&format!("/{name}"))).await.expect(401);
            assert_eq!(answer.remaining(&own), left);
            let told = (vec![own.clone()], "missing_key".to_owned());
            assert_eq!(charged(&gateway, &answer).await, told);
        }
        let refused = client.ask(get(&format!("/{name}"))).await.expect(429);
        assert_eq!(gateway.line_of(&refused).await["limit"], own);
        assert!(!refused.fields.has("www-authenticate"), "{refused:?}");
    }
    assert_eq!(upstream.seen(), 0);
    let metrics = gateway.admin_get("/metrics").await.text();
    for (code, many) in [("401", 2), ("429", 1)] {
        let line =
            format!("route=\"token\",method=\"GET\",code=\"{code}\",source=\"gateway\"}} {many}");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
}

async fn a_401_frees_its_slot_and_waits_its_turn(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .upstream("main", &[&upstream])
        .with(KNOWN)
        .limit("key", KEY)
        .limit("slots", "by = \"everyone\"\nalgorithm = \"concurrency\"\nmax = 1")
        .limit(
            "queue",
            "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/100ms\"\nqueue = 1\nmax_wait = \"1min\"",
        )
        .route("slots", "/slots", "main", &["slots", "key"])
        .route("queue", "/queue", "main", &["queue", "key"]);
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for _ in 0..4 {
        // Redis learns a moment later that the slot is free.
        eventually(PATIENCE, "the slot is free", async || {
            client.ask(get("/slots")).await.status == 401
        })
        .await;
    }
    let guess = || request("GET", "/queue", &[("X-Api-Key", "guess")]);
    client.ask(guess()).await.expect(401);
    let second = client.ask(guess()).await.expect(401);
    let held = second.field("server-timing").to_owned();
    assert!(held.starts_with("limit;desc=\"queue\";dur="), "{held}");
    let line = gateway.line_of(&second).await;
    assert_eq!(
        (&line["reason"], &line["limit"]),
        (&"unknown_key".into(), &"key".into())
    );
    assert!(line["delay_ms"].as_f64().unwrap() > 0.0, "{line}");
    assert_eq!(upstream.seen(), 0);
}

async fn nothing_of_a_401_is_given_back(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["per-ip", "key"])
        .with(KNOWN)
        .limit("key", &format!("{KEY}\nmissing_status = 502"))
        .limit(
            "per-ip",
            "by = \"ip\"\nrate = \"3/h\"\nrefund = [\"5xx\", \"cancel\"]",
        );
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for status in [502, 502, 502, 429] {
        let guess = [("X-Api-Key", "guess")];
        client.ask(request("GET", "/", &guess)).await.expect(status);
    }
    client
        .ask(request("GET", "/", &[("X-Api-Key", "right")]))
        .await
        .expect(429);
}

/// If the token had been verified, the log would show a shadow limit's answer about it.
async fn a_token_is_not_verified_for_who_is_refused_anyway(place: Place) {
    let upstream = Upstream::echo().await;
    let secret = format!("{}/tests/config/jwt/hs.secret", env!("CARGO_MANIFEST_DIR"));
    let user = "by = \"jwt:sub\"\nmissing = \"refuse\"\nrate = \"100/h\"";
    let file = File::to(&upstream, &["user", "per-ip", "watch"])
        .with(&format!("[jwt]\nkeys = {secret:?}\nalgorithms = \"HS256\""))
        .limit("user", user)
        .limit("watch", &format!("{user}\nmode = \"shadow\""))
        .limit("per-ip", "by = \"ip\"\nrate = \"2/h\"\nlease = \"off\"");
    // With Redis, a worker does not know the refusals that another worker remembers.
    let gateway = place.gateway(file.server("workers = 1")).await;
    let mut client = gateway.connect().await;
    let forged = [(
        "Authorization",
        "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.AAAA",
    )];
    let mut shadows = Vec::new();
    for status in [401, 401, 429, 429] {
        let answer = client
            .ask(request("GET", "/", &forged))
            .await
            .expect(status);
        let line = gateway.line_of(&answer).await;
        shadows.push(line["shadow"].to_string().contains("watch"));
    }
    let by_whom = match place.remembers() {
        // Redis itself gives the first refusal.
        true => [true, true, true, false],
        false => [true, true, false, false],
    };
    assert_eq!(shadows, by_whom);
}

/// The keys were never read. So a token is answered 503 as soon as it is looked at.
async fn nor_is_it_where_routes_ask_for_groups_that_go_by_it(place: Place) {
    let upstream = Upstream::echo().await;
    let once = "by = [\"ip\", \"route\"]\nrate = \"1/h\"\nlease = \"off\"";
    let file = File::default()
        .server("workers = 1")
        .upstream("main", &[&upstream])
        .with("[jwt]\njwks = \"http://127.0.0.1:1/keys\"\nalgorithms = \"RS256\"")
        .with("[groups.gold]\nby = \"jwt:plan\"\nmembers = \"gold\"")
        .with("[groups.partner]\nby = \"header:x-api-key\"\nmembers = \"k1\"")
        .limit("per-ip", "by = \"ip\"\nrate = \"2/h\"\nlease = \"off\"")
        .limit("per-route", once)
        .route("members", "/{*rest}", "main", &["per-ip"])
        .with("groups = [\"gold\", \"partner\"]")
        .route("others", "/{*rest}", "main", &["per-ip"])
        .route("free-members", "/free", "main", &[])
        .with("groups = \"gold\"")
        .route("not-free", "/free", "main", &["per-ip"])
        .route("apart-members", "/apart", "main", &["per-route"])
        .with("groups = \"gold\"")
        .route("apart", "/apart", "main", &["per-route"])
        .route("alone", "/alone", "main", &["per-ip"])
        .with("groups = \"gold\"");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let token = "Bearer eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.eyJzdWIiOiJhIn0.AAAA";
    let forged = |target: &'static str| request("GET", target, &[("Authorization", token)]);
    client.ask(forged("/")).await.expect(503);
    for status in [200, 200, 429] {
        client.ask(get("/")).await.expect(status);
    }
    for target in ["/", "/a", "/alone"] {
        let refused = client.ask(forged(target)).await.expect(429);
        assert!(refused.number("retry-after") > 0);
        let line = gateway.line_of(&refused).await;
        let told = ["reason", "limit", "route"].map(|name| line[name].clone());
        assert_eq!(told, ["limit_refused", "per-ip", "others"]);
        assert_eq!(line["keys"]["per-ip"], "127.0.0.1");
    }
    // A client with a valid key is a member, whatever its token says.
    let both = [("Authorization", token), ("X-Api-Key", "k1")];
    let refused = client.ask(request("GET", "/", &both)).await.expect(429);
    assert_eq!(gateway.line_of(&refused).await["route"], "members");
    // A request is not refused by a limit that its own route lacks, or that counts apart on that route.
    client.ask(forged("/free")).await.expect(503);
    for status in [200, 429] {
        client.ask(get("/apart")).await.expect(status);
    }
    client.ask(forged("/apart")).await.expect(503);
    assert_eq!(upstream.seen(), 3);
    // Each refusal is one decision.
    let metrics = gateway.metrics().await;
    let refusals = metrics.lines().filter_map(|line| {
        let of_others =
            "tollgate_limit_decisions_total{limit=\"per-ip\",route=\"others\",decision=\"refuse\"";
        let line = line.strip_prefix(of_others)?;
        line.rsplit_once(' ')?.1.parse::<u32>().ok()
    });
    assert_eq!(refusals.sum::<u32>(), 4, "{metrics}");
}

/// A member gets the limits of its own route, and not those of the route for other clients.
#[tokio::test]
async fn a_member_is_not_refused_by_the_limits_of_others() {
    let upstream = Upstream::echo().await;
    let secret = format!("{}/tests/config/jwt/hs.secret", env!("CARGO_MANIFEST_DIR"));
    let claims = json!({ "sub": "ann", "plan": "gold", "exp": get_current_timestamp() + 600 });
    let key = EncodingKey::from_secret(b"only for tests: 32 bytes or more of it");
    let header = Header::new(Algorithm::HS256);
    let gold = format!("Bearer {}", encode(&header, &claims, &key).unwrap());
    let file = File::default()
        .upstream("main", &[&upstream])
        .with(&format!("[jwt]\nkeys = {secret:?}\nalgorithms = \"HS256\""))
        .with("[groups.gold]\nby = \"jwt:plan\"\nmembers = \"gold\"")
        .limit("all", "by = \"ip\"\nrate = \"4/h\"")
        .limit("few", "by = \"ip\"\nrate = \"1/h\"")
        .route("members", "/{*rest}", "main", &["all"])
        .with("groups = \"gold\"")
        .route("others", "/{*rest}", "main", &["all", "few"]);
    let gateway = Gateway::start(&file).await;
    let asked = async |token: &str| gateway.get_with("/", &[("Authorization", token)]).await;
    for status in [200, 429] {
        gateway.get("/").await.expect(status);
    }
    for left in [2, 1, 0] {
        assert_eq!(asked(&gold).await.expect(200).remaining("all"), left);
    }
    let refused = asked(&gold).await.expect(429);
    assert_eq!(gateway.line_of(&refused).await["limit"], "all");
}

/// The answer of a limit that this gateway counts alone is known before Redis is asked. The answers of shared limits
/// are not.
#[tokio::test]
async fn who_is_over_a_limit_of_this_gateway_is_not_verified_either() {
    let upstream = Upstream::echo().await;
    let secret = format!("{}/tests/config/jwt/hs.secret", env!("CARGO_MANIFEST_DIR"));
    let user = "by = \"jwt:sub\"\nmissing = \"refuse\"\nrate = \"100/h\"";
    let file = File::to(&upstream, &["user", "here", "all", "watch"])
        .with(&format!("[jwt]\nkeys = {secret:?}\nalgorithms = \"HS256\""))
        .limit("user", user)
        .limit("watch", &format!("{user}\nmode = \"shadow\""))
        .limit("here", "by = \"ip\"\nrate = \"2/h\"\nscope = \"gateway\"")
        .limit("all", "by = \"everyone\"\nrate = \"50/h\"\nlease = \"off\"");
    let place = Place::redis().await;
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let forged = [(
        "Authorization",
        "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.AAAA",
    )];
    for (status, left, is_watched) in [(401, 1, true), (401, 0, true), (429, 0, false)] {
        let answer = client
            .ask(request("GET", "/", &forged))
            .await
            .expect(status);
        assert_eq!(answer.remaining("here"), left);
        let line = gateway.line_of(&answer).await;
        assert_eq!(
            line["shadow"].to_string().contains("watch"),
            is_watched,
            "{line}"
        );
        // Redis was not asked about the last request.
        assert_eq!(
            answer.field("ratelimit").contains("\"all\""),
            is_watched,
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn explain_says_what_counts_a_guess() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["key", "per-ip", "each"])
        .with(KNOWN)
        .limit("key", KEY)
        .limit(
            "each",
            "by = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"50/h\"",
        )
        .limit("per-ip", "by = \"ip\"\nrate = \"2/h\"");
    let gateway = Gateway::start(&file).await;
    let live = format!("--live={}", gateway.admin().await);
    let explained = async |more: &[&str]| {
        let guess = ["explain", "GET", "/", "-H", "x-api-key: guess"];
        let done = tollgate(gateway.folder(), &[&guess, more].concat()).await;
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    };
    let lacks =
        "401 by the gateway: the limit \"key\" takes header:x-api-key only if a group knows it";
    let all = explained(&[]).await;
    for told in [
        "refuses: no group knows the request's header:x-api-key",
        "is not asked: no group knows the request's header:x-api-key",
        "counts 1, by ip on the key 127.0.0.1",
        &format!(
            "answer  {lacks}; the other limits count it, and if one refuses, its answer is sent instead"
        ),
    ] {
        assert!(all.contains(told), "{told}\n{all}");
    }
    let now = explained(&[&live]).await;
    let room = format!("answer  {lacks}; the other limits count it and have room for it now");
    assert!(
        now.contains(&room) && now.contains("; the request takes 1"),
        "{now}"
    );
    for _ in 0..2 {
        let guess = [("X-Api-Key", "guess")];
        gateway.get_with("/", &guess).await.expect(401);
    }
    let now = explained(&[&live]).await;
    assert!(
        now.contains("answer  429 by the gateway: the limit \"per-ip\" refuses"),
        "{now}"
    );
}
