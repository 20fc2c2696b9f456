//! Stars out what looks like a credential before a line of the file is shown.
//!
//! Works on the text, not on the parsed file: a message about a broken line must not show its password either.

/// Words at the end of a key whose value is not to be shown.
const SECRET: [&str; 4] = ["password", "passwd", "secret", "token"];

/// `text` with the characters of credentials replaced by as many stars as they have bytes.
pub(super) fn starred(text: &str) -> String {
    let mut hidden = Vec::new();
    for (equals, _) in text.match_indices('=') {
        if is_secret(word_before(text, equals)) {
            hidden.extend(value_after(text, equals + 1));
        }
    }
    for (scheme, found) in text.match_indices("://") {
        let start = scheme + found.len();
        let rest = &text[start..];
        let end = rest
            .find(['"', '\'', ' ', '\t', '\n', '\r'])
            .unwrap_or(rest.len());
        if let Some(at) = rest[..end].rfind('@') {
            hidden.push(start..start + at);
        }
    }
    if hidden.is_empty() {
        return text.to_owned();
    }
    hidden.sort_by_key(|span| span.start);
    let mut out = String::with_capacity(text.len());
    for span in hidden {
        let start = span.start.max(out.len());
        if start >= span.end {
            continue;
        }
        out.push_str(&text[out.len()..start]);
        out.extend(text[start..span.end].bytes().map(|byte| match byte {
            b'\n' => '\n',
            b'\r' => '\r',
            _ => '*',
        }));
    }
    out.push_str(&text[out.len()..]);
    out
}

fn word_before(text: &str, equals: usize) -> &str {
    let before = text[..equals].trim_end_matches([' ', '\t', '"', '\'']);
    let start = before
        .rfind(|c: char| !c.is_alphanumeric() && c != '_' && c != '-')
        .map_or(0, |at| {
            at + before[at..].chars().next().map_or(1, char::len_utf8)
        });
    &before[start..]
}

/// Also when it is misspelt: that is when its line is shown.
fn is_secret(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    SECRET.iter().any(|secret| word.ends_with(secret))
        || strsim::osa_distance(&word, "password") <= 2
}

/// The inside of a string, or else the rest of the line; nothing where a table begins.
fn value_after(text: &str, start: usize) -> Option<std::ops::Range<usize>> {
    let rest = &text[start..];
    let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
    let (start, rest) = (start + blank, &rest[blank..]);
    if rest.starts_with('{') {
        return None;
    }
    let line = rest.find(['\n', '\r']).unwrap_or(rest.len());
    for quote in ["\"\"\"", "'''"] {
        if let Some(inside) = rest.strip_prefix(quote) {
            let end = inside.find(quote).unwrap_or(inside.len());
            return Some(start + quote.len()..start + quote.len() + end);
        }
    }
    for quote in ['"', '\''] {
        if let Some(inside) = rest[..line].strip_prefix(quote) {
            let end = closing(inside, quote).unwrap_or(inside.len());
            return Some(start + 1..start + 1 + end);
        }
    }
    Some(start..start + line)
}

fn closing(inside: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    inside.char_indices().find_map(|(at, c)| {
        let ends = c == quote && !escaped;
        escaped = c == '\\' && quote == '"' && !escaped;
        ends.then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::starred;

    #[test]
    fn credentials_are_starred_and_nothing_moves() {
        for (text, shown) in [
            ("password = \"hunter2\" # x", "password = \"*******\" # x"),
            ("pasword='hunter2'", "pasword='*******'"),
            ("password = \"hun\\\"ter", "password = \"********"),
            ("password = hunter2\nx = 1", "password = *******\nx = 1"),
            ("url = \"redis://u:p@h:1/0\"", "url = \"redis://***@h:1/0\""),
            (
                "password = { env = \"NAME\" }",
                "password = { env = \"NAME\" }",
            ),
            ("password = \"\"\"a\nb\"\"\"", "password = \"\"\"*\n*\"\"\""),
            ("é.password = \"é\"", "é.password = \"**\""),
            (
                "algorithm = \"token-bucket\"",
                "algorithm = \"token-bucket\"",
            ),
        ] {
            assert_eq!(starred(text), shown);
            assert_eq!(starred(text).len(), text.len());
        }
    }
}
