//! What has changed about whose tokens are believed.

/// Whose tokens are believed, in a form that can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenOutline {
    /// What the table says, key by key, the same keys always; none of it is a secret.
    pub facts: Vec<(&'static str, String)>,
    /// The files with its keys.
    pub files: String,
    /// A digest of what they hold: the same keys elsewhere are the same keys.
    pub digest: [u8; 32],
}

/// In words, if anything has.
pub(super) fn difference(old: Option<&TokenOutline>, new: Option<&TokenOutline>) -> Option<String> {
    let (old, new) = match (old, new) {
        (None, None) => return None,
        (None, Some(_)) => return Some("added".to_owned()),
        (Some(_), None) => return Some("removed".to_owned()),
        (Some(old), Some(new)) => (old, new),
    };
    let both = old.facts.iter().zip(&new.facts);
    let differ = both.filter(|(a, b)| a != b);
    let mut parts: Vec<String> = differ
        .map(|((key, a), (_, b))| format!("{key} {a} to {b}"))
        .collect();
    if old.digest != new.digest {
        parts.push(match old.files == new.files {
            true => format!("what {} holds has changed", new.files),
            false => format!("keys {} to {}", old.files, new.files),
        });
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::{Outline, diff};
    use crate::config::load;
    use std::sync::Arc;

    #[test]
    fn what_is_believed_is_told_with_values_and_without_keys() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        let outline = |jwt: &str, secret: &str| -> Arc<Outline> {
            let rest = "[limits.a]\nby = \"ip\"\nrate = \"10/s\"\n[upstreams.u]\nservers = \"a:1\"\n\
                 [routes.r]\nupstream = \"u\"\nlimits = \"a\"\n";
            let jwt = jwt.replace("hs256", "algorithms = \"HS256\"");
            std::fs::write(&file, format!("{jwt}{rest}")).unwrap();
            for name in ["one.secret", "two.secret"] {
                std::fs::write(folder.path().join(name), secret).unwrap();
            }
            load(&file).unwrap().outline
        };
        let changes_between = |old: &Outline, new: &Outline| -> Vec<String> {
            let changes = diff(old, new, &old.boot);
            changes.iter().map(ToString::to_string).collect()
        };
        let (secret, other) = ("s".repeat(40), "o".repeat(40));
        let old = outline("[jwt]\nkeys = \"one.secret\"\nhs256\n", &secret);
        let more = "issuer = \"https://i.test\"\nleeway = \"30s\"\nrequire_exp = false\n";
        let new = outline(
            &format!("[jwt]\nkeys = \"one.secret\"\nhs256\n{more}"),
            &secret,
        );
        assert_eq!(
            changes_between(&old, &new),
            ["jwt: issuer none to https://i.test, leeway 0s to 30s, require_exp true to false"]
        );
        let moved = outline("[jwt]\nkeys = \"two.secret\"\nhs256\n", &secret);
        assert_eq!(changes_between(&old, &moved), [""; 0]);
        let another = outline("[jwt]\nkeys = \"two.secret\"\nhs256\n", &other);
        assert_eq!(
            changes_between(&old, &another),
            ["jwt: keys one.secret to two.secret"]
        );
        assert_eq!(
            changes_between(&moved, &another),
            ["jwt: what two.secret holds has changed"]
        );
        assert_eq!(changes_between(&old, &outline("", "")), ["jwt: removed"]);
    }
}
