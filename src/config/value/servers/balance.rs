//! Values of an upstream's rules: the way in which a server is chosen, percentages, statuses.

use crate::config::report::{nearest, one_of};
use crate::config::value::request::key::part;
use crate::config::value::{Code, ValueError};
use crate::key::KeyPart;
use crate::upstream::balance_rule::BalanceRule;
use std::ops::RangeInclusive;
use std::sync::Arc;

const WORDS: [&str; 4] = ["round-robin", "least-requests", "random", "hash:KEY"];

/// The way in which a server is chosen, and the part of a request that decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) struct Balance {
    pub(in crate::config) rule: BalanceRule,
    pub(in crate::config) key: Option<KeyPart>,
}

/// Reads `round-robin`, `least-requests`, `random` or `hash:KEY`.
pub(in crate::config) fn balance(text: &str) -> Result<Balance, ValueError> {
    let plain = |rule| Ok(Balance { rule, key: None });
    match text {
        "round-robin" => return plain(BalanceRule::RoundRobin),
        "least-requests" => return plain(BalanceRule::LeastRequests),
        "random" => return plain(BalanceRule::Random),
        "hash" | "hash:" => return Err(without_key("no part of the request is named")),
        _ => {}
    }
    let Some(key) = text.strip_prefix("hash:") else {
        let suggestion = nearest(text, ["round-robin", "least-requests", "random"]);
        let is_key = part(text).is_ok_and(|part| part.is_some());
        return Err(ValueError::of(
            Code::BadChoice,
            text,
            "is no choice for `balance`",
            format!("must be {}", one_of(&WORDS)),
        )
        .offer(suggestion)
        .offer_more(is_key.then(|| format!("hash:{text}"))));
    };
    match part(key)? {
        None => Err(without_key(
            "`everyone` is one key: it would send all requests to one server",
        )),
        key => Ok(Balance {
            rule: BalanceRule::Hash { bounded: None },
            key,
        }),
    }
}

fn without_key(label: &str) -> ValueError {
    ValueError::new(
        Code::HashWithoutKey,
        "`hash` needs a key that tells requests apart",
        label,
    )
    .help("write `\"hash:header:x-user\"`, or another part of the request, as `by` of a limit takes it")
}

/// Reads a percentage from `least` to `most`.
pub(in crate::config) fn share(text: &str, within: RangeInclusive<u32>) -> Result<u32, ValueError> {
    let (least, most) = (within.start(), within.end());
    let wrong = |label: String| {
        ValueError::of(
            Code::BadNumber,
            text,
            "is not a percentage that fits here",
            label,
        )
    };
    let Some(digits) = text.strip_suffix('%') else {
        let meant = text.parse::<u32>().ok().map(|number| format!("{number}%"));
        return Err(wrong("must be whole percents, as `\"50%\"`".into()).offer(meant));
    };
    match digits.parse::<u32>() {
        Ok(percent) if within.contains(&percent) && !digits.starts_with('+') => Ok(percent),
        _ => Err(wrong(format!("must be from `{least}%` to `{most}%`"))),
    }
}

/// Reads a status, or a range of statuses: `204`, `200-399`.
pub(in crate::config) fn statuses(text: &str) -> Result<RangeInclusive<u16>, ValueError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let status = |text: &str| text.trim().parse::<u16>().ok();
    match (status(first), status(last)) {
        (Some(first), Some(last)) if 100 <= first && first <= last && last < 600 => {
            Ok(first..=last)
        }
        _ => Err(ValueError::of(
            Code::BadNumber,
            text,
            "is no status",
            "a number from 100 to 599, or two with `-` between them",
        )
        .help("write `\"200-399\"`")),
    }
}

/// Reads the path of a probe, with its query.
pub(in crate::config) fn probe_path(text: &str) -> Result<Arc<str>, ValueError> {
    let is_target = text.starts_with('/') && text.parse::<http::uri::PathAndQuery>().is_ok();
    if is_target && !text.contains('#') {
        return Ok(text.into());
    }
    let meant = (!text.starts_with('/') && !text.contains("://")).then(|| format!("/{text}"));
    Err(ValueError::of(
        Code::BadPath,
        text,
        "is no path to probe",
        "a path begins with `/`",
    )
    .help("write `\"/healthz\"`")
    .offer(meant))
}

/// Reads the `Host` of probes: a name or an address, with or without a port.
pub(in crate::config) fn probe_host(text: &str) -> Result<Arc<str>, ValueError> {
    let authority = text.parse::<http::uri::Authority>();
    if authority.is_ok_and(|authority| !authority.as_str().contains('@')) {
        return Ok(text.into());
    }
    Err(
        ValueError::of(Code::BadHost, text, "is not a host", "a name or an address")
            .help("write `\"orders.internal\"`"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_of_choosing() {
        for (text, rule) in [
            ("round-robin", BalanceRule::RoundRobin),
            ("least-requests", BalanceRule::LeastRequests),
            ("random", BalanceRule::Random),
            ("hash:header:x-user", BalanceRule::Hash { bounded: None }),
            ("hash:ip", BalanceRule::Hash { bounded: None }),
        ] {
            assert_eq!(balance(text).unwrap().rule, rule, "{text}");
        }
        for text in [
            "",
            "hash",
            "hash:",
            "hash:everyone",
            "hash:x",
            "least",
            "header:x-user",
        ] {
            assert!(balance(text).is_err(), "{text}");
        }
    }

    #[test]
    fn percentages_and_statuses() {
        assert_eq!(share("20%", 0..=100).unwrap(), 20);
        for text in ["20", "101%", "-1%", "+1%", "%", "a"] {
            assert!(share(text, 0..=100).is_err(), "{text}");
        }
        assert_eq!(statuses("200-399").unwrap(), 200..=399);
        assert_eq!(statuses("204").unwrap(), 204..=204);
        for text in ["", "99", "600", "300-200", "2xx", "200-"] {
            assert!(statuses(text).is_err(), "{text}");
        }
        assert!(probe_path("/healthz?full=1").is_ok());
        for text in ["", "healthz", "http://a/b", "/a b", "/a#b"] {
            assert!(probe_path(text).is_err(), "{text}");
        }
    }
}
