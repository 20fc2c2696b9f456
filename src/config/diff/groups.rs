//! Who has come to groups and who has left them: how many, never who.

use super::{Change, Outline, PLAINLY, collection, to};
use crate::key::Group;

pub(super) fn groups(old: &Outline, new: &Outline, changes: &mut Vec<Change>) {
    collection(
        "groups",
        (&old.groups, &new.groups),
        |group| &group.name,
        PLAINLY,
        |was, is| difference(&old.groups[was], &new.groups[is]),
        changes,
    );
    let order = |outline: &Outline, other: &Outline| -> Vec<String> {
        let names = outline.groups.iter().map(|group| group.name.to_string());
        let both = |name: &String| other.groups.iter().any(|group| *group.name == **name);
        names.filter(both).collect()
    };
    let (before, after) = (order(old, new), order(new, old));
    if before != after {
        changes.push(Change {
            subject: "groups".into(),
            what: format!(
                "order {}; who is in several has the tier of the first",
                to(&before.join(", "), &after.join(", "))
            ),
            restart: false,
        });
    }
}

fn difference(old: &Group, new: &Group) -> Option<String> {
    let mut parts = Vec::new();
    if old.by != new.by {
        parts.push(format!("by {}", to(&old.by, &new.by)));
    }
    let (joined, left) = new.joined_and_left(old);
    parts.extend(members(joined, left));
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `3 members more, 1 fewer`.
fn members(joined: usize, left: usize) -> Option<String> {
    let many = |number: usize| match number {
        1 => "1 member".to_owned(),
        number => format!("{number} members"),
    };
    match (joined, left) {
        (0, 0) => None,
        (joined, 0) => Some(format!("{} more", many(joined))),
        (0, left) => Some(format!("{} fewer", many(left))),
        (joined, left) => Some(format!("{} more, {left} fewer", many(joined))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::diff;
    use crate::config::parse;

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
            ["groups: order one, two to two, one; who is in several has the tier of the first"]
        );
    }
}
