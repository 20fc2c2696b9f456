//! The chunks of an answer's body, decoded as their bytes arrive (RFC 9112, section 7.1).

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::mem;

/// The most bytes of a body's chunk extensions, spaces before them included.
const MOST_EXTENSION_BYTES: usize = 16 * 1024;
/// The most bytes of a body's trailers.
const MOST_TRAILER_BYTES: usize = 16 * 1024;
/// The most trailers of a body.
const MOST_TRAILERS: usize = 100;
/// The most digits of a chunk's size, including leading zeros.
const MOST_DIGITS: usize = 32;

/// The end of a chunk and the last, empty one: mostly they have arrived with the last chunk's bytes.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// Reads a body that comes in chunks.
#[derive(Debug)]
pub(super) struct ChunkDecoder {
    state: ChunkState,
    /// Bytes that are left of the chunk.
    left: u64,
    /// Digits of the chunk's size.
    digits: usize,
    /// Bytes of extensions so far.
    extension_bytes: usize,
    /// The lines after the last chunk.
    trailers: Vec<u8>,
    /// Lines in `trailers`.
    trailer_lines: usize,
}

/// The position in the coding of the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    /// The first digit of a size.
    Start,
    /// A digit of a size, or the byte after the size.
    Size,
    /// The space after a size.
    SizeSpace,
    /// An extension.
    Extension,
    /// The line feed after a size.
    SizeLf,
    /// The chunk's bytes.
    Data,
    DataCr,
    DataLf,
    /// The beginning of a line after the last chunk.
    EndCr,
    EndLf,
    /// A line with a trailer.
    Trailer,
    TrailerLf,
    /// The end of the body.
    End,
}

/// A decoded part of a body.
#[derive(Debug)]
pub(super) enum Decoded {
    /// Bytes of the body.
    Data(Bytes),
    /// The trailers, after which the body is over.
    Trailers(HeaderMap),
    /// The body is over.
    End,
    /// More bytes are needed.
    More,
}

/// Causes for which a body in chunks is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkFault {
    /// A chunk's size is not a number, or is too large.
    #[error("invalid chunk size")]
    Size,
    /// A chunk or its size does not end correctly.
    #[error("invalid end of a chunk")]
    End,
    /// The chunks' extensions are too long, or have a line feed.
    #[error("invalid chunk extension")]
    Extension,
    /// The trailers are too long, or not fields.
    #[error("invalid trailers")]
    Trailers,
}

impl ChunkDecoder {
    /// A decoder at the beginning of a body.
    pub(super) fn new() -> Self {
        Self {
            state: ChunkState::Start,
            left: 0,
            digits: 0,
            extension_bytes: 0,
            trailers: Vec::new(),
            trailer_lines: 0,
        }
    }

    /// Has the end of the body been read?
    pub(super) fn is_over(&self) -> bool {
        self.state == ChunkState::End
    }

    /// Takes the next part of the body from `bytes`.
    ///
    /// # Errors
    /// If the bytes are not chunked: they then begin with the offending line, if it is still available.
    pub(super) fn decode(&mut self, bytes: &mut BytesMut) -> Result<Decoded, ChunkFault> {
        if self.state != ChunkState::Data {
            let mut used = 0;
            for byte in bytes.iter() {
                if matches!(self.state, ChunkState::Data | ChunkState::End) {
                    break;
                }
                used += 1;
                match self.step(*byte) {
                    Ok(state) => self.state = state,
                    Err(fault) => {
                        let before = memchr::memrchr(b'\n', &bytes[..used - 1]);
                        bytes.advance(before.map_or(0, |end| end + 1));
                        return Err(fault);
                    }
                }
            }
            bytes.advance(used);
        }
        match self.state {
            ChunkState::Data if !bytes.is_empty() => Ok(Decoded::Data(self.data(bytes))),
            ChunkState::End if self.trailers.is_empty() => Ok(Decoded::End),
            ChunkState::End => read_trailers(&mem::take(&mut self.trailers)).map(Decoded::Trailers),
            _ => Ok(Decoded::More),
        }
    }

    fn data(&mut self, bytes: &mut BytesMut) -> Bytes {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let data = bytes.split_to(left.min(bytes.len())).freeze();
        self.left -= data.len() as u64;
        if self.left == 0 {
            self.state = ChunkState::DataCr;
            if bytes.starts_with(LAST_CHUNK) {
                // An early known end frees the connection early.
                bytes.advance(LAST_CHUNK.len());
                self.state = ChunkState::End;
            }
        }
        data
    }

    fn step(&mut self, byte: u8) -> Result<ChunkState, ChunkFault> {
        Ok(match (self.state, byte) {
            (ChunkState::Start, _) => {
                (self.left, self.digits) = (0, 0);
                self.digit(byte)?
            }
            (ChunkState::Size | ChunkState::SizeSpace | ChunkState::Extension, b'\r') => {
                ChunkState::SizeLf
            }
            (ChunkState::Size | ChunkState::SizeSpace, b';') => ChunkState::Extension,
            (ChunkState::Size | ChunkState::SizeSpace, b' ' | b'\t') => {
                self.extend()?;
                ChunkState::SizeSpace
            }
            (ChunkState::Size, _) => self.digit(byte)?,
            (ChunkState::SizeSpace, _) => return Err(ChunkFault::Size),
            (ChunkState::Extension, b'\n') => return Err(ChunkFault::Extension),
            (ChunkState::Extension, _) => {
                self.extend()?;
                ChunkState::Extension
            }
            (ChunkState::SizeLf, b'\n') if self.left == 0 => ChunkState::EndCr,
            (ChunkState::SizeLf, b'\n') => ChunkState::Data,
            (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
            (ChunkState::DataLf, b'\n') => ChunkState::Start,
            (ChunkState::SizeLf | ChunkState::DataCr | ChunkState::DataLf, _) => {
                return Err(ChunkFault::End);
            }
            (ChunkState::EndCr, b'\r') => ChunkState::EndLf,
            (ChunkState::EndLf, b'\n') => ChunkState::End,
            (ChunkState::EndLf, _) => return Err(ChunkFault::End),
            (ChunkState::EndCr | ChunkState::Trailer | ChunkState::TrailerLf, _) => {
                self.trailer(byte)?
            }
            (ChunkState::Data | ChunkState::End, _) => self.state,
        })
    }

    fn digit(&mut self, byte: u8) -> Result<ChunkState, ChunkFault> {
        let digit = char::from(byte).to_digit(16).ok_or(ChunkFault::Size)?;
        let shifted = self.left.checked_mul(16).ok_or(ChunkFault::Size)?;
        self.left = shifted + u64::from(digit);
        self.digits += 1;
        if self.digits > MOST_DIGITS {
            return Err(ChunkFault::Size);
        }
        Ok(ChunkState::Size)
    }

    fn extend(&mut self) -> Result<(), ChunkFault> {
        self.extension_bytes += 1;
        if self.extension_bytes < MOST_EXTENSION_BYTES {
            Ok(())
        } else {
            Err(ChunkFault::Extension)
        }
    }

    /// A byte of a line after the last chunk, which is not the empty line.
    fn trailer(&mut self, byte: u8) -> Result<ChunkState, ChunkFault> {
        let next = match (self.state, byte) {
            (ChunkState::TrailerLf, b'\n') => {
                self.trailer_lines += 1;
                ChunkState::EndCr
            }
            (ChunkState::TrailerLf, _) | (_, b'\n') => return Err(ChunkFault::Trailers),
            (_, b'\r') => ChunkState::TrailerLf,
            _ => ChunkState::Trailer,
        };
        self.trailers.push(byte);
        // The empty line at the end belongs to them.
        if self.trailers.len() + 2 >= MOST_TRAILER_BYTES || self.trailer_lines > MOST_TRAILERS {
            return Err(ChunkFault::Trailers);
        }
        Ok(next)
    }
}

/// The trailers in `lines`, which lack the empty line after them.
#[cold]
fn read_trailers(lines: &[u8]) -> Result<HeaderMap, ChunkFault> {
    let block = [lines, b"\r\n"].concat();
    let mut parsed = [httparse::EMPTY_HEADER; MOST_TRAILERS];
    let parsed = httparse::parse_headers(&block, &mut parsed);
    let Ok(httparse::Status::Complete((_, parsed))) = parsed else {
        return Err(ChunkFault::Trailers);
    };
    let mut trailers = HeaderMap::with_capacity(parsed.len());
    for field in parsed {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_bytes(field.value);
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(ChunkFault::Trailers);
        };
        trailers.append(name, value);
    }
    Ok(trailers)
}
