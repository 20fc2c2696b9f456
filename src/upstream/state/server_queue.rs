//! Requests that wait for a free item, in the order of their arrival, over all workers.
//!
//! A free item is handed directly to the first waiter, so that no newcomer can take it in between. One client may have
//! at most half of the line, so that it leaves places to others.

use crate::client::Client;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// A line of waiters for a `T`, which returns itself when dropped.
#[derive(Debug)]
pub struct ServerQueue<T> {
    /// The number of waiters, including those that are about to join. Read without the lock.
    waiting: AtomicUsize,
    line: Mutex<Line<T>>,
    tickets: AtomicU64,
}

#[derive(Debug)]
struct ServerWaiter<T> {
    ticket: u64,
    /// The client that has the place, if clients are counted.
    of: Option<Client>,
    hand: oneshot::Sender<T>,
}

#[derive(Debug)]
struct Line<T> {
    waiters: VecDeque<ServerWaiter<T>>,
    /// The places of each client.
    clients: HashMap<Client, usize>,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self {
            waiters: VecDeque::new(),
            clients: HashMap::new(),
        }
    }
}

impl<T> Line<T> {
    fn push(&mut self, waiter: ServerWaiter<T>) {
        if let Some(client) = waiter.of {
            *self.clients.entry(client).or_default() += 1;
        }
        self.waiters.push_back(waiter);
    }

    fn pop(&mut self) -> Option<ServerWaiter<T>> {
        let first = self.waiters.pop_front()?;
        self.left(&first);
        Some(first)
    }

    fn remove(&mut self, ticket: u64) -> Option<ServerWaiter<T>> {
        let at = self.waiters.iter().position(|one| one.ticket == ticket)?;
        let waiter = self.waiters.remove(at)?;
        self.left(&waiter);
        Some(waiter)
    }

    fn left(&mut self, waiter: &ServerWaiter<T>) {
        if let Some(client) = waiter.of
            && let Some(places) = self.clients.get_mut(&client)
        {
            *places -= 1;
            if *places == 0 {
                self.clients.remove(&client);
            }
        }
    }
}

/// The number of places in a line of `most` that one client may have: half of them.
#[must_use]
pub const fn share(most: usize) -> usize {
    most.div_ceil(2)
}

impl<T> Default for ServerQueue<T> {
    fn default() -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            line: Mutex::default(),
            tickets: AtomicU64::new(0),
        }
    }
}

/// The result of an attempt to join the line.
#[derive(Debug)]
pub enum Joined<T> {
    /// An item became free in between.
    Free(T),
    /// A place in the line.
    Waits(Place<T>),
    /// The line has its maximal length.
    Full,
    /// One client has the most places that it may have.
    FullOfClient,
}

impl<T> ServerQueue<T> {
    /// Is the line empty? If so, a new request may try to take a place itself.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    /// The number of waiters.
    pub fn len(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Joins the line, after at most `most - 1` others, for a client if there is one. At the front `free` is called
    /// once more, since an item that became free in between has woken no waiter.
    pub fn join(
        self: &Arc<Self>,
        most: usize,
        of: Option<Client>,
        free: impl FnOnce() -> Option<T>,
    ) -> Joined<T> {
        let mut line = self.lock();
        if line.waiters.len() >= most.max(1) && most > 0 {
            return Joined::Full;
        }
        let of_client = of.and_then(|client| line.clients.get(&client));
        if most > 0 && of_client.is_some_and(|of_client| *of_client >= share(most)) {
            return Joined::FullOfClient;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let taken = line.waiters.is_empty().then(free).flatten();
        if let Some(taken) = taken {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return Joined::Free(taken);
        }
        if most == 0 {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return Joined::Full;
        }
        let (hand, taken) = oneshot::channel();
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        line.push(ServerWaiter { ticket, of, hand });
        Joined::Waits(Place {
            queue: Arc::clone(self),
            ticket,
            taken,
        })
    }

    /// Gives the items that `free` finds to the waiters in order, until it finds no more.
    pub fn serve(&self, mut free: impl FnMut() -> Option<T>) {
        if self.is_empty() {
            return;
        }
        // A waiter that has left returns the item. The item goes to the next waiter, or is dropped after the lock is
        // released: its drop may call this function again.
        let mut left = None;
        let mut line = self.lock();
        while !line.waiters.is_empty() {
            let Some(next) = left.take().or_else(&mut free) else {
                break;
            };
            if let Some(first) = line.pop() {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                left = first.hand.send(next).err();
            }
        }
        drop(line);
        drop(left);
    }

    fn lock(&self) -> MutexGuard<'_, Line<T>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in a line. When it is dropped, its place is free for later waiters.
#[derive(Debug)]
pub struct Place<T> {
    queue: Arc<ServerQueue<T>>,
    ticket: u64,
    taken: oneshot::Receiver<T>,
}

impl<T> Place<T> {
    /// Waits for an item. `None` if the line ends.
    pub async fn turn(&mut self) -> Option<T> {
        (&mut self.taken).await.ok()
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        let mut line = self.queue.lock();
        if line.remove(self.ticket).is_some() {
            self.queue.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        // An item that was handed over and not taken is dropped after the lock is released.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    /// One of several equal items.
    #[derive(Debug)]
    struct Thing(Arc<Shop>);

    #[derive(Debug, Default)]
    struct Shop {
        out: AtomicU32,
        most: u32,
        queue: Arc<ServerQueue<Thing>>,
    }

    fn take_thing(shop: &Arc<Shop>) -> Option<Thing> {
        let more = |out| (out < shop.most).then_some(out + 1);
        let taken = shop
            .out
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        taken.is_ok().then(|| Thing(Arc::clone(shop)))
    }

    impl Drop for Thing {
        fn drop(&mut self) {
            self.0.out.fetch_sub(1, Ordering::SeqCst);
            self.0.queue.serve(|| take_thing(&self.0));
        }
    }

    fn shop(most: u32) -> Arc<Shop> {
        Arc::new(Shop {
            most,
            ..Shop::default()
        })
    }

    fn place(shop: &Arc<Shop>) -> Place<Thing> {
        match shop.queue.join(10, None, || take_thing(shop)) {
            Joined::Waits(place) => place,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn who_came_first_is_served_first_and_who_left_is_passed_over() {
        let shop = shop(1);
        let taken = take_thing(&shop).unwrap();
        let (mut first, second, mut third) = (place(&shop), place(&shop), place(&shop));
        drop(second);
        assert_eq!(shop.queue.len(), 2);
        drop(taken);
        let taken = first.turn().await.unwrap();
        assert!(third.taken.try_recv().is_err());
        drop(taken);
        assert!(third.turn().await.is_some());
        assert_eq!(shop.out.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn what_a_leaver_was_given_goes_to_the_next() {
        let shop = shop(1);
        let taken = take_thing(&shop).unwrap();
        let (first, mut second) = (place(&shop), place(&shop));
        drop(taken);
        assert!(shop.queue.len() == 1 && take_thing(&shop).is_none());
        drop(first);
        assert!(second.taken.try_recv().is_ok());
        assert!(shop.queue.is_empty());
    }

    #[test]
    fn the_line_has_an_end_and_may_have_no_place_at_all() {
        let shop = shop(1);
        assert!(matches!(
            shop.queue.join(0, None, || take_thing(&shop)),
            Joined::Free(_)
        ));
        let _taken = take_thing(&shop).unwrap();
        assert!(matches!(
            shop.queue.join(0, None, || take_thing(&shop)),
            Joined::Full
        ));
        let _place = place(&shop);
        assert!(matches!(
            shop.queue.join(1, None, || take_thing(&shop)),
            Joined::Full
        ));
    }

    #[test]
    fn one_client_has_half_of_the_line_and_gets_it_back() {
        let shop = shop(1);
        let taken = take_thing(&shop).unwrap();
        let join = |last: u8| {
            let client = Client::of(std::net::IpAddr::from([192, 0, 2, last]));
            shop.queue.join(5, Some(client), || take_thing(&shop))
        };
        let mut places: Vec<_> = (0..3).map(|_| join(1)).collect();
        assert!(places.iter().all(|one| matches!(one, Joined::Waits(_))));
        assert!(matches!(join(1), Joined::FullOfClient));
        places.extend([join(2), join(3)]);
        assert!(places.iter().all(|one| matches!(one, Joined::Waits(_))));
        assert!(matches!(join(4), Joined::Full) && matches!(join(1), Joined::Full));
        // One waiter leaves the line, and one is served.
        drop(places.remove(0));
        drop(taken);
        places.extend([join(1), join(1)]);
        assert!(places.iter().all(|one| matches!(one, Joined::Waits(_))));
        assert!(matches!(join(1), Joined::Full));
        drop(places);
        assert!(shop.queue.lock().clients.is_empty());
        assert_eq!(shop.out.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn never_are_more_out_than_there_are_and_all_come_back() {
        let shop = shop(3);
        let most = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (shop, most) = (Arc::clone(&shop), Arc::clone(&most));
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .build()
                        .unwrap();
                    runtime.block_on(async {
                        for _ in 0..2_000 {
                            let thing =
                                match shop.queue.is_empty().then(|| take_thing(&shop)).flatten() {
                                    Some(thing) => thing,
                                    None => match shop.queue.join(10, None, || take_thing(&shop)) {
                                        Joined::Free(thing) => thing,
                                        Joined::Waits(mut place) => place.turn().await.unwrap(),
                                        other => panic!("four are not ten: {other:?}"),
                                    },
                                };
                            most.fetch_max(shop.out.load(Ordering::SeqCst), Ordering::SeqCst);
                            tokio::task::yield_now().await;
                            drop(thing);
                        }
                    });
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert!(most.load(Ordering::SeqCst) <= 3);
        assert!(shop.out.load(Ordering::SeqCst) == 0 && shop.queue.is_empty());
    }
}
