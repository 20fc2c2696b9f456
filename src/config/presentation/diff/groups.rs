//! The numbers of members that groups have gained and lost. The report names no member.

use super::{Collection, FileChange, Outline, differences, to};
use crate::config::document::GROUPS;
use crate::config::document::vocabulary::Compare;
use crate::config::report::counted;
use crate::key::Group;
use std::collections::HashSet;
use std::sync::Arc;

pub(super) fn groups(old: &Outline, new: &Outline, changes: &mut Vec<FileChange>) {
    let name = |group: &Arc<Group>| group.name.to_string();
    let groups = Collection::new("groups", &old.groups, &new.groups, name);
    groups.compare(changes, |old, new| group(old, new));
    let order = |outline: &Outline, other: &Outline| -> Vec<String> {
        let others: HashSet<&str> = other.groups.iter().map(|group| &*group.name).collect();
        let names = outline.groups.iter().map(|group| group.name.to_string());
        names
            .filter(|name| others.contains(name.as_str()))
            .collect()
    };
    let (before, after) = (order(old, new), order(new, old));
    if before != after {
        let order = to(&before.join(", "), &after.join(", "));
        let what = format!("order {order}; a client in several groups has the tier of the first");
        changes.push(FileChange::live("groups", what));
    }
}

fn group(old: &Group, new: &Group) -> Option<String> {
    let mut parts = differences(&GROUPS, |compare| match compare {
        Compare::Group(of) => Some((of(old)?, of(new)?)),
        _ => None,
    });
    let (joined, left) = new.joined_and_left(old);
    parts.extend(many_more("member", joined, left));
    parts.extend(customers(new, old));
    super::joined(&parts)
}

/// `3 customers more, 1 fewer, 2 credentials changed`.
fn customers(new: &Group, old: &Group) -> Option<String> {
    let (more, fewer, changed) = new.customer_changes(old);
    let changed = (changed > 0).then(|| format!("{} changed", counted(changed, "credential")));
    let parts: Vec<String> = many_more("customer", more, fewer)
        .into_iter()
        .chain(changed)
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `3 members more, 1 fewer`.
fn many_more(noun: &str, joined: usize, left: usize) -> Option<String> {
    let many = |number| counted(number, noun);
    match (joined, left) {
        (0, 0) => None,
        (joined, 0) => Some(format!("{} more", many(joined))),
        (0, left) => Some(format!("{} fewer", many(left))),
        (joined, left) => Some(format!("{} more, {left} fewer", many(joined))),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::presentation::diff::{diff, taken_away};
    use crate::config::{load, parse};
    use std::fs;

    fn changes_between(old: &str, new: &str) -> Vec<String> {
        let outline = |groups: &str| {
            let text = format!(
                "{groups}\n[limits.a]\nby = \"ip\"\nrate = \"10/s\"\n[upstreams.u]\nservers = \"a:1\"\n\
                 [routes.r]\nupstream = \"u\"\nlimits = \"a\"\n"
            );
            parse("gateway.toml", &text).unwrap().outline
        };
        let (old, new) = (outline(old), outline(new));
        let changes = diff(&old, &new, &old.boot);
        changes.iter().map(ToString::to_string).collect()
    }

    fn group(name: &str, members: &[&str]) -> String {
        format!("[groups.{name}]\nby = \"header:x-api-key\"\nmembers = {members:?}\n")
    }

    #[test]
    fn members_are_counted_and_never_named() {
        let gold = |members: &[&str]| group("gold", members);
        let old = gold(&["a", "b"]);
        assert_eq!(changes_between(&old, &old), [""; 0]);
        for (members, said) in [
            (
                &["b", "c", "d", "e"][..],
                "groups.gold: 3 members more, 1 fewer",
            ),
            (&["b"], "groups.gold: 1 member fewer"),
            (&["a", "b", "c"], "groups.gold: 1 member more"),
        ] {
            assert_eq!(changes_between(&old, &gold(members)), [said]);
        }
        let by = old.replace("header:x-api-key", "cookie:key");
        assert_eq!(
            changes_between(&old, &by),
            ["groups.gold: by header:x-api-key to cookie:key"]
        );
        assert_eq!(changes_between(&old, ""), ["groups.gold: removed"]);
        let (one, two) = (group("one", &["a"]), group("two", &["a"]));
        assert_eq!(
            changes_between(&format!("{one}{two}"), &format!("{two}{one}")),
            [
                "groups: order one, two to two, one; a client in several groups has the tier of the first"
            ]
        );
    }

    #[test]
    fn a_customer_or_a_credential_that_is_gone_is_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let outline = |keys: &str| {
            let path = folder.path().join("gateway.toml");
            fs::write(folder.path().join("keys.txt"), keys).unwrap();
            let text = "[groups.keys]\nby = \"header:x-api-key\"\ncustomers = \"keys.txt\"\n\
                        [limits.a]\nby = \"customer\"\nmissing = \"refuse\"\nrate = \"10/s\"\n\
                        [upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = \"a\"\n";
            fs::write(&path, text).unwrap();
            load(&path).unwrap().outline
        };
        let old = outline("acme key-1\nacme key-2\nbeta key-3\n");
        for (keys, is_less) in [
            ("acme key-1\nacme key-2\nbeta key-3\nbeta key-4\n", false),
            ("acme key-1\nbeta key-3\n", true),
            ("acme key-1\nacme key-2\n", true),
            ("acme key-1\nacme key-2\nbeta key-4\n", true),
            ("acme key-1\nacme key-2\nacme key-3\nbeta key-4\n", true),
        ] {
            let lost = taken_away(&old, &outline(keys));
            let said = is_less.then(|| "a customer of group `keys`".to_owned());
            assert_eq!(lost, said, "{keys}");
        }
    }
}
