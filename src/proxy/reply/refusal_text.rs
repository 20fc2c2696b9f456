//! The body of a limit's refusal as a problem document, written once but for what differs between two refusals.

use super::problem::{self, write_duration, write_number};
use crate::limit::Limit;
use crate::limit::verdict::Wait;
use crate::proxy::error::ProxyError;
use crate::proxy::{fields, header_value};
use bytes::Bytes;
use std::sync::Arc;

/// The text around the wait and the request's id, where this limit alone refuses.
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
    pub(in crate::proxy) fn body(&self, wait: u64, request_id: &[u8]) -> Bytes {
        header_value::body(|out| {
            out.extend_from_slice(&self.before_wait);
            write_duration(out, wait);
            out.extend_from_slice(&self.before_millis);
            write_number(out, fields::millis(wait));
            problem::write_end(out, request_id);
        })
    }
}
