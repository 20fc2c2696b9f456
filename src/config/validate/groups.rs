//! Groups: every group that is named is defined, and a limit refers to every group that is defined.

use super::names::{NameIndex, WholeFile};
use crate::config::document::GroupTable;
use crate::config::report::{Code, Details as _, Findings};
use crate::config::settings::groups::no_customers;
use crate::key::{IdentityPiece, KeyPart};
use std::collections::HashMap;

/// Notes groups that are named but not defined, and groups without effect.
pub(super) fn check_groups(file: WholeFile<'_>, found: &mut Findings) {
    let document = file.document;
    let mut groups = NameIndex::new(
        "groups",
        Code::UnknownGroup,
        document.groups.iter().map(|group| &group.name),
    );
    let mut unread = !document.torn.is_empty() || !document.lost.is_empty();
    let mut known = Vec::new();
    for limit in &document.limits {
        for tier in limit.tiers.entries() {
            let user = format!("{limit} has a tier for group");
            groups.used(&user, &tier.value.name, file, found);
        }
        for name in limit
            .exempt
            .get()
            .map_or(&[][..], |exempt| exempt.groups.entries())
        {
            groups.used(&format!("{limit} exempts group"), name, file, found);
        }
        unread |= limit.tiers.is_bad() || limit.exempt.is_bad() || limit.unknown.is_bad();
        if !limit.unknown.is_absent() {
            known.extend(limit.by.entries().iter().filter_map(|at| at.value.as_ref()));
            unread |= limit.by.is_bad();
        }
    }
    of_routes(&mut groups, file, found);
    of_upstreams(file, found);
    let mut forwarded = document
        .routes
        .iter()
        .flat_map(|route| route.forward_identity.entries());
    let tells_groups = forwarded.any(|at| at.value.pieces().contains(&IdentityPiece::Group));
    if unread {
        return;
    }
    // A customer of a group that is used is a member by the credentials that other groups name.
    let is_plan = |group: &GroupTable| !group.customers.is_absent() && groups.is_used(&group.name);
    let asks_customer = asks_for_customers(file) || document.groups.iter().any(is_plan);
    for group in &document.groups {
        let is_forwarded = group.by.get().is_some_and(KeyPart::is_proof) && tells_groups;
        let names_customers = !group.customers.is_absent() && asks_customer;
        let knows =
            is_forwarded || names_customers || group.by.get().is_some_and(|by| known.contains(&by));
        if !knows && !group.by.is_bad() && !groups.is_used(&group.name) {
            let name = group.name.value.escape_debug();
            let tier = format!("`tiers.{name} = {{ rate = \"1000/min\" }}`");
            let exempt = format!("`exempt = {{ groups = \"{name}\" }}`");
            found
                .warning(Code::UnusedGroup, format!("{group} changes nothing"))
                .at(&group.place, "no limit names it")
                .help(format!(
                    "give a limit a tier for it: {tier}, or exempt it: {exempt}"
                ));
        }
    }
}

/// Notes upstreams whose servers are chosen by customers whom no group names.
fn of_upstreams(file: WholeFile<'_>, found: &mut Findings) {
    let document = file.document;
    if document.groups.iter().any(GroupTable::names_customers) {
        return;
    }
    for upstream in &document.upstreams {
        let by_customer = upstream.balance().key.is_some_and(|key| key.is_customer());
        if let Some(at) = upstream.balance.at().filter(|_| by_customer) {
            no_customers(&upstream.to_string(), &at.span, found);
        }
    }
}

/// Does a limit, a group, the choice of a server or a field ask for the customer of a request?
fn asks_for_customers(file: WholeFile<'_>) -> bool {
    let document = file.document;
    let keys = document.limits.iter().flat_map(|limit| limit.by.entries());
    let groups = document.groups.iter().filter_map(|group| group.by.get());
    let hashes = document.upstreams.iter();
    let hashes = hashes.filter_map(|upstream| upstream.balance().key);
    let fields = document.routes.iter();
    let mut fields = fields.flat_map(|route| route.forward_identity.entries());
    keys.filter_map(|at| at.value.clone())
        .chain(groups.cloned())
        .chain(hashes)
        .any(|part| part.is_customer())
        || fields.any(|at| at.value.pieces().contains(&IdentityPiece::Customer))
}

/// Notes mistakes in the groups that routes require: undefined groups, and groups by a part of the path.
fn of_routes<'a>(groups: &mut NameIndex<'a>, file: WholeFile<'a>, found: &mut Findings) {
    let all = file.document.groups.iter().rev();
    let all: HashMap<&str, &GroupTable> = all
        .map(|group| (group.name.value.as_str(), group))
        .collect();
    for route in &file.document.routes {
        for name in route.groups.entries() {
            groups.used(&format!("{route} is for group"), name, file, found);
            let group = all.get(name.value.as_str());
            let by = group.and_then(|group| group.by.at());
            if let Some(by) = by.filter(|by| by.value.parameter().is_some()) {
                found
                    .conflict(format!("{route} requires a group that is found by a part of the path"))
                    .at(&name.span, "this group is looked up before any route is known")
                    .and(&by.span, "known only once a route is found")
                    .help("choose another `by` for the group, such as a token, a certificate or a key, or write the path of the route");
            }
        }
    }
}
