//! What to know about a trace before its numbers are believed.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// One thing to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Every client is in a network that the file trusts.
    TrustedClientsOnly,
    /// Every client is this one, whose address is a private one.
    SinglePrivateClient(IpAddr),
    /// This peer has a private address, and a list of addresses that `trust` does not let it tell.
    UntrustedPeer(IpAddr),
    /// No line says what this limit counts by.
    MissingPart {
        /// Its name.
        limit: Arc<str>,
        /// As the file writes it.
        part: String,
    },
    /// No line says a host, and routes ask for one.
    NoHost,
    /// Times have no zone.
    NoZone,
    /// Fields have no names.
    NamelessFields,
    /// What `--fields` names is in no line.
    NoMember {
        /// The part of a request that it was to be.
        name: String,
        /// The member.
        member: String,
    },
}

impl Note {
    /// Its name, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TrustedClientsOnly | Self::SinglePrivateClient(_) | Self::UntrustedPeer(_) => {
                "proxy-log"
            }
            Self::MissingPart { .. } => "not-replayable",
            Self::NoHost => "no-host",
            Self::NoZone => "no-zone",
            Self::NamelessFields => "nameless-fields",
            Self::NoMember { .. } => "no-member",
        }
    }
}

/// What to log instead, where a log has proxies for clients.
const INSTEAD: &str = "log who spoke to it, too: the list that it gets in X-Forwarded-For, as nginx's main format does \
                       with \"$http_x_forwarded_for\" at the end";

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TrustedClientsOnly => write!(
                f,
                "every client is in a network of `trust`: this is a log of what a proxy passed on, and limits by ip counted \
                 the proxy; {INSTEAD}"
            ),
            Self::SinglePrivateClient(address) => write!(
                f,
                "every client is {address}: this is a log of what a proxy passed on, and limits by ip counted the proxy; \
                 {INSTEAD}, and name the proxy's network in `[server]` `trust`"
            ),
            Self::UntrustedPeer(address) => write!(
                f,
                "lines of {address} say in X-Forwarded-For who spoke through it, and are not believed: limits by ip counted \
                 the proxy; name its network in `[server]` `trust`, for example with --set server.trust={address}"
            ),
            Self::MissingPart { limit, part } => write!(
                f,
                "limit `{limit}` counts by {part}, which no line says: what it would have done cannot be replayed from this \
                 log"
            ),
            Self::NoHost => f.write_str(
                "no line names a host: routes that ask for one matched nothing; log it, for example with `host` in JSON",
            ),
            Self::NoZone => f.write_str("HAProxy writes times without a zone: they were taken as UTC"),
            Self::NamelessFields => f.write_str(
                "what HAProxy captured stands in braces without names, and was passed over: limits by these fields cannot \
                 be replayed from this log",
            ),
            Self::NoMember { name, member } => {
                write!(f, "no line has `{member}`, which --fields says is the {name}")
            }
        }
    }
}
