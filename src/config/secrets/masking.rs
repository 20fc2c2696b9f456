//! Masking: stars replace the secrets of a file in every shown text about the file.

use crate::config::report::Diagnostic;
use crate::config::value;
use crate::route::Template;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// The shortest secret that is masked: a shorter secret may be a part of other words.
const SHORTEST: usize = 4;
/// The shortest secret that is masked although it could be an ordinary word, such as `test` or `admin`. Stars in place
/// of the same word elsewhere in the file would reveal a shorter secret.
const NO_WORD: usize = 8;

/// The secret values of a file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    values: BTreeSet<Arc<str>>,
    /// Every spelling of a value, by its first letters in lower case, the longest spelling first.
    spellings: HashMap<[u8; SHORTEST], Vec<Spelling>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Spelling {
    text: String,
    of: Arc<str>,
}

impl Secrets {
    /// The secrets among `values` that are long enough to be masked.
    pub(in crate::config) fn new<V: Into<Arc<str>>>(values: impl IntoIterator<Item = V>) -> Self {
        let values = values.into_iter().map(Into::into);
        let values: BTreeSet<Arc<str>> = values.filter(|one| is_looked_for(one)).collect();
        let mut spellings: HashMap<_, Vec<Spelling>> = HashMap::new();
        for of in &values {
            for text in spelled(of) {
                if let Some(start) = start(&text) {
                    let of = Arc::clone(of);
                    let known = spellings.entry(start).or_default();
                    known.push(Spelling { text, of });
                }
            }
        }
        for known in spellings.values_mut() {
            known.sort_by_key(|one| std::cmp::Reverse(one.text.len()));
        }
        Self { values, spellings }
    }

    /// The secrets of all sets in `these`.
    pub(in crate::config) fn of_all(these: &[&Self]) -> Self {
        let values = these.iter().flat_map(|one| &one.values);
        Self::new(values.map(Arc::clone))
    }

    /// `text` with stars in place of each secret.
    #[must_use]
    pub fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.replaced(text, &mut |_| "***".to_owned())
    }

    /// Puts stars in place of the secrets into every text of `diagnostic`.
    pub(in crate::config) fn mask(&self, diagnostic: &mut Diagnostic) {
        for text in diagnostic.texts_mut() {
            if let Cow::Owned(shown) = self.hide(text) {
                *text = shown;
            }
        }
    }

    /// `text` with stars in place of each secret: different secrets get different stars.
    pub(in crate::config) fn number<'t>(
        &self,
        text: &'t str,
        series: &mut Numbering,
    ) -> Cow<'t, str> {
        self.replaced(text, &mut |secret| series.stars(secret))
    }

    fn replaced<'t>(&self, text: &'t str, stars: &mut dyn FnMut(&str) -> String) -> Cow<'t, str> {
        if self.spellings.is_empty() {
            return Cow::Borrowed(text);
        }
        let (mut out, mut kept, mut at) = (String::new(), 0, 0);
        while at + SHORTEST <= text.len() {
            let Some(found) = self.at(&text.as_bytes()[at..]) else {
                at += 1;
                continue;
            };
            out.push_str(&text[kept..at]);
            out.push_str(&stars(&found.of));
            at += found.text.len();
            kept = at;
        }
        match kept {
            0 => Cow::Borrowed(text),
            _ => Cow::Owned(out + &text[kept..]),
        }
    }

    /// The longest spelling at the start of `rest`, in any case, since hosts and paths are lower-cased. Among spellings
    /// of equal length, the spelling in the exact case wins.
    fn at(&self, rest: &[u8]) -> Option<&Spelling> {
        let known = self.spellings.get(&start(rest)?)?;
        let begins = |one: &&Spelling| {
            let front = rest.get(..one.text.len());
            front.is_some_and(|front| front.eq_ignore_ascii_case(one.text.as_bytes()))
        };
        let longest = known.iter().find(begins)?;
        let same = known
            .iter()
            .filter(|one| one.text.len() == longest.text.len());
        let mut same = same.filter(|one| rest.starts_with(one.text.as_bytes()));
        Some(same.next().unwrap_or(longest))
    }
}

fn is_looked_for(value: &str) -> bool {
    let of_a_word = |byte: u8| byte.is_ascii_alphabetic() || b"-_.:/".contains(&byte);
    value.len() >= NO_WORD || value.len() >= SHORTEST && !value.bytes().all(of_a_word)
}

/// The query of a URL, which may contain a secret.
pub(in crate::config) fn query_of(url: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    Some(query.to_owned())
}

/// The first letters of a text, in lower case.
fn start(text: impl AsRef<[u8]>) -> Option<[u8; SHORTEST]> {
    let start = text.as_ref().first_chunk::<SHORTEST>()?;
    Some(start.map(|byte| byte.to_ascii_lowercase()))
}

/// The spellings of a value: as given, trimmed, escaped, and in the forms in which a path is shown and forwarded.
fn spelled(value: &str) -> BTreeSet<String> {
    let bare = value.trim();
    let mut all = BTreeSet::from([
        value.to_owned(),
        bare.to_owned(),
        value.escape_debug().to_string(),
        bare.trim_matches('/').to_owned(),
    ]);
    let read = value::destination(bare);
    let read = read.or_else(|_| value::destination(&format!("/{bare}")));
    if let Ok((origin, path)) = read
        && let Ok(pattern) = value::path(if path.is_empty() { "/" } else { &path })
        && pattern.parameters().next().is_none()
        && let Ok(template) = Template::read(&origin, &path, &pattern)
    {
        let mut forwarded = String::new();
        template.fill("/", &mut forwarded);
        let pattern_path = format!("{origin}{pattern}");
        all.extend([pattern_path, forwarded].map(|one| one.trim_matches('/').to_owned()));
    }
    all
}

/// Shows the number of secrets, and no part of their text.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.values.len())
    }
}

/// Numbers for stars, in the order of the secrets' first use; the first secret has no number.
#[derive(Default)]
pub(in crate::config) struct Numbering {
    given: HashMap<String, usize>,
}

impl Numbering {
    /// The stars for this secret.
    pub(in crate::config) fn stars(&mut self, secret: &str) -> String {
        let next = self.given.len() + 1;
        match *self.given.entry(secret.to_owned()).or_insert(next) {
            1 => "***".to_owned(),
            at => format!("***{at}"),
        }
    }

    /// Is the text a row of stars from a file that `--print` has shown?
    pub(in crate::config) fn is_stars(text: &str) -> bool {
        let number = text.strip_prefix("***");
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_however_it_is_spelled() {
        let values = [
            "Xoxb-1/%41b",
            "xoxb-1",
            "pin",
            "admin",
            "http://",
            "https://h.test/é/",
            "q\"uote",
        ];
        let secrets = Secrets::new(values);
        for (text, shown) in [
            ("to https://x/Xoxb-1/%41b/y", "to https://x/***/y"),
            ("to https://x/xoxb-1/ab (308)", "to https://x/*** (308)"),
            ("xoxb-1/b, XOXB-1xoxb-1", "***/b, ******"),
            ("pin and pins", "pin and pins"),
            ("http://admin/admin", "http://admin/admin"),
            ("https://h.test/é", "***"),
            ("https://h.test/%C3%A9/x", "***/x"),
            ("\"q\\\"uote\" é", "\"***\" é"),
            ("é", "é"),
            ("", ""),
        ] {
            assert_eq!(secrets.hide(text), shown, "{text}");
        }
        assert_eq!(format!("{secrets:?}"), "4 secrets");
    }

    #[test]
    fn secrets_that_differ_stay_different() {
        let (old, new) = (
            Secrets::new(["abcdef12"]),
            Secrets::new(["ABCdef12", "abc"]),
        );
        let both = Secrets::of_all(&[&old, &new]);
        let mut series = Numbering::default();
        let masked = both.number("path /abcdef12 to /ABCdef12/abcDEF12", &mut series);
        assert_eq!(masked, "path /*** to /***2/***2");
        assert_eq!(
            both.number("ABCdef12 to abcdef12", &mut series),
            "***2 to ***"
        );
    }
}
