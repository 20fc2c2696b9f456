//! The faults of the parts of an identity towards clients.

/// The fault of one of the parts, in words if a file's contents are at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityMistake {
    /// The certificate cannot be read or used.
    Certificate(String),
    /// The key cannot be read or used.
    Key(String),
    /// The key belongs to another certificate.
    KeyMismatch,
    /// A file of authorities cannot be used; the position is the one in `ClientParts::ca_pem`.
    Authority(usize, String),
    /// A revocation list cannot be used; the position is the one in `ClientParts::crl_pem`.
    RevocationList(usize, String),
    /// The authorities and lists together cannot be used.
    Client(String),
}
