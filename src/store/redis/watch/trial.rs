//! Trials on the gateway's own keys. One decision shows whether a server works at all: one that accepts connections but
//! no writes does not. When a server is first reached, everything that the file's limits need is tried: a decision, a
//! renewal, a release, a refund and a settlement of each kind.

use crate::key::{
    IdField, KeyCase, KeyTemplate, Meter, MeterPlace, MissingKey, OnLeave, OnSilent, RepeatId,
    Sameness,
};
use crate::limit::concurrency::Concurrency;
use crate::limit::dedupe::Dedupe;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::rate::{Cost, Rate};
use crate::limit::sliding_log::SlidingLog;
use crate::limit::verdict::Wait;
use crate::limit::{Limit, Policy, Rule, Ticket, wire};
use crate::store::check::Check;
use crate::store::error::StoreError;
use crate::store::redis::link::connection::RedisConnection;
use crate::store::redis::link::reply::{self, ReplyError};
use crate::store::redis::link::rights::Rights;
use crate::store::redis::queue::pending_refunds::FAILED;
use crate::store::redis::wire::layout::{self, probe_counter, probe_key, probe_prefix};
use crate::store::redis::wire::question::{self, Question};
use crate::store::settings::RedisTarget;
use crate::store::trials::CounterUses;
use bb8_redis::redis::cmd;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

/// The time for which a trial's counters count, in microseconds. Redis keeps them slightly longer.
const LIFE: u64 = 1_000_000;

/// Decides on one key with this tag for a node of a cluster. Otherwise decides on two keys with different tags, like a
/// request's keys: a node of a cluster refuses such a call.
pub(crate) async fn decide(
    connection: &mut RedisConnection,
    prefix: &str,
    tag: Option<&[u8]>,
) -> Result<(), StoreError> {
    let mut question = Question::default();
    let tags = match tag {
        Some(tag) => [Some(tag), None],
        None => [Some(layout::EVERYONE), Some(&b"a"[..])],
    };
    for tag in tags.into_iter().flatten() {
        let block = wire::block(&Rule::FixedWindow(FixedWindow::new(rate())), Cost::ONE);
        question.push(&probe_key(prefix), tag, &block);
    }
    let command = question::decide(None, std::iter::once(&question));
    let bytes = connection.call(&command).await?;
    match reply::read_replies(&bytes, std::iter::once(question.limits()))?.pop() {
        Some(Err(ReplyError::Limit { reason, .. })) if reply::ends_service(&reason) => {
            Err(StoreError::Refused(reason))
        }
        _ => Ok(()),
    }
}

/// A limit that never refuses.
fn rate() -> Rate {
    Rate {
        count: NonZeroU32::MAX.into(),
        period: NonZeroU64::MIN.saturating_add(LIFE - 1),
    }
}

/// Tries everything that counters of these uses need: first each command individually, then the scripts. Keys have this
/// tag, or the tag of keys that all clients share. The written keys are removed. Without the permission for that, they
/// expire within minutes.
///
/// # Errors
/// If a trial is refused, with its cause: the forbidden command, if that is the cause.
pub(crate) async fn run_trials(
    connection: &mut RedisConnection,
    target: &RedisTarget,
    prefix: &str,
    tag: Option<&[u8]>,
    uses: CounterUses,
) -> Result<(), StoreError> {
    if uses == CounterUses::default() {
        return Ok(());
    }
    let tag = tag.unwrap_or(layout::EVERYONE);
    let rights = Rights {
        target,
        prefix,
        tag,
    };
    rights.look(connection, uses).await?;
    let tried = Trial { prefix, tag, uses };
    let outcome = tried.run(connection).await;
    // Without the permission to remove them, they expire.
    let mut remove = cmd("DEL");
    for (name, _) in KINDS {
        remove.arg(probe_counter(prefix, name, tag));
    }
    if outcome.is_ok() {
        let _ = connection.send(&remove).await;
    }
    outcome
}

/// The counters of a trial, each with the use that requires it.
const KINDS: [(&str, CounterUses); 5] = [
    ("states", CounterUses::STATES),
    ("logs", CounterUses::LOGS),
    ("slots", CounterUses::SLOTS),
    ("ids", CounterUses::IDS),
    ("settled", CounterUses::SETTLEMENTS),
];

struct Trial<'a> {
    prefix: &'a str,
    tag: &'a [u8],
    uses: CounterUses,
}

/// One counter of a trial.
struct TrialCounter {
    name: &'static str,
    prefix: Vec<u8>,
    limit: Arc<Limit>,
    id: Option<RepeatId>,
}

impl TrialCounter {
    /// The same counter, charged beyond the estimate of a cost, if costs are settled.
    fn overdraft(&self) -> Option<Self> {
        Some(Self {
            name: "overdraft",
            prefix: self.prefix.clone(),
            limit: Arc::clone(self.limit.overdraft()?),
            id: Some(RepeatId::random()),
        })
    }
}

impl Trial<'_> {
    async fn run(&self, connection: &mut RedisConnection) -> Result<(), StoreError> {
        let wanted = KINDS.iter().filter(|(_, uses)| self.uses.has(*uses));
        let mut counters: Vec<TrialCounter> = wanted.map(|(name, _)| self.counter(name)).collect();
        let beyond = counters.last().and_then(TrialCounter::overdraft);
        counters.extend(beyond);
        let charged = self.charge(connection, &counters).await?;
        let mut updates = Vec::new();
        for (counter, ticket) in counters.iter().zip(charged) {
            updates.extend(
                ticket
                    .into_iter()
                    .flat_map(|ticket| self.updates(counter, ticket)),
            );
        }
        if updates.is_empty() {
            return Ok(());
        }
        let command = question::refund(None, updates.iter(), None);
        let bytes = connection.call(&command).await?;
        if bytes.contains(&FAILED) {
            let why = "the scripts cannot give back their charges";
            return Err(StoreError::Refused(why.into()));
        }
        Ok(())
    }

    fn counter(&self, name: &'static str) -> TrialCounter {
        let rule = match name {
            "logs" => Rule::SlidingLog(SlidingLog::new(rate())),
            "slots" => Rule::Concurrency(Concurrency {
                max: NonZeroU32::MAX,
                ttl: LIFE,
            }),
            _ => Rule::FixedWindow(FixedWindow::new(rate())),
        };
        let by = KeyTemplate {
            parts: Vec::new(),
            missing: MissingKey::Shared,
            unknown: None,
            case: KeyCase::Sensitive,
        };
        let field = http::HeaderName::from_static("tollgate-trial");
        let mut policy = Policy::new(name.into(), by, rate());
        if name == "ids" {
            policy.dedupe = Some(Dedupe {
                field: IdField(field),
                ttl: LIFE,
                repeats: 1,
                of: Sameness::Path,
            });
        } else if name == "settled" {
            policy.cost = Cost::new(2);
            policy.meter = Some(Meter {
                place: MeterPlace::Header(field),
                max: 3,
                on_leave: OnLeave::Max,
                on_silent: OnSilent::Estimate,
                tells_silence: true,
            });
        }
        TrialCounter {
            name,
            prefix: probe_prefix(self.prefix, name),
            id: policy.dedupe.is_some().then(RepeatId::random),
            limit: Arc::new(Limit::new(policy, rule)),
        }
    }

    /// Charges each counter. Returns the tickets of the charges.
    async fn charge(
        &self,
        connection: &mut RedisConnection,
        counters: &[TrialCounter],
    ) -> Result<Vec<Option<Ticket>>, StoreError> {
        let checks = counters.iter().map(|counter| Check {
            id: counter.id,
            ..Check::new(&counter.limit, self.tag)
        });
        let checks: Vec<Check<'_>> = checks.collect();
        let mut questions: Vec<Question> = Vec::new();
        for (counter, check) in counters.iter().zip(&checks) {
            let mut question = Question::default();
            question.check(&counter.prefix, check, None, None);
            questions.push(question);
        }
        let command = question::decide(None, questions.iter());
        let bytes = connection.call(&command).await?;
        let replies = reply::read_replies(&bytes, questions.iter().map(Question::limits))?;
        if let Some(Err(wrong)) = replies.iter().find(|reply| reply.is_err()) {
            return Err(match wrong {
                ReplyError::Limit { reason, .. } => StoreError::Refused(Arc::clone(reason)),
                ReplyError::Store(error) => error.clone(),
            });
        }
        let tickets = checks.iter().zip(&replies).map(|(check, reply)| {
            let (at, measured) = reply.as_ref().ok()?;
            let measured = *measured.first().filter(|one| one.wait == Wait::Micros(0))?;
            check.ticket(*at, measured, NonZeroU32::MIN)
        });
        Ok(tickets.collect())
    }

    /// The updates that a charge of this counter may have: slots are renewed and freed, a part of a cost is settled,
    /// and the rest is refunded.
    fn updates(&self, counter: &TrialCounter, ticket: Ticket) -> Vec<Question> {
        let TrialCounter { limit, prefix, .. } = counter;
        let returns = match counter.name {
            "logs" => self.uses.has(CounterUses::RETURNED_LOGS),
            "states" | "ids" => self.uses.has(CounterUses::RETURNED_STATES),
            _ => true,
        };
        let part = Ticket {
            cost: Cost::ONE,
            record: None,
            ..ticket
        };
        let blocks = match counter.name {
            "slots" => [
                (question::renew_block(limit, ticket), ticket),
                (question::refund_block(limit, ticket), ticket),
            ],
            "settled" => [
                (question::refund_block(limit, part), part),
                (question::refund_block(limit, part), part),
            ],
            _ => [
                (question::refund_block(limit, ticket), ticket),
                (None, ticket),
            ],
        };
        let mut updates = Vec::new();
        for (block, ticket) in blocks.into_iter().filter(|_| returns) {
            if let Some(block) = block {
                let mut question = Question::default();
                question.refund(prefix, self.tag, &block, ticket, None);
                updates.push(question);
            }
        }
        updates
    }
}
