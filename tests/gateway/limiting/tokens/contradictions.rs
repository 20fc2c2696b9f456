//! Credentials of different customers in one request, wherever a customer is looked for: 400, and counted as a guess.

use super::{SECRET, keys, shared};
use crate::gateway::store_kind::{Place, on_both_stores};
use crate::support::{Answer, File, Gateway, Upstream, get, request};
use serde_json::{Value, json};

on_both_stores! {
    cookies_of_two_customers_are_400_and_counted
    a_field_alone_looks_for_the_customer
}

const KEYS: &str = "[groups.keys]\nby = \"header:x-api-key\"\ncustomers = { acme = \"key-1\", beta = \"key-2\" }\n\
                    [groups.links]\nby = \"query:api_key\"\ncustomers = { acme = \"link-1\", beta = \"link-2\" }";
const SESSIONS: &str = "[groups.sessions]\nby = \"cookie:sid\"\n\
                        customers = { acme = [\"s-1\", \"s-2\"], beta = \"s-3\" }";
const WORDS: &str = "The credentials of this request belong to different customers.";

fn tokens() -> String {
    format!(
        "[jwt]\nkeys = {:?}\nalgorithms = \"HS256\"\n[groups.tokens]\nby = \"jwt:sub\"\ncustomers = true\n{KEYS}",
        keys("hs.secret")
    )
}

fn cookies(value: &str) -> String {
    request("GET", "/", &[("Cookie", value)])
}

/// The status of the answer; no body has a customer's name.
fn status(answer: &Answer) -> u16 {
    let text = answer.text();
    if answer.status != 200 {
        assert!(
            !text.contains("acme") && !text.contains("beta"),
            "{answer:?}"
        );
    }
    answer.status
}

/// A cookie that comes twice may be read in both ways. What no line knows is worth no more than no cookie.
async fn cookies_of_two_customers_are_400_and_counted(place: Place) {
    let upstream = Upstream::echo().await;
    for (missing, without) in [("refuse", 401), ("skip", 200), ("ip", 200)] {
        let limit = format!("by = \"customer\"\nmissing = \"{missing}\"\nrate = \"100/h\"");
        let (guess, key) = (format!("guess-{missing}"), format!("key-{missing}"));
        let file = File::to(&upstream, &[&guess, &key])
            .with(SESSIONS)
            .limit(&guess, "by = \"ip\"\nrate = \"9/h\"")
            .limit(&key, &limit);
        let gateway = place.gateway(file).await;
        let mut client = gateway.connect().await;
        for (sent, expected, customer) in [
            ("sid=s-1; sid=s-2", 200, json!("acme")),
            ("sid=s-1; sid=old", 200, json!("acme")),
            ("sid=; sid=s-3", 200, json!("beta")),
            ("sid=s-1; sid=s-3", 400, Value::Null),
            ("sid=old; sid=s-3; sid=s-1", 400, Value::Null),
            ("sid=old; sid=older", without, Value::Null),
            ("sid=old", without, Value::Null),
            ("", without, Value::Null),
        ] {
            let answer = client.ask(cookies(sent)).await;
            assert_eq!(status(&answer), expected, "{missing} {sent}");
            assert_eq!(answer.text().contains(WORDS), expected == 400, "{answer:?}");
            let line = gateway.line_of(&answer).await;
            assert_eq!(line["customer"], customer, "{missing} {sent}");
            let is_counted = customer != Value::Null || missing == "ip" && expected == 200;
            assert_eq!(
                line["keys"][&key] != Value::Null,
                is_counted,
                "{missing} {sent}"
            );
        }
        client.ask(cookies("sid=s-1; sid=s-3")).await.expect(400);
        client.ask(cookies("sid=s-1; sid=s-3")).await.expect(429);
    }
}

/// Another reader would find a cookie or a parameter that a line knows: the limit is not skipped.
#[tokio::test]
async fn an_unknown_credential_is_skipped_unless_others_may_read_a_known_one() {
    let upstream = Upstream::echo().await;
    let limit = "by = \"customer\"\nmissing = \"skip\"\nrate = \"100/h\"";
    let file = File::to(&upstream, &["key"]).with(SESSIONS).with(KEYS);
    let gateway = Gateway::start(&file.limit("key", limit)).await;
    let mut client = gateway.connect().await;
    let address = json!({ "key": "%ip=127.0.0.1" });
    for (sent, keys) in [
        (request("GET", "/", &[("X-Api-Key", "other")]), json!({})),
        (cookies("sid=other"), json!({})),
        (get("/?api_key=other"), json!({})),
        (cookies("sid=other; SID=s-1"), address.clone()),
        (cookies("sid=other, sid=s-1"), address.clone()),
        (get("/?api_key=other&API_KEY=link-1"), address.clone()),
        (get("/?api_key=link-1;x"), address),
    ] {
        let answer = client.ask(sent.clone()).await.expect(200);
        assert_eq!(gateway.line_of(&answer).await["keys"], keys, "{sent}");
    }
}

/// Of two credentials that no group knows neither gets a counter of its own.
#[tokio::test]
async fn two_unknown_credentials_are_both_left_out() {
    let upstream = Upstream::echo().await;
    let both = "by = [\"header:x-api-key\", \"query:api_key\"]\nmissing = \"refuse\"\nunknown = \"refuse\"\nrate = \"9/h\"";
    for (first, part) in [
        (
            "by = \"customer\"\nmissing = \"refuse\"\nrate = \"9/h\"",
            "",
        ),
        (
            both,
            "tiers = { keys = { rate = \"8/h\" }, links = { rate = \"8/h\" } }",
        ),
    ] {
        let file = File::to(&upstream, &["first", "second", "third", "guess"])
            .with(KEYS)
            .limit("first", &format!("{first}\n{part}"))
            .limit(
                "second",
                "by = \"header:x-api-key\"\nmissing = \"skip\"\nrate = \"9/h\"",
            )
            .limit(
                "third",
                "by = \"query:api_key\"\nmissing = \"skip\"\nrate = \"9/h\"",
            )
            .limit("guess", "by = \"ip\"\nrate = \"9/h\"");
        let gateway = Gateway::start(&file).await;
        let mut client = gateway.connect().await;
        let sent = request("GET", "/?api_key=guess-2", &[("X-Api-Key", "guess-1")]);
        let answer = client.ask(sent).await.expect(401);
        let keys = &gateway.line_of(&answer).await["keys"];
        assert_eq!(*keys, json!({ "guess": "127.0.0.1" }), "{first}");
    }
}

/// A field for servers is the only one that looks for the customer.
async fn a_field_alone_looks_for_the_customer(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["guess"])
        .with("forward_identity = { x-consumer = \"{customer}\" }")
        .with(&tokens())
        .limit("guess", "by = \"ip\"\nrate = \"6/h\"");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let token = |sub: &str, secret: &[u8]| shared(secret, &json!({ "sub": sub }));
    for (fields, target, expected, reason) in [
        (vec![], "/", 200, "ok"),
        (vec![("X-Api-Key", "key-1".to_owned())], "/", 200, "ok"),
        (
            vec![("X-Api-Key", "key-1".to_owned())],
            "/?api_key=link-2",
            400,
            "bad_request",
        ),
        (
            vec![("Authorization", token("acme", b"guessed"))],
            "/",
            401,
            "bad_token",
        ),
        (
            vec![
                ("X-Api-Key", "key-1".to_owned()),
                ("Authorization", token("beta", SECRET)),
            ],
            "/",
            400,
            "bad_request",
        ),
        (
            vec![("Authorization", "Bearer opaque".to_owned())],
            "/",
            401,
            "bad_token",
        ),
        (
            vec![("X-Api-Key", "key-1".to_owned())],
            "/?api_key=link-2",
            429,
            "limit_refused",
        ),
        (
            vec![("Authorization", token("acme", b"guessed"))],
            "/",
            429,
            "limit_refused",
        ),
    ] {
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let answer = client.ask(request("GET", target, &fields)).await;
        assert_eq!(status(&answer), expected, "{fields:?} {target}");
        if expected == 200 {
            let told = answer.echoed().fields;
            assert_eq!(told.all("x-consumer").len(), fields.len(), "{fields:?}");
        }
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["reason"], reason, "{fields:?} {target}");
    }
}

/// Neither a limit nor a field: the choice of a server and the condition of a route look for the customer as well.
#[tokio::test]
async fn a_choice_of_a_server_and_a_condition_look_for_the_customer() {
    let upstream = Upstream::echo().await;
    let gold = "[groups.gold]\nby = \"customer\"\nmembers = [\"acme\"]";
    let hashed = File::default()
        .upstream("main", &[&upstream])
        .with("balance = \"hash:customer\"")
        .route("all", "/{*rest}", "main", &[]);
    let conditional = File::default()
        .with(gold)
        .upstream("main", &[&upstream])
        .route("gold", "/{*rest}", "main", &[])
        .with("groups = \"gold\"")
        .route("rest", "/{*rest}", "main", &[]);
    for (file, first) in [(hashed, "all"), (conditional, "gold")] {
        let gateway = Gateway::start(&file.with(&tokens())).await;
        let mut client = gateway.connect().await;
        let key = [("X-Api-Key", "key-1")];
        let answer = client
            .ask(request("GET", "/?api_key=link-1", &key))
            .await
            .expect(200);
        assert_eq!(gateway.line_of(&answer).await["route"], first);
        let answer = client.ask(request("GET", "/?api_key=link-2", &key)).await;
        assert_eq!(status(&answer), 400, "{first}");
        assert!(answer.text().contains(WORDS), "{answer:?}");
        // The choice hangs no answer on a token that is not trusted, and the condition takes the next route.
        let forged = [("Authorization", "Bearer opaque")];
        client.ask(request("GET", "/", &forged)).await.expect(200);
    }
}
