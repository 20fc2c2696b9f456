//! What one reading of the file changes against another, in words.

mod bodies;
mod groups;
mod limits;
mod restart;
mod routes;
mod tokens;

#[cfg(test)]
mod tests;

pub use routes::Fact;
pub use tokens::TokenOutline;

use super::Boot;
use super::describe::span_as_written;
use super::masking::{Numbering, Secrets};
use crate::key::Group;
use crate::key::client_ip::Field;
use crate::limit::Limit;
use crate::route::Rule as RouteRule;
use crate::snapshot::errors::ErrorFormats;
use crate::snapshot::{FieldStyle, HoldCaps};
use crate::upstream::Upstream;
use ipnet::IpNet;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A file in a form that can be compared with another.
#[derive(Debug)]
pub struct Outline {
    /// What is read once.
    pub boot: Boot,
    /// Whose tokens are believed.
    pub jwt: Option<TokenOutline>,
    /// Every group, in the order of the file.
    pub groups: Vec<Arc<Group>>,
    /// Every limit, in the order of the file.
    pub limits: Vec<Arc<Limit>>,
    /// The limits that every request is held to.
    pub defaults: Vec<Arc<str>>,
    /// Every upstream, in the order of the file.
    pub upstreams: Vec<Arc<Upstream>>,
    /// The limits in front of each of them.
    pub upstream_limits: Vec<Vec<Arc<str>>>,
    /// Every route, in the order of the file.
    pub routes: Vec<RouteOutline>,
    /// Whose word on addresses is believed.
    pub trust: Vec<IpNet>,
    /// Which field they write, where that is known.
    pub trust_field: Option<Field>,
    /// Which fields responses carry.
    pub fields: FieldStyle,
    /// What errors look like.
    pub errors: ErrorFormats,
    /// By how many percent the time to come back is spread.
    pub jitter: u8,
    /// Bounds on held requests.
    pub holds: HoldCaps,
}

/// A route, its names still names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteOutline {
    /// What it recognises.
    pub rule: RouteRule,
    /// Where it leads.
    pub upstream: Arc<str>,
    /// What else it says, key by key, the same keys for each route.
    pub facts: Vec<Fact>,
    /// Its limits and its upstream's.
    pub limits: Vec<Arc<str>>,
    /// From forwarding to the head of the response.
    pub timeout: Duration,
}

/// One thing that is different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// `limits.per-ip`.
    pub subject: String,
    /// `rate 10/s to 20/s, counters kept`.
    pub what: String,
    /// It is not taken over until the gateway is started again.
    pub restart: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.what)
    }
}

/// What `new` changes against `old`: limits, upstreams, routes, the rest.
///
/// Pass as `running` the settings the process was started with: they hold until it is started again, whatever was
/// loaded in between.
#[must_use]
pub fn diff(old: &Outline, new: &Outline, running: &Boot) -> Vec<Change> {
    let mut changes = Vec::new();
    groups::groups(old, new, &mut changes);
    limits::limits(old, new, &mut changes);
    upstreams(old, new, &mut changes);
    routes::routes(old, new, &mut changes);
    let mut live = |subject: &str, what: String| {
        changes.push(Change {
            subject: subject.into(),
            what,
            restart: false,
        });
    };
    if old.defaults != new.defaults {
        live(
            "defaults.limits",
            to(&list(&old.defaults), &list(&new.defaults)),
        );
    }
    if old.trust != new.trust {
        live("server.trust", to(&list(&old.trust), &list(&new.trust)));
    }
    if old.trust_field != new.trust_field {
        let name = |field: Option<Field>| field.map_or("either", Field::name);
        live(
            "server.trust_field",
            to(&name(old.trust_field), &name(new.trust_field)),
        );
    }
    if old.holds.total != new.holds.total {
        live("server.max_held", to(&old.holds.total, &new.holds.total));
    }
    if old.holds.per_client != new.holds.per_client {
        live(
            "server.max_held_per_client",
            to(&old.holds.per_client, &new.holds.per_client),
        );
    }
    if let Some(what) = tokens::difference(old.jwt.as_ref(), new.jwt.as_ref()) {
        live("jwt", what);
    }
    if old.fields != new.fields {
        live(
            "response.headers",
            to(&style(old.fields), &style(new.fields)),
        );
    }
    for (subject, what) in bodies::bodies(old, new) {
        live(&subject, what);
    }
    if old.jitter != new.jitter {
        let percent = |share: u8| format!("{share}%");
        live(
            "response.jitter",
            to(&percent(old.jitter), &percent(new.jitter)),
        );
    }
    changes.extend(restart::secrets(running, &new.boot));
    restart::compare(running, &new.boot, &mut changes);
    let secrets = [&old.boot, &new.boot, running].map(|boot| &*boot.secrets);
    starred(&Secrets::of_all(&secrets), &mut changes);
    changes
}

/// Puts stars where what has changed, or stands beside it, is secret; one that took another's place has another number.
fn starred(secrets: &Secrets, changes: &mut [Change]) {
    let mut series = Numbering::default();
    for change in changes {
        if let Cow::Owned(shown) = secrets.number(&change.what, &mut series) {
            change.what = shown;
        }
    }
}

fn to(old: &dyn fmt::Display, new: &dyn fmt::Display) -> String {
    format!("{old} to {new}")
}

/// What is said of a thing that is gone, and of one that has come, where that is all.
const PLAINLY: (&str, &str) = ("removed", "added");

/// Things with names: what is gone, what is new, and for the rest what `compare` says.
fn collection<T>(
    table: &str,
    (old, new): (&[T], &[T]),
    name: impl Fn(&T) -> &str,
    (gone, come): (&str, &str),
    compare: impl Fn(usize, usize) -> Option<String>,
    changes: &mut Vec<Change>,
) {
    let position = |list: &[T]| -> std::collections::HashMap<String, usize> {
        list.iter()
            .enumerate()
            .map(|(at, one)| (name(one).to_owned(), at))
            .collect()
    };
    let (before, after) = (position(old), position(new));
    let mut push = |name: &str, what: String| {
        changes.push(Change {
            subject: format!("{table}.{name}"),
            what,
            restart: false,
        });
    };
    for one in old
        .iter()
        .map(&name)
        .filter(|one| !after.contains_key(*one))
    {
        push(one, gone.to_owned());
    }
    for (at, one) in new.iter().map(&name).enumerate() {
        match before.get(one) {
            None => push(one, come.to_owned()),
            Some(was) => {
                if let Some(what) = compare(*was, at) {
                    push(one, what);
                }
            }
        }
    }
}

fn upstreams(old: &Outline, new: &Outline, changes: &mut Vec<Change>) {
    let compare = |was: usize, is: usize| {
        let (a, b) = (&old.upstreams[was], &new.upstreams[is]);
        let mut parts = Vec::new();
        if a.servers != b.servers {
            parts.push(format!(
                "servers {} to {}",
                list(&a.servers),
                list(&b.servers)
            ));
        }
        if a.connect_timeout != b.connect_timeout {
            parts.push(format!(
                "connect_timeout {} to {}",
                time(a.connect_timeout),
                time(b.connect_timeout)
            ));
        }
        let (a, b) = (&old.upstream_limits[was], &new.upstream_limits[is]);
        if a != b {
            parts.push(format!("limits {} to {}", list(a), list(b)));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    };
    let both = (old.upstreams.as_slice(), new.upstreams.as_slice());
    collection(
        "upstreams",
        both,
        |upstream| &upstream.name,
        PLAINLY,
        compare,
        changes,
    );
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    if items.is_empty() {
        return "none".into();
    }
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    items.join("+")
}

fn time(time: Duration) -> String {
    span_as_written(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

fn style(style: FieldStyle) -> &'static str {
    match style {
        FieldStyle::Both => "both",
        FieldStyle::Standard => "standard",
        FieldStyle::Legacy => "legacy",
        FieldStyle::None => "none",
    }
}
