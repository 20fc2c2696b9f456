//! The beginning of a request's body, read before its limits are checked: a limit distinguishes a repeat by it from
//! another request under the same id. The bytes that have been read are sent to the upstream first, unchanged.
//!
//! The reading is bounded by bytes, by time and by the number of beginnings that a worker keeps. A request whose body
//! is not read for one of these reasons has no id and is charged.

use crate::client::{Client, spelled};
use crate::key::{Content, ContentDigest, Sameness};
use crate::limit::Limit;
use crate::proxy::bodies::body_failure::{UploadFailure, broken_by};
use crate::snapshot::Service;
use crate::telemetry::log::Throttle;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::timeout;

/// The longest wait for a body's beginning.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest wait for a body's beginning for shadow limits, which must delay no request.
const GLANCE: Duration = Duration::from_millis(50);
/// The most beginnings that one worker keeps: 16 MiB.
pub(crate) const MOST: u32 = 1024;
/// The most beginnings of one client while half of the room is used. Without this bound one client would deprive all
/// others of their ids.
pub(crate) const MOST_OF_ONE: u32 = 64;

/// Throttles the log lines about requests that are charged as if they had no id.
static UNREAD: Throttle = Throttle::every(Duration::from_secs(10));

/// Frames of a body that have been read and not been forwarded yet.
#[derive(Debug)]
pub struct BodyPrefix {
    frames: VecDeque<Frame<Bytes>>,
    /// No frame comes after these.
    pub is_all: bool,
    /// The announced length of the body.
    announced: SizeHint,
    /// The permit for the kept bytes while limits are checked.
    _permit: Option<PrefixPermit>,
}

/// The beginnings that a worker keeps: their number, and the number of each client.
#[derive(Debug, Default)]
pub(in crate::proxy) struct PrefixBudget {
    kept: Cell<u32>,
    clients: RefCell<HashMap<Client, u32>>,
}

/// Room for one beginning.
#[derive(Debug)]
struct PrefixPermit {
    among: Rc<PrefixBudget>,
    client: Client,
}

impl PrefixPermit {
    fn among(all: &Rc<PrefixBudget>, client: Client) -> Option<Self> {
        let kept = all.kept.get();
        let mut clients = all.clients.borrow_mut();
        let of_client = clients.get(&client).copied().unwrap_or_default();
        if kept >= MOST || (kept >= MOST / 2 && of_client >= MOST_OF_ONE) {
            return None;
        }
        all.kept.set(kept + 1);
        clients.insert(client, of_client + 1);
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
        if let Some(of_client) = clients.get_mut(&self.client) {
            *of_client -= 1;
            if *of_client == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

/// The result of reading the beginning of a body.
#[derive(Debug)]
pub(in crate::proxy) struct ReadAhead {
    /// The facts about the body that identify a repeat.
    pub(in crate::proxy) content: Content,
    /// The frames that have been read.
    pub(in crate::proxy) prefix: Box<BodyPrefix>,
}

impl PrefixBudget {
    /// Reads the beginning of the body, if a limit of `service` recognises repeats by it and the request has an id.
    ///
    /// # Errors
    /// If the body breaks.
    pub(in crate::proxy) async fn read_ahead(
        self: &Rc<Self>,
        incoming: &mut Incoming,
        fields: &HeaderMap,
        service: &Service,
        client: Option<IpAddr>,
    ) -> Result<Option<ReadAhead>, UploadFailure> {
        // Limits that decide come first.
        let Some(limit) = service
            .limits
            .iter()
            .find(|limit| reads_content(limit, fields))
        else {
            return Ok(None);
        };
        let patience = if limit.mode.decides() {
            PATIENCE
        } else {
            GLANCE
        };
        let Some(permit) = PrefixPermit::among(self, Client::of(client)) else {
            unread(limit, client, "was not read, since many others are kept");
            return Ok(None);
        };
        let (announced, mut reader) = (incoming.size_hint(), PrefixReader::default());
        let mut content = Content::Unread;
        match timeout(patience, reader.read(incoming)).await {
            Ok(read) => {
                read?;
                content = Content::Known(reader.digest());
            }
            Err(_late) if limit.mode.decides() => unread(limit, client, "did not come within 5s"),
            Err(_late) => {}
        }
        let prefix = Box::new(BodyPrefix {
            is_all: reader.ended,
            frames: reader.into_frames(),
            announced,
            _permit: Some(permit),
        });
        Ok(Some(ReadAhead { content, prefix }))
    }
}

/// Does `limit` recognise a repeat by the request's id together with its content?
fn reads_content(limit: &Limit, fields: &HeaderMap) -> bool {
    let mut dedupe = limit.dedupe.iter();
    dedupe.any(|dedupe| {
        dedupe.of == Sameness::Request && matches!(dedupe.field.of(fields), Ok(Some(_)))
    })
}

fn unread(limit: &Limit, client: Option<IpAddr>, what: &str) {
    if let Some(more) = UNREAD.pass() {
        let (client, name) = (spelled(client), &limit.name);
        tracing::warn!("the body of {client} {what}; limit {name} charges the request{more}");
    }
}

/// A body's beginning during the reading.
#[derive(Debug, Default)]
struct PrefixReader {
    /// The only piece so far, if it was the whole body or long enough.
    first: Bytes,
    /// Several pieces, joined, so that many small ones take no more memory than their bytes.
    joined: BytesMut,
    trailers: Option<HeaderMap>,
    ended: bool,
}

impl PrefixReader {
    /// Reads to the end, or until enough is read. The frames that have been read are kept if the future is dropped.
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
    /// The first frame of a body, or its end, read just before it is forwarded.
    pub(in crate::proxy) fn of_first(
        frame: Option<Frame<Bytes>>,
        incoming: &Incoming,
    ) -> Box<Self> {
        Box::new(Self {
            is_all: frame.is_none() || incoming.is_end_stream(),
            frames: frame.into_iter().collect(),
            announced: SizeHint::default(),
            _permit: None,
        })
    }

    /// The next frame that has been read.
    pub fn next(&mut self) -> Option<Frame<Bytes>> {
        self.frames.pop_front()
    }

    /// Have all frames been forwarded?
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.frames.is_empty()
    }

    /// The body's length, as announced before any of it was read.
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
        let client = |text: &str| Client::of(text.parse::<IpAddr>().unwrap());
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
