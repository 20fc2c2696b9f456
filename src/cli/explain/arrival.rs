//! The listener by which a request comes: with TLS or without, or one that sends everything on to `https`.

use super::explanation::ExpectedAnswer;
use crate::config::Compiled;
use crate::listen::listener::Listener;
use crate::proxy::https_redirect;
use crate::proxy::request::Target;
use http::{Uri, header, uri};

/// Does a request for `uri` come by TLS? One without a scheme does where no listener serves requests without TLS.
pub(super) fn comes_by_tls(compiled: &Compiled, uri: &Uri) -> bool {
    let has_tls = compiled.offers.iter().any(Option::is_some);
    has_tls
        && match uri.scheme() {
            Some(scheme) => *scheme == uri::Scheme::HTTPS,
            None => !plain(compiled).any(|listener| !listener.redirects),
        }
}

/// The listeners without TLS.
fn plain(compiled: &Compiled) -> impl Iterator<Item = &Listener> {
    let listeners = compiled.boot.listen.listeners.iter();
    listeners.filter(|listener| listener.tls.is_none())
}

/// Is every request without TLS sent on to `https`?
pub(super) fn is_sent_on(compiled: &Compiled) -> bool {
    let mut all = plain(compiled).peekable();
    all.peek().is_some() && all.all(|listener| listener.redirects)
}

/// The answer of a listener that sends its requests on.
pub(super) fn sent_on(target: &Target, uri: &Uri) -> ExpectedAnswer {
    match https_redirect::answer(target, uri) {
        Ok(answer) => {
            let there = answer.headers().get(header::LOCATION);
            let there = there.map(|there| String::from_utf8_lossy(there.as_bytes()));
            let reason = format!("the listener sends it on to {}", there.unwrap_or_default());
            ExpectedAnswer::gateway(answer.status().as_u16(), reason)
        }
        Err(refused) => ExpectedAnswer::refused(&refused),
    }
}
