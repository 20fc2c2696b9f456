//! What one reading of the file changes against another, in words.

mod bodies;
mod groups;
mod limits;
mod restart;
mod routes;
mod tokens;

pub use routes::Fact;
pub use tokens::TokenOutline;

use super::Boot;
use super::describe::span_as_written;
use crate::key::Group;
use crate::key::client_ip::Field;
use crate::limit::Limit;
use crate::route::Rule as RouteRule;
use crate::snapshot::errors::Looks;
use crate::snapshot::{FieldStyle, HoldCaps};
use crate::upstream::Upstream;
use ipnet::IpNet;
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
    pub errors: Looks,
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
        let told = |field: Option<Field>| field.map_or("either", Field::name);
        live(
            "server.trust_field",
            to(&told(old.trust_field), &told(new.trust_field)),
        );
    }
    if old.holds.total != new.holds.total {
        live("server.max_held", to(&old.holds.total, &new.holds.total));
    }
    if old.holds.per_peer != new.holds.per_peer {
        live(
            "server.max_held_per_client",
            to(&old.holds.per_peer, &new.holds.per_peer),
        );
    }
    if let Some(what) = tokens::changed(old.jwt.as_ref(), new.jwt.as_ref()) {
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
    changes
}

fn to(old: &dyn fmt::Display, new: &dyn fmt::Display) -> String {
    format!("{old} to {new}")
}

/// What is said of a thing that is gone, and of one that has come, where that is all.
const PLAINLY: (&str, &str) = ("removed", "added");

/// Things with names: what is gone, what is new, and for the rest what `compare` says.
fn named<T>(
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
    named(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    const OLD: &str = "\
        [server]\nlisten = \":8080\"\n\
        [limits.a]\nby = \"ip\"\nrate = \"10/s\"\n\
        [limits.gone]\nby = \"ip\"\nrate = \"10/s\"\n\
        [upstreams.u]\nservers = \"a:1\"\n\
        [routes.r]\nupstream = \"u\"\nlimits = [\"a\", \"gone\"]\n";

    fn changes(new: &str) -> Vec<String> {
        let old = parse("gateway.toml", OLD).unwrap().outline;
        let new = parse("gateway.toml", new).unwrap().outline;
        diff(&old, &new, &old.boot)
            .iter()
            .map(Change::to_string)
            .collect()
    }

    #[test]
    fn the_same_file_changes_nothing() {
        assert!(changes(&format!("# a comment\n{OLD}")).is_empty());
    }

    #[test]
    fn changes_are_said_in_words() {
        let new = OLD
            .replace(":8080", ":9090")
            .replace(
                "by = \"ip\"\nrate = \"10/s\"\n[limits.gone]",
                "by = \"ip\"\nrate = \"20/s\"\n[limits.fresh]",
            )
            .replace("\"gone\"", "\"fresh\"")
            .replace("a:1", "b:2");
        assert_eq!(
            changes(&new),
            [
                "limits.gone: removed, its counters dropped",
                "limits.a: rate 10/s to 20/s, burst 10 to 20, counters kept",
                "limits.fresh: added, counters start afresh, or go on where a limit of this name counted so before",
                "upstreams.u: servers http://a:1 to http://b:2",
                "routes.r: limits a+gone to a+fresh",
                "server.listen: changed, needs a restart; still 0.0.0.0:8080",
            ]
        );
    }

    #[test]
    fn who_is_trusted_is_told() {
        let with = |trust: &str| {
            let text = OLD.replacen("[server]\n", &format!("[server]\ntrust = {trust}\n"), 1);
            parse("gateway.toml", &text).unwrap().outline
        };
        let (old, new) = (with("\"10.0.0.0/8\""), with("[\"10.0.0.0/8\", \"::1\"]"));
        let told = diff(&old, &new, &old.boot);
        assert_eq!(
            told[0].to_string(),
            "server.trust: 10.0.0.0/8 to 10.0.0.0/8+::1/128"
        );
        let new = with("\"10.0.0.0/8\"\ntrust_field = \"forwarded\"");
        let told = diff(&old, &new, &old.boot);
        assert_eq!(
            told[0].to_string(),
            "server.trust_field: either to forwarded"
        );
    }

    #[test]
    fn what_routes_ask_for_is_told() {
        let new = format!("{OLD}headers = {{ X-B = true, x-a = \"1\" }}\nscheme = \"https\"\n");
        assert_eq!(
            changes(&new),
            ["routes.r: headers any to x-a = \"1\"+x-b = true, scheme any to https"]
        );
    }

    #[test]
    fn what_routes_make_of_the_path_is_told() {
        let (a, b) = (
            format!("{OLD}path = \"/a/{{*rest}}\"\nstrip_prefix = \"/a\"\n"),
            format!("{OLD}path = \"/a/{{*rest}}\"\nrewrite = \"/b/{{*rest}}\"\n"),
        );
        let read = |text: &str| parse("gateway.toml", text).unwrap().outline;
        let (old, new) = (read(&a), read(&b));
        let told = diff(&old, &new, &old.boot);
        assert_eq!(
            told[0].to_string(),
            "routes.r: strip_prefix /a to none, rewrite none to /b/{*rest}"
        );
    }

    #[test]
    fn changes_of_fields_are_told_without_values() {
        let with = |value: &str| {
            let set = format!("{{ set = {{ x-key = \"{value}\" }}, remove = \"cookie\" }}");
            parse(
                "gateway.toml",
                format!("{OLD}request_headers = {set}\n").as_str(),
            )
            .unwrap()
            .outline
        };
        let plain = parse("gateway.toml", OLD).unwrap().outline;
        let told = |old: &Outline, new: &Outline| diff(old, new, &old.boot)[0].to_string();
        assert_eq!(
            told(&plain, &with("one")),
            "routes.r: request_headers none to set x-key and remove cookie"
        );
        assert_eq!(
            told(&with("one"), &with("two")),
            "routes.r: request_headers changed"
        );
    }

    #[test]
    fn another_end_is_told() {
        let with = |end: &str| {
            let text = OLD.replace("upstream = \"u\"", end);
            let outline = parse("gateway.toml", &text).unwrap().outline;
            (outline, text)
        };
        let (old, _) = with("upstream = \"u\"");
        let (lead, _) = with("redirect = { to = \"https://b.test\", status = 307 }");
        let (said, _) = with("respond = { status = 410 }");
        let (more, _) = with("respond = { status = 410, body = \"gone\" }");
        let told = |old: &Outline, new: &Outline| diff(old, new, &old.boot)[0].to_string();
        assert_eq!(
            told(&old, &lead),
            "routes.r: upstream u to none, redirect none to https://b.test (307)"
        );
        assert_eq!(
            told(&lead, &said),
            "routes.r: redirect https://b.test (307) to none, respond none to 410"
        );
        assert_eq!(told(&said, &more), "routes.r: respond changed");
    }

    #[test]
    fn a_list_of_rates_is_told_as_one_limit() {
        let with = |rate: &str| OLD.replacen("rate = \"10/s\"", rate, 1);
        assert_eq!(
            changes(&with("rate = [\"10/s\", \"100/min\"]")),
            [
                "limits.a: rate 10/s to 10/s and 100/min, burst 10 to 10 and 100, counters start afresh, or go on where this limit counted so before"
            ]
        );
        let log = |rate: &str| with(&format!("algorithm = \"sliding-log\"\nrate = {rate}"));
        let parsed = |text: &str| parse("gateway.toml", text).unwrap().outline;
        let (old, new) = (
            parsed(&log("\"10/s\"")),
            parsed(&log("[\"9/s\", \"80/min\"]")),
        );
        let changes = diff(&old, &new, &old.boot);
        assert_eq!(
            changes[0].to_string(),
            "limits.a: rate 10/s to 9/s and 80/min, counters kept for rates over the same time"
        );
    }

    #[test]
    fn another_kind_starts_afresh() {
        let new = OLD.replacen(
            "rate = \"10/s\"",
            "rate = \"10/s\"\nalgorithm = \"fixed-window\"",
            1,
        );
        assert_eq!(
            changes(&new),
            [
                "limits.a: algorithm token-bucket to fixed-window, counters start afresh, or go on where this limit counted so before"
            ]
        );
        let new = OLD.replacen("rate = \"10/s\"", "rate = \"10/s\"\nwith = \"t\"", 1);
        let told = changes(&new).concat();
        assert!(told.starts_with("limits.a: with its own keys to t, counters start afresh"));
    }

    #[test]
    fn secrets_are_compared_and_not_shown() {
        let with = |url: &str| format!("[store]\nurl = \"{url}\"\n{OLD}");
        let old = parse("gateway.toml", &with("redis://:one@h"))
            .unwrap()
            .outline;
        let new = parse("gateway.toml", &with("redis://:two@h"))
            .unwrap()
            .outline;
        let changes = diff(&old, &new, &old.boot);
        assert_eq!(changes.len(), 1);
        assert_eq!(
            changes[0].to_string(),
            "store.password: changed; connections made from now on present it"
        );
    }
}
