//! The state of Redis: available, or not.
//!
//! The first failed call, or connection that cannot be made, makes the store unavailable. From then on every decision
//! is answered at once, and no request waits for the deadline. A separate task of the worker (`watch`) keeps trying.
//! Its trial is a decision on a key of its own: a server that accepts connections but no writes has not returned.
//!
//! Before the first connection, decisions wait for it, at most for the store's `timeout`. So a gateway that starts with
//! a healthy Redis does not begin with its fallback.

use super::outage::Outage;
use crate::store::error::StoreError;
use std::cell::Cell;
use std::sync::Arc;
use tokio::sync::Notify;

/// Called when a node has become available (`true`) or unavailable.
pub(crate) type ChangeListener = Box<dyn Fn(bool)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Availability {
    /// No connection yet, and no failure.
    New,
    Up,
    Down,
}

/// A worker's opinion of one Redis.
pub(crate) struct Health {
    pub(crate) outage: Outage,
    /// The limits that an outage concerns, in words for the log.
    limits: &'static str,
    state: Cell<Availability>,
    era: Cell<u64>,
    listener: ChangeListener,
    /// Notified when Redis became unavailable.
    pub(crate) fallen: Notify,
}

impl Health {
    pub(crate) fn new(name: Arc<str>, limits: &'static str, listener: ChangeListener) -> Self {
        Self {
            outage: Outage::new(name),
            limits,
            state: Cell::new(Availability::New),
            era: Cell::new(0),
            listener,
            fallen: Notify::new(),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state.get() == Availability::Up
    }

    pub(crate) fn is_down(&self) -> bool {
        self.state.get() == Availability::Down
    }

    /// The number of times that Redis became available. A failure of an earlier era does not concern the present one.
    pub(crate) fn era(&self) -> u64 {
        self.era.get()
    }

    /// Notes that Redis is unavailable from now on.
    pub(crate) fn set_down(&self, why: &StoreError) {
        self.state.set(Availability::Down);
        let (name, limits) = (&self.outage.name, self.limits);
        let is_first = self.outage.begins();
        let is_new = self.outage.note(why);
        if is_first {
            tracing::warn!("{name} is away, {limits} follow their on_down: {why}");
        } else if is_new {
            tracing::warn!("{name} is still away: {why}");
        } else {
            tracing::debug!("{name} is away for one more worker: {why}");
        }
        (self.listener)(false);
    }

    /// Notes that Redis is available from now on.
    pub(crate) fn set_up(&self) {
        let before = self.state.replace(Availability::Up);
        self.era.set(self.era() + 1);
        let (name, limits) = (&self.outage.name, self.limits);
        if before == Availability::Down && self.outage.ends() {
            tracing::info!("{name} is back, {limits} are shared again");
        } else {
            tracing::debug!("connected to {name}");
        }
        (self.listener)(true);
    }

    /// Notes that an attempt to use Redis again has failed. A server that could not be reached may be reachable by now
    /// and refuse, for a cause that only its answer names.
    pub(crate) fn stays_down(&self, why: &StoreError) {
        let name = &self.outage.name;
        if self.outage.note(why) {
            tracing::warn!("{name} is still away: {why}");
        } else {
            tracing::debug!("{name} does not serve yet: {why}");
        }
    }

    /// Notes that the node is no longer used: the map of the cluster does not name it.
    pub(crate) fn leaves(&self) {
        if self.outage.ends() {
            let name = &self.outage.name;
            tracing::info!("{name} is no longer asked: it serves no slot");
        }
    }
}
