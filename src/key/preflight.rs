//! Preflights, and their counters.
//!
//! Preflights carry no credentials, so that a limit that counts by credentials would refuse requests that it could
//! never count correctly. Uncounted preflights would be a way around every limit. So they are counted separately from
//! all other requests, on counters of their own.

use super::part::{write_address, write_part};
use super::{Caller, KeyTemplate};
use http::{HeaderName, Method, header};

/// Fields that ask an upstream for another method than the request's. Browsers write none of them into a preflight.
pub const OTHER_METHODS: [HeaderName; 3] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
];

/// The beginning of a preflight's key.
pub(super) const PREFLIGHT: &[u8] = b"%preflight";

impl Caller<'_> {
    /// Does a browser ask whether it may send another request (Fetch, section 4.8 "CORS-preflight fetch")? Browsers ask
    /// without a body and without credentials. A request that names another method is not a preflight: the upstream may
    /// run that method.
    #[must_use]
    pub fn is_preflight(&self) -> bool {
        let has = |name| self.fields.contains_key(name);
        *self.method == Method::OPTIONS
            && self.content.is_absent()
            && has(header::ORIGIN)
            && has(header::ACCESS_CONTROL_REQUEST_METHOD)
            && !has(header::COOKIE)
            && !has(header::AUTHORIZATION)
            && !OTHER_METHODS
                .iter()
                .any(|name| self.fields.contains_key(name))
    }
}

impl KeyTemplate {
    /// The key of the preflights of the client whose key is `key`, if that key shows it: an address, a route and a
    /// method do, and values that browsers never send with a preflight do not.
    #[must_use]
    pub fn preflight_of(&self, key: &[u8]) -> Option<Vec<u8>> {
        let is_shown = self.parts.iter().all(|part| !part.can_be_absent());
        let is_preflight = key.starts_with(PREFLIGHT);
        (is_shown && !is_preflight).then(|| {
            let bar: &[u8] = if self.parts.is_empty() { b"" } else { b"|" };
            [PREFLIGHT, bar, key].concat()
        })
    }

    /// Appends the key of a preflight, which is counted separately from all other requests. The client's address
    /// replaces values that browsers never send with a preflight, or that any client may invent. So a flood of
    /// preflights counts on one counter, for any values.
    pub fn write_preflight(&self, caller: &Caller<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFLIGHT);
        for part in &self.parts {
            out.push(b'|');
            if part.can_be_absent() {
                write_address(caller, out);
            } else {
                write_part(part, self.case, caller, out);
            }
        }
    }
}
