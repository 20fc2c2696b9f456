//! The server that a request goes to, if an upstream chooses by a key of the request.

use crate::config::{Compiled, describe};
use crate::key::{Caller, KeyOutcome};
use crate::snapshot::Service;
use crate::upstream::balance_rule::BalanceRule;
use crate::upstream::rendezvous;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The choice by a key.
#[derive(Debug)]
pub(super) struct ServerChoice {
    /// The parts of the key, as the file writes them.
    by: String,
    /// The servers in the order of the key; `None` if the request has no key, or several values for it.
    order: Option<Vec<String>>,
    /// The percentage of the average in flight beyond which a server is passed over.
    bounded: Option<u32>,
    /// Names among the servers, whose addresses take part in the order.
    names: Vec<String>,
}

impl ServerChoice {
    /// The choice for the request of `caller`; `None` if the upstream chooses in another way, or has one server.
    pub(super) fn of(compiled: &Compiled, service: &Service, caller: &Caller<'_>) -> Option<Self> {
        let at = service.upstream?;
        let upstream = &compiled.snapshot.upstreams[at];
        let template = compiled.snapshot.hash_keys[at].as_ref()?;
        let BalanceRule::Hash { bounded } = upstream.rules.balance else {
            return None;
        };
        let names: Vec<String> = upstream.names().map(ToString::to_string).collect();
        if upstream.servers.len() < 2 && names.is_empty() {
            return None;
        }
        let mut key = Vec::new();
        let order = match template.write(caller, &mut key) {
            KeyOutcome::Key => {
                let members = upstream.state.members();
                let order = rendezvous::order(rendezvous::hash(&key), &members).into_iter();
                Some(order.map(|one| one.state.shown.to_string()).collect())
            }
            _ => None,
        };
        Some(Self {
            by: describe::key(template),
            order,
            bounded,
            names,
        })
    }

    /// The choice in a sentence.
    pub(super) fn text(&self) -> String {
        let by = &self.by;
        let Some(order) = &self.order else {
            return format!("in turn, since the request has no {by}, or several");
        };
        if !self.names.is_empty() {
            let names = self.names.join(" and ");
            return format!("by {by}, among the addresses of {names}, which are not resolved here");
        }
        let mut text = match order.split_first() {
            None => {
                return "none is available, since all have weight 0: `none_left` says what requests get"
                    .to_owned();
            }
            Some((first, rest)) => {
                let mut text = format!("{first}, by {by}");
                if !rest.is_empty() {
                    let _ = write!(text, "; while it is away {}", rest.join(", then "));
                }
                text
            }
        };
        if let Some(percent) = self.bounded {
            let _ = write!(
                text,
                "; a server with more than {percent}% of the average in flight is passed over"
            );
        }
        text
    }

    /// The choice for programs.
    pub(super) fn json(&self) -> Value {
        let order = self.order.as_ref().filter(|_| self.names.is_empty());
        json!({
            "by": self.by,
            "has_key": self.order.is_some(),
            "order": order,
            "bounded": self.bounded,
            "unresolved": self.names,
        })
    }

    /// Masks the secrets of the file.
    pub(super) fn hide(&mut self, hide: &impl Fn(&mut String)) {
        hide(&mut self.by);
        self.order.iter_mut().flatten().for_each(hide);
        self.names.iter_mut().for_each(hide);
    }
}
