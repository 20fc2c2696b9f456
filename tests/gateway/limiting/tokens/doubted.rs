//! Tokens that are present and not trusted, exact claims, and the choice of keys.

use super::{SECRET, asked, file, keys, shared, signed};
use crate::support::{File, Gateway, Upstream, tollgate};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;
use std::fs;

/// A token that this gateway does not read, and that another verifier may read, does not count as missing.
#[tokio::test]
async fn a_token_that_is_there_is_never_missing() {
    let upstream = Upstream::echo().await;
    let good = shared(SECRET, &json!({ "sub": "ann" }));
    let token = good.strip_prefix("Bearer ").unwrap();
    let forged = shared(b"guessed", &json!({ "sub": "ann" }));
    for (missing, without) in [("skip", 200), ("ip", 200), ("shared", 200), ("refuse", 401)] {
        let jwt = format!("keys = {:?}\nalgorithms = \"HS256\"", keys("hs.secret"));
        let limit = format!("missing = \"{missing}\"\nrate = \"100/h\"");
        let gateway = Gateway::start(&file(&upstream, &jwt, &limit)).await;
        for spelling in [
            forged.clone(),
            format!("Bearer {token}=="),
            format!("Bearer {token}="),
            format!("Bearer {token}, Basic x"),
            format!("Basic x, Bearer {token}"),
            format!("Bearer \"{token}\""),
            format!("\"Bearer {token}\""),
            format!("Bearer, {token}"),
            format!("Bearer:{token}"),
            format!("Bearer={token}"),
            format!("Basic x,bearer {token}"),
            format!("Basic Bearer {token}"),
            format!("Digest realm=\"r\", Bearer {token}"),
            format!("Bearer Bearer {token}"),
            format!("Digest realm=\"x, Bearer {token}\""),
            "Bearer opaque".to_owned(),
            // The token is under another scheme, or under none: verifiers that take the last word trust the token.
            token.to_owned(),
            format!("JWT {token}"),
            format!("Token {token}"),
            format!("Token token=\"{token}\""),
            format!("OAuth {token}"),
            format!("DPoP {token}"),
            format!("token={token}"),
            format!("JWT:{token}"),
            format!("xxxxxxx{token}"),
            format!("Basic {token}"),
            format!("Basic x, JWT {token}"),
        ] {
            let answer = asked(&gateway, &spelling).await;
            assert_eq!(answer.status, 401, "{missing} {spelling:.40}");
            let line = gateway.line_of(&answer).await;
            assert_eq!(line["reason"], "bad_token", "{missing} {spelling:.40}");
        }
        // A tab counts as a blank, and the case of a scheme does not matter.
        for spelling in [format!("Bearer\t{token}"), format!("bEARER \t{token}")] {
            let answer = asked(&gateway, &spelling).await.expect(200);
            assert_eq!(gateway.line_of(&answer).await["keys"]["user"], "ann");
        }
        for absent in [
            "Basic ZXZlOmV2ZQ==",
            "Bearer",
            "",
            // These values have other schemes, and contain the word elsewhere.
            "Digest username=\"bearer\", realm=\"r\"",
            "Digest username=\"bob\", realm=\"Bearer tokens\", nonce=\"x\"",
            "OAuth oauth_token=\"bearer\"",
            "ApiKey bearer-key",
            "Hawk id=\"bearer-1\"",
            "Token eyJhbGciOiJIUzI1NiJ9",
            "ApiKey v1.2.3",
            "Basic Bearer+x",
            "AWS4-HMAC-SHA256 Credential=x, SignedHeaders=bearer;host, Signature=y",
        ] {
            asked(&gateway, absent).await.expect(without);
        }
    }
}

/// The token does not count as missing either if only a group needs it: members of the group may have a lower limit
/// than other clients.
#[tokio::test]
async fn a_token_that_a_group_asks_for_is_believed_or_refused() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["ip"])
        .with(&format!(
            "[jwt]\nkeys = {:?}\nalgorithms = \"HS256\"",
            keys("hs.secret")
        ))
        .with("[groups.free]\nby = \"jwt:plan\"\nmembers = \"free\"")
        .limit(
            "ip",
            "by = \"ip\"\nrate = \"5/h\"\ntiers.free = { rate = \"1/h\" }",
        );
    let gateway = Gateway::start(&file).await;
    let free = shared(SECRET, &json!({ "plan": "free" }));
    asked(&gateway, &free).await.expect(200);
    asked(&gateway, &free).await.expect(429);
    // Each of these requests is counted by its address, like a request without a token.
    for left in [4, 3, 2] {
        let answer = asked(&gateway, &format!("{free}==")).await.expect(401);
        assert_eq!(answer.remaining("ip"), left);
    }
    assert_eq!(gateway.get("/").await.expect(200).remaining("ip"), 1);
    let field = format!("authorization: {free}==");
    let said = tollgate(gateway.folder(), &["explain", "GET", "/", "-H", &field]).await;
    for told in [
        "token   claims nothing: it is not of the form `Bearer TOKEN`",
        "counts 1, by ip on the key 127.0.0.1",
        "answer  401 by the gateway: the limit \"ip\" asks for jwt:plan",
    ] {
        assert!(said.stdout.contains(told), "{told}\n{said:?}");
    }
}

/// `" ann"` is not `ann`: an issuer may let any user take such a name.
#[tokio::test]
async fn a_claim_is_what_it_is_with_its_blanks() {
    let upstream = Upstream::echo().await;
    let jwt = format!("keys = {:?}\nalgorithms = \"HS256\"", keys("hs.secret"));
    let limit = "missing = \"refuse\"\nrate = \"1/h\"\ntiers.staff = { rate = \"5/h\" }";
    let file = file(&upstream, &jwt, limit)
        .with("[groups.staff]\nby = \"jwt:roles\"\nmembers = \"staff\"");
    let gateway = Gateway::start(&file).await;
    for (sub, key) in [
        ("ann", "ann"),
        (" ann", "%20ann"),
        ("ann ", "ann%20"),
        ("ann\t", "ann%09"),
        (" ", "%20"),
    ] {
        let token = shared(SECRET, &json!({ "sub": sub, "roles": [" staff"] }));
        let answer = asked(&gateway, &token).await.expect(200);
        assert_eq!(
            answer.field("x-ratelimit-limit"),
            "1",
            "a role that is none"
        );
        assert_eq!(gateway.line_of(&answer).await["keys"]["user"], key);
        asked(&gateway, &token).await.expect(429);
    }
}

/// A key in a separate file has a name if the main file gives it one.
#[tokio::test]
async fn a_key_in_a_file_is_taken_by_its_name() {
    let upstream = Upstream::echo().await;
    let folder = tempfile::tempdir().unwrap();
    let secret = |name: &str| format!("the secret {name}, which has more than 32 bytes");
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        fs::write(folder.path().join(name), secret(name)).unwrap();
    }
    let named = names[1..].iter();
    let named = named.map(|name| format!("{{ file = \"{name}\", kid = \"{name}\" }}"));
    let list: Vec<String> = std::iter::once("\"a\"".to_owned()).chain(named).collect();
    let jwt = format!("keys = [{}]\nalgorithms = \"HS256\"", list.join(", "));
    let text = file(&upstream, &jwt, "missing = \"refuse\"\nrate = \"100/h\"").text();
    let path = folder.path().join("gateway.toml");
    fs::write(&path, &text).unwrap();
    let nameless = text.replace("{ file = \"b\", kid = \"b\" }", "\"b\"");
    let nameless = nameless
        .replace(", kid = \"c\"", "")
        .replace(", kid = \"d\"", "");
    let five = nameless.replace(", kid = \"e\"", "");
    for (name, text) in [("four.toml", &nameless), ("five.toml", &five)] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let gateway = Gateway::run(folder, &path).await;
    let token = |kid: Option<&str>, key: &str| {
        let mut header = Header::new(Algorithm::HS256);
        header.kid = kid.map(str::to_owned);
        let key = EncodingKey::from_secret(secret(key).as_bytes());
        signed(&header, &key, &json!({ "sub": "ann" }))
    };
    for (kid, key, status) in [
        (None, "a", 200),
        (Some("unheard-of"), "a", 200),
        (Some("f"), "f", 200),
        (Some("f"), "e", 401),
        (Some("f"), "a", 401),
        (None, "d", 200),
        // Four keys are tried, and this is the fifth.
        (None, "e", 401),
        (Some("unheard-of"), "b", 401),
    ] {
        let answer = asked(&gateway, &token(kid, key)).await;
        assert_eq!(answer.status, status, "{kid:?} {key}");
    }
    let four = tollgate(gateway.folder(), &["check", "four.toml"]).await;
    assert_eq!(four.code, Some(0), "{four:?}");
    let five = tollgate(gateway.folder(), &["check", "five.toml"]).await;
    assert_eq!(five.code, Some(1), "{five:?}");
    let told = "error[bad-jwt-key]: `[jwt]` has 5 keys without an id for HS256";
    assert!(five.stderr.contains(told), "{five:?}");
    assert!(
        five.stderr.contains("a token is tried with 4 keys at most"),
        "{five:?}"
    );
}

/// A key names a member of the route's group, and a token beside it takes the membership away: the token is another
/// customer's, or is not trusted. No route is chosen before the token is read.
#[tokio::test]
async fn a_route_for_a_plan_takes_no_request_whose_token_contradicts() {
    let upstream = Upstream::echo().await;
    let tables = format!(
        "[jwt]\nkeys = {:?}\nalgorithms = \"HS256\"\n\
         [groups.keys]\nby = \"header:x-api-key\"\ncustomers = {{ acme = \"key-of-acme\", beta = \"key-of-beta\" }}\n\
         [groups.tokens]\nby = \"jwt:sub\"\ncustomers = true\n\
         [groups.gold]\nby = \"customer\"\nmembers = [\"acme\"]",
        keys("hs.secret")
    );
    let file = File::default()
        .with(&tables)
        .limit(
            "day",
            "by = \"customer\"\nmissing = \"refuse\"\nrate = \"100/d\"",
        )
        .upstream("main", &[&upstream])
        .route("gold", "/{*rest}", "main", &[])
        .with("groups = \"gold\"")
        .route("rest", "/{*rest}", "main", &["day"]);
    let gateway = Gateway::start(&file).await;
    let token = |sub: &str, secret: &[u8]| shared(secret, &json!({ "sub": sub }));
    for (token, status, route) in [
        (None, 200, "gold"),
        (Some(token("acme", SECRET)), 200, "gold"),
        (Some(token("beta", SECRET)), 400, "rest"),
        (Some(token("acme", b"guessed")), 401, "rest"),
        (Some("Bearer opaque".to_owned()), 401, "rest"),
    ] {
        let mut fields = vec![("X-Api-Key", "key-of-acme")];
        fields.extend(token.iter().map(|token| ("Authorization", token.as_str())));
        let answer = gateway.get_with("/", &fields).await;
        let line = gateway.line_of(&answer).await;
        assert_eq!(
            (answer.status, &line["route"]),
            (status, &json!(route)),
            "{token:?}"
        );
    }
}
