//! The statuses of gRPC, by the numbers on its page "Status codes and their use in gRPC".

use http::HeaderValue;

/// The status of a call: one that gRPC defines, or any other number that a server has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrpcStatus(pub u16);

impl GrpcStatus {
    /// The call has succeeded.
    pub const OK: Self = Self(0);
    /// The client has left.
    pub const CANCELLED: Self = Self(1);
    /// The status that clients assume for one that they cannot read.
    pub const UNKNOWN: Self = Self(2);
    /// The call's timeout was too short.
    pub const DEADLINE_EXCEEDED: Self = Self(4);
    /// The client may not make the call.
    pub const PERMISSION_DENIED: Self = Self(7);
    /// A limit refuses the call.
    pub const RESOURCE_EXHAUSTED: Self = Self(8);
    /// No service has the method.
    pub const UNIMPLEMENTED: Self = Self(12);
    /// The protocol below gRPC is broken.
    pub const INTERNAL: Self = Self(13);
    /// The service is unavailable; clients may try again at once.
    pub const UNAVAILABLE: Self = Self(14);
    /// Data is lost or damaged.
    pub const DATA_LOSS: Self = Self(15);
    /// The call lacks valid credentials.
    pub const UNAUTHENTICATED: Self = Self(16);

    /// The status in a field, as clients interpret it.
    #[must_use]
    pub fn read(value: &HeaderValue) -> Self {
        let text = value.to_str().ok();
        text.and_then(|text| text.parse().ok())
            .map_or(Self::UNKNOWN, Self)
    }

    /// Is the status a server error, for limits with `refund = ["5xx"]`?
    #[must_use]
    pub fn is_server_error(self) -> bool {
        matches!(
            self,
            Self::UNKNOWN
                | Self::DEADLINE_EXCEEDED
                | Self::INTERNAL
                | Self::UNAVAILABLE
                | Self::DATA_LOSS
        )
    }
}
