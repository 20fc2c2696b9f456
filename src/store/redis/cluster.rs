//! Counters spread over the masters of a cluster. A lone Redis is a cluster of one node, which serves every slot.
//!
//! A master is a [`Node`] like a lone Redis: lanes, connections and health of its own, so that one that is away takes
//! nothing with it but the counters that live there.

mod discovery;
mod multi_slot;

use super::context::StoreContext;
use super::layout;
use super::node::{Node, NodeHandle, Tasks};
use super::question::DecisionRequest;
use super::router::{NodeMaker, Router};
use super::slot::CallRoute;
use super::slot::{self, Slot};
use super::watch;
use crate::limit::Limit;
use crate::store::answers::Answers;
use crate::store::check::apart;
use crate::store::endpoint::RedisEndpoint;
use crate::store::error::StoreError;
use discovery::Discovery;
pub(super) use discovery::map_of;
use multi_slot::AbandonedQueue;
use std::rc::{Rc, Weak};
use std::time::Duration;
use tokio::task::spawn_local;

/// The nodes of one worker. Clones share them.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) router: Rc<Router>,
    /// The only node, if the store is a lone Redis.
    pub(super) lone: Option<NodeHandle>,
    context: Rc<StoreContext>,
    /// Requests over several slots that have left.
    abandoned: Rc<AbandonedQueue>,
    _tasks: Rc<Tasks>,
}

impl Cluster {
    /// Starts to connect to a lone Redis, or to ask the seeds of a cluster, and waits for nothing.
    pub(super) fn new(context: Rc<StoreContext>) -> Self {
        let router = Rc::new_cyclic(|router: &Weak<Router>| {
            let refunds = router.clone();
            let _ = context
                .abandonments
                .refunds
                .set(Box::new(move |clock, refund| {
                    if let Some(router) = refunds.upgrade() {
                        router.refund(clock, refund);
                    }
                }));
            let make = maker(Rc::clone(&context), router.clone());
            Router::new(Rc::clone(&context), make)
        });
        let abandoned = Rc::new(AbandonedQueue::default());
        let (mut lone, mut tasks) = (None, Vec::new());
        if let RedisEndpoint::Cluster { seeds } = &context.target.place {
            let asker = Discovery::new(Rc::clone(&router), context.target.clone(), seeds);
            tasks.push(spawn_local(asker.run()));
            tasks.push(spawn_local(multi_slot::conclude_abandoned(
                Rc::clone(&router),
                Rc::clone(&context),
                Rc::clone(&abandoned),
            )));
        } else {
            lone = Some(router.make_lone());
        }
        Self {
            router,
            lone,
            context,
            abandoned,
            _tasks: Rc::new(Tasks(tasks)),
        }
    }

    /// Asks about limits, wherever their counters live.
    pub(super) async fn ask(&self, request: DecisionRequest<'_>) -> Result<Answers, StoreError> {
        self.known().await?;
        let checks = request.checks;
        let slots = multi_slot::by_slot(checks);
        let [only] = &slots[..] else {
            return self.ask_slots(request, slots).await;
        };
        let handle = self.router.at(only.slot)?;
        let route = CallRoute::to(only.slot);
        if !checks
            .iter()
            .any(|check| check.limit.with_history_if_asked().is_some())
        {
            return handle.node.ask(request, route).await;
        }
        let checks = &apart(checks, Limit::with_history_if_asked);
        handle
            .node
            .ask(DecisionRequest { checks, ..request }, route)
            .await
    }

    /// Waits until the map is known: not for long, for the question itself is to have time left.
    pub(super) async fn known(&self) -> Result<(), StoreError> {
        self.router.known(self.context.timeout / 2).await
    }

    /// The node that serves what is counted for all clients.
    pub(super) async fn everyone(&self) -> Result<NodeHandle, StoreError> {
        self.known().await?;
        self.router.at(slot_of_everyone())
    }

    /// Waits until nothing is under way any more.
    pub(super) async fn settled(&self) {
        loop {
            let all = self.router.all();
            for handle in &all {
                handle.node.settled().await;
            }
            let is_quiet = all.iter().all(|handle| handle.node.is_quiet());
            if is_quiet && self.router.underway.get() == 0 && self.abandoned.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Every master that serves a slot, once that is known; else why it is not.
    pub(super) async fn masters(&self) -> Result<Vec<NodeHandle>, StoreError> {
        let known = self.known().await;
        known.map_err(|error| self.router.why().unwrap_or(error))?;
        Ok(self.router.masters())
    }
}

/// The slot of what is counted for all clients.
pub(super) fn slot_of_everyone() -> Slot {
    slot::of_tag(layout::EVERYONE)
}

/// Makes nodes that report their changes to the router, and send redirected calls through it.
fn maker(context: Rc<StoreContext>, router: Weak<Router>) -> NodeMaker {
    Box::new(move |address| {
        let listener = router.clone();
        let node = Node::new(
            &context,
            address.cloned(),
            Box::new(move |up| {
                if let Some(router) = listener.upgrade() {
                    router.node_changed(up);
                }
            }),
        );
        watch::start(node, address.map(|_| router.clone()))
    })
}
