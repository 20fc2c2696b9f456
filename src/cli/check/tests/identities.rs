//! The notes and warnings about certificates, listeners and an open Redis.

use super::*;

/// A finding of `--connect` is a warning in every format, and the file may ignore it.
#[test]
fn an_open_redis_is_a_warning_as_any() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let ask = |_: &Compiled| {
        let said = connectivity::Probe::of_redis("redis://cache".into(), true, Ok("there".into()));
        Ok(vec![said])
    };
    let text = format!("{GOOD}limits = \"per-key\"\n");
    let asked = |text: &str, format| {
        std::fs::write(&file, text).unwrap();
        let colour = Colour::Off;
        output(
            CheckedFile {
                path: &file,
                environment: &EnvironmentFiles::default(),
            },
            &CheckTask::Connect,
            Style { format, colour },
            true,
            ask,
        )
    };
    for (format, expected) in [
        (
            Format::Human,
            "warning[open-store]: any client that reaches redis://cache",
        ),
        (Format::Json, "\"warnings\":1"),
        (Format::Github, "::warning file="),
        (Format::Sarif, "\"ruleId\": \"open-store\""),
    ] {
        let answer = asked(&text, format);
        let all = format!("{}{}", answer.out, answer.err);
        assert!(all.contains(expected), "{format:?}: {all}");
        assert!(all.contains("there"), "{format:?}: {all}");
        assert_eq!(answer.code, 1, "{format:?}: {all}");
    }
    let meant = text.replace("[store]", "[store]\nignore_warnings = \"open-store\"");
    let answer = asked(&meant, Format::Json);
    assert_eq!(answer.code, 0, "{}", answer.out);
    assert!(answer.out.contains("\"ignored\":1"), "{}", answer.out);
    // Without `--connect` no server is contacted: the ignored code is not reported as unused.
    let answer = checked(&meant, Format::Json, true);
    assert_eq!(answer.code, 0, "{}", answer.out);
}

#[test]
fn identities_and_listeners_are_said() {
    let tls = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/tls");
    let text = format!(
        "ignore_warnings = [\"key-readable\"]\n\
         [server]\nlisten = [{{ address = \":80\", redirect = \"https\" }}, {{ address = \":443\", tls = true }}]\n\
         [tls.api]\ncert = \"{tls}/api.pem\"\nkey = \"{tls}/open.key\"\nclient = \"{tls}/authority.pem\"\n\
         [tls.shop]\ncert = \"{tls}/shop.pem\"\nkey = \"{tls}/shop.key\"\ndefault = true\n\
         {GOOD}limits = \"per-key\"\n"
    );
    let said = checked(&text, Format::Human, false).out;
    for line in [
        "  identity api: api.example.com; ECDSA P-256, ends at 4000-01-01T00:00:00Z; clients must show a certificate of 1 authority\n",
        "  identity shop: shop.example.com, *.api.example.com; ECDSA P-256, ends at 4000-01-01T00:00:00Z\n",
        "  listener :80: no TLS; all requests are sent on to https\n",
        "  listener :443: TLS by api, shop; shop for clients with another host or none\n",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let object = checked(&text, Format::Json, false).out;
    for part in [
        "\"client\":{\"authorities\":1,\"verify\":\"required\"}",
        "\"default\":\"shop\",\"identities\":[\"api\",\"shop\"]",
        "\"redirect\":\"https\"",
    ] {
        assert!(object.contains(part), "{object}");
    }
}

#[test]
fn listeners_say_who_must_name_clients() {
    let text = format!(
        "[server]\ntrust = \"10.0.0.0/8\"\nlisten = [{{ address = \":80\", proxy_protocol = \"192.0.2.0/24\" }}, \
         {{ address = \":81\", proxy_protocol = true }}, {{ address = \"unix:/run/t.sock\", proxy_protocol = true }}, \":82\"]\n\
         {GOOD}limits = \"per-key\"\n"
    );
    let said = checked(&text, Format::Human, false).out;
    for line in [
        ":80: no TLS; peers in 192.0.2.0/24 must begin with a header of the PROXY protocol\n",
        ":81: no TLS; peers in the networks of `trust` must begin with a header of the PROXY protocol\n",
        "unix:/run/t.sock: no TLS; all peers must begin with a header of the PROXY protocol\n",
        ":82: no TLS\n",
    ] {
        assert!(said.contains(&format!("  listener {line}")), "{said}");
    }
    let object = checked(&text, Format::Json, false).out;
    assert!(
        object.contains("\"proxy_protocol\":\"192.0.2.0/24\""),
        "{object}"
    );
}

#[test]
fn groups_by_subject_among_several_authorities_are_noted() {
    let tls = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/tls");
    let noted = |second: &str| {
        let text = format!(
            "ignore_warnings = [\"key-readable\"]\n[server]\nlisten = {{ address = \":443\", tls = true }}\n\
             [groups.vip]\nby = \"tls:subject\"\nmembers = \"CN=anna\"\n\
             [tls.api]\ncert = \"{tls}/api.pem\"\nkey = \"{tls}/open.key\"\nclient = \"{tls}/authority.pem\"\n\
             [tls.shop]\ncert = \"{tls}/shop.pem\"\nkey = \"{tls}/shop.key\"\nclient = \"{tls}/{second}\"\n\
             {GOOD}limits = \"per-key\"\n"
        );
        checked(&text, Format::Human, false).out
    };
    let note = "note: group vip uses `tls:subject`, and identities trust different authorities";
    assert!(noted("clients.pem").contains(note));
    assert!(!noted("authority.pem").contains(note));
}
