//! What a new file takes away that restricts. A file that is written in two steps may be good without its second half, so
//! such a file is looked at once more before it comes into force.

use super::super::outline::{IdentityOutline, Outline, RouteOutline};
use crate::route::Condition;
use crate::tls::{ClientParts, ClientVerify};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The first thing that `new` takes away from `old` and that restricts clients, in words.
#[must_use]
pub fn taken_away(old: &Outline, new: &Outline) -> Option<String> {
    let default = missing(&old.defaults, &new.defaults);
    default
        .map(|name| format!("limit `{name}` of `[defaults]`"))
        .or_else(|| of_routes(&old.routes, &new.routes))
        .or_else(|| of_identities(&old.identities, &new.identities))
}

/// The first of the old names that is not among the new ones.
fn missing<'a>(old: &'a [Arc<str>], new: &[Arc<str>]) -> Option<&'a Arc<str>> {
    let kept: HashSet<&Arc<str>> = new.iter().collect();
    old.iter().find(|name| !kept.contains(name))
}

fn of_routes(old: &[RouteOutline], new: &[RouteOutline]) -> Option<String> {
    let after: HashMap<&str, &RouteOutline> =
        new.iter().map(|route| (&*route.rule.name, route)).collect();
    old.iter().find_map(|route| {
        let name = &route.rule.name;
        let Some(after) = after.get(&**name) else {
            return Some(format!("route `{name}`"));
        };
        if let Some(limit) = missing(&route.limits, &after.limits) {
            return Some(format!("limit `{limit}` of route `{name}`"));
        }
        let groups = |route: &RouteOutline| {
            let mut conditions = route.rule.conditions.iter();
            conditions.any(|one| matches!(one, Condition::Groups(_)))
        };
        if route.client_cert == Some("required") && after.client_cert != route.client_cert {
            return Some(format!("`client_cert` of route `{name}`"));
        }
        (groups(route) && !groups(after)).then(|| format!("`groups` of route `{name}`"))
    })
}

fn demands(client: &ClientParts) -> bool {
    client.verify == ClientVerify::Required
}

fn of_identities(old: &[IdentityOutline], new: &[IdentityOutline]) -> Option<String> {
    let after: HashMap<&str, &IdentityOutline> = new.iter().map(|one| (&*one.name, one)).collect();
    old.iter().find_map(|one| {
        let before = one.check.as_ref()?;
        let after = after.get(&*one.name).and_then(|after| after.check.as_ref());
        let what = match after {
            None => "`client`",
            Some(after) if demands(before) && !demands(after) => "`verify`",
            Some(after) if after.crl_pem.len() < before.crl_pem.len() => "a revocation list",
            Some(_) => return None,
        };
        Some(format!("{what} of identity `{}`", one.name))
    })
}
