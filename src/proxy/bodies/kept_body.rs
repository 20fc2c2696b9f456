//! The beginning of a request's body, kept while its server may still state that it has not begun with the request: the
//! body is then sent again. A copy is kept, so that its memory equals its bytes, and the bytes of a worker and of each
//! client are bounded.

use crate::client::Client;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The most bytes that are kept of one body.
pub(crate) const MOST: usize = 16 * 1024;
/// The most bytes that one worker keeps.
pub(crate) const MOST_OF_WORKER: usize = 8 << 20;
/// The most bytes that it keeps of one client's bodies.
pub(crate) const MOST_OF_CLIENT: usize = MOST_OF_WORKER / 8;
/// The least room that is reserved for a body of unknown length.
const LEAST: usize = 256;

/// The bytes that a worker keeps, in all and of each client.
#[derive(Debug, Default)]
pub(in crate::proxy) struct KeptBodyBytes {
    all: Cell<usize>,
    clients: RefCell<HashMap<Client, usize>>,
}

/// A body's share of them.
#[derive(Debug)]
pub struct KeptShare {
    among: Rc<KeptBodyBytes>,
    client: Client,
    bytes: usize,
}

impl KeptShare {
    /// An empty share for a body of `client`.
    pub(in crate::proxy) fn new(among: &Rc<KeptBodyBytes>, client: Client) -> Self {
        Self {
            among: Rc::clone(among),
            client,
            bytes: 0,
        }
    }

    /// Extends the share to `bytes` in all. Returns false if there is no room.
    fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let all = self.among.all.get() + more;
        let mut clients = self.among.clients.borrow_mut();
        let of_client = clients.get(&self.client).copied().unwrap_or_default() + more;
        if all > MOST_OF_WORKER || of_client > MOST_OF_CLIENT {
            return false;
        }
        self.among.all.set(all);
        clients.insert(self.client, of_client);
        self.bytes += more;
        true
    }
}

impl Drop for KeptShare {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        self.among.all.set(self.among.all.get() - self.bytes);
        let mut clients = self.among.clients.borrow_mut();
        if let Some(of_client) = clients.get_mut(&self.client) {
            *of_client -= self.bytes;
            if *of_client == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

/// The kept part of one body.
#[derive(Debug)]
pub(in crate::proxy) enum KeptBody {
    /// Not needed: over HTTP/1.1 a body is complete as long as nothing of its request was written.
    Unasked(KeptShare),
    /// Everything that was taken.
    Beginning(Box<KeptBeginning>),
    /// The kept part is being sent again, once.
    Again(Box<KeptBeginning>),
    /// Nothing: the body was longer, or there was no room, or the request is answered.
    Gone,
}

/// The beginning of a body.
#[derive(Debug)]
pub(in crate::proxy) struct KeptBeginning {
    share: KeptShare,
    data: Vec<u8>,
    trailers: Option<HeaderMap>,
    /// The body's length, if it is known and all of it can be kept.
    announced: Option<usize>,
}

impl KeptBody {
    /// Keeps everything that is taken from now on. If the length is `announced`, room for the whole is reserved at
    /// once.
    pub(in crate::proxy) fn keep(&mut self, announced: Option<u64>) {
        if matches!(self, Self::Unasked(_))
            && let Self::Unasked(share) = std::mem::replace(self, Self::Gone)
        {
            *self = Self::Beginning(Box::new(KeptBeginning {
                share,
                data: Vec::new(),
                trailers: None,
                announced: announced
                    .and_then(|length| usize::try_from(length).ok())
                    .filter(|length| *length <= MOST),
            }));
        }
    }

    /// Is everything that was taken kept?
    pub(in crate::proxy) fn is_whole(&self) -> bool {
        matches!(self, Self::Beginning(_))
    }

    /// Starts to send the body again. Returns false if not everything is kept.
    pub(in crate::proxy) fn rewind(&mut self) -> bool {
        let is_whole = self.is_whole();
        if let Self::Beginning(kept) = std::mem::replace(self, Self::Gone) {
            *self = Self::Again(kept);
        }
        is_whole
    }

    /// Drops the kept part, since the request is answered, or its body broke.
    pub(in crate::proxy) fn forget(&mut self) {
        if !matches!(self, Self::Again(_)) || self.is_over() {
            *self = Self::Gone;
        }
    }

    /// Is nothing left to be sent again?
    pub(in crate::proxy) fn is_over(&self) -> bool {
        match self {
            Self::Again(kept) => kept.data.is_empty() && kept.trailers.is_none(),
            Self::Unasked(_) | Self::Beginning(_) | Self::Gone => true,
        }
    }

    /// Is the body being sent again?
    pub(in crate::proxy) fn is_rewound(&self) -> bool {
        matches!(self, Self::Again(_))
    }

    /// The next frame to be sent again.
    #[cold]
    pub(in crate::proxy) fn next(&mut self) -> Option<Frame<Bytes>> {
        let Self::Again(kept) = self else { return None };
        if !kept.data.is_empty() {
            return Some(Frame::data(std::mem::take(&mut kept.data).into()));
        }
        kept.trailers.take().map(Frame::trailers)
    }

    /// Notes that a frame is taken.
    #[inline]
    pub(in crate::proxy) fn takes(&mut self, frame: &Frame<Bytes>) {
        if let Self::Beginning(kept) = self
            && !kept.takes(frame)
        {
            *self = Self::Gone;
        }
    }
}

impl KeptBeginning {
    /// Keeps a frame. Returns false if there is no room for it.
    fn takes(&mut self, frame: &Frame<Bytes>) -> bool {
        if let Some(trailers) = frame.trailers_ref() {
            let size = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
                name.as_str().len() + value.len() + LEAST
            };
            let more: usize = trailers.iter().map(size).sum();
            self.trailers = Some(trailers.clone());
            return more <= MOST && self.share.grow(self.share.bytes + more);
        }
        let Some(data) = frame.data_ref() else {
            return false;
        };
        let length = self.data.len() + data.len();
        if length > MOST {
            return false;
        }
        if length > self.data.capacity() {
            let doubled = (self.data.capacity() * 2).max(LEAST);
            let room = self.announced.unwrap_or(doubled).clamp(length, MOST);
            if !self.share.grow(room) {
                return false;
            }
            self.data.reserve_exact(room - self.data.len());
        }
        self.data.extend_from_slice(data);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn client(last: u8) -> Client {
        Client::of(IpAddr::from([192, 0, 2, last]))
    }

    fn body(among: &Rc<KeptBodyBytes>, last: u8) -> KeptBody {
        let mut body = KeptBody::Unasked(KeptShare::new(among, client(last)));
        body.keep(None);
        body
    }

    fn data(length: usize) -> Frame<Bytes> {
        Frame::data(vec![b'x'; length].into())
    }

    #[test]
    fn a_body_goes_out_anew_with_all_that_was_taken_and_once() {
        let among = Rc::default();
        let mut kept = body(&among, 1);
        for piece in ["one ", "two ", "three"] {
            kept.takes(&Frame::data(Bytes::from_static(piece.as_bytes())));
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", http::HeaderValue::from_static("3"));
        kept.takes(&Frame::trailers(trailers));
        assert!(kept.is_over() && kept.rewind() && !kept.is_over());
        let first = kept.next().and_then(|frame| frame.into_data().ok());
        assert_eq!(first.as_deref(), Some(&b"one two three"[..]));
        assert!(!kept.is_over());
        let last = kept.next().and_then(|frame| frame.into_trailers().ok());
        assert_eq!(last.map(|all| all.len()), Some(1));
        assert!(kept.is_over() && kept.next().is_none());
        kept.forget();
        assert!(!kept.rewind());
        assert!(among.all.get() == 0 && among.clients.borrow().is_empty());
    }

    #[test]
    fn more_than_the_most_is_not_kept_and_takes_nothing() {
        let among = Rc::default();
        let mut kept = body(&among, 1);
        kept.takes(&data(MOST));
        assert!(kept.is_whole() && among.all.get() == MOST);
        kept.takes(&data(1));
        assert!(!kept.rewind() && among.all.get() == 0);
    }

    #[test]
    fn the_beginning_of_a_long_body_is_kept_and_takes_room_for_what_came_alone() {
        let among = Rc::default();
        let mut long = KeptBody::Unasked(KeptShare::new(&among, client(1)));
        long.keep(Some(10 << 20));
        long.takes(&data(10));
        assert!(long.is_whole() && among.all.get() == LEAST);
        long.takes(&data(MOST - 10));
        assert!(long.is_whole() && among.all.get() == MOST);
        let mut short = KeptBody::Unasked(KeptShare::new(&among, client(1)));
        short.keep(Some(1_000));
        short.takes(&data(10));
        assert_eq!(among.all.get(), MOST + 1_000);
    }

    #[test]
    fn many_small_pieces_take_no_more_room_than_they_are_counted_for() {
        let among = Rc::default();
        let mut kept = body(&among, 1);
        for _ in 0..1_000 {
            kept.takes(&data(3));
        }
        let KeptBody::Beginning(beginning) = &kept else {
            panic!("3,000 bytes are kept");
        };
        assert!(beginning.data.capacity() <= among.all.get());
        assert!(among.all.get() <= 4_096);
    }

    #[test]
    fn one_client_has_an_eighth_of_the_room() {
        let among = Rc::default();
        let full = |last| {
            let mut kept = body(&among, last);
            kept.takes(&data(MOST));
            kept
        };
        let taken: Vec<KeptBody> = (0..100).map(|_| full(1)).collect();
        assert_eq!(taken.iter().filter(|kept| kept.is_whole()).count(), 64);
        let others: Vec<KeptBody> = (2..10)
            .flat_map(|of| (0..64).map(move |_| of))
            .map(full)
            .collect();
        assert_eq!(others.iter().filter(|kept| kept.is_whole()).count(), 7 * 64);
        assert_eq!(among.all.get(), MOST_OF_WORKER);
        drop((taken, others));
        assert!(among.all.get() == 0 && among.clients.borrow().is_empty());
    }
}
