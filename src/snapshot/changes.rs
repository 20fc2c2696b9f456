//! A route's changes to the fields of its requests and answers, read and checked together with the file.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Fields to remove, to set and to add, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Fields that are removed, with all their lines.
    pub remove: Vec<HeaderName>,
    /// Fields that get one line each, in place of any earlier lines.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Fields that get one more line.
    pub add: Vec<(HeaderName, HeaderValue)>,
}

impl Changes {
    /// Makes the changes.
    #[inline(never)]
    pub fn apply(&self, fields: &mut HeaderMap) {
        for name in &self.remove {
            fields.remove(name);
        }
        for (name, value) in &self.set {
            fields.insert(name, value.clone());
        }
        for (name, value) in &self.add {
            fields.append(name, value.clone());
        }
    }

    /// Makes the changes that remove nothing: a refusal's own fields stay unchanged.
    #[inline(never)]
    pub fn complete(&self, fields: &mut HeaderMap) {
        let lines = || self.set.iter().chain(&self.add);
        let there: Vec<bool> = lines().map(|(name, _)| fields.contains_key(name)).collect();
        for ((name, value), there) in lines().zip(there) {
            if !there {
                fields.append(name, value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pairs: &[(&'static str, &'static str)]) -> Vec<(HeaderName, HeaderValue)> {
        let line = |(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        pairs.iter().map(line).collect()
    }

    fn sorted(fields: &HeaderMap) -> Vec<String> {
        let mut all: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        all.sort();
        all
    }

    #[test]
    fn what_is_there_is_changed_or_kept() {
        let changes = Changes {
            remove: vec![HeaderName::from_static("a")],
            set: lines(&[("b", "new"), ("c", "1")]),
            add: lines(&[("c", "2"), ("d", "new")]),
        };
        let there: HeaderMap = lines(&[("a", "1"), ("b", "1"), ("d", "1")])
            .into_iter()
            .collect();
        let mut changed = there.clone();
        changes.apply(&mut changed);
        assert_eq!(
            sorted(&changed),
            ["b: new", "c: 1", "c: 2", "d: 1", "d: new"]
        );
        let mut completed = there;
        changes.complete(&mut completed);
        assert_eq!(sorted(&completed), ["a: 1", "b: 1", "c: 1", "c: 2", "d: 1"]);
    }
}
