//! The known name that is nearest to a misspelt name.

use std::fmt::Display;

/// The known name that `word` most likely means. At most a third of the letters may differ, but always one letter may,
/// and never all letters.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = fold(word);
    let length = word.chars().count();
    let reach = (length / 3).max(1).min(length.saturating_sub(1));
    known
        .into_iter()
        .map(|name| (strsim::osa_distance(&word, &fold(name)), name))
        .filter(|(distance, _)| *distance <= reach)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// The name in lower case and without separators: case and separators do not count as misspellings. The name is
/// truncated, since the cost of the distance is the product of the lengths.
fn fold(name: &str) -> String {
    name.chars()
        .take(80)
        .map(|c| {
            if c == '_' {
                '-'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect()
}

/// `a`, `b` or `c`.
pub(in crate::config) fn one_of<T: Display>(names: &[T]) -> String {
    join(names, "or")
}

/// `a`, `b` and `c`.
pub(in crate::config) fn all_of<T: Display>(names: &[T]) -> String {
    join(names, "and")
}

fn join<T: Display>(names: &[T], word: &str) -> String {
    match names {
        [] => String::new(),
        [only] => format!("`{only}`"),
        [most @ .., last] => {
            let most: Vec<_> = most.iter().map(|name| format!("`{name}`")).collect();
            format!("{} {word} `{last}`", most.join(", "))
        }
    }
}

/// `1 limit`, `2 limits`.
#[must_use]
pub fn counted(number: usize, word: &str) -> String {
    match number {
        1 => format!("1 {word}"),
        _ => format!("{number} {word}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["by", "burst", "rate", "max_wait", "missing"];
        assert_eq!(nearest("brust", known), Some("burst"));
        assert_eq!(nearest("max-wait", known), Some("max_wait"));
        assert_eq!(nearest("Rate", known), Some("rate"));
        assert_eq!(nearest("quota", known), None);
        assert_eq!(nearest("m", ["l"]), None);
        assert_eq!(nearest("L", ["l"]), Some("l"));
        assert_eq!(nearest(&"x".repeat(100_000), known), None);
    }
}
