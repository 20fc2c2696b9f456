//! The identity of a client: servers read it in fields that no client can write, and routes may require it.

use super::tls::{LISTEN, asked, seen_field};
use crate::support::tls::Authority;
use crate::support::{Answer, Feed, File, Gateway, Manner, ModernServer, Upstream, h2, tollgate};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use serde_json::{Value, json};

const RSA: &[u8] = include_bytes!("../config/jwt/rsa.key");

/// A table `[jwt]` with the key of [`token`].
fn jwt() -> String {
    let key = format!("{}/tests/config/jwt/rsa.pem", env!("CARGO_MANIFEST_DIR"));
    format!("[jwt]\nkeys = {key:?}\nalgorithms = [\"RS256\"]\n")
}

fn token(mut claims: Value) -> String {
    claims["exp"] = (get_current_timestamp() + 600).into();
    let key = EncodingKey::from_rsa_pem(RSA).unwrap();
    format!(
        "Bearer {}",
        encode(&Header::new(Algorithm::RS256), &claims, &key).unwrap()
    )
}

/// The token with a signature that belongs to another token.
fn forged(token: &str) -> String {
    let (signed, _) = token.rsplit_once('.').unwrap();
    let (_, other) = self::token(json!({ "sub": "x" }))
        .rsplit_once('.')
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    format!("{signed}.{other}")
}

fn seen(answer: &Answer, name: &str) -> Vec<String> {
    let fields = answer.echoed().fields;
    fields.all(name).into_iter().map(str::to_owned).collect()
}

const PLANS: &str = "[groups.gold]\nby = \"jwt:plan\"\nmembers = [\"gold\"]\n\
    [groups.partner]\nby = \"header:x-api-key\"\nmembers = [\"k1\"]\n";

fn telling(upstream: &Upstream) -> File {
    File::default()
        .server("workers = 1")
        .upstream("main", &[upstream])
        .route("all", "/{*rest}", "main", &["l"])
        .with("forward_identity = { X-Consumer = \"user/{jwt:sub}\", x-plan = \"{tier}\", x-group = \"{group}\" }")
        .limit(
            "l",
            "by = \"jwt:sub\"\nmissing = \"ip\"\nrate = \"100/h\"\ntiers.gold = { rate = \"200/h\" }",
        )
        .with(&jwt())
        .with(PLANS)
}

#[tokio::test]
async fn servers_are_told_who_the_client_is() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&telling(&upstream)).await;
    let ann = token(json!({ "sub": "ann", "plan": "gold" }));
    let lies = [
        ("Authorization", ann.as_str()),
        ("x-consumer", "root"),
        ("X-Consumer", "admin"),
        ("x_consumer", "root"),
        ("x.consumer", "root"),
        ("X-PLAN", "free"),
        ("Connection", "x-consumer, x-plan"),
    ];
    let answer = gateway.get_with("/", &lies).await.expect(200);
    assert_eq!(seen(&answer, "x-consumer"), ["user/ann"]);
    assert_eq!(seen(&answer, "x-plan"), ["gold"]);
    assert_eq!(seen(&answer, "x-group"), ["gold"]);
    assert!(seen(&answer, "x_consumer").is_empty() && seen(&answer, "x.consumer").is_empty());
    // The gateway's other fields are unchanged.
    assert_eq!(seen(&answer, "x-forwarded-host"), ["gateway.test"]);
    assert_eq!(seen(&answer, "authorization"), [ann.as_str()]);
    // An HTTP/2 client without a token: its false fields are removed, and no other fields replace them.
    let mut request = h2::get("/");
    for (name, value) in [
        ("x-consumer", "root"),
        ("x-plan", "gold"),
        ("x-api-key", "k1"),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let answer = gateway.h2().await.ask(request).await.expect(200);
    assert!(seen(&answer, "x-consumer").is_empty(), "{answer:?}");
    assert!(seen(&answer, "x-plan").is_empty(), "{answer:?}");
    assert_eq!(seen(&answer, "x-group"), ["partner"]);
    // A forged token fills no field, and is refused where a limit needs a token.
    let lies = [
        ("Authorization", forged(&ann)),
        ("x-consumer", "root".into()),
    ];
    let lies = lies.each_ref().map(|(name, value)| (*name, value.as_str()));
    let answer = gateway.get_with("/", &lies).await.expect(401);
    assert_eq!(gateway.line_of(&answer).await["reason"], "bad_token");
    assert_eq!(upstream.seen(), 2);
}

#[tokio::test]
async fn servers_of_http2_are_told_too() {
    let server = ModernServer::start(Manner::default()).await;
    let file = File::default()
        .with(&format!(
            "[upstreams.main]\nservers = \"h2c://{}\"",
            server.address
        ))
        .route("all", "/{*rest}", "main", &[])
        .with("forward_identity = { X-Consumer = \"{jwt:sub}\" }")
        .with(&jwt());
    let gateway = Gateway::start(&file).await;
    let told = |answer: &Answer| -> Vec<String> {
        let echo = answer.json();
        let fields = echo["fields"].as_array().unwrap().iter();
        let named = fields.filter(|field| field[0] == "x-consumer");
        named
            .map(|field| field[1].as_str().unwrap().to_owned())
            .collect()
    };
    let zoe = token(json!({ "sub": "Zo\u{eb} / 1" }));
    let lying = [("x-consumer", "root"), ("X-Consumer", "admin")];
    let all = [&[("Authorization", zoe.as_str())][..], &lying].concat();
    let answer = gateway.get_with("/", &all).await.expect(200);
    assert_eq!(told(&answer), ["Zo%C3%AB%20/%201"]);
    let answer = gateway.get_with("/", &lying).await.expect(200);
    assert!(told(&answer).is_empty());
    let asked = http::Request::get("http://gateway.test/")
        .header("authorization", &zoe)
        .header("x-consumer", "root")
        .body(Feed::empty())
        .unwrap();
    let answer = gateway.h2().await.ask(asked).await.expect(200);
    assert_eq!(told(&answer), ["Zo%C3%AB%20/%201"]);
}

#[tokio::test]
async fn a_forged_token_tells_nothing_where_no_limit_asks() {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .upstream("main", &[&upstream])
        .route("all", "/{*rest}", "main", &[])
        .with("forward_identity = { x-consumer = \"{jwt:sub}\" }")
        .with(&jwt());
    let gateway = Gateway::start(&file).await;
    for (sub, told) in [("ann", "ann"), ("a b%é\n", "a%20b%25%C3%A9%0A")] {
        let good = token(json!({ "sub": sub }));
        let answer = gateway
            .get_with("/", &[("Authorization", &good)])
            .await
            .expect(200);
        assert_eq!(seen(&answer, "x-consumer"), [told]);
        let bad = forged(&good);
        let answer = gateway
            .get_with("/", &[("Authorization", &bad)])
            .await
            .expect(200);
        assert!(seen(&answer, "x-consumer").is_empty());
    }
    // Trailers cannot add fields that the head may not have.
    let mut wire = gateway.connect().await;
    let sent = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-consumer, x-sum\r\n\r\n\
                1\r\na\r\n0\r\nx-consumer: root\r\nx-sum: 1\r\n\r\n";
    let answer = wire.ask(sent).await.expect(200);
    assert!(!answer.echoed().trailers.has("x-consumer"), "{answer:?}");
}

/// A client that can choose the text of a claim could otherwise imitate another client, or state more than one claim.
#[tokio::test]
async fn no_claim_is_read_as_the_text_around_it() {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .upstream("main", &[&upstream])
        .route("all", "/{*rest}", "main", &[])
        .with(
            "[routes.all.forward_identity]\nx-tenant-user = \"{jwt:tenant}:{jwt:sub}\"\n\
            x-list = \"role=user,sub={jwt:sub}\"\nx-sub = \"{jwt:sub}\"\n\
            x-quoted = 'sub=\"{jwt:sub}\";role=\"user\"'\n",
        )
        .with(&jwt());
    let gateway = Gateway::start(&file).await;
    let mut told = Vec::new();
    for (tenant, sub) in [
        ("a:b", "c"),
        ("a", "b:c"),
        ("a", "bob,role=admin"),
        ("a", "x\\\";role=\"admin"),
        ("a", "b%3Ac"),
    ] {
        let token = token(json!({ "tenant": tenant, "sub": sub }));
        let asked = [("Authorization", &*token)];
        let answer = gateway.get_with("/", &asked).await.expect(200);
        let names = ["x-tenant-user", "x-list", "x-sub", "x-quoted"];
        told.push(names.map(|name| seen(&answer, name).concat()));
    }
    let tellings = [
        ["a%3Ab:c", "role=user,sub=c", "c", "sub=\"c\";role=\"user\""],
        [
            "a:b%3Ac",
            "role=user,sub=b:c",
            "b:c",
            "sub=\"b:c\";role=\"user\"",
        ],
        [
            "a:bob%2Crole=admin",
            "role=user,sub=bob%2Crole%3Dadmin",
            "bob%2Crole=admin",
            "sub=\"bob%2Crole%3Dadmin\";role=\"user\"",
        ],
        [
            "a:x\\\";role=\"admin",
            "role=user,sub=x\\\";role%3D\"admin",
            "x\\\";role=\"admin",
            "sub=\"x%5C%22%3Brole%3D%22admin\";role=\"user\"",
        ],
        [
            "a:b%253Ac",
            "role=user,sub=b%253Ac",
            "b%253Ac",
            "sub=\"b%253Ac\";role=\"user\"",
        ],
    ];
    assert_eq!(told, tellings);
}

#[tokio::test]
async fn a_certificate_is_told() {
    let upstream = Upstream::echo().await;
    let ca = Authority::new();
    let identity = ca.identity("ours", &["ours.test"])
        + &format!(
            "client = {{ ca = {:?}, verify = \"optional\" }}\n",
            ca.path("ca.pem")
        );
    let file = File::default()
        .server(LISTEN)
        .upstream("main", &[&upstream])
        .route("all", "/{*rest}", "main", &[])
        .with(
            "forward_identity = { x-subject = \"{tls:subject}\", x-print = \"{tls:fingerprint}\" }",
        )
        .with(&identity);
    let gateway = Gateway::start(&file).await;
    let tls = gateway.tls().await;
    let mut wire = ca
        .showing(&ca.client("anna of us"))
        .wire(tls, "ours.test")
        .await;
    let echo = wire.ask(asked("ours.test")).await.expect(200).json();
    assert_eq!(seen_field(&echo, "x-subject").unwrap(), "CN=anna%20of%20us");
    let print = seen_field(&echo, "x-print").unwrap();
    assert!(
        print.len() == 64 && print.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{print}"
    );
    // Without a token the fields are absent, whatever the client sends.
    let answer = gateway
        .get_with("/", &[("x-subject", "CN=anna")])
        .await
        .expect(200);
    assert!(seen(&answer, "x-subject").is_empty() && seen(&answer, "x-print").is_empty());
}

/// Routes to two servers: members of groups to `inner`, others to `outer`.
fn by_group(inner: &Upstream, outer: &Upstream) -> File {
    File::default()
        .server("workers = 1")
        .upstream("inner", &[inner])
        .upstream("outer", &[outer])
        .route("members", "/{*rest}", "inner", &[])
        .with("groups = [\"gold\", \"partner\"]")
        .route("others", "/{*rest}", "outer", &["l"])
        .limit("l", "by = \"jwt:sub\"\nmissing = \"ip\"\nrate = \"100/h\"")
        .route("alone", "/alone", "inner", &[])
        .with("groups = \"gold\"\nmethods = \"PUT\"")
        .with(&jwt())
        .with(PLANS)
}

#[tokio::test]
async fn routes_ask_for_members_of_groups() {
    let (inner, outer) = (Upstream::echo().await, Upstream::echo().await);
    let gateway = Gateway::start(&by_group(&inner, &outer)).await;
    let gold = token(json!({ "sub": "ann", "plan": ["free", "gold"] }));
    let free = token(json!({ "sub": "bob", "plan": "free" }));
    let bad = forged(&gold);
    for (name, value, route) in [
        ("authorization", gold.as_str(), "members"),
        ("authorization", &free, "others"),
        ("x-api-key", "k1", "members"),
        ("x-api-key", "k2", "others"),
        ("x-plan", "gold", "others"),
    ] {
        let port = if route == "members" {
            inner.port()
        } else {
            outer.port()
        };
        let answer = gateway.get_with("/a", &[(name, value)]).await.expect(200);
        assert_eq!(
            gateway.line_of(&answer).await["route"],
            route,
            "{name}: {value}"
        );
        assert_eq!(answer.echoed().port, u64::from(port));
        let mut request = h2::get("/a");
        request.headers_mut().insert(name, value.parse().unwrap());
        let answer = gateway.h2().await.ask(request).await.expect(200);
        assert_eq!(answer.echoed().port, u64::from(port), "{name}: {value}");
    }
    // A client without a trusted token is no member, and the limits of the next route apply.
    let answer = gateway
        .get_with("/a", &[("authorization", &bad)])
        .await
        .expect(401);
    let line = gateway.line_of(&answer).await;
    assert_eq!(
        (&line["route"], &line["reason"]),
        (&json!("others"), &json!("bad_token"))
    );
    // Two keys are no key, even if one of them is a member's.
    let two = [("x-api-key", "k1"), ("x-api-key", "k2")];
    let answer = gateway.get_with("/a", &two).await.expect(200);
    assert_eq!(gateway.line_of(&answer).await["route"], "others");
    assert_eq!(inner.seen(), 4);
}

#[tokio::test]
async fn explain_says_which_limits_come_before_the_token() {
    let (inner, outer) = (Upstream::echo().await, Upstream::echo().await);
    let file = by_group(&inner, &outer)
        .limit("per-ip", "by = \"ip\"\nrate = \"100/h\"")
        .with("[defaults]\nlimits = \"per-ip\"");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.toml"), file.text()).unwrap();
    let bad = forged(&token(json!({ "sub": "ann", "plan": "gold" })));
    let bearer = format!("authorization: {bad}");
    let told = "token   checked after per-ip, limits of all routes";
    for (field, is_told) in [(&*bearer, true), ("x-api-key: k1", false)] {
        let said = tollgate(folder.path(), &["explain", "GET", "/a", "-H", field]).await;
        assert_eq!(said.stdout.contains(told), is_told, "{said:?}");
    }
}

#[tokio::test]
async fn explain_says_who_is_no_member_and_what_is_told() {
    let upstream = Upstream::echo().await;
    let file = telling(&upstream)
        .route("members", "/m", "main", &[])
        .with("groups = [\"gold\", \"partner\"]")
        .text();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, file).unwrap();
    let config = path.display().to_string();
    let ask = async |target: &str, fields: &[&str]| {
        let mut words = vec!["explain", "GET", target, "--config", &config];
        fields.iter().for_each(|field| words.extend(["-H", *field]));
        let said = tollgate(folder.path(), &words).await;
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        said.stdout
    };
    let said = ask("/m", &["x-consumer: root"]).await;
    assert!(
        said.contains("it asks for a member of gold or partner"),
        "{said}"
    );
    assert!(
        said.contains("x-consumer, since the route's servers read the client's identity from it"),
        "{said}"
    );
    assert!(said.contains("x-consumer is not sent"), "{said}");
    let said = ask("/m", &["x-api-key: k1"]).await;
    assert!(said.contains("route   members"), "{said}");
    let bearer = format!(
        "authorization: {}",
        token(json!({ "sub": "ann", "plan": "gold" }))
    );
    let said = ask("/", &[&bearer]).await;
    assert!(
        said.contains("x-consumer: user/ann") && said.contains("x-plan: gold"),
        "{said}"
    );
}
