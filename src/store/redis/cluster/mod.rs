//! Counters spread over the masters of a cluster. A lone Redis is a cluster of one node, which serves every slot.
//!
//! A master is a [`Node`] like a lone Redis, with its own lanes, connections and health. The failure of a master
//! therefore affects only its own counters.
//!
//! In: the checks of one request. Out: one call for each slot, to the master that serves it.
//!
//! ```text
//! slot_map    the master of each slot
//! router      one worker's knowledge of that map
//! discovery   finds the map at the start, and when a node says that it is wrong
//! redirect    a cluster's redirections
//! multi_slot  one request in several slots: asked at once, and given back where one refuses
//! ```

mod discovery;
mod multi_slot;
pub(super) mod redirect;
pub(super) mod router;
pub(super) mod slot_map;

use super::RedisStore;
use super::node::NodeHandle;
use super::queue::slot_question;
use super::wire::layout;
use super::wire::question::DecisionRequest;
use super::wire::slot::{self, CallRoute, Slot};
use crate::limit::Limit;
use crate::store::answers::Answers;
use crate::store::check::replace_limits;
use crate::store::error::StoreError;
pub(super) use discovery::{Discovery, map_of};
use std::time::Duration;
use tokio::time::timeout;

impl RedisStore {
    /// Checks limits, wherever in a cluster their counters are. The wait for the map and the call have one deadline.
    pub(super) async fn ask(
        &self,
        request: DecisionRequest<'_>,
    ) -> Result<Box<Answers>, StoreError> {
        if self.router.is_known() {
            return self.ask_known(request).await;
        }
        let after = self.context.timeout;
        let asked = Box::pin(async {
            self.known().await?;
            self.ask_known(request).await
        });
        let answers = timeout(after, asked).await;
        answers.unwrap_or(Err(StoreError::Timeout { after }))
    }

    /// Checks limits, once the map is known.
    async fn ask_known(&self, request: DecisionRequest<'_>) -> Result<Box<Answers>, StoreError> {
        let slots = slot_question::by_slot(request.checks);
        let [only] = &slots[..] else {
            return self.ask_slots(request, slots).await;
        };
        let home = self.router.at(only.slot)?;
        let route = CallRoute::to(only.slot);
        let mut limits = request.checks.iter().map(|check| check.limit);
        if !limits.any(|limit| limit.with_history_if_asked().is_some()) {
            return home.node.ask(request, route).await;
        }
        let checks = &replace_limits(request.checks, Limit::with_history_if_asked);
        let request = DecisionRequest { checks, ..request };
        home.node.ask(request, route).await
    }

    /// Waits until the map is known. The wait is short, since the call itself needs time.
    pub(super) async fn known(&self) -> Result<(), StoreError> {
        self.router.known(self.context.timeout / 2).await
    }

    /// The node of the keys that are common to all clients.
    pub(super) async fn everyone(&self) -> Result<NodeHandle, StoreError> {
        self.known().await?;
        self.router.at(slot_of_everyone())
    }

    /// Waits until no work is pending.
    pub(super) async fn settled(&self) {
        loop {
            let all = self.router.all();
            for handle in &all {
                handle.node.settled().await;
            }
            let is_quiet = all.iter().all(|handle| handle.node.is_quiet());
            let is_over = self.context.abandonments.is_empty() && self.router.underway.get() == 0;
            if is_quiet && is_over {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Every master that serves a slot, once the map is known; else the cause for which it is unknown.
    pub(super) async fn masters(&self) -> Result<Vec<NodeHandle>, StoreError> {
        let known = self.known().await;
        known.map_err(|error| self.router.why().unwrap_or(error))?;
        Ok(self.router.map().masters().cloned().collect())
    }
}

/// The slot of keys that are common to all clients.
pub(super) fn slot_of_everyone() -> Slot {
    slot::of_tag(layout::EVERYONE)
}
