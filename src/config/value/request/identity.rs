//! `forward_identity` of a route: names of fields, and templates of verified facts about a client.

use super::field_change::{Direction, editable_field};
use crate::config::value::{Code, ValueError, quoted};
use crate::key::IdentityPiece;
use http::{HeaderName, header};

const KNOWN: &str = "write `{jwt:CLAIM}`, `{tls:subject}`, `{tls:fingerprint}`, `{tier}`, `{group}` or `{customer}`";

/// Reads the name of a field about a client's identity.
pub(in crate::config) fn identity_field(text: &str) -> Result<HeaderName, ValueError> {
    let wrong = |label: &str| {
        ValueError::new(
            Code::BadField,
            format!("the field {} cannot tell who a client is", quoted(text)),
            label,
        )
        .help("write a field of your own, as `x-consumer`")
    };
    let name = editable_field(Direction::Request, "set", text)?;
    if matches!(name.as_str(), "authorization" | "cookie" | "host" | "proxy") {
        return Err(wrong("servers use this field for something else"));
    }
    let of_messages = ["content-", "accept", "if-", "access-control-", "sec-"];
    let is_of_messages = of_messages
        .iter()
        .any(|family| name.as_str().starts_with(family));
    if is_of_messages || matches!(name, header::RANGE | header::DATE | header::USER_AGENT) {
        return Err(wrong("it belongs to the message"));
    }
    if name.as_str().contains('_') {
        return Err(wrong("servers read `_` and `-` in names as one: write `-`"));
    }
    Ok(name)
}

/// Reads the template of a value: texts, and verified facts in braces.
pub(in crate::config) fn identity_value(text: &str) -> Result<Vec<IdentityPiece>, ValueError> {
    let wrong = |label: &str| {
        ValueError::of(Code::BadField, text, "does not tell who a client is", label).help(KNOWN)
    };
    if text.trim_ascii() != text || !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(wrong("visible ASCII, with blanks only inside"));
    }
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some(open) = rest.find(['{', '}']) {
        let (before, behind) = rest.split_at(open);
        if !before.is_empty() {
            pieces.push(IdentityPiece::Text(before.into()));
        }
        let inside = behind
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'));
        let Some((inside, after)) = inside else {
            return Err(wrong("a brace without its other one"));
        };
        pieces.push(piece(inside, wrong)?);
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(IdentityPiece::Text(rest.into()));
    }
    let is_fixed = |piece: &IdentityPiece| matches!(piece, IdentityPiece::Text(_));
    if pieces.iter().all(is_fixed) {
        return Err(wrong(
            "the same for all clients: `request_headers` sets such fields",
        ));
    }
    match distinction(&pieces) {
        None => Ok(pieces),
        Some(clear) => Err(ValueError::of(
            Code::BadField,
            text,
            "writes the same text for several clients",
            "nothing shows where a value ends and the next one begins",
        )
        .help(format!(
            "put a character such as `:` between the values, which is then escaped inside them: `{clear}`"
        ))),
    }
}

/// The template with `:` between two values if the text between them could be part of a value; `None` if the template
/// already separates its values.
fn distinction(pieces: &[IdentityPiece]) -> Option<String> {
    let (mut clear, mut is_open, mut is_unclear) = (String::new(), false, false);
    for piece in pieces {
        match piece {
            IdentityPiece::Text(_) => is_open &= !piece.ends_a_value(),
            _ => {
                if is_open {
                    clear.push(':');
                    is_unclear = true;
                }
                is_open = true;
            }
        }
        clear.push_str(&piece.to_string());
    }
    is_unclear.then_some(clear)
}

fn piece(inside: &str, wrong: impl Fn(&str) -> ValueError) -> Result<IdentityPiece, ValueError> {
    let (kind, rest) = match inside.split_once(':') {
        Some((kind, rest)) => (kind, Some(rest)),
        None => (inside, None),
    };
    match (kind, rest) {
        ("tier", None) => Ok(IdentityPiece::Tier),
        ("group", None) => Ok(IdentityPiece::Group),
        ("customer", None) => Ok(IdentityPiece::Customer),
        ("tls", Some("subject")) => Ok(IdentityPiece::Subject),
        ("tls", Some("fingerprint")) => Ok(IdentityPiece::Fingerprint),
        ("jwt", Some(claim)) if !claim.is_empty() && claim.len() <= 200 => {
            Ok(IdentityPiece::Claim(claim.into()))
        }
        ("jwt", _) => Err(wrong("the name of the claim is missing")),
        ("header" | "cookie" | "query" | "path" | "host" | "method", _) => {
            Err(wrong("any client may write this: it proves nothing"))
        }
        ("ip", _) => Err(wrong(
            "an address proves nothing: servers find it in `X-Forwarded-For`",
        )),
        _ => Err(wrong("nothing of this name is verified")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        let text = |text: &str| IdentityPiece::Text(text.into());
        for (written, pieces) in [
            ("{jwt:sub}", vec![IdentityPiece::Claim("sub".into())]),
            (
                "user {jwt:realm.id}/{tier}",
                vec![
                    text("user "),
                    IdentityPiece::Claim("realm.id".into()),
                    text("/"),
                    IdentityPiece::Tier,
                ],
            ),
            ("{tls:subject}", vec![IdentityPiece::Subject]),
            (
                "a{tier}%-{group}b",
                vec![
                    text("a"),
                    IdentityPiece::Tier,
                    text("%-"),
                    IdentityPiece::Group,
                    text("b"),
                ],
            ),
        ] {
            assert_eq!(identity_value(written).unwrap(), pieces);
        }
        for written in [
            "",
            "text",
            "{jwt:}",
            "{jwt}",
            "{",
            "}",
            "{jwt:sub",
            "{header:x}",
            "{ip}",
            "{tls}",
            "{é}",
            " {tier}",
            "{}",
        ] {
            assert!(identity_value(written).is_err(), "{written}");
        }
        for (written, clear) in [
            ("{jwt:a}{jwt:b}", "`{jwt:a}:{jwt:b}`"),
            ("{jwt:a}x7{tier}", "`{jwt:a}x7:{tier}`"),
            ("{jwt:a}%20{jwt:b}", "`{jwt:a}%20:{jwt:b}`"),
            (
                "{tier}-{jwt:a}{jwt:b}c{group}",
                "`{tier}-{jwt:a}:{jwt:b}c:{group}`",
            ),
        ] {
            let error = identity_value(written).unwrap_err();
            assert!(format!("{error:?}").contains(clear), "{error:?}");
        }
    }

    #[test]
    fn names() {
        assert_eq!(identity_field("X-Consumer").unwrap(), "x-consumer");
        for name in [
            "host",
            "authorization",
            "connection",
            "te",
            "content-length",
            "content-type",
            "via",
            "x-forwarded-for",
            "x_consumer",
            "cookie",
            "x-request-id",
            "a b",
            "transfer-encoding",
        ] {
            assert!(identity_field(name).is_err(), "{name}");
        }
    }
}
