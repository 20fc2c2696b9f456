//! The answer to a question of the gateway's own, as far as its head: read by the rules that the answers to requests are
//! held to, so that a probe fails where requests do, with the same words.

use super::AnswerError;
use super::response_head;
use crate::interim::InterimCount;
use crate::upstream::head_bound::MOST_HEAD;
use bytes::BytesMut;
use http::{HeaderMap, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The status of the answer that comes on `stream`. The caller bounds the time.
///
/// # Errors
/// When the connection ends before an answer, or the answer's head is malformed.
pub(in super::super) async fn answer_head(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<StatusCode, AnswerError> {
    let (mut bytes, mut spare, mut seen) = (BytesMut::new(), HeaderMap::new(), 0);
    let mut interim = InterimCount::default();
    loop {
        let read = stream.read_buf(&mut bytes).await;
        if read.map_err(AnswerError::Io)? == 0 {
            return Err(AnswerError::of_part(&bytes));
        }
        if response_head::may_be_whole(&bytes, seen) || bytes.len() >= MOST_HEAD {
            let taken = response_head::take(&mut bytes, false, &mut spare, &mut interim);
            if let Some(head) = taken.map_err(|bad| AnswerError::of_head(bad, &bytes))? {
                return Ok(head.response.status());
            }
        }
        seen = bytes.len();
    }
}
