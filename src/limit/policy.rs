//! What a limit says: whom it counts, at what cost, in which mode, and what clients and operators see of it.

use super::dedupe::Dedupe;
use super::rate::{Cost, Rate};
use super::tier::Tier;
use super::{
    LeaseSetting, LimitId, Mode, OnDown, RefundCondition, ResponsePolicy, Rule, RuleKind, Scope,
};
use crate::key::{Exemption, KeyTemplate, Meter, Price};
use std::sync::Arc;

/// A limit as the file writes it, but for the numbers of its rule.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The name: the limit's identity across reloads, and what the wire shows.
    pub name: Arc<str>,
    /// Which rate of a list the limit has, as written: `100/min`. Limits of one list share their name, differ in
    /// their counters and stand on the same requests.
    pub window: Option<Arc<str>>,
    /// The group whose numbers the limit has, where it is a tier.
    pub group: Option<Arc<str>>,
    /// Whether the limit decides.
    pub mode: Mode,
    /// Which gateways count together.
    pub scope: Scope,
    /// The tag of a cluster under which the counters live together with those of other limits.
    pub with: Option<Arc<str>>,
    /// By which key requests are counted.
    pub by: KeyTemplate,
    /// N and P.
    pub rate: Rate,
    /// What one request takes, unless it says otherwise.
    pub cost: Cost,
    /// Where a request says what it takes, if it may.
    pub price: Option<Price>,
    /// Where a response says what its request has cost, if it may.
    pub meter: Option<Meter>,
    /// Whether what is left is granted to a request that asks for more.
    pub partial: bool,
    /// How a repeated request is charged once.
    pub dedupe: Option<Dedupe>,
    /// Which requests are not counted.
    pub exempt: Option<Arc<Exemption>>,
    /// When a charge goes back.
    pub refund_on: RefundCondition,
    /// What holds while the store is away, where that is not what the file says for all limits.
    pub on_down: Option<OnDown>,
    /// Whether gateways may take several permits at once.
    pub leasing: LeaseSetting,
    /// What clients read.
    pub answers: ResponsePolicy,
    /// The limit with the numbers of groups, in the order of the file's groups: the first that a request is in holds.
    pub tiers: Vec<Tier>,
    /// The first byte in the file. Of limits that are as tight as each other the first is named.
    pub place: usize,
}

impl Policy {
    /// A limit of which only the name, the key and the rate are written.
    #[must_use]
    pub fn new(name: Arc<str>, by: KeyTemplate, rate: Rate) -> Self {
        Self {
            name,
            window: None,
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
            exempt: None,
            refund_on: RefundCondition::default(),
            on_down: None,
            leasing: LeaseSetting::default(),
            answers: ResponsePolicy::default(),
            tiers: Vec::new(),
            place: 0,
        }
    }

    /// The name on the wire.
    #[must_use]
    pub fn public_name(&self) -> &Arc<str> {
        self.answers.public_name.as_ref().unwrap_or(&self.name)
    }

    /// Is `other` another rate of one list, charged with this one or not at all?
    #[must_use]
    pub fn is_rate_beside(&self, other: &Self) -> bool {
        self.window.is_some() && self.name == other.name && self.mode == other.mode
    }

    /// May a charge come back, or be settled?
    #[must_use]
    pub fn may_correct(&self) -> bool {
        self.refund_on.ever() || self.meter.is_some()
    }

    /// The name in logs and reports.
    pub(super) fn shown(&self) -> Arc<str> {
        match self.mode {
            Mode::Candidate => format!("{}:candidate", self.name).into(),
            Mode::Enforce | Mode::Shadow => Arc::clone(&self.name),
        }
    }

    /// The name of the policy in fields and bodies: that on the wire, and for one of several rates `NAME:TIME`, which no
    /// limit can be called. It stays when the number changes.
    pub(super) fn client_name(&self) -> Arc<str> {
        let name = self.public_name();
        let Some(window) = &self.window else {
            return Arc::clone(name);
        };
        let time = window.split_once('/').map_or(&**window, |(_, time)| time);
        format!("{name}:{time}").into()
    }

    /// What the counters depend on under `rule`: the rates of a list have counters of their own.
    pub(super) fn kind(&self, rule: &Rule) -> RuleKind {
        match self.window {
            Some(_) => rule.kind().over(self.rate.period.get()),
            None => rule.kind(),
        }
    }

    /// The identity of the counters of this kind: a shadow's are those of the limit that it is or will be.
    pub(super) fn id(&self, kind: RuleKind) -> LimitId {
        let mut id = LimitId::of(&self.name, kind, self.scope);
        if let Some(tag) = &self.with {
            id = id.of_tag(tag);
        }
        if let Some(group) = &self.group {
            id = id.of_group(group);
        }
        match self.mode {
            Mode::Candidate => id.of_candidate(),
            Mode::Enforce | Mode::Shadow => id,
        }
    }
}
