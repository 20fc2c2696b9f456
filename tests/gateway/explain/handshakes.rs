//! The words of `tollgate explain` about the certificate that a client would show, and about files that contain none.

use crate::support::tls::Authority;
use crate::support::{Finished, tollgate};

/// Asks with `file` as the client's certificate. The configuration demands one for `inner.test`.
async fn shown(ca: &Authority, file: &str) -> Finished {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[server]\nlisten = {{ address = \"127.0.0.1:0\", tls = true }}\n{}client = {:?}\n\
         [upstreams.u]\nservers = \"127.0.0.1:1\"\n[routes.r]\nupstream = \"u\"\n",
        ca.identity("inner", &["inner.test"]),
        ca.path("ca.pem"),
    );
    std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
    let file = ca.path(file);
    let asked = ["explain", "GET", "https://inner.test/", "--client-cert"];
    let asked = [&asked[..], &[file.to_str().unwrap()]].concat();
    tollgate(folder.path(), &asked).await
}

#[tokio::test]
async fn a_file_that_is_no_certificate_is_a_mistake_of_the_command() {
    let ca = Authority::new();
    ca.write("anna", &ca.client("anna"));
    let taken = shown(&ca, "anna.pem").await;
    assert_eq!(taken.code, Some(0), "{taken:?}");
    let line = "the client's certificate is accepted: CN=anna";
    assert!(taken.stdout.contains(line), "{taken:?}");
    let begin = "-----BEGIN CERTIFICATE-----";
    let broken = format!("{begin}\nAAAA\n-----END CERTIFICATE-----\n");
    std::fs::write(ca.path("broken.pem"), broken).unwrap();
    std::fs::write(ca.path("cut.pem"), format!("{begin}\nAAAA\n")).unwrap();
    std::fs::write(ca.path("empty.pem"), "").unwrap();
    let none = format!("it has no `{begin}`");
    for (file, why) in [
        ("anna.key", none.as_str()),
        ("empty.pem", &none),
        ("broken.pem", "its first certificate is broken"),
        ("cut.pem", "it is no PEM file"),
    ] {
        let refused = shown(&ca, file).await;
        assert_eq!(refused.code, Some(2), "{file}: {refused:?}");
        let line = format!("{file} is no client's certificate: {why}\nhelp: name the PEM file");
        assert!(refused.stderr.contains(&line), "{file}: {refused:?}");
        assert!(refused.stdout.is_empty(), "{file}: {refused:?}");
    }
    let missing = shown(&ca, "missing.pem").await;
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.stderr.contains("cannot read "), "{missing:?}");
}

#[tokio::test]
async fn the_port_of_a_request_says_which_listener_it_goes_to() {
    let (ca, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let text = format!(
        "[server]\nlisten = [{{ address = \":443\", tls = \"open\" }}, {{ address = \":8443\", tls = \"inner\" }},\n\
         {{ address = \":80\", redirect = \"https\" }}, \"127.0.0.1:8080\"]\n{}{}client = {:?}\n\
         [upstreams.u]\nservers = \"127.0.0.1:1\"\n[routes.r]\nupstream = \"u\"\n",
        ca.identity("open", &["open.test"]),
        ca.identity("inner", &["inner.test"]),
        ca.path("ca.pem"),
    );
    std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
    let (open, inner) = ("identity open of listener", "identity inner of listener");
    let sent_on = "308 by the gateway: the listener sends it on";
    for (asked, said) in [
        (&["https://open.test:8443/"][..], inner),
        (&["https://inner.test:443/"], open),
        // Without a port, `explain` takes the listener for this name.
        (&["https://open.test/"], open),
        (&["https://inner.test/"], inner),
        // This port belongs to another server in front of the gateway.
        (&["https://inner.test:9443/"], inner),
        (&["/", "--host", "open.test:8443"], inner),
        (&["/", "--sni", "inner.test"], inner),
        (&["http://open.test/"], "route   r"),
        (&["http://open.test:80/"], sent_on),
        (&["http://open.test:8080/"], "route   r"),
        (&["/"], "route   r"),
        (&["/", "--host", "open.test:80"], sent_on),
    ] {
        let explained = tollgate(folder.path(), &[&["explain", "GET"], asked].concat()).await;
        assert_eq!(explained.code, Some(0), "{asked:?}: {explained:?}");
        assert!(explained.stdout.contains(said), "{asked:?}: {explained:?}");
    }
}

/// A client without the demanded certificate gets no answer at all, and no 400 for its target.
#[tokio::test]
async fn a_handshake_is_refused_before_any_target() {
    let (ca, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let text = format!(
        "[server]\nlisten = {{ address = \"127.0.0.1:0\", tls = true }}\n{}client = {:?}\n\
         [upstreams.u]\nservers = \"127.0.0.1:1\"\n[routes.r]\nupstream = \"u\"\n",
        ca.identity("inner", &["inner.test"]),
        ca.path("ca.pem"),
    );
    std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
    ca.write("anna", &ca.client("anna"));
    let shown = ca.path("anna.pem");
    let shows = ["--client-cert", shown.to_str().unwrap()];
    for (target, answer) in [
        (
            "one/two",
            "400 by the gateway: the target is neither a path nor a URI",
        ),
        ("/", "the upstream's"),
    ] {
        let asked = [
            "explain",
            "GET",
            target,
            "--host",
            "inner.test",
            "--sni",
            "inner.test",
        ];
        let refused = tollgate(folder.path(), &asked).await.stdout;
        let end = "answer  none, since the handshake is refused\n";
        assert!(refused.ends_with(end), "{target}: {refused}");
        let taken = tollgate(folder.path(), &[&asked[..], &shows].concat())
            .await
            .stdout;
        assert!(
            taken.contains(&format!("answer  {answer}")),
            "{target}: {taken}"
        );
    }
}
