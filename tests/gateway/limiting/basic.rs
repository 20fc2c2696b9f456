//! Basic authentication: users as keys of limits, and users with passwords as customers.

use crate::gateway::store_kind::{Place, on_both_stores};
use crate::support::{Answer, File, Gateway, Upstream, get, request, tollgate};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

on_both_stores! {
    a_right_password_is_a_customer_and_a_wrong_one_is_401
    guesses_at_passwords_are_stopped_by_address
    a_user_has_one_count_whatever_the_password
    what_a_sloppy_server_could_read_is_answered_400
    a_basic_credential_is_no_bad_token
    members_and_routes_go_by_passwords
}

/// The digests of `anna:right-1` and `ben:right-2`.
const STAFF: &str = "[groups.staff]\nby = \"basic\"\ncustomers = { \
     anna = \"sha256:582ec2d080190e7bada67215c87fee6bbc9579018e22b81b42612acb95d06d52\", \
     ben = \"sha256:6a753f8a9496d6b2b6f2605944faa53edf04c88e32d0404f414ad525604f010c\" }";
const LIMIT: &str = "by = \"customer\"\nmissing = \"refuse\"\nrate = \"100000/30d\"";
const CHALLENGE: &str = "Basic realm=\"gateway.test\", charset=\"UTF-8\"";

fn basic(user_and_password: &str) -> String {
    format!("Basic {}", STANDARD.encode(user_and_password))
}

fn asking(credential: &str) -> String {
    request("GET", "/", &[("Authorization", credential)])
}

/// The reason of the answer, its customer and its keys, from the log.
async fn logged(gateway: &Gateway, answer: &Answer) -> (Value, Value, Value) {
    let line = gateway.line_of(answer).await;
    let part = |name: &str| line[name].clone();
    (part("reason"), part("customer"), part("keys"))
}

async fn a_right_password_is_a_customer_and_a_wrong_one_is_401(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["staff"])
        .with("forward_identity = { x-consumer = \"{customer}\" }")
        .with(STAFF)
        .limit("staff", LIMIT);
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for (credential, left) in [
        (basic("anna:right-1"), 99_999),
        (basic("anna:right-1").replace("Basic ", "bASIC   "), 99_998),
    ] {
        let answer = client.ask(asking(&credential)).await.expect(200);
        assert_eq!(answer.remaining("staff"), left);
        let fields = answer.echoed().fields;
        assert_eq!(fields.all("x-consumer"), ["anna"]);
        assert_eq!(fields.all("authorization"), [credential.as_str()]);
        let told = (json!("ok"), json!("anna"), json!({ "staff": "anna" }));
        assert_eq!(logged(&gateway, &answer).await, told);
    }
    let ben = client.ask(asking(&basic("ben:right-2"))).await;
    assert_eq!(ben.echoed().fields.all("x-consumer"), ["ben"]);
    for wrong in [
        "anna:right-2",
        "ANNA:right-1",
        "anna:right-1 ",
        "anna:",
        ":",
        "ben:right-1",
    ] {
        let answer = client.ask(asking(&basic(wrong))).await.expect(401);
        assert_eq!(
            answer.json()["detail"],
            "Unknown user or password.",
            "{wrong}"
        );
        assert_eq!(answer.field("www-authenticate"), CHALLENGE);
        let told = (json!("unknown_key"), Value::Null, json!({}));
        assert_eq!(logged(&gateway, &answer).await, told);
    }
    let none = client.ask(get("/")).await.expect(401);
    let detail = "The request needs a user and a password (Basic authentication).";
    assert_eq!(none.json()["detail"], detail);
    assert_eq!(none.field("www-authenticate"), CHALLENGE);
    assert_eq!(logged(&gateway, &none).await.0, "missing_key");
    let log = gateway.access.text() + &gateway.said.text();
    let encoded = STANDARD.encode("anna:right-1");
    assert!(!log.contains("right-") && !log.contains(&encoded), "{log}");
}

/// 20,000 guesses under `per-ip = 3/h`, many of them in one packet. With Redis the refusals are remembered.
async fn guesses_at_passwords_are_stopped_by_address(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["per-ip", "staff"])
        .with(STAFF)
        .limit("per-ip", "by = \"ip\"\nrate = \"3/h\"")
        .limit("staff", LIMIT);
    let gateway = place.gateway(file).await;
    let (mut unknown, mut refused) = (0, 0);
    let mut client = gateway.connect().await.patient();
    let most = if place.remembers() { 2_000 } else { 20_000 };
    for first in (0..most).step_by(100) {
        let guesses = (first..first + 100).map(|number| asking(&basic(&format!("anna:{number}"))));
        client.send(guesses.collect::<String>()).await;
        for _ in 0..100 {
            match client.answer().await.status {
                401 => unknown += 1,
                429 => refused += 1,
                status => panic!("{status}"),
            }
        }
    }
    assert_eq!((unknown, refused), (3, most - 3));
    let mut client = gateway.connect().await;
    client.ask(asking(&basic("anna:right-1"))).await.expect(429);
    assert_eq!(upstream.seen(), 0);
}

async fn a_user_has_one_count_whatever_the_password(place: Place) {
    let upstream = Upstream::echo().await;
    let by = "by = \"basic:user\"\nmissing = \"refuse\"\nrate = \"9/h\"";
    let file = File::default()
        .upstream("main", &[&upstream])
        .limit("user", by)
        .limit("any", &format!("{by}\nkey_case = \"insensitive\""))
        .route("all", "/{*rest}", "main", &["user", "any"]);
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for (credential, key, left) in [
        ("anna:a", "anna", (8, 8)),
        ("anna:b:c", "anna", (7, 7)),
        ("anna:", "anna", (6, 6)),
        ("ANNA:a", "ANNA", (8, 5)),
        (" anna :a", "%20anna%20", (8, 4)),
        ("änna:a", "%C3%A4nna", (8, 8)),
    ] {
        let answer = client.ask(asking(&basic(credential))).await.expect(200);
        let remaining = (answer.remaining("user"), answer.remaining("any"));
        assert_eq!(remaining, left, "{credential}");
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["keys"]["user"], key);
    }
    for absent in ["Bearer abc", "Digest username=\"anna\"", &basic(":a")] {
        let answer = client.ask(asking(absent)).await.expect(401);
        let detail = "The request needs a user (Basic authentication).";
        assert_eq!(answer.json()["detail"], detail, "{absent}");
        assert_eq!(answer.field("www-authenticate"), CHALLENGE);
    }
}

async fn what_a_sloppy_server_could_read_is_answered_400(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .upstream("main", &[&upstream])
        .with(STAFF)
        .limit("per-ip", "by = \"ip\"\nrate = \"1000/h\"")
        .limit(
            "user",
            "by = \"basic:user\"\nmissing = \"skip\"\nrate = \"9/h\"",
        )
        .limit("staff", &LIMIT.replace("refuse", "ip"))
        .limit(
            "tier",
            "by = \"ip\"\nrate = \"99/h\"\ntiers.staff = { rate = \"999/h\" }",
        )
        .route("user", "/user", "main", &["per-ip", "user"])
        .route("staff", "/staff", "main", &["per-ip", "staff"])
        .route("tier", "/tier", "main", &["per-ip", "tier"])
        .route("open", "/open", "main", &["per-ip"]);
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let right = basic("anna:right-1");
    let malformed = [
        "Basic".to_owned(),
        format!("{right}="),
        "Basic YTo".to_owned(),
        right.replace(' ', "\t"),
        right.replace(' ', ""),
        format!("{right}, Bearer x"),
        format!("Bearer x, {right}"),
        "Basic YW5uYQ==".to_owned(),
        basic("anna\0:right-1"),
        "Basic YTr=".to_owned(),
    ];
    let mut left = 1000;
    for credential in &malformed {
        for path in ["/user", "/staff", "/tier"] {
            let fields = [("Authorization", credential.as_str())];
            let answer = client.ask(request("GET", path, &fields)).await;
            assert_eq!(answer.status, 400, "{path} {credential:?}");
            left -= 1;
            assert_eq!(answer.remaining("per-ip"), left);
            assert!(answer.text().contains("in a malformed way"), "{answer:?}");
            assert_eq!(logged(&gateway, &answer).await.0, "bad_request");
        }
        // Nothing asks for it: the server decides.
        let fields = [("Authorization", credential.as_str())];
        client
            .ask(request("GET", "/open", &fields))
            .await
            .expect(200);
        left -= 1;
    }
    let other = basic("anna:right-2");
    for lines in [
        [&*right, "Bearer x"],
        ["Bearer x", &*right],
        [&*right, &*basic("ben:right-2")],
    ] {
        let fields = lines.map(|line| ("Authorization", line));
        for path in ["/user", "/staff", "/tier"] {
            let answer = client.ask(request("GET", path, &fields)).await.expect(400);
            assert!(answer.text().contains("several times"), "{answer:?}");
        }
    }
    let fields = [("Authorization", &*right), ("Authorization", &*other)];
    client
        .ask(request("GET", "/user", &fields))
        .await
        .expect(200);
    client
        .ask(request("GET", "/staff", &fields))
        .await
        .expect(400);
    let twice = [("Authorization", &*right), ("Authorization", &*right)];
    client
        .ask(request("GET", "/staff", &twice))
        .await
        .expect(200);
}

async fn a_basic_credential_is_no_bad_token(place: Place) {
    let upstream = Upstream::echo().await;
    let secret = format!("{}/tests/config/jwt/hs.secret", env!("CARGO_MANIFEST_DIR"));
    let file = File::to(&upstream, &["staff"])
        .with(&format!("[jwt]\nkeys = {secret:?}\nalgorithms = \"HS256\""))
        .with("[groups.tokens]\nby = \"jwt:client_id\"\ncustomers = true")
        .with("[groups.keys]\nby = \"header:x-api-key\"\ncustomers = { acme = \"key-1\" }")
        .with(STAFF)
        .limit("staff", LIMIT);
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let right = client.ask(asking(&basic("anna:right-1"))).await.expect(200);
    assert_eq!(logged(&gateway, &right).await.1, "anna");
    let wrong = client
        .ask(asking(&basic("anna:eyJh.eyJz.c2ln")))
        .await
        .expect(401);
    assert_eq!(logged(&gateway, &wrong).await.0, "unknown_key");
    assert_eq!(wrong.field("www-authenticate"), CHALLENGE);
    let token = client
        .ask(asking("Bearer eyJh.eyJz.c2ln"))
        .await
        .expect(401);
    assert_eq!(logged(&gateway, &token).await.0, "bad_token");
    // A browser asks its user only where a challenge says so.
    let none = client.ask(get("/")).await.expect(401);
    let challenges = none.fields.all("www-authenticate");
    assert_eq!(challenges.len(), 2, "{none:?}");
    assert_eq!(challenges[0], "Bearer");
    assert!(challenges[1].starts_with("Basic realm=\""), "{none:?}");
    let both = [
        ("Authorization", &*basic("anna:right-1")),
        ("X-Api-Key", "key-1"),
    ];
    client.ask(request("GET", "/", &both)).await.expect(400);
}

async fn members_and_routes_go_by_passwords(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .upstream("main", &[&upstream])
        .with(
            &STAFF
                .replace("customers = { anna = ", "members = [")
                .replace("ben = ", "")
                .replace(" }", "]"),
        )
        .limit(
            "each",
            "by = \"ip\"\nrate = \"9/h\"\ntiers.staff = { rate = \"99/h\" }",
        )
        .route("staff", "/admin", "main", &[])
        .with("groups = \"staff\"\nforward_identity = { x-group = \"{group}\" }\nrequest_headers = { remove = [\"authorization\"] }")
        .route("all", "/all", "main", &["each"]);
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for (credential, route, left) in [
        (basic("anna:right-1"), 200, 98),
        (basic("ben:right-2"), 200, 97),
        (basic("anna:right-2"), 404, 8),
        ("Basic x".to_owned(), 404, 0),
    ] {
        let fields = [("Authorization", credential.as_str())];
        let answer = client
            .ask(request("GET", "/admin", &fields))
            .await
            .expect(route);
        if route == 200 {
            let fields = answer.echoed().fields;
            assert_eq!(fields.all("x-group"), ["staff"]);
            assert!(!fields.has("authorization"), "{fields:?}");
        }
        let answer = client.ask(request("GET", "/all", &fields)).await;
        if credential == "Basic x" {
            answer.expect(400);
        } else {
            assert_eq!(answer.remaining("each"), left, "{credential}");
        }
    }
}

#[tokio::test]
async fn the_page_about_passwords_keeps_its_word() {
    let page = include_str!("../../../docs/basic-auth.md");
    let block = |mark: &str| {
        page.split(mark)
            .nth(1)
            .unwrap()
            .split("```")
            .next()
            .unwrap()
    };
    let upstream = Upstream::echo().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("staff.txt"), block("```text\n")).unwrap();
    let file = block("```toml\n").replace("http://127.0.0.1:3000", &upstream.url());
    let file = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\n[log]\naccess = \"json\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{file}"
    );
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, file).unwrap();
    let gateway = Gateway::run(folder, &path).await;
    let mut client = gateway.connect().await;
    let answer = client
        .ask(asking(&basic("anna:PASSWORD")))
        .await
        .expect(200);
    assert_eq!(answer.echoed().fields.all("x-user"), ["anna"]);
    client
        .ask(asking(&basic("anna:password")))
        .await
        .expect(401);
    let field = format!("authorization: {}", basic("anna:PASSWORD"));
    let done = tollgate(gateway.folder(), &["explain", "GET", "/", "-H", &field]).await;
    for line in [
        "customer anna, staff, staff.txt:",
        "on the key anna",
        "x-user: anna",
    ] {
        assert!(done.stdout.contains(line), "{line}: {done:?}");
    }
    assert!(!done.stdout.contains("PASSWORD"), "{done:?}");
    let htpasswd = "anna:$2y$05$1KWRoOcC0GFEhpaGlmuCnOhWpVbPWPQ3WDyvPH9eOCPH7rE0t1Vda\n";
    std::fs::write(gateway.folder().join("staff.txt"), htpasswd).unwrap();
    let done = tollgate(gateway.folder(), &["check"]).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    let said = done.stdout + &done.stderr;
    let told = "error[password-hash]: staff.txt:1 is a hash of a password file";
    assert!(said.contains(told) && !said.contains("1KWR"), "{said}");
    // The earlier users stay.
    let told = "staff.txt:1 is a hash";
    gateway.said.line(0, told, |line| line.contains(told)).await;
    client
        .ask(asking(&basic("anna:PASSWORD")))
        .await
        .expect(200);
}
