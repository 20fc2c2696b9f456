//! Rules within an upstream: no server twice, and no settings of TLS without a server that needs them.

pub(super) mod upstream_rules;

use crate::config::document::Upstream;
use crate::config::input::At;
use crate::config::report::{Code, Details as _, Findings};
use crate::upstream::{ServerProtocol, ServerUrl};

/// Applies the rules to an upstream.
pub(super) fn check_upstream(upstream: &Upstream, found: &mut Findings) {
    let servers = upstream.servers.entries().iter();
    let urls: Vec<&At<ServerUrl>> = servers.filter_map(|entry| entry.value.url.at()).collect();
    let twice = |url: &ServerUrl| format!("{upstream} has {url} twice");
    super::repeated(urls.iter().copied(), twice, found);
    super::repeated_limit(&upstream.limits, upstream, found);
    if !urls.is_empty() {
        tls(upstream, &urls, found);
        http(upstream, &urls, found);
    }
}

fn tls(upstream: &Upstream, urls: &[&At<ServerUrl>], found: &mut Findings) {
    let Some(At { value: tls, span }) = upstream.tls.at() else {
        return;
    };
    if !urls.iter().any(|url| url.value.is_encrypted()) {
        found
            .conflict(format!(
                "`tls` of {upstream} has no effect: no server is `https`"
            ))
            .at(span, "for servers with TLS")
            .and(&urls[0].span, "without TLS")
            .help("write `https://` where the server speaks TLS, or leave `tls` out");
    }
    let pair = [
        ("cert", &tls.cert, "key", &tls.key),
        ("key", &tls.key, "cert", &tls.cert),
    ];
    for (name, written, other, absent) in pair {
        if let (Some(written), true) = (written.at(), absent.is_absent()) {
            let message = format!("`tls` of {upstream} has `{name}` without `{other}`");
            found
                .error(Code::MissingKey, message)
                .at(&written.span, "one of the two alone")
                .help("a certificate needs its key: write both, or none");
        }
    }
    let Some(insecure) = tls.insecure.at().filter(|insecure| insecure.value) else {
        return;
    };
    let message = format!("{upstream} trusts any certificate");
    found
        .warning(Code::InsecureUpstream, message)
        .at(
            &insecure.span,
            "anybody between the gateway and its servers can read and change everything",
        )
        .help("name the authority of the servers' certificates: `ca = \"internal-ca.pem\"`");
    if let Some(ca) = tls.ca.at() {
        found
            .conflict(format!(
                "`tls` of {upstream} names authorities and trusts any certificate"
            ))
            .at(&ca.span, "the authorities to trust")
            .and(&insecure.span, "and any other")
            .help("leave `insecure` out: with `ca` certificates are verified");
    }
}

fn http(upstream: &Upstream, urls: &[&At<ServerUrl>], found: &mut Findings) {
    let Some(http) = upstream.http.at() else {
        return;
    };
    let h2c = urls
        .iter()
        .find(|url| matches!(url.value, ServerUrl::H2c { .. }));
    if let (ServerProtocol::Http1, Some(h2c)) = (http.value, h2c) {
        found
            .conflict(format!("{upstream} asks a server of HTTP/2 in HTTP/1.1"))
            .at(&http.span, "HTTP/1.1 alone")
            .and(&h2c.span, "HTTP/2 alone")
            .help("write `http://` for the server, or leave `http` out");
    }
}
