//! What the limits of a file would have done to traffic that was logged: the same routes, keys, questions and algorithms
//! as in the gateway, on a clock that the trace moves.
//!
//! ```text
//! input      lines of a file, of standard input, of gzip
//! line       a line → a request     (json, combined, instant, address: how it is written)
//! others     lines of other servers (fields: JSON that --fields explains)
//! habits     what lines have in common, and need not be read anew
//! side       a request → its answer (one for the file, one for the file as --set changes it)
//! ways       routes that were found a moment ago
//! slots      what requests under way hold, until the trace says they ended
//! held       how many wait, for the bounds on that
//! counters   where a side counts: memory, or Redis through the scripts
//! decisions  an answer → a line of --decisions
//! lacks      what no line says, and the answer would hang on
//! tally      answers → numbers      (clients, waits, course: whose, how long, when)
//! report     numbers → what a person, a program or a picture shows
//! ```
//!
//! Time never runs back: a line with an earlier `ts` than one before it counts at the latest seen. What is kept grows
//! with the live counters, never with the trace.

mod address;
mod clients;
mod combined;
mod counters;
mod course;
mod decisions;
mod fields;
#[doc(hidden)]
pub mod fuzzed;
mod habits;
mod held;
mod input;
mod instant;
mod json;
mod lacks;
mod line;
mod others;
pub mod report;
mod side;
mod sketch;
mod slots;
mod tally;
mod waits;
mod ways;

pub use clients::Heads;
pub use course::{Course, Stretch};
pub use fields::{Mapping, Meant};
pub use input::{Line, Lines};
pub use line::{Fault, Form};
pub use report::Report;
pub use tally::{ByLimit, Held, Minute, Tally};

use crate::clock::Timestamp;
use crate::snapshot::Snapshot;
use crate::store::{RedisTarget, StoreError};
use clients::{Clients, SIDES};
use counters::{Counters, Server};
use habits::Habits;
use lacks::Lacks;
use line::Request;
use report::{Hardest, Note, Odd};
use side::{Head, Outcome, Side};
use std::hash::BuildHasher as _;
use std::io::{self, Write};
use std::net::IpAddr;
use std::rc::Rc;

/// Lines that are told one by one when something is odd about them.
const TOLD: usize = 20;

/// Clients that are told as the hardest hit.
const HARDEST: usize = 5;

/// Lines between two looks at whoever watches.
const LOOK: u64 = 256;

/// A replay under way.
#[derive(Debug)]
pub struct Replay {
    sides: Vec<Side>,
    server: Option<Rc<Server>>,
    head: Head,
    habits: Habits,
    mapping: Option<Mapping>,
    lacks: Lacks,
    /// The estimates need every bit of a hash to be a good one.
    hasher: foldhash::quality::FixedState,
    clients: Clients,
    course: Course,
    tallies: Vec<Tally>,
    lines: u64,
    blank: u64,
    requests: u64,
    unreadable: Odd<Fault>,
    late: Odd<()>,
    first: Option<Timestamp>,
    now: Timestamp,
}

/// Why a replay ended before its trace.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
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
    /// Somebody asked for it.
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
            .map(Server::connect)
            .transpose()
            .map_err(unreachable)?;
        let counters = |name: &str| match &server {
            None => Ok(Counters::memory()),
            Some(server) => server.counters(name),
        };
        let mut sides = vec![Side::new(file, counters("a")?, None)];
        if let Some(changed) = changed {
            let other = Side::new(changed, counters("b")?, sides.first());
            sides.push(other);
        }
        Ok(Self {
            tallies: sides.iter().map(Tally::of_side).collect(),
            lacks: Lacks::new(&sides),
            sides,
            server,
            head: Head::default(),
            habits: Habits::default(),
            mapping: None,
            // The same trace gives the same summary, estimates included.
            hasher: foldhash::quality::FixedState::with_seed(0x7011_6a7e),
            clients: Clients::new(),
            course: Course::default(),
            lines: 0,
            blank: 0,
            requests: 0,
            unreadable: Odd::default(),
            late: Odd::default(),
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
        lines: &mut Lines,
        mut decisions: Option<&mut dyn Write>,
        watch: &mut dyn FnMut(&Lines, u64),
    ) -> Result<(), Failure> {
        loop {
            let Line { number, text: line } = match lines.read() {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(error) => {
                    let line = self.lines;
                    return Err(Failure::Trace { line, error });
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
                return Err(Failure::Interrupted);
            }
        }
        decisions
            .map_or(Ok(()), Write::flush)
            .map_err(Failure::Decisions)
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
    ) -> Result<(), Failure> {
        let mut request = Request::at(Timestamp::default());
        let read = line
            .and_then(|line| request.read(line, &mut self.habits, self.mapping.as_ref()))
            .and_then(|()| self.head.read(&request));
        match read {
            Ok(()) => return self.request(number, &request, decisions),
            Err(Fault::Nameless) => self.lacks.nameless.add(number, ()),
            Err(fault) => self.unreadable.add(number, fault),
        }
        Ok(())
    }

    /// One line's request, or all that it stands for.
    fn request(
        &mut self,
        number: u64,
        request: &Request<'_>,
        decisions: &mut Option<&mut dyn Write>,
    ) -> Result<(), Failure> {
        if request.ts < self.now {
            self.late.add(number, ());
        }
        self.now = self.now.max(request.ts);
        self.first.get_or_insert(self.now);
        let side = &self.sides[self.sides.len() - 1];
        let address = side.address(request, &self.head);
        let seen = (request, &self.head);
        self.lacks.look(number, seen, address, side);
        for _ in 0..request.times {
            self.decide(number, request, address, decisions)?;
        }
        Ok(())
    }

    fn decide(
        &mut self,
        number: u64,
        request: &Request<'_>,
        address: Option<IpAddr>,
        decisions: &mut Option<&mut dyn Write>,
    ) -> Result<(), Failure> {
        let mut refused = [false; SIDES];
        let mut stretches = [Stretch::default(); SIDES];
        let sought =
            address.map(|address| (address, self.clients.seek(self.hasher.hash_one(address))));
        let last = self.sides.len() - 1;
        let are_told = decisions.is_some();
        for (index, side) in self.sides.iter_mut().enumerate() {
            let outcome = side
                .judge(request, &self.head, self.now, are_told)
                .map_err(Failure::Store)?;
            refused[index] = matches!(outcome, Outcome::Refuse { .. } | Outcome::TooManyHeld);
            stretches[index] = self.tallies[index].add(self.now.micros(), &outcome);
            self.tallies[index].add_asides(side);
            if index == last
                && let Some(out) = decisions
            {
                decisions::write(out, number, self.now, side, &outcome)
                    .map_err(Failure::Decisions)?;
            }
        }
        self.requests += 1;
        self.course.add(self.now.micros(), stretches);
        // Who names no address is told apart by the first key.
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
        let heads = self.clients.heads();
        // Under the changed file, unless nobody is refused there.
        let shown = if heads.refused[side] > 0 { side } else { 0 };
        let hardest = self.clients.hardest(shown, HARDEST).into_iter();
        let hardest = hardest.map(|client| Hardest {
            client: client.name.to_owned(),
            requests: client.requests,
            refused: client.refused,
        });
        let mut notes = self.lacks.notes(self.sides[side].trust());
        let unseen = self.mapping.iter().flat_map(Mapping::unseen);
        notes.extend(unseen.map(|(name, member)| Note::NoMember {
            name: name.to_owned(),
            member: member.to_owned(),
        }));
        let forms = Form::ALL.into_iter().zip(self.lacks.forms);
        Report {
            lines: self.lines,
            written: self.lines - self.blank,
            forms: forms.filter(|(_, lines)| *lines > 0).collect(),
            nameless: self.lacks.nameless,
            clientless: self.lacks.clientless,
            pathless: self.lacks.pathless,
            notes,
            requests: self.requests,
            unreadable: self.unreadable,
            late: self.late,
            span: self.first.map(|first| (first, self.now)),
            heads,
            hardest: hardest.collect(),
            tallies: self.tallies,
            course: self.course,
        }
    }
}
