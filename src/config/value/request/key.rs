//! One part of a key template, in the forms of the sources (`ip`, `header:NAME`, ...), or `ip/24,64`, or `everyone`.

use crate::config::report::nearest;
use crate::config::value::{Code, ValueError, quoted};
use crate::key::{KeyPart, Mask, SOURCES, SourceRow};
use http::HeaderName;

pub(in crate::config::value) use crate::key::field_name;

const EVERYONE: &str = "everyone";

/// Reads the part of a request that a group goes by; `None` for `everyone`.
pub(in crate::config) fn group_part(text: &str) -> Result<Option<KeyPart>, ValueError> {
    match SourceRow::of_word(text).filter(|row| row.is_for_groups()) {
        Some(row) => Ok((row.read)("")),
        None => part(text),
    }
}

/// Reads one part; `None` for `everyone`, which is a key without parts.
pub(in crate::config) fn part(text: &str) -> Result<Option<KeyPart>, ValueError> {
    let wrong = |label: &str| {
        let forms = SOURCES.iter().filter(|row| !row.is_for_groups());
        let forms: Vec<String> = forms.map(|row| format!("`{}`", row.form)).collect();
        ValueError::new(
            Code::BadKey,
            format!("requests cannot be counted by {}", quoted(text)),
            label,
        )
        .help(format!("write {} or `{EVERYONE}`", forms.join(", ")))
    };
    let (kind, rest) = match text.find([':', '/']) {
        Some(at) => (&text[..at], Some(&text[at..])),
        None => (text, None),
    };
    match (SourceRow::of_word(text), SourceRow::of_kind(kind), kind, rest) {
        (Some(row), ..) if row.is_for_groups() => Err(wrong(
            "each guess at a password would have a counter of its own",
        )
        .help(format!(
            "write `\"basic:user\"`, or count customers (`by = \"customer\"`) of a group by `{text}`"
        ))),
        (Some(row), ..) => Ok((row.read)("")),
        (_, Some(row), ..) => named_part(row, rest.unwrap_or_default(), wrong).map(Some),
        (.., EVERYONE, None) => Ok(None),
        (.., "ip", Some(bits)) => {
            let mask = bits.strip_prefix('/').and_then(mask).ok_or_else(|| {
                wrong("bits of IPv4 (1 to 32), then of IPv6 (1 to 128)")
                    .help("write `\"ip/24,64\"`: clients of one IPv4 /24 or IPv6 /64 count as one")
            })?;
            Ok(Some(KeyPart::Ip(mask)))
        }
        (.., "tls", _) => Err(wrong("no such part of a client's certificate")
            .help("write `\"tls:subject\"`, which a renewal keeps, or `\"tls:fingerprint\"`")
            .offer(["tls:subject"])),
        (.., "basic", _) => Err(wrong("no such part of Basic authentication")
            .help("write `\"basic:user\"`: the user, whose password is not verified")
            .offer(["basic:user"])),
        _ => Err(unknown(text, kind, rest, wrong)),
    }
}

/// The error about a part of an unknown kind.
fn unknown(
    text: &str,
    kind: &str,
    rest: Option<&str>,
    wrong: impl Fn(&str) -> ValueError,
) -> ValueError {
    let field = HeaderName::from_bytes(text.as_bytes());
    match nearest(kind, SOURCES.iter().map(SourceRow::kind).chain([EVERYONE])) {
        Some(suggestion) => wrong("no such part of a request")
            .help(match suggestion {
                "header" => "write `\"header:x-api-key\"`, or another field".into(),
                suggestion => format!("did you mean `{suggestion}`?"),
            })
            .offer(rest.map(|rest| format!("{suggestion}{rest}"))),
        None if field.is_ok_and(|_| text.contains('-')) => {
            wrong("no such part of a request; a request field is written `header:NAME`")
                .offer([format!("header:{text}")])
        }
        None => wrong("no such part of a request"),
    }
}

/// The part whose name follows a colon in `rest`.
fn named_part(
    row: &SourceRow,
    rest: &str,
    wrong: impl Fn(&str) -> ValueError,
) -> Result<KeyPart, ValueError> {
    let name = rest.strip_prefix(':').filter(|name| !name.is_empty());
    let fault = match (row.kind(), name) {
        ("cookie", _) if rest.contains('*') => NO_PATTERN,
        ("header", Some(name)) => name_fault(name),
        _ => row.unnamed,
    };
    let part = name.and_then(row.read);
    let part = part.ok_or_else(|| wrong(fault).help(row.example))?;
    match part.field().and_then(|name| refused_field(name, wrong)) {
        Some(error) => Err(error),
        None => Ok(part),
    }
}

/// Words beside a name that no field can have.
pub(in crate::config::value) const NO_NAME: &str = "a field name is letters, digits and `-`";

/// Words beside a name with `*`.
pub(in crate::config::value) const NO_PATTERN: &str =
    "names are compared literally: `*` is not a pattern";

/// The fault of the name of a field.
pub(in crate::config::value) fn name_fault(text: &str) -> &'static str {
    if text.contains('*') {
        NO_PATTERN
    } else {
        NO_NAME
    }
}

/// Reads the name of a request's field.
pub(in crate::config) fn field(text: &str) -> Result<HeaderName, ValueError> {
    field_name(text).ok_or_else(|| {
        let name = text.strip_prefix("header:").unwrap_or_default();
        ValueError::of(
            Code::BadKey,
            text,
            "is no name of a field",
            name_fault(text),
        )
        .offer((!name.is_empty()).then_some(name))
    })
}

/// The error about a field by which no limit can count.
fn refused_field(name: &HeaderName, wrong: impl Fn(&str) -> ValueError) -> Option<ValueError> {
    let error = match name.as_str() {
        "host" => wrong("HTTP/2 requests have no `host` field").offer(["host"]),
        "cookie" => wrong("this is all cookies at once, and any of them may change")
            .help("write `\"cookie:session\"`, or another one"),
        "forwarded" | "x-forwarded-for" => {
            wrong("any client can write a new address there with each request")
                .help("write `\"ip\"` and name the proxies in `[server] trust`")
        }
        _ => return None,
    };
    Some(error)
}

fn mask(bits: &str) -> Option<Mask> {
    let within = |text: &str, most: u8| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse()
            .ok()
            .filter(|bits| digits && (1..=most).contains(bits))
    };
    match bits.split_once(',') {
        Some((v4, v6)) => Some(Mask {
            v4: within(v4.trim(), 32)?,
            v6: within(v6.trim(), 128)?,
        }),
        None => Some(Mask {
            v4: within(bits.trim(), 32)?,
            ..Mask::DEFAULT
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let pattern = part("header:X-User*").unwrap_err();
        assert_eq!(pattern.label, NO_PATTERN);
        assert!(field("x-cost*").is_err());
        assert_eq!(part("ip").unwrap(), Some(KeyPart::Ip(Mask::DEFAULT)));
        assert_eq!(
            part("ip/24,56").unwrap(),
            Some(KeyPart::Ip(Mask { v4: 24, v6: 56 }))
        );
        assert_eq!(
            part("ip/24").unwrap(),
            Some(KeyPart::Ip(Mask { v4: 24, v6: 64 }))
        );
        assert_eq!(part("everyone").unwrap(), None);
        assert_eq!(part("route").unwrap(), Some(KeyPart::Route));
        assert_eq!(part("tls:subject").unwrap(), Some(KeyPart::TlsSubject));
        let fingerprint = part("tls:fingerprint").unwrap();
        assert_eq!(fingerprint, Some(KeyPart::TlsFingerprint));
        assert_eq!(
            part("cookie:sid").unwrap(),
            Some(KeyPart::Cookie("sid".into()))
        );
        assert_eq!(part("basic:user").unwrap(), Some(KeyPart::BasicUser));
        assert_eq!(group_part("basic").unwrap(), Some(KeyPart::Basic));
        assert_eq!(group_part("ip").unwrap(), part("ip").unwrap());
        for text in ["path:id", "path:{id}", "path:{*id}"] {
            assert_eq!(part(text).unwrap(), Some(KeyPart::Path("id".into())));
        }
        let Some(KeyPart::Query { name, secret }) = part("query:apiKey").unwrap() else {
            panic!("a parameter");
        };
        assert!(&*name == "apiKey" && secret);
        let Some(KeyPart::Header { name, secret }) = part("header:X-Api-Key").unwrap() else {
            panic!("a header");
        };
        assert!(name == "x-api-key" && secret);
        for text in [
            "",
            "ip/0",
            "ip/33",
            "ip/24,129",
            "ip:24",
            "header",
            "header:",
            "header:a b",
            "header:X-User*",
            "header:*",
            "cookie:_ga_*",
            "header/x",
            "cookie",
            "cookie:",
            "cookie:a;b",
            "query:a=b",
            "path:",
            "method:GET",
            "tls",
            "tls:",
            "tls:issuer",
            "tls:subject:x",
            "basic",
            "basic:",
            "basic:password",
            "basic:user:x",
            "jwt:",
            "jwt",
            "jwt:a b",
            "ips",
            "route:x",
            "x-api-key",
        ] {
            assert!(part(text).is_err(), "{text}");
        }
    }
}
