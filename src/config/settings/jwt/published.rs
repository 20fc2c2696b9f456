//! URLs of `jwks`, at which issuers publish their keys, and the authorities by which their servers are verified.
//! Nothing is read from these URLs while the file is loaded.

use crate::config::document::Jwt as Written;
use crate::config::input::{At, SideFiles};
use crate::config::report::{Code, Details as _};
use crate::config::settings::client_tls;
use crate::config::value::quoted;
use crate::key::key_rules::KeyRules;
use crate::key::key_set::KeySet;
use crate::key::token::is_shared;
use crate::telemetry::shown_url;
use crate::tls::ClientTls;
use http::Uri;
use std::net::IpAddr;
use std::sync::Arc;

/// Keys that are read from a URL.
#[derive(Debug, Clone)]
pub struct PublishedKeys {
    /// The keys.
    pub set: Arc<KeySet>,
    /// The TLS settings by which the server is verified.
    pub tls: ClientTls,
}

/// Is the text a URL and not the path of a file?
pub(super) fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http")
    })
}

/// Reads the URLs of `jwks`, and `ca`.
pub(super) fn read_published(
    written: &Written,
    rules: &KeyRules,
    side_files: &mut SideFiles<'_>,
) -> Vec<PublishedKeys> {
    let entries = written.jwks.entries().iter();
    let urls: Vec<&At<String>> = entries.filter(|at| is_url(&at.value)).collect();
    if let (Some(ca), true) = (written.ca.at(), urls.is_empty()) {
        side_files
            .found
            .conflict("`ca` in `[jwt]` is of no use: `jwks` has no URL")
            .at(&ca.span, "for servers that publish keys");
    }
    let label = "the authorities of servers that publish keys";
    let tls = client_tls::trusted_servers(&written.ca, label, side_files);
    let mut published: Vec<PublishedKeys> = Vec::new();
    for url in urls {
        let fault = match fault(&url.value) {
            None if rules.algorithms.iter().any(|one| is_shared(*one)) => {
                Some("a shared secret is never published: name the file with `keys`")
            }
            fault => fault,
        };
        if let Some(why) = fault {
            let shown = if url.value.contains('@') {
                // The text before `@` is a secret.
                "an entry of `jwks`".into()
            } else {
                quoted(&shown_url(&url.value))
            };
            let message = format!("{shown} is no URL to read keys from");
            side_files
                .found
                .error(Code::BadJwtKey, message)
                .at(&url.span, why);
            continue;
        }
        let is_there = |one: &PublishedKeys| **one.set.url() == *url.value;
        if let (Some(tls), false) = (&tls, published.iter().any(is_there)) {
            published.push(PublishedKeys {
                set: Arc::new(KeySet::new(&url.value, rules.clone())),
                tls: tls.clone(),
            });
        }
    }
    published
}

/// The reason why keys cannot be read from this URL.
fn fault(text: &str) -> Option<&'static str> {
    let Ok(url) = text.parse::<Uri>() else {
        return Some("not a URL");
    };
    let (Some(authority), Some(host)) = (url.authority(), url.host().filter(|it| !it.is_empty()))
    else {
        return Some("it has no host");
    };
    if authority.as_str().contains('@') {
        return Some("a name and password in a URL are not sent");
    }
    if text.contains('#') {
        return Some("a fragment (`#`) is not sent");
    }
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_here = host.eq_ignore_ascii_case("localhost")
        || address.parse().is_ok_and(|it: IpAddr| it.is_loopback());
    let is_http = url
        .scheme_str()
        .is_some_and(|it| it.eq_ignore_ascii_case("http"));
    (is_http && !is_here).then_some(
        "write `https://`: over `http://` anyone on the network could send false keys; `http://` is allowed only for this machine",
    )
}
