//! Orders that have failed and are asked for again at once, by a signal.

use super::schedule::Seconds;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// The identities whose orders do not wait.
#[derive(Debug, Default)]
pub(super) struct Hurry {
    orders: Mutex<HashMap<Arc<str>, HurriedOrder>>,
    asked: Notify,
}

/// An order that was asked for at once.
#[derive(Debug, Default)]
struct HurriedOrder {
    /// The time of the order before it, once that has been looked at.
    before: Option<Option<Seconds>>,
    /// The line has been written that it waits nevertheless.
    is_reported: bool,
}

impl Hurry {
    /// Has the orders of these identities not wait, should they have failed.
    pub(super) fn ask(&self, identities: impl IntoIterator<Item = Arc<str>>) {
        let asked = identities.into_iter();
        let asked = asked.map(|identity| (identity, HurriedOrder::default()));
        self.orders.lock().extend(asked);
        self.asked.notify_one();
    }

    /// Resolves when it has been asked for.
    pub(super) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Follows an identity whose last order was begun or failed at `last`: the hurry ends when an order has been made since
    /// it was asked for, here or by another gateway. Returns whether it goes on.
    pub(super) fn follow(&self, identity: &str, last: Option<Seconds>) -> bool {
        let mut orders = self.orders.lock();
        let Some(order) = orders.get_mut(identity) else {
            return false;
        };
        let goes_on = *order.before.get_or_insert(last) == last;
        if !goes_on {
            orders.remove(identity);
        }
        goes_on
    }

    /// Notes that the line is written for how long the order of this identity waits. False where it was written before.
    pub(super) fn tell(&self, identity: &str) -> bool {
        let mut orders = self.orders.lock();
        let order = orders.get_mut(identity);
        order.is_some_and(|order| !std::mem::replace(&mut order.is_reported, true))
    }

    /// Forgets that the order of this identity was asked for: it is made, or nothing has failed.
    pub(super) fn forget(&self, identity: &str) {
        self.orders.lock().remove(identity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hurry_lasts_until_another_order_is_made_and_a_wait_is_told_once() {
        let hurry = Hurry::default();
        assert!(!hurry.follow("shop", Some(5)) && !hurry.tell("shop"));
        hurry.ask(["shop".into()]);
        assert!(hurry.follow("shop", Some(5)) && hurry.follow("shop", Some(5)));
        assert!(hurry.tell("shop") && !hurry.tell("shop"));
        // A clock of another gateway may go behind this one.
        assert!(!hurry.follow("shop", Some(4)) && !hurry.follow("shop", Some(5)));
        hurry.ask(["shop".into()]);
        assert!(hurry.follow("shop", Some(4)) && hurry.tell("shop"));
        hurry.forget("shop");
        assert!(!hurry.follow("shop", Some(4)));
    }
}
