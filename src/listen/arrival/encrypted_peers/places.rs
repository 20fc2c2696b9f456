//! Places of connections, each of which is freed after the end of its connection.

use super::Peer;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// The places of one worker.
#[derive(Debug, Default)]
pub(super) struct PeerPlaces(Rc<RefCell<PlaceTable>>);

#[derive(Debug, Default)]
struct PlaceTable {
    peers: Vec<Option<Weak<Peer>>>,
    free: Vec<usize>,
}

/// The place of one connection, until dropped.
#[derive(Debug)]
pub(in crate::listen) struct PeerPlace {
    all: Rc<RefCell<PlaceTable>>,
    at: usize,
}

impl PeerPlaces {
    pub(super) fn enter(&self, peer: &Rc<Peer>) -> PeerPlace {
        let mut places = self.0.borrow_mut();
        let weak = Some(Rc::downgrade(peer));
        let at = match places.free.pop() {
            Some(at) => {
                places.peers[at] = weak;
                at
            }
            None => {
                places.peers.push(weak);
                places.peers.len() - 1
            }
        };
        PeerPlace {
            all: Rc::clone(&self.0),
            at,
        }
    }

    /// The peer at a place, or an inner `None` if the place is free; an outer `None` after the last place.
    pub(super) fn at(&self, at: usize) -> Option<Option<Rc<Peer>>> {
        let places = self.0.borrow();
        let place = places.peers.get(at)?;
        Some(place.as_ref().and_then(Weak::upgrade))
    }
}

impl Drop for PeerPlace {
    fn drop(&mut self) {
        let mut places = self.all.borrow_mut();
        places.peers[self.at] = None;
        places.free.push(self.at);
    }
}
