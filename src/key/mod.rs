//! The key: the name of one counter (the partition key of the IETF RateLimit draft).
//!
//! In: a request's fields, target and connection. Out: a key for each limit, and the facts about the client.
//!
//! ```text
//! client_ip           the client's address: the peer's, or found by a walk through trusted hops
//! forwarded           reads `Forwarded` from the right
//! node                reads one hop of it
//! address             addresses as text
//! caller              the values for keys, and the known facts about the client
//! identity_field      fields that tell servers about the client: taken from what the client sends
//! credential          the one spelling of what stands in `Authorization`
//! credential/basic    users and passwords there
//! token               which tokens are trusted, and what they claim
//! key_set             keys that an issuer publishes
//! key_rules           what keys and tokens must be
//! group               members, by digests of lists, networks and claims
//! exemption           requests that a limit does not count
//! source              the sources of keys: a row for each, and what the rooms ask of it
//! template            writes the key of a request, so that no value imitates another
//! part                writes one part of it
//! part/key_case       texts of keys in which case does not count
//! query               parameters of a query, byte for byte
//! cookie              cookies, as servers read them
//! percent             escapes of bytes
//! digest              digests of long and secret parts
//! digest/cache        the digests of values that came lately
//! preflight           a browser's question before its request, on counters of its own
//! price               a cost that the request states
//! meter               a cost that the response states
//! meter/json_cost     the members of a body whose sum is a cost
//! meter/grpc_status   the statuses of gRPC by their names
//! meter/final_status  the statuses that a file names
//! repeat              the id under which a request is repeated
//! forwarded/grammar   a test: random lines of RFC 7239
//! ```

pub mod address;
mod caller;
pub mod client_ip;
pub mod cookie;
pub mod credential;
mod digest;
mod exemption;
pub mod forwarded;
mod group;
mod identity_field;
pub mod key_rules;
pub mod key_set;
mod meter;
pub mod node;
mod part;
mod percent;
mod preflight;
mod price;
mod query;
mod repeat;
mod source;
mod template;
pub mod token;

pub use caller::{
    Caller, CustomerLookup, Doubt, Identity, KeyOutcome, Location, NoIdentity, ShownCertificate,
    TokenDoubt,
};
pub use digest::{Digest, DigestText};
pub use exemption::Exemption;
pub use group::{
    CustomerIndex, CustomerName, CustomerReading, CustomerSearch, Customers, CustomersBuilder,
    Group, Memberships, NAME_FORM, NamedMembers, is_name, shown_digests,
};
pub use identity_field::{
    FieldWriters, FieldsOfOthers, IdentityField, IdentityFields, IdentityPiece, same_field,
};
pub use meter::{
    FinalStatus, GrpcStatus, JsonCost, JsonNumber, JsonPlace, MOST_MEMBERS, MOST_PLACES, Meter,
    MeterPlace, OnLeave, OnSilent, ROOT, StatusCosts, StatusPattern, StatusSet, WeighedMember,
    Weight,
};
pub use part::KeyCase;
pub use preflight::OTHER_METHODS;
pub use price::{MOST_COST, Price, PriceError};
pub use repeat::{Content, ContentDigest, IdError, IdField, LONGEST_ID, RepeatId, Sameness};
pub use source::{InLog, KeyPart, MemberForm, SOURCES, SourceRow, field_name};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The ordered parts of which a limit's key is made. A template without parts gives the key `everyone`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    /// The parts, in the file's order.
    pub parts: Vec<KeyPart>,
    /// The treatment of a request without one of the parts. Required in the file if a part can be absent.
    pub missing: MissingKey,
    /// The known values, if unknown values have a treatment of their own.
    pub unknown: Option<KnownValues>,
    /// Does the case of texts count? Such a key has no known values, which are compared as they are written.
    pub case: KeyCase,
}

/// Values of the parts of a key that groups know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownValues {
    /// One entry for each part; an entry is empty if the part need not be known. For `customer` these are the groups
    /// that name customers.
    pub groups: Vec<Vec<Arc<Group>>>,
    /// The treatment of unknown values.
    pub otherwise: UnknownKey,
}

/// The treatment of a request with a value that no group knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownKey {
    /// The request is counted by client address instead.
    Ip,
    /// The request is refused with 401.
    Refuse,
    /// The limit does not apply, as it does not to requests without a customer.
    Skip,
    /// All such requests count on one key of the limit, as requests without a customer do.
    Shared,
}

/// The treatment of a request without the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingKey {
    /// The request is refused with 401.
    Refuse,
    /// The request is counted by client address instead.
    Ip,
    /// The limit does not apply.
    Skip,
    /// All such requests count on one key of the limit.
    Shared,
}

/// The number of leading bits by which addresses distinguish clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mask {
    /// For IPv4, 1 to 32.
    pub v4: u8,
    /// For IPv6, 1 to 128.
    pub v6: u8,
}

impl Mask {
    /// Whole IPv4 addresses; IPv6 by /64, since one subscriber has at least that many addresses.
    pub const DEFAULT: Self = Self { v4: 32, v6: 64 };

    /// The network that `address` counts under. An IPv4 address that is mapped into IPv6 counts as an IPv4 address.
    #[must_use]
    pub fn apply(self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                let keep = u32::MAX
                    .checked_shl(32 - u32::from(self.v4.min(32)))
                    .unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & keep))
            }
            IpAddr::V6(v6) => {
                let keep = u128::MAX
                    .checked_shl(128 - u32::from(self.v6.min(128)))
                    .unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & keep))
            }
        }
    }
}

/// Should the values of a field or query parameter of this name be kept out of logs and stores? The values authenticate
/// clients, by the name.
#[must_use]
pub fn is_secret(name: &str) -> bool {
    const MARKS: [&str; 13] = [
        "auth",
        "cookie",
        "key",
        "token",
        "secret",
        "sess",
        "passw",
        "pwd",
        "signature",
        "bearer",
        "credential",
        "jwt",
        "assertion",
    ];
    /// Too short for a search inside of other names.
    const WORDS: [&str; 5] = ["sid", "sig", "otp", "pin", "pass"];
    let name = name.to_ascii_lowercase();
    let mut words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    MARKS.iter().any(|mark| name.contains(mark)) || words.any(|word| WORDS.contains(&word))
}
