//! The end of a chunked body (RFC 9112, section 7.1), found as strictly as hyper reads it. Only the heads after bodies
//! are of interest here, so that data is skipped and nothing is kept.

use memchr::memchr;

/// A position in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkFramingState {
    /// Before a chunk's size.
    Start,
    /// In the digits of the size.
    Size(u64),
    /// After the digits: blanks, or an extension.
    Blank(u64),
    /// In an extension.
    Extension(u64),
    /// After the size line's CR.
    SizeLf(u64),
    /// In the chunk's data, with this number of bytes left.
    Data(u64),
    /// After the chunk's data.
    DataCr,
    /// After the CR that follows the data.
    DataLf,
    /// At the start of a line after the last chunk.
    Line,
    /// In a trailer field.
    Trailer,
    /// After the CR of a trailer field.
    TrailerLf,
    /// After the CR of the empty line.
    EndLf,
}

/// The progress of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkProgress {
    /// All bytes belong to the body, and it continues.
    Within(ChunkFramingState),
    /// The body ended after this number of the bytes.
    EndReason(usize),
    /// The body's framing is invalid: hyper fails here.
    Broken,
}

impl ChunkFramingState {
    /// Follows a body over `bytes`.
    pub(in crate::listen) fn advance(self, bytes: &[u8]) -> ChunkProgress {
        let mut place = self;
        let mut at = 0;
        while at < bytes.len() {
            if let Some((next, passed)) = place.skip(&bytes[at..]) {
                place = next;
                at += passed;
                continue;
            }
            let byte = bytes[at];
            at += 1;
            if place == Self::EndLf && byte == b'\n' {
                return ChunkProgress::EndReason(at);
            }
            let Some(next) = place.after(byte) else {
                return ChunkProgress::Broken;
            };
            place = next;
        }
        ChunkProgress::Within(place)
    }

    /// Skips many bytes at once while they have no meaning.
    fn skip(self, bytes: &[u8]) -> Option<(Self, usize)> {
        match self {
            Self::Data(left) => {
                let passed =
                    usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                let left = left - passed as u64;
                let next = if left == 0 {
                    Self::DataCr
                } else {
                    Self::Data(left)
                };
                Some((next, passed))
            }
            Self::Trailer => Some(match memchr(b'\r', bytes) {
                Some(end) => (Self::TrailerLf, end + 1),
                None => (Self::Trailer, bytes.len()),
            }),
            _ => None,
        }
    }

    fn after(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Start, _) => Self::Size(digit(byte)?),
            (Self::Size(size) | Self::Blank(size), b'\t' | b' ') => Self::Blank(size),
            (Self::Size(size) | Self::Blank(size), b';') => Self::Extension(size),
            (Self::Size(size) | Self::Blank(size) | Self::Extension(size), b'\r') => {
                Self::SizeLf(size)
            }
            (Self::Size(size), _) => Self::Size(size.checked_mul(16)?.checked_add(digit(byte)?)?),
            (Self::Extension(size), _) if byte != b'\n' => Self::Extension(size),
            (Self::SizeLf(0) | Self::TrailerLf, b'\n') => Self::Line,
            (Self::SizeLf(size), b'\n') => Self::Data(size),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Start,
            (Self::Line, b'\r') => Self::EndLf,
            (Self::Line, _) => Self::Trailer,
            _ => return None,
        })
    }
}

fn digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"4\r\nbody\r\n1c ;note=\"a;b\"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n!\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n";

    #[test]
    fn a_body_ends_where_it_ends_however_it_is_cut() {
        let mut bytes = BODY.to_vec();
        bytes.extend(b"GET");
        let length = BODY.len();
        assert_eq!(
            ChunkFramingState::Start.advance(&bytes),
            ChunkProgress::EndReason(length)
        );
        for cut in 0..length {
            let ChunkProgress::Within(place) = ChunkFramingState::Start.advance(&bytes[..cut])
            else {
                panic!("ended or broken at {cut}");
            };
            assert_eq!(
                place.advance(&bytes[cut..]),
                ChunkProgress::EndReason(length - cut),
                "{cut}"
            );
        }
    }

    #[test]
    fn what_hyper_refuses_is_broken() {
        for body in [
            &b"\r\n"[..],
            b"g\r\n",
            b"1\n",
            b"1 2\r\n",
            b"1;a\nb\r\n",
            b"10000000000000000\r\n",
            b"1\r\nab",
            b"1\r\na\n",
            b"0\r\nA: b\r!",
            b"0\r\n\r!",
        ] {
            assert_eq!(
                ChunkFramingState::Start.advance(body),
                ChunkProgress::Broken,
                "{body:?}"
            );
        }
    }
}
