//! The client behind a trusted peer: unusual but legal forms of fields, fields that name no client, and translators of
//! addresses.

use crate::support::{File, Gateway, Upstream};

/// A gateway that trusts this machine and these networks, and refuses the second request of a client.
async fn gateway(upstream: &Upstream, server: &str) -> Gateway {
    let file = File::to(upstream, &["ip"])
        .limit("ip", "by = \"ip\"\nrate = \"1/h\"")
        .server(&format!(
            "trust = [\"127.0.0.1\", \"10.0.0.0/8\"]\n{server}"
        ));
    Gateway::start(&file).await
}

/// The client of a request with these fields, from the log.
async fn client(gateway: &Gateway, fields: &[(&str, &str)]) -> String {
    let answer = gateway.get_with("/", fields).await;
    let line = gateway.line_of(&answer).await;
    line["client"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn legal_oddities_name_their_client() {
    let upstream = Upstream::echo().await;
    let gateway = gateway(&upstream, "").await;
    let forwarded = "forwarded";
    let listed = "x-forwarded-for";
    for (name, value, named) in [
        (forwarded, "for=\"203.0.113.61:_x\"", "203.0.113.61"),
        (forwarded, "for=\"[2001:db8::1]:_x\"", "2001:db8::1"),
        (forwarded, "FOR=203.0.113.62", "203.0.113.62"),
        (forwarded, ", for=203.0.113.63, ,", "203.0.113.63"),
        (forwarded, "for=203.0.113.64 ; proto=https", "203.0.113.64"),
        (forwarded, ";for=203.0.113.65;", "203.0.113.65"),
        (forwarded, "for=\"\\203.0.113.66\"", "203.0.113.66"),
        (
            forwarded,
            "for=203.0.113.67\t,\tfor=10.0.0.9",
            "203.0.113.67",
        ),
        (
            forwarded,
            "by=\"a;for=6.6.6.6\";for=203.0.113.68;x=\"\\\",\"",
            "203.0.113.68",
        ),
        (listed, "203.0.113.69,", "203.0.113.69"),
        (listed, " ,,203.0.113.70 , ,10.0.0.9,", "203.0.113.70"),
        (listed, "203.0.113.71:_x", "203.0.113.71"),
        (listed, "[2001:db8::2]:80", "2001:db8::2"),
    ] {
        assert_eq!(client(&gateway, &[(name, value)]).await, named, "{value}");
    }
    let none = |line: &str| line.contains("names no client");
    assert!(!gateway.said.lines().iter().any(|line| none(line)));
}

#[tokio::test]
async fn a_field_that_names_nobody_is_told_once_a_minute_and_counted() {
    let upstream = Upstream::echo().await;
    let gateway = gateway(&upstream, "").await;
    for (name, value) in [
        ("forwarded", "for=203.0.113.61;for=203.0.113.62"),
        ("forwarded", "for=\"203.0.113.61"),
        ("forwarded", "for"),
        ("forwarded", "for=203.0.113.61;x=1;X=2"),
        ("x-forwarded-for", "203.0.113.1, 203.0.113"),
    ] {
        let counts = client(&gateway, &[(name, value)]).await;
        assert_eq!(counts, "127.0.0.1", "{value}");
    }
    for (name, value, counts) in [
        ("forwarded", "for=unknown", "127.0.0.1"),
        ("forwarded", "for=_hidden;proto=http", "127.0.0.1"),
        ("x-forwarded-for", "unknown", "127.0.0.1"),
        // Entries that earlier hops wrote are not read.
        ("forwarded", "for=6.6.6.6, for=_x, for=10.0.0.9", "10.0.0.9"),
    ] {
        assert_eq!(client(&gateway, &[(name, value)]).await, counts, "{value}");
    }
    for fields in [&[][..], &[("x-forwarded-for", "")], &[("forwarded", " , ")]] {
        assert_eq!(client(&gateway, fields).await, "127.0.0.1");
    }
    let metrics = gateway.metrics().await;
    for (cause, count) in [("malformed", 5), ("unknown", 4), ("absent", 3)] {
        let sample = format!("tollgate_client_unnamed_total{{cause=\"{cause}\"}} {count}");
        assert!(metrics.contains(&sample), "{sample} in {metrics}");
    }
    let lines = gateway.said.lines();
    let told = |what: &str| -> Vec<&String> {
        let lines = lines.iter();
        lines
            .filter(|line| line.contains("names no client") && line.contains(what))
            .collect()
    };
    let (malformed, unknown) = (told("is malformed"), told("is unknown"));
    assert_eq!((malformed.len(), unknown.len()), (1, 1), "{lines:?}");
    assert!(malformed[0].contains("127.0.0.1") && malformed[0].contains("for=203.0.113.61;for"));
}

#[tokio::test]
async fn an_empty_field_sends_no_leading_comma_on() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[]).server("trust = [\"127.0.0.1\"]");
    let gateway = Gateway::start(&file).await;
    let own = "for=127.0.0.1;host=gateway.test;proto=http";
    for (fields, listed, forwarded) in [
        (&[("x-forwarded-for", "")][..], "", ""),
        (&[("x-forwarded-for", " , ")], "", ""),
        (&[("x-forwarded-for", ""), ("forwarded", "")], "", ""),
        (&[("forwarded", "")], "", ""),
        (
            &[("x-forwarded-for", ", 203.0.113.9,")],
            "203.0.113.9, ",
            "for=203.0.113.9, ",
        ),
        (
            &[("x-forwarded-for", ""), ("x-forwarded-for", "203.0.113.10")],
            "203.0.113.10, ",
            "for=203.0.113.10, ",
        ),
        (
            &[("forwarded", ",for=203.0.113.11,")],
            "203.0.113.11, ",
            "for=203.0.113.11, ",
        ),
    ] {
        let seen = gateway.get_with("/", fields).await.expect(200).echoed();
        let listed = format!("{listed}127.0.0.1");
        assert_eq!(seen.fields.all("x-forwarded-for"), [listed], "{fields:?}");
        let forwarded = format!("{forwarded}{own}");
        assert_eq!(seen.fields.all("forwarded"), [forwarded], "{fields:?}");
    }
}

/// Addresses in the file are compared with the addresses that clients are counted by. A client behind a translator is
/// counted by its IPv4 address.
#[tokio::test]
async fn addresses_of_the_file_may_be_those_of_a_translator() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["calls"])
        .limit(
            "calls",
            "by = \"ip\"\nrate = \"1/h\"\nexempt = { ip = [\"64:ff9b::700:0/104\", \"2001:db8:64::/112\"], groups = [\"known\"] }",
        )
        .server(
            "trust = [\"127.0.0.0/8\", \"64:ff9b::5.5.5.5\"]\nnat64 = \"2001:db8:64::/96\"",
        )
        .with("[groups.known]\nby = \"ip\"\nmembers = [\"64:ff9b::808:505\", \"2001:db8:64::a00:0/104\"]");
    let gateway = Gateway::start(&file).await;
    for (listed, free) in [
        ("64:ff9b::808:505", true),
        ("8.8.5.5", true),
        ("8.8.5.6", false),
        ("7.1.2.3", true),
        ("64:ff9b::7.9.9.9", true),
        ("2001:db8:64::10.9.9.9", true),
        ("0.0.9.9", true),
        ("0.1.9.9", false),
        // The trusted hop in front of the gateway, in either form of its address.
        ("8.8.5.5, 64:ff9b::5.5.5.5", true),
        ("8.8.5.5, 5.5.5.5", true),
    ] {
        for status in [200, if free { 200 } else { 429 }] {
            let fields = [("x-forwarded-for", listed)];
            let answer = gateway.get_with("/", &fields).await;
            assert_eq!(answer.status, status, "{listed}");
        }
    }
}

#[tokio::test]
async fn behind_a_translator_each_ipv4_address_is_a_client() {
    let upstream = Upstream::echo().await;
    let gateway = gateway(&upstream, "nat64 = \"2001:db8:64::/96\"").await;
    let listed = |address: &'static str| [("x-forwarded-for", address)];
    for (address, named) in [
        ("64:ff9b::808:808", "8.8.8.8"),
        ("64:ff9b::909:909", "9.9.9.9"),
        ("2001:db8:64::10.1.2.3", "10.1.2.3"),
        ("64:ff9b::10.1.2.3", "64:ff9b::a01:203"),
        ("2001:db8:65::808:808", "2001:db8:65::808:808"),
    ] {
        assert_eq!(client(&gateway, &listed(address)).await, named);
    }
    // The same client, in either form of its address.
    gateway.get_with("/", &listed("8.8.8.8")).await.expect(429);
    let element = [("forwarded", "for=\"[64:ff9b::9.9.9.9]\"")];
    gateway.get_with("/", &element).await.expect(429);
}

/// The field is the client of everything, and servers get it as the first hop. No other peer may send it.
#[tokio::test]
async fn a_field_of_one_address_is_the_client() {
    let upstream = Upstream::echo().await;
    let named = |trust: &str| {
        File::to(&upstream, &["ip"])
            .limit("ip", "by = \"ip\"\nrate = \"1/h\"")
            .server(&format!(
                "trust = [\"{trust}\", \"203.0.113.0/24\"]\ntrust_field = \"x-client\""
            ))
    };
    let gateway = Gateway::start(&named("127.0.0.1")).await;
    let sent = [
        ("x-client", "[2001:db8::1]:443"),
        ("x-forwarded-for", "6.6.6.6"),
    ];
    let answer = gateway.get_with("/", &sent).await.expect(200);
    let seen = answer.echoed();
    assert_eq!(
        seen.fields.all("x-forwarded-for"),
        ["2001:db8::1, 127.0.0.1"]
    );
    assert_eq!(seen.fields.all("x-real-ip"), ["2001:db8::1"]);
    assert_eq!(gateway.line_of(&answer).await["client"], "2001:db8::1");
    // One /64 is one client.
    gateway
        .get_with("/", &[("x-client", "2001:db8::2")])
        .await
        .expect(429);
    assert_eq!(
        client(&gateway, &[("x-client", "203.0.113.9:80")]).await,
        "203.0.113.9"
    );
    for nobody in [
        &[("x-client", "192.0.2.1, 192.0.2.2")][..],
        &[("x-client", "192.0.2.1"), ("x-client", "192.0.2.1")],
        &[("x-forwarded-for", "192.0.2.1")],
        &[("forwarded", "for=192.0.2.1")],
    ] {
        assert_eq!(client(&gateway, nobody).await, "127.0.0.1", "{nobody:?}");
    }
    let stranger = Gateway::start(&named("10.0.0.1")).await;
    let answer = stranger.get_with("/", &sent).await.expect(200);
    assert!(!answer.echoed().fields.has("x-client"));
    assert_eq!(stranger.line_of(&answer).await["client"], "127.0.0.1");
}
