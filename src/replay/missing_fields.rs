//! The parts of requests that answers depend on and that no line of a trace has: clients, paths, parts of keys.

use super::policy_side::PolicySide;
use super::report::{Note, Report};
use super::request::{LogFormat, LoggedRequest};
use crate::client::is_private;
use crate::key::client_ip::Trust;
use crate::key::{InLog, KeyPart};
use http::HeaderName;
use std::net::IpAddr;
use std::sync::Arc;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The findings of the lines read so far.
#[derive(Debug, Default)]
pub(super) struct MissingFields {
    /// The parts that an answer needs and that no line has had yet.
    expected: Vec<ExpectedField>,
    clients: ClientSpread,
    has_nameless_fields: bool,
    /// A private peer with a list of addresses that `trust` does not trust.
    untrusted: Option<IpAddr>,
}

#[derive(Debug, PartialEq, Eq)]
enum ExpectedField {
    /// A part of a key that a limit counts by.
    Part { limit: Arc<str>, part: KeyPart },
    /// The host, if a route has a condition about it.
    Host,
}

/// The spread of the clients' addresses.
#[derive(Debug, Default)]
struct ClientSpread {
    /// The first address, and the number of lines with a client; `None` before the first.
    first: Option<(IpAddr, u64)>,
    /// Has a later line another address?
    differ: bool,
    /// Is there an address that `trust` does not name?
    is_distrusted: bool,
}

impl MissingFields {
    /// The expectations of these files, before the first line.
    pub(super) fn new(sides: &[PolicySide]) -> Self {
        let mut expected = Vec::new();
        for side in sides {
            for limit in side.limits() {
                for part in limit
                    .by
                    .parts
                    .iter()
                    .filter(|part| part.in_log() != InLog::Always)
                {
                    let limit = Arc::clone(limit.shown());
                    let want = ExpectedField::Part {
                        limit,
                        part: part.clone(),
                    };
                    if !expected.contains(&want) {
                        expected.push(want);
                    }
                }
            }
            if side.asks_for_hosts() && !expected.contains(&ExpectedField::Host) {
                expected.push(ExpectedField::Host);
            }
        }
        Self {
            expected,
            ..Self::default()
        }
    }

    /// Notes the parts that a line's request has; `address` is its client's for `side`.
    #[inline]
    pub(super) fn look(
        &mut self,
        request: &LoggedRequest<'_>,
        address: Option<IpAddr>,
        side: &PolicySide,
    ) {
        if !self.expected.is_empty() {
            self.expected.retain(|want| !want.is_met(request));
        }
        if let Some(address) = address {
            self.clients.add(address, side.trust());
        }
        if let Some(proxy_fields) = &request.proxy_fields {
            self.has_nameless_fields |= proxy_fields.has_nameless_fields;
            self.look_back(request, address, side);
        }
    }

    #[cold]
    fn look_back(
        &mut self,
        request: &LoggedRequest<'_>,
        address: Option<IpAddr>,
        side: &PolicySide,
    ) {
        let is_strange =
            |address: &IpAddr| is_private((*address).into()) && !side.trust().has(*address);
        if self.untrusted.is_none() && request.fields.contains_key(X_FORWARDED_FOR) {
            self.untrusted = address.filter(is_strange);
        }
    }

    /// Notes for the reader of the report.
    pub(super) fn notes(&self, report: &Report) -> Vec<Note> {
        let mut notes = Vec::new();
        let mut note = |code, text| notes.push(Note { code, text });
        if let Some(text) = self.proxy_note() {
            note("proxy-log", text);
        }
        let has_requests = report.requests > 0;
        for want in self.expected.iter().filter(|_| has_requests) {
            match want {
                ExpectedField::Part { limit, part } => note(
                    "not-replayable",
                    format!(
                        "limit `{limit}` counts by {part}, which no line has: this limit cannot be replayed from this log"
                    ),
                ),
                ExpectedField::Host => {
                    let text = "no line names a host: routes for a host matched nothing; log the host, for example as `host` in JSON";
                    note("no-host", text.to_owned());
                }
            }
        }
        if report.formats[LogFormat::Haproxy as usize] > 0 {
            let text = "HAProxy writes times without a zone: they were taken as UTC";
            note("no-zone", text.to_owned());
        }
        if self.has_nameless_fields {
            let text = "HAProxy writes captured fields in braces without names; they were skipped, and limits by these fields cannot be replayed from this log";
            note("nameless-fields", text.to_owned());
        }
        notes
    }

    /// A note if the trace seems to be the log of a server behind a proxy: such a log has the proxy's address for all
    /// clients.
    fn proxy_note(&self) -> Option<String> {
        const INSTEAD: &str = "let the log also have the list that the proxy gets in X-Forwarded-For, as nginx's main format does with \
                               \"$http_x_forwarded_for\" at the end";
        const COUNTED: &str =
            "this is the log of a server behind a proxy, so limits by ip counted the proxy";
        let ClientSpread { first, differ, .. } = self.clients;
        if self.clients.are_trusted() {
            return Some(format!(
                "every client is in a network of `trust`: {COUNTED}; {INSTEAD}"
            ));
        }
        if let Some(peer) = self.untrusted {
            return Some(format!(
                "lines of {peer} name the clients behind it in X-Forwarded-For, and are not trusted: limits by ip counted the proxy; name its network in `[server]` `trust`, for example with --set server.trust={peer}"
            ));
        }
        let (address, _) =
            first.filter(|(address, lines)| *lines > 1 && is_private((*address).into()))?;
        (!differ).then(|| {
            format!(
                "every client is {address}: {COUNTED}; {INSTEAD}, and name the proxy's network in `[server]` `trust`"
            )
        })
    }
}

impl ExpectedField {
    fn is_met(&self, request: &LoggedRequest<'_>) -> bool {
        match self {
            Self::Host => !request.target().host.is_empty(),
            Self::Part { limit, part } => {
                request.logged_key(limit).is_some()
                    || match part.in_log() {
                        InLog::Field => part
                            .field()
                            .is_some_and(|name| request.fields.contains_key(name)),
                        InLog::Cookies => request.fields.contains_key(http::header::COOKIE),
                        InLog::Authorization => {
                            request.fields.contains_key(http::header::AUTHORIZATION)
                        }
                        InLog::Query => request.target().query.is_some(),
                        InLog::Customer => !request.customer.is_empty(),
                        InLog::Host => !request.target().host.is_empty(),
                        InLog::Always | InLog::Never => false,
                    }
            }
        }
    }
}

impl ClientSpread {
    fn add(&mut self, address: IpAddr, trust: &Trust) {
        let (first, lines) = self.first.get_or_insert((address, 0));
        self.differ |= *first != address;
        *lines += 1;
        let is_known = *lines > 1 && *first == address;
        self.is_distrusted |= !is_known && !self.is_distrusted && !trust.has(address);
    }

    fn are_trusted(&self) -> bool {
        self.first.is_some() && !self.is_distrusted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxys_log_is_known_by_its_addresses() {
        let trust = Trust::new(vec!["10.0.0.0/8".parse().unwrap()]);
        let spread = |addresses: &[&str]| {
            let mut clients = ClientSpread::default();
            for address in addresses {
                clients.add(address.parse().unwrap(), &trust);
            }
            (clients.are_trusted(), clients.differ)
        };
        assert_eq!(spread(&[]), (false, false));
        assert_eq!(spread(&["10.0.0.1", "10.0.0.1"]), (true, false));
        assert_eq!(spread(&["10.0.0.1", "10.0.0.2", "10.0.0.1"]), (true, true));
        assert_eq!(
            spread(&["10.0.0.1", "10.0.0.2", "192.0.2.1"]),
            (false, true)
        );
        assert_eq!(spread(&["10.0.0.1", "192.0.2.1"]), (false, true));
        assert_eq!(spread(&["192.168.0.1", "10.0.0.1"]), (false, true));
        assert_eq!(spread(&["192.168.0.1", "192.168.0.1"]), (false, false));
        for (address, private) in [
            ("192.168.1.1", true),
            ("172.31.0.1", true),
            ("100.64.0.1", true),
            ("127.0.0.1", true),
            ("fd00::1", true),
            ("::1", true),
            ("100.128.0.1", false),
            ("203.0.113.9", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(
                is_private(address.parse::<IpAddr>().unwrap().into()),
                private,
                "{address}"
            );
        }
    }
}
