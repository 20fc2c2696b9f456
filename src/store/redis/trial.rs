//! A decision on keys of the gateway's own: a server that takes connections but no writes does not serve.

use super::connection::Connection;
use super::layout::{self, probe_key};
use super::question::{self, Question};
use super::reply::{self, ReplyError};
use crate::limit::fixed_window::FixedWindow;
use crate::limit::rate::{Cost, Rate};
use crate::limit::{Rule, wire};
use crate::store::error::StoreError;
use std::num::{NonZeroU32, NonZeroU64};

/// Decides on one key with this tag where a node of a cluster is meant. Else decides on two keys with tags of their
/// own, as a request's keys have: a node of a cluster refuses such a question.
pub(super) async fn decide(
    connection: &mut Connection,
    prefix: &str,
    tag: Option<&[u8]>,
) -> Result<(), StoreError> {
    let mut question = Question::default();
    let tags = match tag {
        Some(tag) => [Some(tag), None],
        None => [Some(layout::EVERYONE), Some(&b"a"[..])],
    };
    for tag in tags.into_iter().flatten() {
        question.push(&probe_key(prefix), tag, &block());
    }
    let command = question::decide(None, std::iter::once(&question));
    let bytes = connection.call(&command).await?;
    match reply::read(&bytes, std::iter::once(question.limits()))?.pop() {
        Some(Err(ReplyError::Limit { reason, .. })) if reply::server_wide(&reason) => {
            Err(StoreError::Refused(reason))
        }
        _ => Ok(()),
    }
}

/// A limit that never refuses. Its counter is gone after a second.
fn block() -> wire::Block {
    let rate = Rate {
        count: NonZeroU32::MAX,
        period: NonZeroU64::MIN.saturating_add(999_999),
    };
    wire::block(&Rule::FixedWindow(FixedWindow::new(rate)), Cost::ONE)
}
