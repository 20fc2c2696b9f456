//! What `tollgate explain` says of the certificate that a client would show, and of files that are none.

use crate::support::tls::Authority;
use crate::support::{Finished, tollgate};

/// Asks with `file` as the client's certificate, of a file in which `inner.test` demands one.
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
    let line = "the client's certificate is taken: CN=anna";
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
