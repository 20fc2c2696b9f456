//! Failed orders that an operator's signal asks to repeat at once.

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

/// An order that an operator requested.
#[derive(Debug, Default)]
struct HurriedOrder {
    /// The time of the order before it, once looked up.
    before: Option<Option<Seconds>>,
    /// The log has the line that the order waits nevertheless.
    is_reported: bool,
}

impl Hurry {
    /// Makes the orders of these identities not wait, if they have failed.
    pub(super) fn ask(&self, identities: impl IntoIterator<Item = Arc<str>>) {
        let asked = identities.into_iter();
        let asked = asked.map(|identity| (identity, HurriedOrder::default()));
        self.orders.lock().extend(asked);
        self.asked.notify_one();
    }

    /// Resolves when [`Hurry::ask`] was called.
    pub(super) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Follows an identity whose last order was begun or failed at `last`: the hurry ends when an order has been made
    /// since the signal, here or by another gateway. Returns whether the hurry continues.
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

    /// Notes that the log has the line with the wait of this identity's order. Returns false if the line was written
    /// before.
    pub(super) fn tell(&self, identity: &str) -> bool {
        let mut orders = self.orders.lock();
        let order = orders.get_mut(identity);
        order.is_some_and(|order| !std::mem::replace(&mut order.is_reported, true))
    }

    /// Forgets the hurry of this identity: its order is made, or no order has failed.
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
        // The clock of another gateway may be behind this one.
        assert!(!hurry.follow("shop", Some(4)) && !hurry.follow("shop", Some(5)));
        hurry.ask(["shop".into()]);
        assert!(hurry.follow("shop", Some(4)) && hurry.tell("shop"));
        hurry.forget("shop");
        assert!(!hurry.follow("shop", Some(4)));
    }
}
