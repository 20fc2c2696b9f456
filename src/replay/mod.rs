//! A replay: the effect that the limits of a file would have had on logged traffic. Routes, keys, checks and algorithms
//! are the gateway's own; the trace moves the clock.
//!
//! In: the lines of a log, and two files. Out: numbers, in text, JSON or SVG.
//!
//! ```text
//! input                  lines of a file, of standard input, of gzip
//! line                   a line → a request
//! line/layout            the layout that lines have in common
//! line/members           the members of the access log's lines
//! json                   a cursor over JSON
//! apache_format          the common and combined log
//! instant                the instant of a line
//! address                the client's address in a line
//! proxy_formats          lines of other servers
//! proxy_formats/alb      AWS' load balancer
//! proxy_formats/envoy    Envoy and Istio
//! proxy_formats/haproxy  HAProxy
//! proxy_formats/prefix   what another program put in front
//! mapping                their JSON: which member is which part
//! mapped_names           finds those members, in one pass
//! request                the request, from a line of any form
//! request/format         the forms of lines
//! request/limits         keys, costs and groups by limit
//! header_fields          its header fields
//! fault                  why a line cannot be read
//! policy_side            a request → its answer: one side for the file, one for the file as `--set` changes it
//! policy_side/origin     client, host and fields of a line
//! policy_side/line_facts what the walk to a plan (room `intake`) reads of a line
//! policy_side/identity   keys and groups that the log names
//! policy_side/shadow     limits that do not decide
//! policy_side/outcome    decision → outcome
//! route_cache            routes that were found a moment ago
//! counters               where a side counts: memory, or Redis through the scripts
//! reservations           slots and charges of requests under way
//! waiting_requests       how many requests wait, for the bounds on that
//! decisions              an answer → a line of `--decisions`
//! missing_fields         what no line has, though answers depend on it
//! tally                  answers → numbers
//! clients                refusals of each client
//! sketch                 how many different ones there were
//! wait_histogram         the waits
//! timeline               the course over time
//! report                 numbers → a report
//! report/text            for people
//! report/json            for programs
//! report/plot            drawn in a terminal
//! report/svg             drawn as SVG
//! fuzz                   the entry of the fuzzer
//! ```
//!
//! Time never decreases: a line with an earlier `ts` than a previous line counts at the latest `ts` so far. Memory
//! grows with the live counters, never with the trace.

mod address;
mod apache_format;
mod clients;
mod counters;
mod decisions;
mod fault;
#[doc(hidden)]
pub mod fuzz;
mod header_fields;
mod input;
mod instant;
mod json;
mod line;
mod mapped_names;
mod mapping;
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

pub use clients::{ClientTotals, HardestClient};
pub use fault::Fault;

pub use input::{TraceLine, TraceLines};
pub use mapping::{Mapping, NearestName};
pub use report::Report;
pub use request::LogFormat;
pub use tally::{ByLimit, Minute, Tally, WaitQuantiles};
pub use timeline::{OutcomeKind, Timeline, TimelineInterval};

use crate::clock::Timestamp;
use crate::snapshot::Snapshot;
use crate::store::{RedisTarget, StoreError};
use crate::telemetry::printable_json;
use clients::{Clients, SIDES};
use counters::{Counters, Detail, ReplayRedis};
use http::HeaderMap;
use line::LineReader;
use missing_fields::MissingFields;
use policy_side::PolicySide;
use report::Note;
use request::LoggedRequest;
use std::borrow::Cow;
use std::hash::BuildHasher as _;
use std::io::{self, Write};
use std::net::IpAddr;
use std::rc::Rc;

/// The number of clients in a report's list of the hardest hit.
const HARDEST: usize = 5;

/// Lines between two reports of progress.
const LOOK: u64 = 256;

/// A running replay.
#[derive(Debug)]
pub struct Replay {
    sides: Vec<PolicySide>,
    server: Option<Rc<ReplayRedis>>,
    reader: LineReader,
    /// The field map of the last request, kept for its memory.
    fields: Option<HeaderMap>,
    missing_fields: MissingFields,
    /// The estimates need a hash with well mixed bits.
    hasher: foldhash::quality::FixedState,
    clients: Clients,
    /// The counts so far.
    report: Report,
    now: Timestamp,
}

/// Causes for which a replay ends before its trace.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace could not be read to its end.
    #[error("cannot read the trace beyond line {line}: {error}")]
    Trace {
        /// The last line that was read.
        line: u64,
        /// The cause.
        error: io::Error,
    },
    /// The decisions could not be written.
    #[error("cannot write the decisions: {0}")]
    Decisions(io::Error),
    /// The store did not decide.
    #[error("{0}")]
    Store(StoreError),
    /// A signal interrupted the replay.
    #[error("interrupted")]
    Interrupted,
}

impl Replay {
    /// A replay of the limits of `file`, and in parallel of the limits of `changed`, if there is such a file. The
    /// counters are in memory, or in `redis`.
    ///
    /// # Errors
    /// If Redis cannot be reached.
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
            missing_fields: MissingFields::new(&sides),
            report: Report {
                tallies: sides.iter().map(Tally::of_side).collect(),
                ..Report::default()
            },
            sides,
            server,
            reader: LineReader::new(None),
            fields: None,
            // The seed is fixed, so that one trace always has the same summary, estimates included.
            hasher: foldhash::quality::FixedState::with_seed(0x7011_6a7e),
            clients: Clients::new(),
            now: Timestamp::default(),
        })
    }

    /// The same replay, which reads JSON by `mapping`, if there is one.
    #[must_use]
    pub fn reading(self, mapping: Option<Mapping>) -> Self {
        let reader = LineReader::new(mapping);
        Self { reader, ..self }
    }

    /// Replays `lines` to their end. Each decision is written to `decisions`: the changed file's, if there is one.
    /// `watch` is called every few lines with the progress.
    ///
    /// # Errors
    /// If the replay ends before its trace.
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
                    let line = self.report.lines;
                    return Err(ReplayError::Trace { line, error });
                }
            };
            self.report.lines = number;
            let text = line.and_then(line::line_text);
            if text.as_ref().is_ok_and(|text| text.is_empty()) {
                continue;
            }
            self.report.written += 1;
            self.line(number, &text, &mut decisions)?;
            if number.is_multiple_of(LOOK) {
                watch(lines, self.report.requests);
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

    /// Removes the counters of the replay from Redis, and returns how many there were.
    ///
    /// # Errors
    /// If Redis did not remove the counters.
    pub fn clear(&self) -> Result<u64, StoreError> {
        self.sides.iter().map(|side| side.counters().clear()).sum()
    }

    fn line(
        &mut self,
        number: u64,
        line: &Result<Cow<'_, str>, Fault>,
        decisions: &mut Option<&mut dyn Write>,
    ) -> Result<(), ReplayError> {
        let mut request = LoggedRequest::with_room(self.fields.take().unwrap_or_default());
        let read = match line {
            Ok(line) => self.reader.read(&mut request, line),
            Err(fault) => Err(*fault),
        };
        match read {
            Ok(()) => self.request(number, &request, decisions)?,
            Err(Fault::Nameless) => self.report.nameless.add(number, None),
            Err(fault) => self.report.unreadable.add(number, Some(fault)),
        }
        if !request.fields.is_empty() {
            request.fields.clear();
        }
        self.fields = Some(request.fields);
        Ok(())
    }

    /// Replays the request of one line, once for each request that the line represents.
    fn request(
        &mut self,
        number: u64,
        request: &LoggedRequest<'_>,
        decisions: &mut Option<&mut dyn Write>,
    ) -> Result<(), ReplayError> {
        let (ts, report) = (request.ts.unwrap_or_default(), &mut self.report);
        self.now = self.now.max(ts);
        report.span.get_or_insert((self.now, self.now)).1 = self.now;
        report.formats[request.format as usize] += 1;
        if ts < self.now {
            report.late.add(number, None);
        }
        if request.client.is_none() {
            report.clientless.add(number, None);
        }
        if !request.names_path {
            report.pathless.add(number, None);
        }
        let side = &self.sides[self.sides.len() - 1];
        let address = side.address(request);
        self.missing_fields.look(request, address, side);
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
        let mut kinds = [OutcomeKind::Admitted; SIDES];
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
                .judge(request, self.now, detail)
                .map_err(ReplayError::Store)?;
            kinds[index] = outcome.kind();
            let tally = &mut self.report.tallies[index];
            tally.add(self.now.micros(), &outcome);
            tally.add_shadows(side);
            if index == last
                && let Some(out) = decisions
            {
                let mut line = Vec::with_capacity(512);
                decisions::write(&mut line, number, self.now, side, &outcome)
                    .and_then(|()| {
                        // The decisions may go to a terminal, which would interpret control characters.
                        let line = String::from_utf8_lossy(&line);
                        out.write_all(printable_json(&line).as_bytes())
                    })
                    .map_err(ReplayError::Decisions)?;
            }
        }
        self.report.requests += 1;
        self.report.timeline.add(self.now.micros(), kinds);
        let refused = kinds.map(|kind| kind == OutcomeKind::Refused);
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

    /// The report of the whole replay.
    #[must_use]
    pub fn report(mut self) -> Report {
        let side = self.sides.len() - 1;
        let client_totals = self.clients.client_totals();
        // The clients refused under the changed file are shown, unless that file refuses none.
        let shown = if client_totals.refused[side] > 0 {
            side
        } else {
            0
        };
        let mut notes = self.missing_fields.notes(&self.report);
        let unseen = self.reader.mapping.iter().flat_map(Mapping::unseen);
        let strays = self.sides[side].strays();
        if strays > 0 {
            notes.push(Note {
                code: "other-routes",
                text: format!(
                    "the log names routes of {strays} requests that this file does not have, or that do not fit the requests' host, path or method: these requests took the routes of this file"
                ),
            });
        }
        notes.extend(unseen.map(|(name, member)| Note {
            code: "no-member",
            text: format!("no line has `{member}`, which --fields says is the {name}"),
        }));
        self.report.hardest = self.clients.hardest(shown, HARDEST);
        self.report.client_totals = client_totals;
        self.report.notes = notes;
        self.report
    }
}
