//! Prefixes of a line that another program has relayed: names of services, times, syslog's head.

use crate::replay::instant;

/// The line without one prefix: compose's `web-1  | `, kubectl's `[pod/web/app] `, a time that either adds, or syslog's
/// `nginx: `; with or without colours. `None` if the line has no such prefix.
pub(in crate::replay) fn strip(line: &str) -> Option<&str> {
    let plain = colours(line);
    let rest = piped(plain)
        .or_else(|| bracketed(plain))
        .or_else(|| timed(plain))
        .or_else(|| sent_by_syslog(plain))
        .or_else(|| (plain.len() < line.len()).then_some(plain))?;
    let rest = colours(rest).trim_ascii();
    // The line's end resets the colour.
    let end = rest.strip_suffix("\x1b[0m").or(rest.strip_suffix("\x1b[m"));
    Some(end.unwrap_or(rest).trim_ascii()).filter(|rest| !rest.is_empty())
}

/// The line without the colour escapes at its beginning.
fn colours(line: &str) -> &str {
    let mut rest = line.trim_ascii_start();
    while let Some(escape) = rest.strip_prefix("\x1b[") {
        let Some(end) = escape.find(|at: char| at.is_ascii_alphabetic()) else {
            break;
        };
        rest = escape[end + 1..].trim_ascii_start();
    }
    rest
}

/// `web-1  | `
fn piped(line: &str) -> Option<&str> {
    let is_name = |at: u8| at.is_ascii_alphanumeric() || b"-_./".contains(&at);
    let end = line.bytes().position(|at| !is_name(at))?;
    let rest = colours(&line[end..]).strip_prefix('|')?;
    (end > 0).then_some(rest)
}

/// `[pod/web-7d4/app] `
fn bracketed(line: &str) -> Option<&str> {
    let (name, rest) = line.strip_prefix('[')?.split_once("] ")?;
    let is_name = !name.is_empty() && !name.contains(|at: char| at.is_whitespace() || at == '"');
    let is_pod = name.starts_with("pod/") || name.starts_with("pods/");
    (is_name && is_pod).then_some(rest)
}

/// `2026-11-20T17:48:50.123456789Z `
fn timed(line: &str) -> Option<&str> {
    let (time, rest) = line.split_once(' ')?;
    let is_time = time.as_bytes().get(4) == Some(&b'-') && time.contains('T');
    (is_time && instant::read_instant(time).is_some()).then_some(rest)
}

/// `<190>Nov 20 17:48:50 host nginx: `
fn sent_by_syslog(line: &str) -> Option<&str> {
    let (head, rest) = line.split_once(": ")?;
    let is_head = head.len() < 128 && !head.contains(['"', '{', '[']) || head.ends_with(']');
    (is_head && head.contains(' ')).then_some(rest)
}
