//! URLs in shown text, whose queries may hold secrets.

use std::borrow::Cow;
use std::ops::Range;

/// The URLs of a text, each from after its `://` to its end at a quote or a blank.
pub fn urls(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut seen = 0;
    text.match_indices("://").filter_map(move |(scheme, mark)| {
        let start = scheme + mark.len();
        if start < seen {
            return None;
        }
        let end = text[start..].find(['"', '\'', ' ', '\t', '\n', '\r']);
        seen = end.map_or(text.len(), |end| start + end);
        Some(start..seen)
    })
}

/// The queries of the URLs of a text, after their `?`.
fn queries(text: &str) -> impl Iterator<Item = Range<usize>> {
    urls(text).filter_map(|url| query(text, url))
}

/// The query of a URL of a text, after its `?`, if it has one.
#[must_use]
pub fn query(text: &str, url: Range<usize>) -> Option<Range<usize>> {
    let query = url.start + text[url.clone()].find('?')? + 1;
    (query < url.end).then_some(query..url.end)
}

/// The mask of a query.
const STARS: &str = "***";

/// A URL with its query masked.
#[must_use]
pub fn shown_url(url: &str) -> Cow<'_, str> {
    match url.split_once('?') {
        Some((place, query)) if !query.is_empty() => Cow::Owned(format!("{place}?{STARS}")),
        _ => Cow::Borrowed(url),
    }
}

/// A text with the query of each URL in it masked.
#[must_use]
pub fn without_queries(text: &str) -> Cow<'_, str> {
    let (mut out, mut kept) = (String::new(), 0);
    // A query that is already masked keeps the words after it.
    for query in queries(text).filter(|query| !text[query.clone()].starts_with(STARS)) {
        out.push_str(&text[kept..query.start]);
        out.push_str(STARS);
        kept = query.end;
    }
    match kept {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(out + &text[kept..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_stars_that_tell_nothing_of_it() {
        for (url, shown) in [
            (
                "https://id.example/jwks?api_key=S",
                "https://id.example/jwks?***",
            ),
            (
                "https://id.example/jwks?a=b?c",
                "https://id.example/jwks?***",
            ),
            ("https://id.example/jwks?", "https://id.example/jwks?"),
            ("production", "production"),
        ] {
            assert_eq!(shown_url(url), shown);
        }
    }

    #[test]
    fn the_queries_in_foreign_words_have_stars() {
        for (text, shown) in [
            (
                "https://ca.example/dir?tok=S: refused, see 'https://b/?x'",
                "https://ca.example/dir?*** refused, see 'https://b/?***'",
            ),
            (
                "is it https://ca.example/dir",
                "is it https://ca.example/dir",
            ),
            ("why? see https://a/ ?", "why? see https://a/ ?"),
            ("a://b://c?d", "a://b://c?***"),
            ("https://a/?***: no", "https://a/?***: no"),
            ("(https://a/?***), no", "(https://a/?***), no"),
            ("", ""),
        ] {
            assert_eq!(without_queries(text), shown);
        }
    }
}
