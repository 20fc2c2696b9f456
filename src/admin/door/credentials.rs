//! The token that a request shows: `Bearer`, or `Basic` with any user and the token as its password, so that a browser
//! reads without a script and without cookies.

use super::rules::TokenDigest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;

/// The longest field that is read.
const LONGEST: usize = 4 * 1024;

/// The token of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShownToken {
    /// Nothing.
    Absent,
    /// A token that no page of another site can make a browser send.
    Bearer(TokenDigest),
    /// A token that a browser sends by itself.
    Basic(TokenDigest),
    /// Something that is no token.
    Unreadable,
}

impl ShownToken {
    /// The credential of a request with these fields.
    pub(super) fn of(fields: &HeaderMap) -> Self {
        let mut all = fields.get_all(AUTHORIZATION).iter();
        let (field, more) = (all.next(), all.next());
        let Some(field) = field else {
            return Self::Absent;
        };
        let text = field.to_str().ok().filter(|text| text.len() <= LONGEST);
        let (Some(text), None) = (text, more) else {
            return Self::Unreadable;
        };
        let Some((scheme, value)) = text.trim().split_once(' ') else {
            return Self::Unreadable;
        };
        let value = value.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return Self::Bearer(TokenDigest::of(value.as_bytes()));
        }
        let is_basic = scheme.eq_ignore_ascii_case("basic");
        let pair = is_basic.then(|| STANDARD.decode(value).ok()).flatten();
        let password = pair.as_deref().and_then(|pair| {
            let colon = pair.iter().position(|byte| *byte == b':')?;
            Some(&pair[colon + 1..])
        });
        password.map_or(Self::Unreadable, |password| {
            Self::Basic(TokenDigest::of(password))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn shown(fields: &[&'static str]) -> ShownToken {
        let mut all = HeaderMap::new();
        for field in fields {
            all.append(AUTHORIZATION, HeaderValue::from_static(field));
        }
        ShownToken::of(&all)
    }

    #[test]
    fn one_token_in_either_form() {
        let token = TokenDigest::of(b"a:b");
        assert_eq!(shown(&["Bearer a:b"]), ShownToken::Bearer(token));
        assert_eq!(shown(&["bearer  a:b "]), ShownToken::Bearer(token));
        assert_eq!(shown(&["Basic dTphOmI="]), ShownToken::Basic(token));
        assert_eq!(shown(&[]), ShownToken::Absent);
        for odd in ["Basic", "Basic !", "Basic dTpi?", "Digest a", ""] {
            assert_eq!(shown(&[odd]), ShownToken::Unreadable, "{odd}");
        }
        let twice = ["Bearer a:b", "Bearer a:b"];
        assert_eq!(shown(&twice), ShownToken::Unreadable);
    }
}
