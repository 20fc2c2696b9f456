//! Keys and groups of a request, which the access log has in addition to the request's parts.

use crate::key::{Identity, TokenDoubt, UnknownKey};
use crate::limit::Limit;
use crate::replay::request::LoggedRequest;
use std::borrow::Cow;

/// The digest of a value of no group: no known text has this digest.
const UNKNOWN_KEY: &[u8] = b"%sha=00000000000000000000000000000000";

/// Writes the key that `limit` counted `request` under by the log; returns false if the log has none.
#[inline]
pub(super) fn write_logged(request: &LoggedRequest<'_>, limit: &Limit, out: &mut Vec<u8>) -> bool {
    let may_say = !request.keys.is_empty() || limit.by.unknown.is_some();
    may_say && write_said(request, limit, out)
}

fn write_said(request: &LoggedRequest<'_>, limit: &Limit, out: &mut Vec<u8>) -> bool {
    if !request.keys.is_empty()
        && let Some(key) = request.logged_key(&limit.name)
    {
        out.extend_from_slice(key.as_bytes());
        return true;
    }
    let Some(known) = &limit.by.unknown else {
        return false;
    };
    // No log has a key that was refused as unknown, or that a limit that only counts would have refused. Of a key of
    // several parts, the log has neither the unknown part nor the others, so that a limit that counts such keys has no
    // key for the request.
    let parts = limit.by.parts.len();
    let is_enough = parts == 1 || known.otherwise == UnknownKey::Refuse;
    if !is_enough || !request.was_unknown_to(&limit.name) {
        return false;
    }
    for at in 0..parts {
        if at > 0 {
            out.push(b'|');
        }
        out.extend_from_slice(UNKNOWN_KEY);
    }
    true
}

/// The log names the groups that changed a limit for a request, so that the request was in these groups even if the
/// line lacks parts. A token that was not trusted is not verified again.
impl Identity for LoggedRequest<'_> {
    fn doubt(&self) -> Option<TokenDoubt> {
        self.was_doubted().then_some(TokenDoubt::Untrusted)
    }

    fn tells_customer(&self) -> Option<Cow<'_, str>> {
        let name = Some(&*self.customer).filter(|name| !name.is_empty());
        name.map(Cow::Borrowed)
    }

    fn tells_group(&self, group: &str) -> bool {
        self.is_logged_in(group)
    }
}
