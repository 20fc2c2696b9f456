//! One part of a key template: `ip`, `ip/24,64`, `header:NAME`, `cookie:NAME`, `query:NAME`, `path:NAME`, `jwt:CLAIM`,
//! `tls:subject`, `tls:fingerprint`, `method`, `host`, `route`, `everyone`.

use crate::config::report::nearest;
use crate::config::value::{Code, ValueError, quoted, with_valid_offers};
use crate::key::{KeyPart, Mask, is_secret};
use http::HeaderName;
const KNOWN: &str = "`ip`, `header:NAME`, `cookie:NAME`, `query:NAME`, `path:NAME`, `jwt:CLAIM`, `tls:subject`, `tls:fingerprint`, `method`, `host`, `route` or `everyone`";
const KINDS: [&str; 11] = [
    "ip", "header", "cookie", "query", "path", "jwt", "tls", "method", "host", "route", "everyone",
];

/// Reads one part; nothing for `everyone`, which is a key without parts.
pub(in crate::config) fn part(text: &str) -> Result<Option<KeyPart>, ValueError> {
    with_valid_offers(text, read)
}

fn read(text: &str) -> Result<Option<KeyPart>, ValueError> {
    let wrong = |label: &str| {
        ValueError::new(
            Code::BadKey,
            format!("requests cannot be counted by {}", quoted(text)),
            label,
        )
        .help(format!("write {KNOWN}"))
    };
    let (kind, rest) = match text.find([':', '/']) {
        Some(at) => (&text[..at], Some(&text[at..])),
        None => (text, None),
    };
    match (kind, rest) {
        ("everyone", None) => Ok(None),
        ("route", None) => Ok(Some(KeyPart::Route)),
        ("method", None) => Ok(Some(KeyPart::Method)),
        ("host", None) => Ok(Some(KeyPart::Host)),
        ("ip", None) => Ok(Some(KeyPart::Ip(Mask::DEFAULT))),
        ("ip", Some(bits)) => {
            let mask = bits.strip_prefix('/').and_then(mask).ok_or_else(|| {
                wrong("bits of IPv4 (1 to 32), then of IPv6 (1 to 128)")
                    .help("write `\"ip/24,64\"`: clients of one IPv4 /24 or IPv6 /64 count as one")
            })?;
            Ok(Some(KeyPart::Ip(mask)))
        }
        ("header", rest) => header(rest, wrong),
        ("cookie", Some(rest)) if rest.contains('*') => {
            Err(wrong(NO_PATTERN).help("write `\"cookie:session\"`"))
        }
        ("cookie", rest) => named(rest, cookie).ok_or_else(|| {
            wrong("the name of the cookie is missing").help("write `\"cookie:session\"`")
        }),
        ("query", rest) => named(rest, query).ok_or_else(|| {
            wrong("the name of the parameter is missing")
                .help("write `\"query:api_key\"`, the name as it is when decoded")
        }),
        ("path", rest) => named(rest, path_parameter).ok_or_else(|| {
            wrong("the name of the path's parameter is missing")
                .help("write `\"path:id\"` for a route with `path = \"/orders/{id}\"`")
        }),
        ("jwt", rest) => named(rest, claim).ok_or_else(|| {
            wrong("the name of the claim is missing")
                .help("write `\"jwt:sub\"`, or with dots `\"jwt:realm.tenant\"`")
        }),
        ("tls", Some(":subject")) => Ok(Some(KeyPart::TlsSubject)),
        ("tls", Some(":fingerprint")) => Ok(Some(KeyPart::TlsFingerprint)),
        ("tls", _) => Err(wrong("no such part of a client's certificate")
            .help("write `\"tls:subject\"`, which a renewal keeps, or `\"tls:fingerprint\"`")
            .offer(["tls:subject"])),
        _ => Err(unknown(text, kind, rest, wrong)),
    }
}

/// The error of a part of an unknown kind.
fn unknown(
    text: &str,
    kind: &str,
    rest: Option<&str>,
    wrong: impl Fn(&str) -> ValueError,
) -> ValueError {
    let field = HeaderName::from_bytes(text.as_bytes());
    match nearest(kind, KINDS) {
        Some(near) => wrong("no such part of a request")
            .help(match near {
                "header" => "write `\"header:x-api-key\"`, or another field".into(),
                near => format!("did you mean `{near}`?"),
            })
            .offer(rest.map(|rest| format!("{near}{rest}"))),
        None if field.is_ok_and(|_| text.contains('-')) => {
            wrong("no such part of a request; a request field is written `header:NAME`")
                .offer([format!("header:{text}")])
        }
        None => wrong("no such part of a request"),
    }
}

/// The part whose name stands behind the colon.
fn named(rest: Option<&str>, read: fn(&str) -> Option<KeyPart>) -> Option<Option<KeyPart>> {
    let name = rest?.strip_prefix(':')?;
    read(name).filter(|_| !name.is_empty()).map(Some)
}

fn cookie(name: &str) -> Option<KeyPart> {
    field_name(name)?;
    Some(KeyPart::Cookie(name.into()))
}

fn query(name: &str) -> Option<KeyPart> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~[]:@$!*()".contains(c);
    name.chars().all(plain).then(|| KeyPart::Query {
        name: name.into(),
        secret: is_secret(name),
    })
}

fn path_parameter(name: &str) -> Option<KeyPart> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name = name.trim_matches(['{', '}', '*']);
    (!name.is_empty() && name.chars().all(plain)).then(|| KeyPart::Path(name.into()))
}

fn claim(name: &str) -> Option<KeyPart> {
    let plain = |c: char| c.is_ascii_graphic() && !"\"\\|".contains(c);
    (name.len() <= 200 && name.chars().all(plain)).then(|| KeyPart::Jwt {
        claim: name.into(),
        secret: is_secret(name),
    })
}

/// The name of a field. `*` may stand in one (RFC 9110, section 5.6.2), and is meant as a pattern, which no name is.
pub(in crate::config::value) fn field_name(text: &str) -> Option<HeaderName> {
    let name = HeaderName::from_bytes(text.as_bytes()).ok();
    name.filter(|_| !text.contains('*'))
}

/// Words beside a name that no field has.
pub(in crate::config::value) const NO_NAME: &str = "a field name is letters, digits and `-`";

/// Words beside a name with `*`.
pub(in crate::config::value) const NO_PATTERN: &str = "a name stands for itself: `*` is no pattern";

/// What is wrong with the name of a field.
pub(in crate::config::value) fn name_fault(text: &str) -> &'static str {
    if text.contains('*') {
        NO_PATTERN
    } else {
        NO_NAME
    }
}

/// Reads the name of a request's field.
pub(in crate::config) fn field(text: &str) -> Result<HeaderName, ValueError> {
    with_valid_offers(text, |text| {
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
    })
}

fn header(
    rest: Option<&str>,
    wrong: impl Fn(&str) -> ValueError,
) -> Result<Option<KeyPart>, ValueError> {
    let name = rest
        .and_then(|rest| rest.strip_prefix(':'))
        .unwrap_or_default();
    if name.is_empty() {
        return Err(wrong("the name of the field is missing").help("write `\"header:x-api-key\"`"));
    }
    let name = field_name(name)
        .ok_or_else(|| wrong(name_fault(name)).help("write `\"header:x-api-key\"`"))?;
    if name == http::header::HOST {
        return Err(wrong("HTTP/2 requests have no `host` field").offer(["host"]));
    }
    if name == http::header::COOKIE {
        return Err(wrong("all cookies at once, of which any may change")
            .help("write `\"cookie:session\"`, or another one"));
    }
    if name == http::header::FORWARDED || name.as_str() == "x-forwarded-for" {
        return Err(
            wrong("any client can write a new address there with each request")
                .help("write `\"ip\"` and name the proxies in `[server] trust`"),
        );
    }
    let secret = is_secret(name.as_str());
    Ok(Some(KeyPart::Header { name, secret }))
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
