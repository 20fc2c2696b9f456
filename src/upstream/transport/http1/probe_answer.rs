//! The answer to a probe: read by the same rules as the answers to requests, so that a probe fails under the same
//! conditions, with the same words.

use super::AnswerError;
use super::chunk_decoder::{ChunkDecoder, Decoded};
use super::response_head::{self, BodyFraming};
use crate::interim::InterimCount;
use crate::upstream::transport::head_bound::MOST_ANSWER_HEAD;
use bytes::{Buf as _, BytesMut};
use http::{HeaderMap, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// An answer whose head has been read.
#[derive(Debug)]
pub(in crate::upstream) struct ProbeAnswer {
    /// Its status.
    pub(in crate::upstream) status: StatusCode,
    framing: BodyFraming,
    /// The bytes after the head.
    bytes: BytesMut,
}

/// Reads an answer on `stream`, up to the end of its head. The caller bounds the time.
///
/// # Errors
/// If the connection ends before an answer, or the answer's head is malformed.
pub(in crate::upstream) async fn answer_head(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<ProbeAnswer, AnswerError> {
    let (mut bytes, mut spare, mut seen) = (BytesMut::new(), HeaderMap::new(), 0);
    let mut interim = InterimCount::default();
    loop {
        let read = stream.read_buf(&mut bytes).await;
        if read.map_err(AnswerError::Io)? == 0 {
            return Err(AnswerError::of_part(&bytes));
        }
        if response_head::may_be_whole(&bytes, seen) || bytes.len() >= MOST_ANSWER_HEAD {
            let taken = response_head::take_head(&mut bytes, false, &mut spare, &mut interim);
            if let Some(head) = taken.map_err(|bad| AnswerError::of_head(bad, &bytes))? {
                return Ok(ProbeAnswer {
                    status: head.response.status(),
                    framing: head.framing,
                    bytes,
                });
            }
        }
        seen = bytes.len();
    }
}

impl ProbeAnswer {
    /// Reads the body on `stream`, about `most` bytes of it. The caller bounds the time.
    ///
    /// # Errors
    /// If the connection ends before the body does, or the body is malformed.
    pub(in crate::upstream) async fn read_body(
        self,
        stream: &mut (impl AsyncRead + Unpin),
        most: usize,
    ) -> Result<(), AnswerError> {
        let Self {
            framing, mut bytes, ..
        } = self;
        let mut chunks = ChunkDecoder::new();
        let mut read = 0;
        while read < most {
            let moved_bytes = bytes.len();
            let is_over = match framing {
                BodyFraming::Empty => true,
                BodyFraming::Length(length) => (read + moved_bytes) as u64 >= length,
                BodyFraming::UntilClose => false,
                BodyFraming::Chunked => {
                    take_chunks(&mut chunks, &mut bytes)?;
                    chunks.is_over()
                }
            };
            if is_over {
                return Ok(());
            }
            if !matches!(framing, BodyFraming::Chunked) {
                bytes.advance(moved_bytes);
            }
            read += moved_bytes - bytes.len();
            let count = stream.read_buf(&mut bytes).await;
            let count = count.map_err(|error| AnswerError::CutBody(Some(error)))?;
            if count == 0 {
                return match framing {
                    BodyFraming::UntilClose => Ok(()),
                    _ => Err(AnswerError::CutBody(None)),
                };
            }
        }
        Ok(())
    }
}

/// Decodes the available bytes of chunks.
fn take_chunks(chunks: &mut ChunkDecoder, bytes: &mut BytesMut) -> Result<(), AnswerError> {
    loop {
        let decoded = chunks.decode(bytes);
        match decoded.map_err(|fault| AnswerError::of_chunks(fault, bytes))? {
            Decoded::Data(_) if !chunks.is_over() => {}
            Decoded::Data(_) | Decoded::More | Decoded::End | Decoded::Trailers(_) => {
                return Ok(());
            }
        }
    }
}
