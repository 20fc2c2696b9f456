//! The choice of an upstream's server for a request, by one worker: by the file's rule, among the usable servers.

use super::endpoint::Endpoint;
use super::rotation::Rotation;
use super::{least_requests, rendezvous};
use crate::upstream::OutgoingBody;
use crate::upstream::rules::balance_rule::BalanceRule;
use std::rc::Rc;

/// The usable servers, and the data for the choice.
#[derive(Debug)]
pub(super) struct Choices<B: OutgoingBody> {
    endpoints: Vec<Rc<Endpoint<B>>>,
    /// The share of each server; above zero.
    shares: Vec<u32>,
    total: u64,
    /// The hash of each server's address, if keys decide.
    hashes: Vec<u64>,
    rotation: Rotation,
    rule: BalanceRule,
    /// A server has a bound on its requests.
    pub(super) is_bounded: bool,
    /// No server is available: these are all servers.
    pub(in crate::upstream) tries_all: bool,
}

impl<B: OutgoingBody> Choices<B> {
    /// The choices among `endpoints`, each with its share.
    pub(in crate::upstream) fn new(
        rule: BalanceRule,
        endpoints: Vec<Rc<Endpoint<B>>>,
        shares: Vec<u32>,
        tries_all: bool,
    ) -> Self {
        let hashes = match rule {
            BalanceRule::Hash { .. } => endpoints
                .iter()
                .map(|endpoint| rendezvous::hash(endpoint.shown().as_bytes()))
                .collect(),
            _ => Vec::new(),
        };
        let mut bounds = endpoints.iter().map(|one| one.member.most_requests());
        Self {
            total: shares.iter().map(|share| u64::from(*share)).sum(),
            rotation: Rotation::new(shares.clone()),
            is_bounded: bounds.any(|bound| bound.is_some()),
            hashes,
            endpoints,
            shares,
            rule,
            tries_all,
        }
    }

    /// The number of servers.
    pub(in crate::upstream) fn len(&self) -> usize {
        self.endpoints.len()
    }

    /// Are requests counted at each server?
    pub(in crate::upstream) fn counts(&self) -> bool {
        self.is_bounded || self.rule.counts_in_flight()
    }

    /// The usable servers.
    pub(super) fn endpoints(&self) -> &[Rc<Endpoint<B>>] {
        &self.endpoints
    }

    /// The next server in turn.
    #[inline]
    pub(super) fn in_turn(&mut self) -> Option<&Rc<Endpoint<B>>> {
        let next = self.rotation.next()?;
        self.endpoints.get(next)
    }

    /// Do servers simply take turns?
    #[inline]
    pub(super) fn are_in_turn(&self) -> bool {
        matches!(self.rule, BalanceRule::RoundRobin) && !self.is_bounded
    }

    /// The position of the server for a request with this key, among the servers that `may` take the request. A request
    /// that is retried (`once more`) takes no turn: otherwise each failure would give the failing server another first
    /// try.
    pub(super) fn choose(
        &mut self,
        key: Option<u64>,
        once_more: bool,
        may: impl Fn(usize, &Endpoint<B>) -> bool,
    ) -> Option<usize> {
        let endpoints = &self.endpoints;
        let may = |position: usize| may(position, &endpoints[position]);
        match (self.rule, key) {
            (BalanceRule::RoundRobin, _) | (BalanceRule::Hash { .. }, None) if !once_more => {
                // A server with a high weight may have several turns in a row, but not more than its part of a round.
                let next = (0..2 * endpoints.len()).find_map(|_| {
                    let next = self.rotation.next()?;
                    may(next).then_some(next)
                });
                next.or_else(|| (0..endpoints.len()).find(|position| may(*position)))
            }
            (BalanceRule::Hash { bounded }, Some(key)) => {
                let loads = || {
                    endpoints
                        .iter()
                        .map(|one| u64::from(one.member.state.in_flight()))
                };
                let in_flight: u64 = bounded.map_or(0, |_| loads().sum());
                let is_within = |position: usize| {
                    bounded.is_none_or(|percent| {
                        let share = self.shares[position];
                        let most = rendezvous::bound(percent, in_flight, share, self.total);
                        u64::from(endpoints[position].member.state.in_flight()) < most
                    })
                };
                let all = (&self.hashes, &self.shares);
                let within = |position: usize| may(position) && is_within(position);
                // If no server within the bound may take it, one beyond the bound does.
                rendezvous::owner(key, all.0, all.1, within)
                    .or_else(|| rendezvous::owner(key, all.0, all.1, may))
            }
            _ => self.choose_by_load(may),
        }
    }

    fn choose_by_load(&self, may: impl Fn(usize) -> bool) -> Option<usize> {
        let open: Vec<usize> = (0..self.len()).filter(|position| may(*position)).collect();
        let shares: Vec<u32> = open.iter().map(|position| self.shares[*position]).collect();
        let total = shares.iter().map(|share| u64::from(*share)).sum();
        let chosen = match self.rule {
            BalanceRule::LeastRequests => least_requests::least(&shares, total, |at| {
                self.endpoints[open[at]].member.state.in_flight()
            }),
            _ => least_requests::by_weight(&shares, total),
        };
        chosen.map(|at| open[at])
    }
}
