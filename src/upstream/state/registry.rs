//! The states of all upstreams of this process, by their names: a reload takes them over.

use super::upstream_state::{Addresses, UpstreamState};
use crate::upstream::Upstream;
use std::collections::HashMap;
use std::sync::Arc;

/// The states of the installed upstreams.
#[derive(Debug, Default)]
pub struct Registry {
    states: HashMap<Arc<str>, Arc<UpstreamState>>,
}

impl Registry {
    /// The names of servers without an address, each once.
    #[must_use]
    pub fn unresolved(&self, upstreams: &[Arc<Upstream>]) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = Vec::new();
        for upstream in upstreams {
            let state = self.states.get(&upstream.name);
            for name in upstream.names() {
                let is_known = state.is_some_and(|state| !state.lacks_address(name));
                if !is_known && !names.contains(name) {
                    names.push(Arc::clone(name));
                }
            }
        }
        names
    }

    /// Gives the upstreams of a new file the states of upstreams with the same names. The addresses in `found` are for
    /// names without any. States of removed upstreams are dropped.
    pub fn adopt(&mut self, upstreams: &mut [Arc<Upstream>], found: &Addresses) {
        let mut before = std::mem::take(&mut self.states);
        for upstream in upstreams {
            let state = match before.remove(&upstream.name) {
                Some(state) => {
                    let mut kept = Upstream::clone(upstream);
                    kept.state = Arc::clone(&state);
                    *upstream = Arc::new(kept);
                    state
                }
                None => Arc::clone(&upstream.state),
            };
            state.install(&upstream.servers, found);
            state.refuse_when_none_left(upstream.rules.none_left);
            self.states.insert(Arc::clone(&upstream.name), state);
        }
    }
}
