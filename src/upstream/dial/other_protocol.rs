//! Detection of a server that answers in another protocol, by its first bytes.

use std::fmt;

/// The protocol of the server, different from the requested one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherProtocol {
    /// TLS: an alert, or a handshake.
    Tls,
    /// HTTP/2: its first frame holds settings.
    Http2,
    /// HTTP/1.
    Http1,
}

impl OtherProtocol {
    /// The protocol that begins with these bytes.
    pub(in crate::upstream) fn of(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [0x15 | 0x16, 3, ..] => Some(Self::Tls),
            [b'H', b'T', b'T', b'P', b'/', ..] => Some(Self::Http1),
            // Settings on stream 0, in a frame no longer than a server's first one.
            [0, _, _, 4, _, ..] => Some(Self::Http2),
            _ => None,
        }
    }
}

impl fmt::Display for OtherProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls => "the server speaks TLS on this port, write `https://`",
            Self::Http2 => "the server speaks HTTP/2, write `h2c://`",
            Self::Http1 => "the server speaks HTTP/1.1, write `http://`",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_told_by_their_first_bytes() {
        let of = OtherProtocol::of;
        assert_eq!(of(&[0x15, 3, 3, 0, 2, 2, 40]), Some(OtherProtocol::Tls));
        assert_eq!(
            of(&[0, 0, 18, 4, 0, 0, 0, 0, 0]),
            Some(OtherProtocol::Http2)
        );
        assert_eq!(of(b"HTTP/1.1 400 Bad Request"), Some(OtherProtocol::Http1));
        for other in [&b""[..], b"HTT", b"SSH-2.0-OpenSSH", &[0, 0, 18, 7, 0]] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }
}
