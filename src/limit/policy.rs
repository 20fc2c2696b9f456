//! A limit's policy: its key, cost and mode, and its view for clients and operators.

use super::dedupe::Dedupe;
use super::rate::{Cost, Rate};
use super::tier::Tier;
use super::tier::customer_numbers::CustomerNumbers;
use super::{
    BlockRule, LeaseSetting, LimitId, Mode, OnDown, RefundCondition, ResponsePolicy, Rule,
    RuleKind, Scope,
};
use crate::key::{Exemption, KeyTemplate, Meter, Price};
use std::sync::Arc;

/// A limit as the file writes it, without the numbers of its rule.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Is the store a cluster? Another slot may then refuse a request that the limit has charged, and the charge comes
    /// back by the history of a bucket.
    pub in_cluster: bool,
    /// The name: the limit's identity across reloads, and its name on the wire.
    pub name: Arc<str>,
    /// The limit's rate in a list, as written: `100/min`. Limits of one list share their name, differ in their
    /// counters, and apply to the same requests.
    pub window: Option<Arc<str>>,
    /// The position of the rate among the limit's rates, from 0.
    pub rank: usize,
    /// The group for which the limit has other numbers, if it is a tier.
    pub group: Option<Arc<str>>,
    /// Does the limit decide?
    pub mode: Mode,
    /// The gateways that count together.
    pub scope: Scope,
    /// The tag of a cluster slot in which the counters are stored together with counters of other limits.
    pub with: Option<Arc<str>>,
    /// The key by which requests are counted.
    pub by: KeyTemplate,
    /// N and P of the limit; those of single customers stand in their limits.
    pub rate: Rate,
    /// The cost of a request that does not state its own.
    pub cost: Cost,
    /// The place in a request for its cost, if requests may state one.
    pub price: Option<Price>,
    /// The place in a response for its request's cost, if responses may state one.
    pub meter: Option<Meter>,
    /// Is the remainder granted to a request for more units?
    pub partial: bool,
    /// The rule by which a repeated request is charged once.
    pub dedupe: Option<Dedupe>,
    /// The times for which a refusal blocks its key, if it does.
    pub blocking: Option<BlockRule>,
    /// The requests that are not counted.
    pub exempt: Option<Arc<Exemption>>,
    /// The condition under which a charge is refunded.
    pub refund_on: RefundCondition,
    /// The limit's own behaviour while the store is unavailable, if set.
    pub on_down: Option<OnDown>,
    /// The setting for leases: may gateways take several permits at once?
    pub leasing: LeaseSetting,
    /// The limit's view for clients.
    pub answers: ResponsePolicy,
    /// The limit with the numbers of groups, in the order of the file's groups. The first group that contains the
    /// request applies.
    pub tiers: Vec<Tier>,
    /// The limit with the numbers of single customers, if a file states them. They come before tiers.
    pub customer_numbers: Option<Arc<CustomerNumbers>>,
    /// The position of the limit's first byte in the file. Of equally tight limits the first is named.
    pub place: usize,
}

impl Policy {
    /// A limit with only a name, a key and a rate.
    #[must_use]
    pub fn new(name: Arc<str>, by: KeyTemplate, rate: Rate) -> Self {
        Self {
            name,
            window: None,
            rank: 0,
            group: None,
            mode: Mode::Enforce,
            scope: Scope::Cluster,
            with: None,
            by,
            rate,
            cost: Cost::ONE,
            price: None,
            meter: None,
            partial: false,
            dedupe: None,
            blocking: None,
            exempt: None,
            refund_on: RefundCondition::default(),
            on_down: None,
            leasing: LeaseSetting::default(),
            answers: ResponsePolicy::default(),
            tiers: Vec::new(),
            customer_numbers: None,
            place: 0,
            in_cluster: false,
        }
    }

    /// The name on the wire.
    #[must_use]
    pub fn public_name(&self) -> &Arc<str> {
        self.answers.public_name.as_ref().unwrap_or(&self.name)
    }

    /// Is `other` another rate of the same list? Rates of one list are charged together or not at all.
    #[must_use]
    pub fn is_sibling_of(&self, other: &Self) -> bool {
        self.window.is_some() && self.name == other.name && self.mode == other.mode
    }

    /// The group whose counters are apart from the limit's. Where customers are counted, a change of plan is a change
    /// of numbers on one counter.
    #[must_use]
    pub fn counter_group(&self) -> Option<&Arc<str>> {
        self.group.as_ref().filter(|_| !self.by.counts_customers())
    }

    /// May a charge be refunded or settled?
    #[must_use]
    pub fn may_correct(&self) -> bool {
        self.refund_on.ever() || self.meter.is_some()
    }

    /// Does the status of the answer decide the cost?
    #[must_use]
    pub fn is_by_status(&self) -> bool {
        self.meter.as_ref().is_some_and(Meter::is_by_status)
    }

    /// The name in logs and reports.
    pub(super) fn shown(&self) -> Arc<str> {
        match self.mode {
            Mode::Candidate => format!("{}:candidate", self.name).into(),
            Mode::Enforce | Mode::Shadow => Arc::clone(&self.name),
        }
    }

    /// The name of the policy in fields and bodies: the name on the wire, or for one of several rates `NAME:TIME`, a
    /// form that no limit's name can have. The name stays when the number changes.
    pub(super) fn client_name(&self) -> Arc<str> {
        let name = self.public_name();
        let Some(window) = &self.window else {
            return Arc::clone(name);
        };
        let time = window.split_once('/').map_or(&**window, |(_, time)| time);
        format!("{name}:{time}").into()
    }

    /// The properties that the counters depend on under `rule`. The rates of a list have counters of their own.
    pub(super) fn kind(&self, rule: &Rule, rate: Rate) -> RuleKind {
        let has_history = self.may_correct() || (self.in_cluster && self.scope == Scope::Cluster);
        let is_settled = has_history && rule.open_bucket().is_some();
        let kind = if is_settled {
            rule.kind().settled()
        } else {
            rule.kind()
        };
        match self.window {
            Some(_) => kind.over(rate.period.get()),
            None => kind,
        }
    }

    /// The identity of the counters of this kind. A shadow uses the counters of the limit that it is or will be.
    pub(super) fn id(&self, kind: RuleKind) -> LimitId {
        let mut id = LimitId::of(&self.name, kind, self.scope);
        if let Some(tag) = &self.with {
            id = id.of_tag(tag);
        }
        if let Some(group) = self.counter_group() {
            id = id.of_group(group);
        }
        match self.mode {
            Mode::Candidate => id.of_candidate(),
            Mode::Enforce | Mode::Shadow => id,
        }
    }
}
