//! What a request's body begins with, read before its limits are asked: by it a limit tells a repeat from another request
//! under the same id. What has been read goes to the upstream first, unchanged.
//!
//! Bounded by bytes, by time and by how many a worker keeps. Whose body is not read for one of these has no id, and pays.

use super::Worker;
use super::body::{UploadFailure, broken_by};
use super::error::ProxyError;
use super::exchange::Exchange;
use crate::client::Client;
use crate::key::{Content, ContentDigest, Sameness};
use crate::limit::Limit;
use crate::telemetry::log::Throttle;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::timeout;

/// Longest that a body's beginning is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same where only limits wait for it that decide nothing: these are to delay nobody.
const GLANCE: Duration = Duration::from_millis(50);
/// Beginnings that one worker keeps at most: 16 MiB of them.
const MOST: u32 = 1024;
/// Those of one client among them, while half of the room is taken: else it would take from all others what their ids are worth.
const MOST_OF_ONE: u32 = 64;

/// Why a request is charged as if it had no id.
static UNREAD: Throttle = Throttle::every(Duration::from_secs(10));

/// Frames that have been read of a body, and not been forwarded yet.
#[derive(Debug)]
pub struct BodyPrefix {
    frames: VecDeque<Frame<Bytes>>,
    /// Nothing comes behind them.
    pub is_all: bool,
    /// The body's length, as far as it was announced.
    announced: SizeHint,
    _place: PrefixPermit,
}

/// The beginnings that a worker keeps: how many, and how many of each client.
#[derive(Debug, Default)]
pub(super) struct PrefixBudget {
    kept: Cell<u32>,
    clients: RefCell<HashMap<Client, u32>>,
}

/// One of them.
#[derive(Debug)]
struct PrefixPermit {
    among: Rc<PrefixBudget>,
    client: Client,
}

impl PrefixPermit {
    fn among(all: &Rc<PrefixBudget>, client: Client) -> Option<Self> {
        let kept = all.kept.get();
        let mut clients = all.clients.borrow_mut();
        let own = clients.get(&client).copied().unwrap_or_default();
        if kept >= MOST || (kept >= MOST / 2 && own >= MOST_OF_ONE) {
            return None;
        }
        all.kept.set(kept + 1);
        clients.insert(client, own + 1);
        Some(Self {
            among: Rc::clone(all),
            client,
        })
    }
}

impl Drop for PrefixPermit {
    fn drop(&mut self) {
        self.among.kept.set(self.among.kept.get() - 1);
        let mut clients = self.among.clients.borrow_mut();
        if let Some(own) = clients.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

impl Worker {
    /// Reads what the body begins with, where a limit tells repeats by it and the request has an id.
    ///
    /// # Errors
    /// When the body breaks.
    pub(super) async fn read_ahead(
        &self,
        incoming: &mut Incoming,
        fields: &HeaderMap,
        exchange: &mut Exchange,
    ) -> Result<(), ProxyError> {
        let Some(service) = exchange.service() else {
            return Ok(());
        };
        // Those that decide come first.
        let Some(limit) = service.limits.iter().find(|limit| asks(limit, fields)) else {
            return Ok(());
        };
        let patience = if limit.mode.decides() {
            PATIENCE
        } else {
            GLANCE
        };
        let client = Client::of(exchange.client);
        let Some(place) = PrefixPermit::among(&self.beginnings, client) else {
            unread(limit, exchange, "was not read, since many others are");
            return Ok(());
        };
        let (announced, mut frames) = (incoming.size_hint(), PrefixReader::default());
        let read = timeout(patience, frames.read(incoming)).await;
        match read {
            Ok(Ok(())) => exchange.content = Content::Known(frames.digest()),
            Ok(Err(broken)) => return Err(exchange.breaks(broken)),
            Err(_late) if limit.mode.decides() => {
                unread(limit, exchange, "did not come within 5s");
            }
            Err(_late) => {}
        }
        exchange.beginning = Some(Box::new(BodyPrefix {
            is_all: frames.ended,
            frames: frames.into_frames(),
            announced,
            _place: place,
        }));
        Ok(())
    }
}

impl Exchange {
    /// Is what its body begins with to be known before its limits are asked?
    pub(super) fn wants_beginning(&self) -> bool {
        let service = self.service();
        !self.content.is_absent() && service.is_some_and(|service| service.compares_bodies)
    }

    /// Its body breaks before it is forwarded.
    fn breaks(&mut self, broken: UploadFailure) -> ProxyError {
        let upload = self.upload.get_or_insert_default();
        upload.broken.set(Some(broken));
        ProxyError::from(broken)
    }
}

/// Is the request's id one of its whole to `limit`?
fn asks(limit: &Limit, fields: &HeaderMap) -> bool {
    let mut dedupe = limit.dedupe.iter();
    dedupe.any(|dedupe| {
        dedupe.of == Sameness::Request && matches!(dedupe.field.of(fields), Ok(Some(_)))
    })
}

fn unread(limit: &Limit, exchange: &Exchange, what: &str) {
    if let Some(more) = UNREAD.pass() {
        let (name, client) = (&limit.name, exchange.client);
        tracing::warn!("the body of {client} {what}; limit {name} charges the request{more}");
    }
}

/// What is being read.
#[derive(Debug, Default)]
struct PrefixReader {
    /// The one that was all there is, or enough.
    first: Bytes,
    /// Several, put together: many small ones take no more room than they have bytes.
    joined: BytesMut,
    trailers: Option<HeaderMap>,
    ended: bool,
}

impl PrefixReader {
    /// To the end, or until there is enough. What has been read is kept where the future is dropped.
    async fn read(&mut self, incoming: &mut Incoming) -> Result<(), UploadFailure> {
        while !self.ended && self.bytes().len() < ContentDigest::COVERED {
            match incoming.frame().await {
                None => self.ended = true,
                Some(Err(error)) => return Err(broken_by(&error)),
                Some(Ok(frame)) => self.take(frame, incoming.is_end_stream()),
            }
        }
        Ok(())
    }

    fn take(&mut self, frame: Frame<Bytes>, is_last: bool) {
        self.ended = is_last;
        match frame.into_data() {
            Ok(data) if self.bytes().is_empty() => self.first = data,
            Ok(data) => {
                if self.joined.is_empty() {
                    self.joined.extend_from_slice(&self.first);
                    self.first = Bytes::new();
                }
                self.joined.extend_from_slice(&data);
            }
            Err(frame) => {
                self.trailers = frame.into_trailers().ok();
                self.ended = true;
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        if self.joined.is_empty() {
            &self.first
        } else {
            &self.joined
        }
    }

    fn digest(&self) -> ContentDigest {
        ContentDigest::of(self.bytes())
    }

    fn into_frames(self) -> VecDeque<Frame<Bytes>> {
        let data = if self.joined.is_empty() {
            self.first
        } else {
            self.joined.freeze()
        };
        let data = Some(data).filter(|data| !data.is_empty());
        let trailers = self.trailers.map(Frame::trailers);
        data.map(Frame::data).into_iter().chain(trailers).collect()
    }
}

impl BodyPrefix {
    /// The next of what has been read.
    pub fn next(&mut self) -> Option<Frame<Bytes>> {
        self.frames.pop_front()
    }

    /// Has all of it been forwarded?
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.frames.is_empty()
    }

    /// How long the body is, as was announced before anything of it was read.
    #[must_use]
    pub fn announced(&self) -> SizeHint {
        self.announced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_leaves_half_of_the_room_to_others() {
        let all = Rc::<PrefixBudget>::default();
        let client = |text: &str| Client::of(text.parse().unwrap());
        let (greedy, other) = (client("192.0.2.1"), client("192.0.2.2"));
        let taken: Vec<PrefixPermit> =
            std::iter::from_fn(|| PrefixPermit::among(&all, greedy)).collect();
        assert_eq!(taken.len(), 512);
        let others: Vec<PrefixPermit> =
            std::iter::from_fn(|| PrefixPermit::among(&all, other)).collect();
        assert_eq!(others.len(), 64);
        drop((taken, others));
        assert_eq!(all.kept.get(), 0);
        assert!(all.clients.borrow().is_empty());
    }
}
