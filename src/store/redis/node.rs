//! The way to one Redis, alone or a master of a cluster: what waits for it, its connections, whether it is there.

use super::abandonment::{Abandonments, PendingAnswer};
use super::batcher::{MOST_WAITING, QueuedDecision};
use super::call_window::{CallWindow, NEAR};
use super::cluster::{ClusterMembership, Route};
use super::health::Health;
use super::pending_refunds::{CounterUpdate, PendingRefunds, UpdateKind};
use super::pool::Connections;
use super::question::{self, Question};
use super::reply::{self, ReplyError};
use super::stats::Stats;
use super::{LONGEST, batcher, health, layout, pending_refunds};
use crate::clock::Timestamp;
use crate::limit::{Limit, LimitId, wire};
use crate::store::answers::Answers;
use crate::store::check::{Check, Refund};
use crate::store::error::StoreError;
use crate::store::settings::{RedisTarget, StoreSettings};
use crate::store::shadow;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The way to one Redis. Clones share it, and its tasks end with the last.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) shared: Rc<NodeCore>,
    _tasks: Rc<Tasks>,
}

/// What the face, the lanes and the watch work on together.
pub(super) struct NodeCore {
    /// For lanes that are added while the server is far.
    me: Weak<Self>,
    /// Which master of a cluster it is, if it is one.
    pub(super) member: Option<ClusterMembership>,
    pub(super) timeout: Duration,
    pub(super) prefix: Arc<str>,
    pub(super) connections: Connections,
    pub(super) health: Health,
    pub(super) pace: CallWindow,
    pub(super) stats: Arc<Stats>,
    pub(super) decisions: RefCell<VecDeque<QueuedDecision>>,
    pub(super) owed: PendingRefunds,
    pub(super) leavers: Rc<Abandonments>,
    prefixes: RefCell<hashbrown::HashMap<LimitId, Rc<[u8]>, foldhash::fast::RandomState>>,
    /// There is something to do.
    pub(super) work: Notify,
    /// A lane has been told so and has not come yet.
    pub(super) woken: Cell<bool>,
    /// A lane more is on its way.
    pub(super) joined: Cell<bool>,
    /// Lanes at work.
    pub(super) busy: Cell<usize>,
    /// Lanes that have a connection.
    pub(super) serving: Cell<usize>,
    /// A lane has nothing left to do.
    pub(super) quiet: Notify,
}

/// Tasks that end with the last clone of what they work for.
pub(super) struct Tasks(pub(super) Vec<JoinHandle<()>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl Node {
    /// Starts to connect and waits for nothing. Inside a worker's own runtime, where tasks need not be `Send`.
    pub(super) fn new(
        target: &RedisTarget,
        settings: &StoreSettings,
        member: Option<ClusterMembership>,
        (stats, leavers): (Arc<Stats>, Rc<Abandonments>),
    ) -> Self {
        let address = member.as_ref().map(|member| member.address.clone());
        let name = match &address {
            None => target.to_string(),
            Some(address) => format!("{address} of {target}"),
        };
        let timeout = settings.timeout.min(LONGEST);
        let shared = Rc::new_cyclic(|me| NodeCore {
            me: me.clone(),
            member,
            timeout,
            prefix: settings.prefix.clone(),
            connections: Connections::new(target, address),
            health: Health::new(name.into()),
            pace: CallWindow::new(timeout),
            stats,
            decisions: RefCell::default(),
            owed: PendingRefunds::default(),
            leavers,
            prefixes: RefCell::default(),
            work: Notify::new(),
            woken: Cell::new(false),
            joined: Cell::new(false),
            busy: Cell::new(0),
            serving: Cell::new(0),
            quiet: Notify::new(),
        });
        let mut tasks = vec![
            tokio::task::spawn_local(health::watch(shared.clone())),
            tokio::task::spawn_local(pending_refunds::remind(shared.clone())),
        ];
        for _ in 0..NEAR {
            tasks.push(tokio::task::spawn_local(batcher::lane(shared.clone())));
        }
        Self {
            shared,
            _tasks: Rc::new(Tasks(tasks)),
        }
    }

    /// Is it the same?
    pub(super) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.shared, &other.shared)
    }

    /// Asks about limits whose counters all live here, and waits for the answer.
    pub(super) async fn ask(
        &self,
        clock: Option<Timestamp>,
        checks: &[Check<'_>],
        (refused, route): (bool, Route),
    ) -> Result<Answers, StoreError> {
        let (number, receiver) = self.shared.enqueue(clock, checks, (refused, route))?;
        let mut waiting = PendingAnswer {
            shared: &self.shared,
            checks,
            clock,
            number,
            receiver,
            done: refused,
        };
        let told = (&mut waiting.receiver).await;
        waiting.done = true;
        answered(told, checks)
    }
}

/// What a lane has told, as the answer to `checks`.
pub(super) fn answered(
    told: Result<reply::ScriptReply, oneshot::error::RecvError>,
    checks: &[Check<'_>],
) -> Result<Answers, StoreError> {
    match told {
        Ok(Ok((at, mut measured))) => {
            measured.truncate(checks.len());
            Ok(Answers::whole(at, measured))
        }
        Ok(Err(ReplyError::Store(error))) => Err(error),
        Ok(Err(ReplyError::Limit { index, reason })) => Err(match checks.get(index) {
            Some(check) if reason.starts_with("CLOCK") => StoreError::Clock {
                limit: check.limit.name.clone(),
            },
            _ if reply::server_wide(&reason) => StoreError::Refused(reason),
            Some(check) => StoreError::Answer {
                limit: check.limit.name.clone(),
                reason,
            },
            None => StoreError::Protocol("an error of a limit not asked about"),
        }),
        // The lane ended with the worker.
        Err(_) => Err(StoreError::Down),
    }
}

impl NodeCore {
    /// Wakes a lane, if one sleeps and none is awake already. Where the server is far one more joins those at work.
    pub(super) fn wake(&self) {
        let busy = self.busy.get();
        if busy >= NEAR && busy < self.pace.calls() {
            if let Some(me) = self.me.upgrade().filter(|_| !self.joined.replace(true)) {
                tokio::task::spawn_local(batcher::one_more(me));
            }
        } else if !self.woken.replace(true) {
            self.work.notify_one();
        }
    }

    pub(super) fn enqueue(
        &self,
        clock: Option<Timestamp>,
        checks: &[Check<'_>],
        (refused, route): (bool, Route),
    ) -> Result<(u64, oneshot::Receiver<reply::ScriptReply>), StoreError> {
        if self.health.is_down() {
            self.stats.down.add(1);
            return Err(StoreError::Down);
        }
        if checks.len() + usize::from(refused) > usize::from(u8::MAX) {
            return Err(StoreError::TooMany(checks.len()));
        }
        let mut waiting = self.decisions.borrow_mut();
        if waiting.len() >= MOST_WAITING {
            self.stats.overloaded.add(1);
            return Err(StoreError::Overloaded);
        }
        let mut question = self.question(clock, checks);
        if let Some(first) = checks.first().filter(|_| refused) {
            let prefix = self.prefix_of(first.limit);
            question.push(&prefix, first.key, &wire::refused());
        }
        let (answer, receiver) = oneshot::channel();
        let number = self.leavers.number();
        waiting.push_back(QueuedDecision {
            number,
            question,
            clock,
            arrived: Instant::now(),
            kept: None,
            route,
            answer,
        });
        self.wake();
        Ok((number, receiver))
    }

    /// What is asked about `checks`.
    pub(super) fn question(&self, clock: Option<Timestamp>, checks: &[Check<'_>]) -> Question {
        let mut question = Question::default();
        let groups = shadow::groups(checks);
        for (check, group) in checks.iter().zip(groups) {
            question.beside(group);
            question.check(&self.prefix_of(check.limit), check, clock);
        }
        question
    }

    /// Gives one charge back, soon, and tells `answer` the script's byte.
    pub(super) fn give_back(
        &self,
        clock: Option<Timestamp>,
        (route, answer): (Route, Option<oneshot::Sender<Result<u8, StoreError>>>),
        Refund { limit, key, ticket }: Refund<'_>,
    ) {
        if let Some(block) = question::refund_block(limit, ticket) {
            let mut question = Question::default();
            question.refund(&self.prefix_of(limit), key, &block, ticket);
            let duty = match limit.rule.holds() {
                Some(_) => UpdateKind::Release { doubted: None },
                None => UpdateKind::Refund,
            };
            self.give((duty, limit), (clock, question, route), answer);
        }
    }

    /// What is to be done to one counter.
    pub(super) fn about(&self, limit: &Limit, key: &[u8], block: &[u8]) -> Question {
        let mut question = Question::default();
        question.push(&self.prefix_of(limit), key, block);
        question
    }

    /// Hands over what is gathered with refunds.
    pub(super) fn give(
        &self,
        (duty, limit): (UpdateKind, &Limit),
        (clock, question, route): (Option<Timestamp>, Question, Route),
        answer: Option<oneshot::Sender<Result<u8, StoreError>>>,
    ) {
        // Nobody renews it any more: then it has lapsed.
        let lasts = limit.rule.holds();
        let lasts = lasts.map(|rule| Duration::from_micros(rule.ttl));
        let one = CounterUpdate::new(duty, (clock, question, route), lasts);
        self.owe(CounterUpdate { answer, ..one });
    }

    /// Where the limit's counters live, built the first time it is asked for. A name costs its length for good; there
    /// are as many as the file has ever had.
    fn prefix_of(&self, limit: &Limit) -> Rc<[u8]> {
        self.prefixes
            .borrow_mut()
            .entry(limit.id)
            .or_insert_with(|| layout::key_prefix(&self.prefix, limit).into())
            .clone()
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.busy.get() == 0 && self.decisions.borrow().is_empty() && self.owed.is_paid()
    }

    /// Waits until everything that was asked is answered and every refund is sent.
    pub(super) async fn settled(&self) {
        loop {
            let quiet = self.quiet.notified();
            if self.is_quiet() {
                return;
            }
            quiet.await;
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("health", &self.shared.health)
            .finish_non_exhaustive()
    }
}
