//! The body of a limit's refusal as a problem document, written once except for the parts that differ between refusals.

use crate::limit::Limit;
use crate::limit::verdict::Wait;
use crate::proxy::answer::reply::problem;
use crate::proxy::answer::reply::problem::{write_duration, write_number};
use crate::proxy::answer::{fields, header_value};
use crate::proxy::error::ProxyError;
use bytes::{BufMut, Bytes};
use http::HeaderValue;
use std::sync::Arc;

/// The longest text between the prepared parts, without the request's id: two numbers of 20 digits, and words.
const BETWEEN: usize = 96;

/// The text around the wait and the request's id, if this limit alone refuses.
#[derive(Debug)]
pub struct RefusalText {
    before_wait: Box<[u8]>,
    before_millis: Box<[u8]>,
}

impl RefusalText {
    /// The text of a refusal by `limit`.
    #[must_use]
    pub fn of(limit: &Arc<Limit>) -> Self {
        let status = ProxyError::limited(limit, Wait::Micros(1)).status();
        let (mut before_wait, mut before_millis) = (Vec::new(), Vec::new());
        problem::write_beginning(&mut before_wait, limit, status);
        before_wait.extend_from_slice(problem::TRY_AGAIN);
        before_millis.push(b'.');
        problem::write_violated(&mut before_millis, limit, &[&**limit.policy_name()]);
        before_millis.extend_from_slice(problem::MILLIS);
        Self {
            before_wait: before_wait.into(),
            before_millis: before_millis.into(),
        }
    }

    /// The body of a refusal for `wait` microseconds.
    pub(in crate::proxy) fn body(&self, wait: u64, request_id: &[u8]) -> RefusalBody {
        let mut millis = 0..0;
        let text = header_value::body(|out| {
            // An id may consist only of characters to escape.
            let around = self.before_wait.len() + self.before_millis.len();
            let most = around + BETWEEN + 2 * request_id.len();
            // Pieces are written into reserved room: to reserve room before each costs more than to write it.
            out.resize(most, 0);
            let mut rest = &mut out[..];
            rest.put_slice(&self.before_wait);
            write_duration(&mut rest, wait);
            rest.put_slice(&self.before_millis);
            millis.start = most - rest.len();
            write_number(&mut rest, fields::millis(wait));
            millis.end = most - rest.len();
            problem::write_end(&mut rest, request_id);
            let unused = rest.len();
            out.truncate(most - unused);
        });
        let millis = HeaderValue::from_maybe_shared(text.slice(millis));
        RefusalBody {
            // Digits are a valid value.
            millis: millis.unwrap_or(HeaderValue::from_static("0")),
            text,
        }
    }
}

/// The body of a refusal.
#[derive(Debug)]
pub(in crate::proxy) struct RefusalBody {
    /// The whole text.
    pub(in crate::proxy) text: Bytes,
    /// The milliseconds in it, as a field's value.
    pub(in crate::proxy) millis: HeaderValue,
}
