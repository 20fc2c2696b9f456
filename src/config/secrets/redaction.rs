//! Redaction: stars replace credentials in a shown line of the file.
//!
//! Redaction works on the text, not on the parsed file: a message about a broken line must not show a password in that
//! line.

use crate::key;
use crate::telemetry::{query, urls};
use std::ops::Range;

/// The suffixes of keys whose values are secret.
const SECRET: [&str; 8] = [
    "password",
    "passwd",
    "secret",
    "token",
    "authorization",
    "cookie",
    "api-key",
    "api_key",
];

/// The credentials in `text`, in order and without overlaps.
pub(in crate::config) fn hidden(text: &str) -> Vec<Range<usize>> {
    let mut found = values(text);
    found.extend(credentials(text));
    found.extend(bare_credentials(text));
    found.extend(members(text));
    found.extend(customers(text));
    found.extend(sections(text));
    found.extend(defaults(text));
    found.extend(queries(text));
    found.sort_by_key(|span| span.start);
    let mut separate: Vec<Range<usize>> = Vec::with_capacity(found.len());
    for span in found.into_iter().filter(|span| !span.is_empty()) {
        match separate.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => separate.push(span),
        }
    }
    separate
}

/// `text` with each byte of a credential replaced by a star, so that places in the text stay the same.
pub(in crate::config) fn starred(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for span in hidden(text) {
        out.push_str(&text[out.len()..span.start]);
        out.extend(text[span].bytes().map(|byte| match byte {
            b'\n' => '\n',
            b'\r' => '\r',
            _ => '*',
        }));
    }
    out.push_str(&text[out.len()..]);
    out
}

/// The queries of URLs, after their `?`, except queries of redirects, which clients can see.
fn queries(text: &str) -> Vec<Range<usize>> {
    let mut seen = 0;
    let of_urls = urls(text).filter_map(|url| {
        let before = text[seen..url.start].rsplit(['\n', '\r']).next();
        let key = before.and_then(|before| before.rsplit_once('='));
        let leads_clients =
            key.is_some_and(|(key, _)| matches!(word_before(key), "to" | "redirect"));
        seen = url.end;
        (!leads_clients).then(|| query(text, url)).flatten()
    });
    of_urls.collect()
}

/// Values of keys with names that suggest secrets. A value is not searched again, so that the time stays linear.
fn values(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut seen = 0;
    for (equals, _) in text.match_indices('=') {
        if equals >= seen
            && (is_secret(word_before(&text[seen..equals])) || is_account_key(&text[seen..equals]))
        {
            let Some(value) = value_after(text, equals + 1) else {
                found.extend(strings_in_table(text, equals + 1));
                continue;
            };
            seen = value.end.max(seen);
            found.push(value);
        }
    }
    found
}

/// Is it the `key` of an external account (`eab`)? Other keys with that name are paths.
fn is_account_key(before: &str) -> bool {
    // A longer line is not searched for each of its keys.
    const NEAR: usize = 200;
    let context = &before[before.floor_char_boundary(before.len().saturating_sub(NEAR))..];
    let line = context.rsplit(['\n', '\r']).next().unwrap_or_default();
    line.trim_start().starts_with("eab") && word_before(line) == "key"
}

/// Values under any key in a table of the store whose name suggests a secret. The place of a secret is not a secret.
fn sections(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut inside, mut start) = (Vec::new(), false, 0);
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        if let Some(title) = trimmed.strip_prefix('[') {
            let title = title.split(']').next().unwrap_or_default();
            // A limit may be called `token` without having secrets.
            inside = title.rsplit_once('.').is_some_and(|(of, last)| {
                last.trim() == "eab"
                    || of.trim() == "store" && is_secret(last.trim().trim_matches(['"', '\'']))
            });
        } else if inside
            && let Some(equals) = line.find('=')
            && !["file", "env"].contains(&line[..equals].trim())
        {
            found.extend(value_after(text, start + equals + 1));
        }
        start += line.len();
    }
    found
}

/// Defaults of variables with names that suggest secrets: `${DB_PASSWORD:-this}`.
fn defaults(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, mark) in text.match_indices("${") {
        let start = at + mark.len();
        let line = text[start..].split(['\n', '\r']).next().unwrap_or_default();
        let inside = line.split('}').next().unwrap_or_default();
        if let Some((name, default)) = inside.split_once(":-")
            && is_secret_variable(name)
            // A default that is itself a variable is a mistake, and is shown.
            && !default.starts_with("${")
        {
            let end = start + inside.len();
            found.push(end - default.len()..end);
        }
    }
    found
}

/// Texts in tables of customers: the credentials behind the names.
fn customers(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut inside, mut depth, mut start) = (Vec::new(), false, 0_usize, 0);
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        if depth == 0 && trimmed.starts_with('[') {
            let title = trimmed.trim_start_matches('[').split(']').next();
            let last = title.and_then(|title| title.rsplit('.').next());
            inside = last.is_some_and(is_customers);
        } else {
            // A text may be a name with `=` in it, so that a line of a table is read from its beginning.
            let is_inside = depth > 0 || inside;
            let from = is_inside.then_some(0).or_else(|| table_of_customers(line));
            if let Some(from) = from {
                found.extend(quoted_values(&line[from..], start + from));
                depth = depth_after(&line[from..], depth);
            }
        }
        start += line.len();
    }
    found
}

/// Is this piece of a title `customers`?
fn is_customers(piece: &str) -> bool {
    piece.trim().trim_matches(['"', '\'']) == "customers"
}

/// The end of the name `customers` in `line`, if credentials follow: `customers = {`, or `customers.NAME = `. The path
/// of a file, or a list of paths, is no table.
fn table_of_customers(line: &str) -> Option<usize> {
    line.match_indices("customers").find_map(|(at, name)| {
        let rest = line[at + name.len()..].trim_start_matches(['"', '\'']);
        let value = rest.trim_start();
        let is_table = match value.strip_prefix('=') {
            Some(value) => value.trim_start().starts_with('{'),
            None => value.starts_with('.'),
        };
        is_table.then_some(line.len() - rest.len())
    })
}

/// The quoted texts in `line`, which begins at `start`, that are not names before `=`.
fn quoted_values(line: &str, start: usize) -> Vec<Range<usize>> {
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(quote) = line[from..].find(['"', '\'']) {
        let open = from + quote + 1;
        let close = end_of_text(line, open, line.as_bytes()[open - 1]);
        from = (close + 1).min(line.len());
        let is_name = line[from..].trim_start().starts_with('=');
        if !is_name && !is_address(&line[open..close]) {
            found.push(start + open..start + close);
        }
    }
    found
}

/// The end of the text that begins at `open`, behind `mark`: its other mark, or the end of the line.
fn end_of_text(line: &str, open: usize, mark: u8) -> usize {
    let mut bytes = line.bytes().enumerate().skip(open);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\n' => return at,
            b'\\' if mark == b'"' => {
                bytes.next();
            }
            _ if byte == mark => return at,
            _ => {}
        }
    }
    line.len()
}

/// The number of open brackets and braces behind `line`; those in texts and comments are none.
fn depth_after(line: &str, before: usize) -> usize {
    let (mut depth, mut at) = (before, 0);
    while let Some(byte) = line.as_bytes().get(at).copied() {
        match byte {
            b'"' | b'\'' => at = end_of_text(line, at + 1, byte),
            b'#' => break,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    depth
}

/// Texts in lists of members: keys of clients, unless the texts can only be addresses.
fn members(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut seen = 0;
    for (equals, _) in text.match_indices('=') {
        if equals < seen || word_before(&text[seen..equals]) != "members" {
            continue;
        }
        let start = equals + 1;
        let list = text[start..].trim_start();
        let start = text.len() - list.len();
        // A list ends with its bracket; a single text and an unfinished list end with the line.
        let end = if list.starts_with('[') {
            list.find(']').unwrap_or(list.len())
        } else {
            list.find('\n').unwrap_or(list.len())
        };
        let mut from = 0;
        while let Some(quote) = list[from..end].find(['"', '\'']) {
            let open = from + quote + 1;
            let mark = char::from(list.as_bytes()[open - 1]);
            // An apostrophe in a comment ends with the line.
            let close = list[open..end].find([mark, '\n']);
            let close = close.map_or(end, |close| open + close);
            if !is_address(&list[open..close]) {
                found.push(start + open..start + close);
            }
            from = (close + 1).min(end);
        }
        seen = start + end;
    }
    found
}

/// Plain hexadecimal digits may be a key: an address has separators.
fn is_address(text: &str) -> bool {
    text.contains(['.', ':'])
        && text
            .chars()
            .all(|c| c.is_ascii_hexdigit() || ".:/".contains(c))
}

/// The text between `://` and the last `@` of an address.
fn credentials(text: &str) -> Vec<Range<usize>> {
    let of_url = |Range { start, end }| {
        let rest: &str = &text[start..end];
        if let Some(at) = rest.rfind('@') {
            return Some(start..start + at);
        }
        // A password alone: no host begins with `:`, and a port has only digits.
        let alone = rest.strip_prefix(':')?;
        let is_port = alone.bytes().all(|byte| byte.is_ascii_digit());
        (!is_port).then_some(start + 1..end)
    };
    urls(text).filter_map(of_url).collect()
}

/// Credentials of an address without a scheme: `"user:password@host"`.
fn bare_credentials(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices('@') {
        let before = &text[..at];
        let inside = |c: char| c.is_whitespace() || "\"'/=,".contains(c);
        let Some((start, quote)) = before
            .char_indices()
            .rev()
            .take(200)
            .find(|(_, c)| inside(*c))
        else {
            continue;
        };
        let start = start + quote.len_utf8();
        let before = &text[start..at];
        // `unix:@name` is an abstract socket, and not a user of a host.
        if matches!(quote, '"' | '\'') && before.contains(':') && before != "unix:" {
            found.push(start..at);
        }
    }
    found
}

/// The last word of `before`.
fn word_before(before: &str) -> &str {
    let before = before.trim_end_matches([' ', '\t', '"', '\'']);
    let start = before
        .char_indices()
        .rev()
        .find(|(_, c)| !c.is_alphanumeric() && *c != '_' && *c != '-')
        .map_or(0, |(at, c)| at + c.len_utf8());
    &before[start..]
}

/// Does the name of a variable suggest a secret?
pub(in crate::config) fn is_secret_variable(name: &str) -> bool {
    const MARKS: [&str; 3] = ["pass", "pwd", "credential"];
    /// Words that are too short to be searched inside other words, or that have another meaning there.
    const WORDS: [&str; 9] = [
        "pw", "cred", "creds", "private", "hmac", "salt", "pat", "totp", "dsn",
    ];
    /// Names of fields that contain a key; the names are not secret.
    const NAMES: [&str; 3] = ["key_header", "key_field", "key_name"];
    let name = name.to_ascii_lowercase();
    if NAMES.iter().any(|end| name.ends_with(end)) {
        return false;
    }
    key::is_secret(&name)
        || MARKS.iter().any(|mark| name.contains(mark))
        || name.split('_').any(|word| WORDS.contains(&word))
}

/// Does the name of the key suggest a secret? A misspelt key counts too, since messages show the line of a misspelt
/// key.
pub(in crate::config) fn is_secret(word: &str) -> bool {
    const LONGEST: usize = 80;
    if word.len() > LONGEST {
        return false;
    }
    let word = word.to_ascii_lowercase();
    // A word with two mistakes still has six of the eight letters. Counting the letters costs less than computing the
    // distance for every key.
    let is_close = || word.chars().filter(|c| "password".contains(*c)).count() >= 6;
    SECRET.iter().any(|secret| word.ends_with(secret))
        || is_close() && strsim::osa_distance(&word, "password") <= 2
}

/// The texts of an inline table in place of a secret; the texts of `file` and `env` are not secret.
fn strings_in_table(text: &str, start: usize) -> Vec<Range<usize>> {
    let line = text[start..].split(['\n', '\r']).next().unwrap_or_default();
    let inside = line.trim_start_matches([' ', '\t']);
    if !inside.starts_with('{') {
        return Vec::new();
    }
    // The table ends at its bracket: the rest of the line is not part of the table.
    let end = start + line.find('}').unwrap_or(line.len());
    let (mut found, mut at) = (Vec::new(), start);
    while let Some(equals) = text[at..end].find('=') {
        let equals = at + equals;
        let word = word_before(&text[start..equals]);
        let Some(value) = value_after(text, equals + 1) else {
            break;
        };
        let value = value.start..value.end.min(end);
        at = value.end.max(equals + 1);
        if !["file", "env"].contains(&word) {
            found.push(value);
        }
    }
    found
}

/// The inside of a string, or else the rest of the line; `None` if a table begins.
fn value_after(text: &str, start: usize) -> Option<Range<usize>> {
    let rest = &text[start..];
    let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
    let (start, rest) = (start + blank, &rest[blank..]);
    if rest.starts_with('{') {
        return None;
    }
    for quote in ["\"\"\"", "'''"] {
        if let Some(inside) = rest.strip_prefix(quote) {
            let end = inside.find(quote).unwrap_or(inside.len());
            return Some(start + quote.len()..start + quote.len() + end);
        }
    }
    for quote in ['"', '\''] {
        if let Some(inside) = rest.strip_prefix(quote) {
            return Some(start + 1..start + 1 + closing(inside, quote));
        }
    }
    if rest.starts_with("true") || rest.starts_with("false") {
        return None;
    }
    let line = rest.find(['\n', '\r']).unwrap_or(rest.len());
    Some(start..start + line)
}

/// The end of a text on one line.
fn closing(inside: &str, quote: char) -> usize {
    let mut escaped = false;
    let end = inside.char_indices().find_map(|(at, c)| {
        let ends = (c == quote && !escaped) || c == '\n' || c == '\r';
        escaped = c == '\\' && quote == '"' && !escaped;
        ends.then_some(at)
    });
    end.unwrap_or(inside.len())
}

#[cfg(test)]
mod tests;
