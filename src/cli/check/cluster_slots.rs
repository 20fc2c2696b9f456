//! The slots of a Redis Cluster: the number of calls that a request of each route needs, and the hot slots.

use crate::config::{Compiled, describe};
use crate::key::MissingKey;
use crate::limit::{Limit, Scope};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// The slots of a Redis Cluster in which the limits of a file count.
pub(super) struct SlotSpread<'a> {
    /// The file, for the masking of its secrets.
    compiled: &'a Compiled,
    routes: Vec<RouteSlots<'a>>,
    hot: Vec<HotSlot<'a>>,
}

/// The slots of one route, or of requests without a route.
struct RouteSlots<'a> {
    route: Option<&'a str>,
    slots: Vec<SlotLimits<'a>>,
}

/// The limits of a route whose counters are in one slot.
struct SlotLimits<'a> {
    by: SlotChoice,
    limits: Vec<&'a str>,
}

/// The part of a limit that determines the slot of a counter.
#[derive(PartialEq, Eq)]
enum SlotChoice {
    Tag(Arc<str>),
    /// A key template as the file writes it, and the counting of requests without the key, if they are counted.
    Key(String, Option<MissingKey>),
}

/// A slot in which many keys, or all requests, are counted: on one master.
struct HotSlot<'a> {
    tag: Option<&'a str>,
    limits: Vec<&'a str>,
}

impl<'a> SlotSpread<'a> {
    /// The slots of this file, if it has shared tags or names a cluster.
    pub(super) fn of(compiled: &'a Compiled) -> Option<Self> {
        let outline = &compiled.outline;
        let shared = outline.limits.iter().map(|limit| &**limit);
        let shared: Vec<&Limit> = shared
            .filter(|limit| limit.scope == Scope::Cluster)
            .collect();
        let is_cluster = compiled.boot.store.source.is_cluster();
        if !is_cluster && shared.iter().all(|limit| limit.with.is_none()) {
            return None;
        }
        let mut by_name: HashMap<&str, &Limit> = HashMap::new();
        for limit in &shared {
            by_name.entry(&limit.name).or_insert(limit);
        }
        let routes = outline.routes.iter();
        let routes = routes.map(|route| (Some(&*route.rule.name), &route.limits));
        let routes = routes.chain([(None, &outline.defaults)]);
        let routes = routes.map(|(route, names)| RouteSlots {
            route,
            slots: slots(names, &by_name),
        });
        Some(Self {
            compiled,
            routes: routes.collect(),
            hot: hot(&shared),
        })
    }

    /// The text for people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut spans = false;
        for RouteSlots { route, slots } in &self.routes {
            if slots.len() < 2 {
                continue;
            }
            spans = true;
            let named: Vec<String> = slots
                .iter()
                .map(|slot| {
                    let by = self.compiled.hide(&slot.by.shown());
                    format!("{} ({by})", slot.limits.join(" and "))
                })
                .collect();
            let whose = match route {
                Some(name) => format!("a request of route {name}"),
                None => "a request that no route takes".to_owned(),
            };
            // Writing into a string cannot fail.
            let _ = writeln!(
                text,
                "cluster: {whose} pays up to {} calls, one for each slot: {}",
                slots.len(),
                named.join("; ")
            );
        }
        if spans {
            text.push_str(
                "cluster: calls of one request are not atomic: if one slot refuses, charges in other slots are given back a moment later, so limits never admit too much, and admit less for that moment; the same `with = \"TAG\"` makes them one call\n",
            );
        }
        for hot in &self.hot {
            let limits = hot.limits.join(" and ");
            let _ = match hot.tag.map(|tag| self.compiled.hide(tag)) {
                Some(tag) => writeln!(
                    text,
                    "cluster: everything counted with {tag} is in one slot, on one master: {limits}"
                ),
                None => writeln!(
                    text,
                    "cluster: one slot, on one master, counts every request: {limits} (everyone)"
                ),
            };
        }
        text
    }

    /// The object for programs.
    pub(super) fn json(&self) -> Value {
        let routes = self.routes.iter().filter(|one| !one.slots.is_empty());
        let routes = routes.map(|RouteSlots { route, slots }| {
            let slots = slots.iter().map(|slot| {
                let by = self.compiled.hide(&slot.by.shown());
                json!({ "by": by, "limits": slot.limits })
            });
            json!({ "route": route, "slots": slots.collect::<Vec<_>>() })
        });
        let hot = self.hot.iter();
        let hot = hot
            .map(|hot| (hot.tag.map(|tag| self.compiled.hide(tag)), &hot.limits))
            .map(|(tag, limits)| json!({ "with": tag, "limits": limits }));
        json!({ "routes": routes.collect::<Vec<_>>(), "hot": hot.collect::<Vec<_>>() })
    }
}

/// The slots of the limits with these names. Limits of one key share the slots of its values.
fn slots<'a>(names: &[Arc<str>], by_name: &HashMap<&str, &'a Limit>) -> Vec<SlotLimits<'a>> {
    let mut slots: Vec<SlotLimits<'a>> = Vec::new();
    for limit in names
        .iter()
        .filter_map(|name| by_name.get(&**name).copied())
    {
        let by = chosen(limit);
        match slots.iter_mut().find(|slot| slot.by.may_be(&by)) {
            Some(slot) => {
                slot.by.learn(by);
                slot.limits.push(&limit.name);
            }
            None => slots.push(SlotLimits {
                by,
                limits: vec![&limit.name],
            }),
        }
    }
    slots
}

/// The slots that count many keys: slots of tags, and the slot of limits without a key.
fn hot<'a>(shared: &[&'a Limit]) -> Vec<HotSlot<'a>> {
    let mut hot: Vec<HotSlot<'a>> = Vec::new();
    for limit in shared {
        let tag = limit.with.as_deref();
        if tag.is_none() && !limit.by.parts.is_empty() {
            continue;
        }
        let at = hot.iter().position(|slot| slot.tag == tag);
        let at = at.unwrap_or_else(|| {
            let limits = Vec::new();
            hot.push(HotSlot { tag, limits });
            hot.len() - 1
        });
        // The rates of one limit are adjacent.
        if hot[at].limits.last() != Some(&&*limit.name) {
            hot[at].limits.push(&limit.name);
        }
    }
    hot
}

/// The part of the limit that determines the slot of its counters.
fn chosen(limit: &Limit) -> SlotChoice {
    if let Some(tag) = &limit.with {
        return SlotChoice::Tag(Arc::clone(tag));
    }
    let missing = limit.by.missing;
    let is_counted = matches!(missing, MissingKey::Ip | MissingKey::Shared);
    let instead = (is_counted && limit.by.can_be_absent()).then_some(missing);
    SlotChoice::Key(describe::key(&limit.by), instead)
}

impl SlotChoice {
    /// Is the slot equal to the slot of `other`, for every request? Requests without the key may be counted in two
    /// ways.
    fn may_be(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Key(key, one), Self::Key(same, two)) => {
                key == same && (one.is_none() || two.is_none() || one == two)
            }
            _ => self == other,
        }
    }

    /// Takes over `other`'s counting of requests without the key, if it has one.
    fn learn(&mut self, other: Self) {
        if let (Self::Key(_, None), Self::Key(_, Some(_))) = (&*self, &other) {
            *self = other;
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Tag(tag) => format!("with {tag}"),
            Self::Key(key, Some(MissingKey::Ip)) => format!("by {key}, requests without it by ip"),
            Self::Key(key, Some(MissingKey::Shared)) => {
                format!("by {key}, requests without it together")
            }
            Self::Key(key, _) => format!("by {key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn said(store: &str, with: &str) -> Option<(String, Value)> {
        let text = format!(
            "[store]\n{store}\n\
             [limits.per-ip]\nby = \"ip\"\nrate = \"10/s\"\n{with}\n\
             [limits.slow]\nby = \"ip\"\nrate = \"100/h\"\n{with}\n\
             [limits.total]\nby = \"everyone\"\nrate = \"1000/s\"\n{with}\n\
             [limits.own]\nby = \"ip\"\nrate = \"10/s\"\nscope = \"gateway\"\n\
             [upstreams.u]\nservers = \"a:1\"\n\
             [routes.all]\nupstream = \"u\"\nlimits = [\"per-ip\", \"slow\", \"total\", \"own\"]\n\
             [routes.one]\npath = \"/one\"\nupstream = \"u\"\nlimits = [\"per-ip\", \"slow\"]\n"
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        std::fs::write(&file, text).unwrap();
        let compiled = config::load(&file).unwrap();
        SlotSpread::of(&compiled).map(|spread| (spread.text(), spread.json()))
    }

    #[test]
    fn one_redis_needs_no_word() {
        assert_eq!(said("url = \"redis://cache\"", ""), None);
        assert_eq!(said("url = \"memory:\"", ""), None);
    }

    #[test]
    fn a_cluster_is_told_by_routes_and_hot_slots() {
        let (text, json) = said("url = \"redis+cluster://a,b\"", "").unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "cluster: a request of route all pays up to 2 calls, one for each slot: per-ip and slow (by ip); total (by everyone)"
        );
        assert!(lines[1].starts_with("cluster: calls of one request are not atomic"));
        assert_eq!(
            lines[2],
            "cluster: one slot, on one master, counts every request: total (everyone)"
        );
        assert_eq!(lines.len(), 3);
        assert_eq!(
            json["routes"][0]["slots"][0]["limits"],
            json!(["per-ip", "slow"])
        );
        assert_eq!(json["routes"][1]["slots"].as_array().unwrap().len(), 1);
        assert_eq!(json["hot"], json!([{ "with": null, "limits": ["total"] }]));
    }

    #[test]
    fn requests_without_a_key_may_be_counted_in_two_slots() {
        let limit = |name: &str, missing: &str| {
            format!(
                "[limits.{name}]\nby = \"header:x-k\"\nmissing = \"{missing}\"\nrate = \"10/s\"\n"
            )
        };
        let text = [("a", "ip"), ("b", "skip"), ("c", "shared"), ("d", "ip")]
            .map(|(name, missing)| limit(name, missing))
            .concat();
        let text = format!(
            "[store]\nurl = \"redis+cluster://a,b\"\n{text}[upstreams.u]\nservers = \"a:1\"\n\
             [routes.all]\nupstream = \"u\"\nlimits = [\"a\", \"b\", \"c\", \"d\"]\n"
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        std::fs::write(&file, text).unwrap();
        let compiled = config::load(&file).unwrap();
        let spread_text = SlotSpread::of(&compiled).unwrap().text();
        assert_eq!(
            spread_text.lines().next().unwrap(),
            "cluster: a request of route all pays up to 2 calls, one for each slot: a and b and d (by header:x-k, requests without it by ip); \
             c (by header:x-k, requests without it together)"
        );
    }

    #[test]
    fn a_tag_is_one_call_and_one_hot_slot() {
        for (store, with, tag) in [
            ("url = \"redis+cluster://a\"", "with = \"shop\"", "shop"),
            (
                "url = \"redis+cluster://a\"\ntogether = true",
                "",
                "together",
            ),
            ("url = \"redis://a\"\ntogether = true", "", "together"),
        ] {
            let (text, json) = said(store, with).unwrap();
            assert_eq!(
                text,
                format!(
                    "cluster: everything counted with {tag} is in one slot, on one master: per-ip and slow and total\n"
                )
            );
            assert_eq!(json["hot"][0]["with"], tag);
        }
    }
}
