//! Groups that are named are defined, and those that are defined are of use to a limit.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::document::Document;
use super::super::source::Source;
use super::super::value::quoted;
use super::names::NameIndex;

/// Notes what is named and not defined, and what is defined and changes nothing.
pub(super) fn check(document: &Document, source: &Source, found: &mut Vec<Diagnostic>) {
    let place = (document, source);
    let mut groups = NameIndex::new(
        "groups",
        Code::UnknownGroup,
        document.groups.iter().map(|group| &group.name),
    );
    let mut unread = !document.torn.is_empty() || !document.lost.is_empty();
    let mut known = Vec::new();
    for limit in &document.limits {
        let title = format!("limit {}", quoted(&limit.name.value));
        for tier in limit.tiers.entries() {
            let user = format!("{title} has a tier for group");
            groups.used(&user, &tier.value.name, place, found);
        }
        let exempt = limit.exempt.get();
        for name in exempt.map_or(&[][..], |exempt| exempt.groups.entries()) {
            let user = format!("{title} exempts group");
            groups.used(&user, name, place, found);
        }
        unread |= limit.tiers.is_bad() || limit.exempt.is_bad() || limit.unknown.is_bad();
        if !limit.unknown.is_absent() {
            known.extend(limit.by.entries().iter().filter_map(|at| at.value.as_ref()));
            unread |= limit.by.is_bad();
        }
    }
    if unread {
        return;
    }
    for group in &document.groups {
        let knows = group.by.get().is_some_and(|by| known.contains(&by));
        if !knows && !group.by.is_bad() && !groups.is_used(&group.name) {
            let name = &group.name.value;
            let message = format!("group {} changes nothing", quoted(name));
            found.push(
                Diagnostic::warning(Code::UnusedGroup, message)
                    .at(&group.place, "no limit names it")
                    .help(format!(
                        "give a limit a tier for it: `tiers.{} = {{ rate = \"1000/min\" }}`, or exempt it: `exempt = {{ groups = \"{}\" }}`",
                        name.escape_debug(), name.escape_debug()
                    )),
            );
        }
    }
}
