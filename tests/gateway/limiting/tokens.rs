//! Limits that count by claims, and only by claims of a token that one of the file's keys has signed.

mod contradictions;
mod doubted;
mod published;

use crate::gateway::store_kind::Place;
use crate::support::{Answer, File, Gateway, Upstream, eventually, get, request, tollgate};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

const RSA: &[u8] = include_bytes!("../../config/jwt/rsa.key");
const RSA_PUBLIC: &[u8] = include_bytes!("../../config/jwt/rsa.pem");
const EC: &[u8] = include_bytes!("../../config/jwt/ec.key");
const SECRET: &[u8] = b"only for tests: 32 bytes or more of it";

fn keys(name: &str) -> String {
    format!("{}/tests/config/jwt/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A token with an `exp` in the future, or without `exp` if the claims have null there.
fn signed(header: &Header, key: &EncodingKey, claims: &Value) -> String {
    let mut claims = claims.as_object().unwrap().clone();
    let end = claims.entry("exp");
    if *end.or_insert((get_current_timestamp() + 600).into()) == Value::Null {
        claims.remove("exp");
    }
    format!("Bearer {}", encode(header, &claims, key).unwrap())
}

fn rsa(claims: &Value) -> String {
    let key = EncodingKey::from_rsa_pem(RSA).unwrap();
    signed(&Header::new(Algorithm::RS256), &key, claims)
}

fn shared(secret: &[u8], claims: &Value) -> String {
    let key = EncodingKey::from_secret(secret);
    signed(&Header::new(Algorithm::HS256), &key, claims)
}

async fn asked(gateway: &Gateway, token: &str) -> Answer {
    gateway.get_with("/", &[("Authorization", token)]).await
}

/// A file with these lines in `[jwt]`, and a limit by `sub`.
fn file(upstream: &Upstream, jwt: &str, limit: &str) -> File {
    File::to(upstream, &["user"])
        .with(&format!("[jwt]\n{jwt}"))
        .limit("user", &format!("by = \"jwt:sub\"\n{limit}"))
}

async fn what_a_token_claims_is_counted_once_it_is_verified(place: Place) {
    let upstream = Upstream::echo().await;
    let jwt = format!(
        "keys = {:?}\nalgorithms = [\"RS256\"]\nissuer = \"https://id.test\"\naudience = \"api\"",
        keys("rsa.pem")
    );
    let file = file(&upstream, &jwt, "missing = \"refuse\"\nrate = \"2/h\"");
    let gateway = place.gateway(file).await;
    let now = get_current_timestamp();
    let claims = |sub: &str| json!({ "sub": sub, "iss": "https://id.test", "aud": "api", "exp": now + 600, "nbf": now - 5 });
    let ann = rsa(&claims("ann"));
    for status in [200, 200, 429] {
        let answer = asked(&gateway, &ann).await.expect(status);
        assert_eq!(gateway.line_of(&answer).await["keys"]["user"], "ann");
    }
    // A new token of the same user gets no new counter.
    let mut later = claims("ann");
    later["exp"] = (now + 601).into();
    asked(&gateway, &rsa(&later)).await.expect(429);
    asked(&gateway, &rsa(&claims("bob"))).await.expect(200);

    let changed = |name: &str, value: Value| {
        let mut claims = claims("eve");
        claims[name] = value;
        rsa(&claims)
    };
    let (head, rest) = ann.split_once('.').unwrap();
    let (_, signature) = rest.split_once('.').unwrap();
    let eves = rsa(&claims("eve"));
    let eves_claims = eves.split('.').nth(1).unwrap();
    let none = "Bearer eyJhbGciOiJub25lIn0";
    for (what, token) in [
        ("expired", changed("exp", (now - 30).into())),
        ("endless", changed("exp", Value::Null)),
        ("too early", changed("nbf", (now + 300).into())),
        ("another issuer", changed("iss", "https://evil.test".into())),
        ("another audience", changed("aud", json!(["web"]))),
        ("other claims", format!("{head}.{eves_claims}.{signature}")),
        ("no signature", format!("{head}.{eves_claims}.")),
        ("none", format!("{none}.{eves_claims}.")),
        // The public key is not secret: everybody has it.
        ("confused", shared(RSA_PUBLIC, &claims("eve"))),
        ("another secret", shared(b"x", &claims("eve"))),
        ("no token", "Bearer eve".into()),
        // The source of this case is RFC 7519, section 4.1.2.
        ("no text", changed("sub", json!({ "a": 1 }))),
    ] {
        let answer = asked(&gateway, &token).await;
        assert_eq!(answer.status, 401, "{what}: {answer:?}");
        let challenge = answer.field("www-authenticate");
        assert_eq!(challenge, "Bearer error=\"invalid_token\"", "{what}");
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["reason"], "bad_token", "{what}");
    }
    for (what, token) in [
        ("no claim", changed("sub", Value::Null)),
        ("another scheme", "Basic ZXZlOmV2ZQ==".into()),
    ] {
        let answer = asked(&gateway, &token).await;
        assert_eq!(answer.status, 401, "{what}: {answer:?}");
        assert_eq!(answer.field("www-authenticate"), "Bearer");
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["reason"], "missing_key", "{what}");
    }
    gateway.get("/").await.expect(401);
    asked(&gateway, &eves).await.expect(200);
    assert_eq!(upstream.seen(), 4);
}

#[tokio::test]
async fn what_a_token_claims_is_counted_once_it_is_verified_in_memory() {
    what_a_token_claims_is_counted_once_it_is_verified(Place::memory()).await;
}

#[tokio::test]
async fn what_a_token_claims_is_counted_once_it_is_verified_in_redis() {
    what_a_token_claims_is_counted_once_it_is_verified(Place::redis().await).await;
}

#[tokio::test]
async fn a_plan_in_the_token_is_a_group_and_forged_ones_are_nobodys() {
    let upstream = Upstream::echo().await;
    let jwt = format!(
        "keys = {:?}\nalgorithms = \"HS256\"\nheader = \"x-token\"",
        keys("hs.secret")
    );
    let file = file(
        &upstream,
        &jwt,
        "missing = \"ip\"\nrate = \"2/h\"\ntiers.gold = { rate = \"4/h\" }",
    )
    .with("[groups.gold]\nby = \"jwt:app.plan\"\nmembers = [\"gold\", \"platinum\"]");
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    let mut admitted = async |token: &str| {
        let mut many = 0;
        while client
            .ask(request("GET", "/", &[("X-Token", token)]))
            .await
            .status
            == 200
        {
            many += 1;
        }
        many
    };
    let plan = |sub: &str, plan: &str| json!({ "sub": sub, "app": { "plan": plan } });
    assert_eq!(admitted(&shared(SECRET, &plan("a", "gold"))).await, 4);
    assert_eq!(admitted(&shared(SECRET, &plan("b", "silver"))).await, 2);
    let numbered = json!({ "sub": 7, "app": { "plan": "platinum" } });
    assert_eq!(admitted(&shared(SECRET, &numbered)).await, 4);
    let mut forged = 0;
    for sub in ["c", "d", "e"] {
        forged += admitted(&shared(b"guessed", &plan(sub, "gold"))).await;
    }
    assert_eq!(forged, 0);
    assert_eq!(admitted("").await, 2, "without any, by address");
}

#[tokio::test]
async fn a_list_in_the_token_is_in_every_group_that_has_one_of_its_entries() {
    let upstream = Upstream::echo().await;
    let jwt = format!(
        "keys = {:?}\nalgorithms = \"HS256\"\nrequire_exp = false",
        keys("hs.secret")
    );
    let groups = "[groups.inner]\nby = \"jwt:realm.roles\"\nmembers = \"ops\"\n\
        [groups.gold]\nby = \"jwt:roles\"\nmembers = [\"gold\", \"7\"]\n\
        [groups.writes]\nby = \"jwt:scope\"\nmembers = \"orders:write\"";
    let tiers = "tiers.gold = { rate = \"4/h\" }\ntiers.writes = { rate = \"3/h\" }";
    let user =
        format!("missing = \"refuse\"\nrate = \"2/h\"\n{tiers}\nexempt = {{ groups = \"inner\" }}");
    let by_role =
        "by = \"jwt:roles\"\nmissing = \"ip\"\nrate = \"1/h\"\ntiers.gold = { rate = \"5/h\" }";
    let file = file(&upstream, &jwt, &user)
        .with(groups)
        .limit("role", by_role)
        .route("role", "/role", "main", &["role"]);
    let gateway = Gateway::start(&file).await;
    let mut sub = 0;
    let mut left = async |target: &str, mut claims: Value| {
        sub += 1;
        claims["sub"] = sub.into();
        let token = shared(SECRET, &claims);
        let fields = [("Authorization", &*token)];
        let answer = gateway.get_with(target, &fields).await.expect(200);
        let has = answer.fields.has("x-ratelimit-limit");
        has.then(|| answer.number("x-ratelimit-limit"))
    };
    for (claims, limit) in [
        (json!({ "roles": ["staff", "gold"] }), Some(4)),
        (json!({ "roles": ["staff", 7], "exp": null }), Some(4)),
        (json!({ "roles": "gold" }), Some(4)),
        (json!({ "roles": "staff gold" }), Some(2)),
        (
            json!({ "roles": ["Gold", ["gold"], { "gold": 1 }] }),
            Some(2),
        ),
        (json!({ "roles": [] }), Some(2)),
        (json!({ "scope": "orders:read orders:write" }), Some(3)),
        (json!({ "scope": ["orders:write"] }), Some(3)),
        (json!({ "scope": "orders:write-all" }), Some(2)),
        (
            json!({ "roles": ["gold"], "scope": "orders:write" }),
            Some(4),
        ),
        (json!({ "realm": { "roles": ["ops"] } }), None),
    ] {
        assert_eq!(left("/", claims.clone()).await, limit, "{claims}");
    }
    // A list is no key. The request counts by address, with the numbers of its group.
    let of_role = left("/role", json!({ "roles": ["staff", "gold"] })).await;
    assert_eq!(of_role, Some(5));
    let line = gateway
        .access
        .line(0, "the role", |line| line.contains("\"/role\""))
        .await;
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["keys"]["role"], "%ip=127.0.0.1");
    assert_eq!(line["groups"]["role"], "gold");
}

#[tokio::test]
async fn published_keys_are_taken_by_name_and_change_with_their_file() {
    let upstream = Upstream::echo().await;
    let folder = tempfile::tempdir().unwrap();
    let set: Value = serde_json::from_str(include_str!("../../config/jwt/jwks.json")).unwrap();
    let only = |kid: &str| {
        let all = set["keys"].as_array().unwrap().iter();
        let keys: Vec<&Value> = all.filter(|key| key["kid"] == kid).collect();
        json!({ "keys": keys }).to_string()
    };
    fs::write(folder.path().join("jwks.json"), only("r1")).unwrap();
    let text = file(
        &upstream,
        "jwks = \"jwks.json\"\nalgorithms = [\"RS256\", \"ES256\"]",
        "missing = \"refuse\"\nrate = \"1000/h\"",
    )
    .text();
    let path = folder.path().join("gateway.toml");
    fs::write(&path, text).unwrap();
    let gateway = Gateway::run(folder, &path).await;
    let claims = json!({ "sub": "ann" });
    let named = |algorithm, kid: &str, key: &EncodingKey| {
        let mut header = Header::new(algorithm);
        header.kid = Some(kid.into());
        signed(&header, key, &claims)
    };
    let (rsa_key, ec_key) = (
        EncodingKey::from_rsa_pem(RSA).unwrap(),
        EncodingKey::from_ec_pem(EC).unwrap(),
    );
    let first = named(Algorithm::RS256, "r1", &rsa_key);
    let second = named(Algorithm::ES256, "e1", &ec_key);
    asked(&gateway, &first).await.expect(200);
    asked(&gateway, &rsa(&claims)).await.expect(200);
    // The key demands RS256, and tokens do not name the key.
    asked(&gateway, &named(Algorithm::PS256, "r1", &rsa_key))
        .await
        .expect(401);
    asked(&gateway, &named(Algorithm::RS256, "r9", &rsa_key))
        .await
        .expect(401);
    asked(&gateway, &second).await.expect(401);
    fs::write(gateway.folder().join("jwks.json"), only("e1")).unwrap();
    eventually(
        Duration::from_secs(3),
        "the new key is believed",
        async || asked(&gateway, &second).await.status == 200,
    )
    .await;
    asked(&gateway, &first).await.expect(401);
    gateway
        .said
        .line(0, "the change", |line| {
            line.ends_with("jwt: the contents of jwks.json have changed")
        })
        .await;
    fs::write(gateway.folder().join("jwks.json"), "{}").unwrap();
    gateway
        .said
        .line(0, "the refusal", |line| {
            line.contains("not reloaded: `jwks.json` cannot verify tokens")
        })
        .await;
    asked(&gateway, &second).await.expect(200);
}

#[tokio::test]
async fn explain_says_why_a_token_claims_nothing() {
    let upstream = Upstream::echo().await;
    let jwt = format!("keys = {:?}\nalgorithms = \"HS256\"", keys("hs.secret"));
    let text = file(&upstream, &jwt, "missing = \"refuse\"\nrate = \"2/h\"").text();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("gateway.toml"), text).unwrap();
    let said = async |token: &str| {
        let field = format!("authorization: {token}");
        let done = tollgate(folder.path(), &["explain", "GET", "/", "-H", &field]).await;
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    };
    let good = said(&shared(SECRET, &json!({ "sub": "ann" }))).await;
    assert!(good.contains("by jwt:sub on the key ann"), "{good}");
    let old = said(&shared(SECRET, &json!({ "sub": "ann", "exp": 1000 }))).await;
    assert!(
        old.contains("token   claims nothing: it is expired"),
        "{old}"
    );
    let refuses = "refuses: jwt:sub is needed, and the request's token is not trusted";
    assert!(old.contains(refuses), "{old}");
    let none = said("Basic x").await;
    let refuses = "refuses: the request has no jwt:sub";
    assert!(none.contains(refuses), "{none}");
    let endless = said(&shared(SECRET, &json!({ "sub": "ann", "exp": null }))).await;
    let why = "it is without an end (`exp`), which `[jwt] require_exp` demands";
    assert!(endless.contains(why), "{endless}");
    let wrong = said(&shared(b"x", &json!({ "sub": "ann" }))).await;
    assert!(
        wrong.contains("it is not signed by a key that is trusted"),
        "{wrong}"
    );
}

#[tokio::test]
async fn no_limit_that_asks_no_token_is_looked_at() {
    let upstream = Upstream::echo().await;
    let jwt = format!("keys = {:?}\nalgorithms = \"HS256\"", keys("hs.secret"));
    let file = file(&upstream, &jwt, "missing = \"refuse\"\nrate = \"2/h\"").route(
        "open",
        "/open",
        "main",
        &[],
    );
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    client.ask(get("/open")).await.expect(200);
    client
        .ask(request("GET", "/open", &[("Authorization", "Bearer x")]))
        .await
        .expect(200);
    client.ask(get("/")).await.expect(401);
}

/// A member in the file is the exact claim, including blanks around it.
#[tokio::test]
async fn blanks_around_a_member_are_part_of_the_claim() {
    let upstream = Upstream::echo().await;
    let jwt = format!("keys = {:?}\nalgorithms = [\"RS256\"]", keys("rsa.pem"));
    let limit = "missing = \"refuse\"\nrate = \"1/h\"\ntiers.silver = { rate = \"5/h\" }";
    let file = file(&upstream, &jwt, limit)
        .with("[groups.silver]\nby = \"jwt:plan\"\nmembers = [\" silver\"]\n");
    let gateway = Gateway::start(&file).await;
    for (plan, left) in [("silver", 0), (" silver", 4), (" silver ", 0)] {
        let token = rsa(&json!({ "sub": format!("of {plan}."), "plan": plan }));
        let answer = asked(&gateway, &token).await.expect(200);
        assert_eq!(answer.remaining("user"), left, "{plan:?}");
    }
}
