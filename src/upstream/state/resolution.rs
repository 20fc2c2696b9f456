//! The addresses of server names: resolved periodically on the control runtime, never by a request.
//!
//! An answer that is empty, late or missing changes nothing: the previous addresses stay.

use super::upstream_state::{Addresses, UpstreamState};
use crate::telemetry::metrics::{Metrics, Resolution};
use crate::upstream::Upstream;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

/// The longest wait for first answers, at the start and at a reload.
const FIRST: Duration = Duration::from_secs(2);
/// The longest wait for an answer that requests do not wait for.
const LATE: Duration = Duration::from_secs(5);
/// The time after which a late answer is abandoned and the name is resolved again. The system's own timeouts are
/// shorter.
const GIVEN_UP: Duration = Duration::from_secs(60);
/// The time between two lookups of a name without an address.
const SOON: Duration = Duration::from_secs(1);

/// A pending answer.
pub type Answer = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// The function that resolves a name.
pub type AddressLookup = Arc<dyn Fn(Arc<str>) -> Answer + Send + Sync>;

/// The form in which a name is logged: a part of it may come from the environment, and is then secret.
pub type ShownName = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Uses the system's resolver, like every other program on it: `/etc/hosts` counts, and all other configuration.
#[must_use]
pub fn by_system() -> AddressLookup {
    Arc::new(|name| {
        Box::pin(async move {
            // The lookup blocks its thread.
            let asked = spawn_blocking(move || ask_system(&name)).await;
            asked.unwrap_or_else(|error| Err(io::Error::other(error)))
        })
    })
}

fn ask_system(name: &str) -> io::Result<Vec<IpAddr>> {
    let all: Vec<IpAddr> = (name, 0).to_socket_addrs()?.map(|at| at.ip()).collect();
    // `localhost` resolves to two addresses even on machines with only one of the two protocols.
    let usable: Vec<IpAddr> = all.iter().copied().filter(is_routed).collect();
    Ok(if usable.is_empty() { all } else { usable })
}

/// Has this machine a route to the address? No packet is sent.
fn is_routed(address: &IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => [0_u8; 4].into(),
        IpAddr::V6(_) => [0_u8; 16].into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0));
    socket.is_ok_and(|socket| socket.connect(SocketAddr::new(*address, 9)).is_ok())
}

/// The tasks that keep the addresses of all names.
pub struct Resolutions {
    lookup: AddressLookup,
    shown: ShownName,
    metrics: Arc<Metrics>,
    running: HashMap<FollowedName, AbortHandle>,
}

/// A name of an upstream, and the interval of its lookups.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FollowedName {
    upstream: Arc<str>,
    name: Arc<str>,
    every: Duration,
}

impl std::fmt::Debug for Resolutions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let running = self.running.keys();
        f.debug_list().entries(running).finish()
    }
}

impl Resolutions {
    /// An empty set; `lookup` resolves names.
    #[must_use]
    pub fn new(lookup: AddressLookup, metrics: Arc<Metrics>) -> Self {
        Self {
            lookup,
            shown: Arc::new(str::to_owned),
            metrics,
            running: HashMap::new(),
        }
    }

    /// Sets the form in which names are logged, for names that are followed from now on.
    pub fn show_as(&mut self, shown: ShownName) {
        self.shown = shown;
    }

    /// Those addresses of `names` that are known within two seconds.
    pub async fn first(&self, names: Vec<Arc<str>>) -> Addresses {
        let mut asked = JoinSet::new();
        for name in names {
            let answer = (self.lookup)(Arc::clone(&name));
            asked.spawn(async move { (name, timeout(FIRST, answer).await.ok()) });
        }
        let mut found = Addresses::new();
        while let Some(answer) = asked.join_next().await {
            let Ok((name, answer)) = answer else { continue };
            let outcome = ResolutionOutcome::of(answer);
            self.metrics.resolved(outcome.kind());
            match outcome {
                ResolutionOutcome::Found(addresses) => drop(found.insert(name, addresses)),
                bad => tracing::warn!(
                    "{} has no address yet ({}); requests to it are answered with 503 until it has",
                    (self.shown)(&name),
                    bad.why()
                ),
            }
        }
        found
    }

    /// Follows the names of these upstreams, and no others.
    pub fn follow(&mut self, upstreams: &[Arc<Upstream>]) {
        let mut before = std::mem::take(&mut self.running);
        for upstream in upstreams {
            for name in upstream.names() {
                let followed = FollowedName {
                    upstream: Arc::clone(&upstream.name),
                    name: Arc::clone(name),
                    every: upstream.resolve,
                };
                if self.running.contains_key(&followed) {
                    continue;
                }
                let task = before.remove(&followed).unwrap_or_else(|| {
                    let following = Following {
                        shown: (self.shown)(name),
                        followed: followed.clone(),
                        state: Arc::clone(&upstream.state),
                        lookup: Arc::clone(&self.lookup),
                        metrics: Arc::clone(&self.metrics),
                        is_failing: false,
                    };
                    tokio::spawn(following.run()).abort_handle()
                });
                self.running.insert(followed, task);
            }
        }
        before.values().for_each(AbortHandle::abort);
    }
}

/// The task for one name.
struct Following {
    followed: FollowedName,
    /// The name in the log.
    shown: String,
    state: Arc<UpstreamState>,
    lookup: AddressLookup,
    metrics: Arc<Metrics>,
    /// The last lookup failed, which has been logged.
    is_failing: bool,
}

impl Following {
    async fn run(mut self) {
        let FollowedName { name, every, .. } = self.followed.clone();
        loop {
            let pause = if self.state.lacks_address(&name) {
                every.min(SOON)
            } else {
                every
            };
            sleep(pause).await;
            let mut answer = (self.lookup)(Arc::clone(&name));
            let outcome = ResolutionOutcome::of(timeout(LATE.min(every), &mut answer).await.ok());
            let is_late = matches!(outcome, ResolutionOutcome::Late);
            self.note(outcome);
            if is_late {
                // One lookup at a time: it occupies a thread until it is answered.
                let _ = timeout(GIVEN_UP, answer).await;
            }
        }
    }

    fn note(&mut self, outcome: ResolutionOutcome) {
        let FollowedName { upstream, name, .. } = &self.followed;
        let shown = &self.shown;
        self.metrics.resolved(outcome.kind());
        let ResolutionOutcome::Found(addresses) = outcome else {
            if !self.is_failing {
                self.is_failing = true;
                let why = outcome.why();
                if self.state.lacks_address(name) {
                    tracing::warn!("upstream {upstream}: {shown} has no address yet: {why}");
                } else {
                    tracing::warn!(
                        "upstream {upstream}: {shown} cannot be resolved: {why}; its earlier addresses stay in use"
                    );
                }
            }
            return;
        };
        if self.is_failing {
            self.is_failing = false;
            tracing::info!("upstream {upstream}: {shown} is resolved again");
        }
        if let Some(before) = self.state.resolved(name, &addresses) {
            tracing::info!(
                "upstream {upstream}: {name} is now {} (before: {})",
                list(&addresses),
                list(&before)
            );
        }
    }
}

/// The result of a lookup.
#[derive(Debug)]
enum ResolutionOutcome {
    Found(Vec<IpAddr>),
    Empty,
    Failed(io::Error),
    Late,
}

impl ResolutionOutcome {
    fn of(answer: Option<io::Result<Vec<IpAddr>>>) -> Self {
        match answer {
            None => Self::Late,
            Some(Err(error)) => Self::Failed(error),
            Some(Ok(addresses)) if addresses.is_empty() => Self::Empty,
            Some(Ok(addresses)) => Self::Found(addresses),
        }
    }

    fn kind(&self) -> Resolution {
        match self {
            Self::Found(_) => Resolution::Found,
            Self::Empty => Resolution::Empty,
            Self::Failed(_) => Resolution::Failed,
            Self::Late => Resolution::Late,
        }
    }

    fn why(&self) -> String {
        match self {
            Self::Found(_) => String::new(),
            Self::Empty => "the answer is empty".to_owned(),
            Self::Failed(error) => error.to_string(),
            Self::Late => "no answer in time".to_owned(),
        }
    }
}

fn list(addresses: &[IpAddr]) -> String {
    if addresses.is_empty() {
        return "nothing".to_owned();
    }
    let each: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    each.join(", ")
}

#[cfg(test)]
mod tests;
