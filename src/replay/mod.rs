//! What the limits of a file would have done to traffic that was logged: the same routes, keys, questions and algorithms
//! as in the gateway, on a clock that the trace moves.
//!
//! ```text
//! input            lines of a file, of standard input, of gzip
//! line             a line → a request     (json, apache_format, instant, address: how it is written)
//! request          the request            (header_fields: its fields)
//! proxy_formats    lines of other servers (fields: JSON that --fields explains)
//! line_layout      the members that lines have in common, found at a glance
//! policy_side      a request → its answer (one for the file, one for the file as --set changes it)
//! route_cache      routes that were found a moment ago
//! reservations     slots and charges of requests under way, until the trace says that they ended
//! waiting_requests how many requests wait, for the bounds on that
//! counters         where a side counts: memory, or Redis through the scripts
//! decisions        an answer → a line of --decisions
//! missing_fields   what no line has, though answers depend on it
//! tally            answers → numbers      (clients, wait_histogram, timeline)
//! report           numbers → text, JSON or SVG
//! ```
//!
//! Time never runs back: a line with an earlier `ts` than one before it counts at the latest seen. What is kept grows
//! with the live counters, never with the trace.

mod address;
mod apache_format;
mod clients;
mod counters;
mod decisions;
mod fault;
mod fields;
#[doc(hidden)]
pub mod fuzz;
mod header_fields;
mod input;
mod instant;
mod json;
mod line;
mod line_layout;
mod missing_fields;
mod policy_side;
mod proxy_formats;
pub mod report;
mod request;
mod reservations;
mod route_cache;
mod sketch;
mod tally;
mod timeline;
mod wait_histogram;
mod waiting_requests;

pub use clients::ClientTotals;
pub use fault::Fault;
pub use fields::{Mapping, NearestName};
pub use input::{TraceLine, TraceLines};
pub use report::Report;
pub use request::LogFormat;
pub use tally::{ByLimit, Minute, Tally, WaitQuantiles};
pub use timeline::{Interval, Timeline};

use crate::clock::Timestamp;
use crate::snapshot::Snapshot;
use crate::store::{RedisTarget, StoreError};
use clients::{Clients, SIDES};
use counters::{Counters, Detail, ReplayRedis};
use line_layout::LineLayout;
use missing_fields::MissingFields;
use policy_side::{LoggedHead, PolicySide, ReplayOutcome};
use report::{HardestClient, LineSample, Note};
use request::LoggedRequest;
use std::hash::BuildHasher as _;
use std::io::{self, Write};
use std::net::IpAddr;
use std::rc::Rc;

/// Odd lines that a report lists one by one.
const SAMPLE: usize = 20;

/// Clients that a report lists as the hardest hit.
const HARDEST: usize = 5;

/// Lines between two reports of progress.
const LOOK: u64 = 256;

/// A replay under way.
#[derive(Debug)]
pub struct Replay {
    sides: Vec<PolicySide>,
    server: Option<Rc<ReplayRedis>>,
    head: LoggedHead,
    line_layout: LineLayout,
    mapping: Option<Mapping>,
    missing_fields: MissingFields,
    /// The estimates need every bit of a hash to be a good one.
    hasher: foldhash::quality::FixedState,
    clients: Clients,
    timeline: Timeline,
    tallies: Vec<Tally>,
    lines: u64,
    blank: u64,
    requests: u64,
    unreadable: LineSample<Fault>,
    late: LineSample<()>,
    first: Option<Timestamp>,
    now: Timestamp,
}

/// Why a replay ended before its trace.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace could be opened, but not read to its end.
    #[error("cannot read the trace beyond line {line}: {error}")]
    Trace {
        /// The last line that was read.
        line: u64,
        /// Why not.
        error: io::Error,
    },
    /// The decisions could not be written.
    #[error("cannot write the decisions: {0}")]
    Decisions(io::Error),
    /// The store did not decide.
    #[error("{0}")]
    Store(StoreError),
    /// A signal asked for it.
    #[error("interrupted")]
    Interrupted,
}

impl Replay {
    /// Of what `file` would have done, and beside it what `changed` would have. Counts in memory, or in `redis`.
    ///
    /// # Errors
    /// When Redis cannot be reached.
    pub fn new(
        file: Snapshot,
        changed: Option<Snapshot>,
        redis: Option<&RedisTarget>,
    ) -> Result<Self, StoreError> {
        let unreachable = |error: io::Error| StoreError::Unreachable(error.to_string().into());
        let server = redis
            .map(ReplayRedis::connect)
            .transpose()
            .map_err(unreachable)?;
        let counters = |name: &str| match &server {
            None => Ok(Counters::memory()),
            Some(server) => server.counters(name),
        };
        let mut sides = vec![PolicySide::new(file, counters("a")?, None)];
        if let Some(changed) = changed {
            let other = PolicySide::new(changed, counters("b")?, sides.first());
            sides.push(other);
        }
        Ok(Self {
            tallies: sides.iter().map(Tally::of_side).collect(),
            missing_fields: MissingFields::new(&sides),
            sides,
            server,
            head: LoggedHead::default(),
            line_layout: LineLayout::default(),
            mapping: None,
            // One trace has one summary, estimates included.
            hasher: foldhash::quality::FixedState::with_seed(0x7011_6a7e),
            clients: Clients::new(),
            timeline: Timeline::default(),
            lines: 0,
            blank: 0,
            requests: 0,
            unreadable: LineSample::default(),
            late: LineSample::default(),
            first: None,
            now: Timestamp::default(),
        })
    }

    /// Reads JSON by `mapping`, where there is one.
    #[must_use]
    pub fn reading(self, mapping: Option<Mapping>) -> Self {
        Self { mapping, ..self }
    }

    /// Replays `lines` to their end. Each decision, of the changed file where there is one, goes to `decisions`, and
    /// `watch` is shown now and then how far it has come.
    ///
    /// # Errors
    /// When it ends before that.
    pub fn run(
        &mut self,
        lines: &mut TraceLines,
        mut decisions: Option<&mut dyn Write>,
        watch: &mut dyn FnMut(&TraceLines, u64),
    ) -> Result<(), ReplayError> {
        loop {
            let TraceLine { number, text: line } = match lines.read() {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(error) => {
                    let line = self.lines;
                    return Err(ReplayError::Trace { line, error });
                }
            };
            self.lines = number;
            if line.is_ok_and(|line| line.trim_ascii().is_empty()) {
                self.blank += 1;
                continue;
            }
            self.line(number, line, &mut decisions)?;
            if number.is_multiple_of(LOOK) {
                watch(lines, self.requests);
            }
            if self
                .server
                .as_ref()
                .is_some_and(|server| server.is_interrupted())
            {
                return Err(ReplayError::Interrupted);
            }
        }
        decisions
            .map_or(Ok(()), Write::flush)
            .map_err(ReplayError::Decisions)
    }

    /// Removes what the replay has put into Redis; says how many counters that were.
    ///
    /// # Errors
    /// When Redis did not do it.
    pub fn clear(&self) -> Result<u64, StoreError> {
        self.sides.iter().map(|side| side.counters().clear()).sum()
    }

    fn line(
        &mut self,
        number: u64,
        line: Result<&[u8], Fault>,
        decisions: &mut Option<&mut dyn Write>,
    ) -> Result<(), ReplayError> {
        let mut request = LoggedRequest::at(Timestamp::default());
        let read = line
            .and_then(|line| request.read(line, &mut self.line_layout, self.mapping.as_ref()))
            .and_then(|()| self.head.read(&request));
        match read {
            Ok(()) => return self.request(number, &request, decisions),
            Err(Fault::Nameless) => self.missing_fields.nameless.add(number, ()),
            Err(fault) => self.unreadable.add(number, fault),
        }
        Ok(())
    }

    /// One line's request, or all that it stands for.
    fn request(
        &mut self,
        number: u64,
        request: &LoggedRequest<'_>,
        decisions: &mut Option<&mut dyn Write>,
    ) -> Result<(), ReplayError> {
        if request.ts < self.now {
            self.late.add(number, ());
        }
        self.now = self.now.max(request.ts);
        self.first.get_or_insert(self.now);
        let side = &self.sides[self.sides.len() - 1];
        let address = side.address(request, &self.head);
        self.missing_fields
            .look(number, request, &self.head, address, side);
        for _ in 0..request.times {
            self.decide(number, request, address, decisions)?;
        }
        Ok(())
    }

    fn decide(
        &mut self,
        number: u64,
        request: &LoggedRequest<'_>,
        address: Option<IpAddr>,
        decisions: &mut Option<&mut dyn Write>,
    ) -> Result<(), ReplayError> {
        let mut refused = [false; SIDES];
        let mut intervals = [Interval::default(); SIDES];
        let sought =
            address.map(|address| (address, self.clients.seek(self.hasher.hash_one(address))));
        let last = self.sides.len() - 1;
        let detail = if decisions.is_some() {
            Detail::Verdicts
        } else {
            Detail::Outcome
        };
        for (index, side) in self.sides.iter_mut().enumerate() {
            let outcome = side
                .judge(request, &self.head, self.now, detail)
                .map_err(ReplayError::Store)?;
            refused[index] = matches!(
                outcome,
                ReplayOutcome::Refuse { .. } | ReplayOutcome::TooManyHeld
            );
            intervals[index] = self.tallies[index].add(self.now.micros(), &outcome);
            self.tallies[index].add_shadows(side);
            if index == last
                && let Some(out) = decisions
            {
                decisions::write(out, number, self.now, side, &outcome)
                    .map_err(ReplayError::Decisions)?;
            }
        }
        self.requests += 1;
        self.timeline.add(self.now.micros(), intervals);
        // Clients without an address are counted by the first key of their requests.
        let key = || self.sides[0].keys().next().map_or("", |(_, key)| key);
        match sought {
            Some((address, client)) => {
                let name = || address.to_string().into();
                self.clients.count(client, refused, name);
            }
            None => {
                let client = self.clients.seek(self.hasher.hash_one(key()));
                let name = || Box::from(if key().is_empty() { "nobody" } else { key() });
                self.clients.count(client, refused, name);
            }
        }
        Ok(())
    }

    /// All that there is to tell.
    #[must_use]
    pub fn report(self) -> Report {
        let side = self.sides.len() - 1;
        let client_totals = self.clients.client_totals();
        // Under the changed file, unless that refuses no client.
        let shown = if client_totals.refused[side] > 0 {
            side
        } else {
            0
        };
        let hardest = self.clients.hardest(shown, HARDEST).into_iter();
        let hardest = hardest.map(|client| HardestClient {
            client: client.name.to_owned(),
            requests: client.requests,
            refused: client.refused,
        });
        let mut notes = self.missing_fields.notes(self.sides[side].trust());
        let unseen = self.mapping.iter().flat_map(Mapping::unseen);
        notes.extend(unseen.map(|(name, member)| Note::NoMember {
            name: name.to_owned(),
            member: member.to_owned(),
        }));
        let formats = LogFormat::ALL.into_iter().zip(self.missing_fields.formats);
        Report {
            lines: self.lines,
            written: self.lines - self.blank,
            formats: formats.filter(|(_, lines)| *lines > 0).collect(),
            nameless: self.missing_fields.nameless,
            clientless: self.missing_fields.clientless,
            pathless: self.missing_fields.pathless,
            notes,
            requests: self.requests,
            unreadable: self.unreadable,
            late: self.late,
            span: self.first.map(|first| (first, self.now)),
            client_totals,
            hardest: hardest.collect(),
            tallies: self.tallies,
            timeline: self.timeline,
        }
    }
}
