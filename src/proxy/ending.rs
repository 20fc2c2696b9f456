//! How an exchange ended, as its body has seen it.

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeEnd {
    /// The last byte was handed on.
    Complete,
    /// The upstream broke off in the middle.
    UpstreamFailed,
    /// The upstream sent something in the middle that is no HTTP.
    UpstreamMalformed,
    /// The upstream said nothing for too long.
    UpstreamStalled,
    /// The client left before the end.
    ClientGone,
    /// The client took nothing of it for too long.
    ClientStalled,
}
