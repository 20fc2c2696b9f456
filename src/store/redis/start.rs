//! The start of one worker's access to Redis: its router, and the tasks that outlive every request.

use super::cluster::Discovery;
use super::cluster::router::{NodeMaker, Router};
use super::node::{Node, Tasks};
use super::queue::context::StoreContext;
use super::watch;
use crate::store::endpoint::RedisEndpoint;
use crate::store::reservation::{Amendment, Reservation};
use std::rc::{Rc, Weak};
use tokio::task::spawn_local;

/// Creates the router of one worker's calls, with its tasks: to a lone Redis, or starting at the seeds of a cluster.
/// Starts to connect and waits for nothing.
pub(super) fn start(context: &Rc<StoreContext>) -> (Rc<Router>, Rc<Tasks>) {
    let router = Rc::new_cyclic(|router: &Weak<Router>| {
        let make = maker(Rc::clone(context), router.clone());
        Router::new(Rc::clone(context), make)
    });
    let mut tasks = vec![spawn_local(cancel_abandoned(Rc::clone(&router)))];
    if let RedisEndpoint::Cluster { seeds } = &context.target.place {
        let asker = Discovery::new(Rc::clone(&router), context.target.clone(), seeds);
        tasks.push(spawn_local(asker.run()));
    } else {
        router.make_lone();
    }
    (router, Rc::new(Tasks(tasks)))
}

/// Cancels charges that abandoned requests cannot use, until the worker ends.
async fn cancel_abandoned(router: Rc<Router>) {
    let cancel = |clock, charge: &Reservation| {
        router.amend(clock, charge, Amendment::Cancellation, None);
    };
    router.context.abandonments.serve(cancel).await;
}

/// Creates nodes that report their changes to the router, and forward redirected calls through it.
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
