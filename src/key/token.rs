//! JSON Web Tokens: whose are believed, and what a verified one claims. A claim that is not verified is none.

use super::Identity;
use http::{HeaderMap, HeaderName, header};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;

/// A longer token is none.
const LONGEST: usize = 16 * 1024;

/// Whose tokens are believed.
pub struct Verifier {
    header: HeaderName,
    keys: Vec<TokenKey>,
}

/// One key, and what tokens it may have signed.
#[derive(Debug)]
pub struct TokenKey {
    /// What tokens call it, if they do.
    pub id: Option<String>,
    /// The key.
    pub key: DecodingKey,
    /// Only algorithms of the key's own family: none of them can be taken for another.
    pub validation: Validation,
}

/// What was wrong with a token, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoToken {
    /// There is none.
    Absent,
    /// It is no token.
    Malformed,
    /// It is signed in a way, or by a key, that is not believed.
    Unbelieved,
    /// It says no end of its time, and has to.
    Endless,
    /// Its time is over.
    Expired,
    /// Its time has not come.
    TooEarly,
    /// It is for somebody else, or from somebody else.
    Foreign,
}

impl NoToken {
    /// In a sentence: "the request's token is ...".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Malformed => "no token",
            Self::Unbelieved => "not signed by a key that is believed",
            Self::Endless => "without an end (`exp`), which `[jwt] require_exp` demands",
            Self::Expired => "expired",
            Self::TooEarly => "not valid yet",
            Self::Foreign => "from another issuer, or for another audience",
        }
    }
}

/// No key is shown.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("header", &self.header)
            .field("keys", &self.keys.len())
            .finish()
    }
}

impl Verifier {
    /// Believes tokens in this field that one of `keys` has signed.
    #[must_use]
    pub fn new(header: HeaderName, keys: Vec<TokenKey>) -> Self {
        Self { header, keys }
    }

    /// What the token in `fields` claims.
    ///
    /// # Errors
    /// When there is none that is believed.
    pub fn claims(&self, fields: &HeaderMap) -> Result<Map<String, Value>, NoToken> {
        let token = self.token(fields)?;
        let head = decode_header(token).map_err(|_| NoToken::Malformed)?;
        if head.crit.is_some() {
            // It demands what nobody here understands (RFC 7515, section 4.1.11).
            return Err(NoToken::Malformed);
        }
        let mut why = NoToken::Unbelieved;
        for one in &self.keys {
            let named = match (&head.kid, &one.id) {
                (Some(asked), Some(id)) => asked == id,
                _ => true,
            };
            if !named || !one.validation.algorithms.contains(&head.alg) {
                continue;
            }
            match decode::<Map<String, Value>>(token, &one.key, &one.validation) {
                Ok(token) => return Ok(token.claims),
                Err(error) => why = wrong(&error).unwrap_or(why),
            }
        }
        Err(why)
    }

    /// The token itself: behind `Bearer` in `Authorization`, with or without it in other fields. Of two nobody knows
    /// which is meant.
    fn token<'f>(&self, fields: &'f HeaderMap) -> Result<&'f [u8], NoToken> {
        const SCHEME: &[u8] = b"bearer ";
        let mut values = fields.get_all(&self.header).iter();
        let Some(value) = values.next() else {
            return Err(NoToken::Absent);
        };
        if values.any(|other| other != value) {
            return Err(NoToken::Absent);
        }
        let value = value.as_bytes().trim_ascii();
        let (scheme, rest) = value.split_at(SCHEME.len().min(value.len()));
        let token = match scheme.eq_ignore_ascii_case(SCHEME) {
            true => rest.trim_ascii(),
            false if self.header == header::AUTHORIZATION => return Err(NoToken::Absent),
            false => value,
        };
        match token.len() {
            0 => Err(NoToken::Absent),
            1..=LONGEST => Ok(token),
            _ => Err(NoToken::Malformed),
        }
    }
}

/// What is wrong with a token whose signature is right; nothing where that is wrong.
fn wrong(error: &jsonwebtoken::errors::Error) -> Option<NoToken> {
    use jsonwebtoken::errors::ErrorKind;
    Some(match error.kind() {
        ErrorKind::ExpiredSignature => NoToken::Expired,
        ErrorKind::ImmatureSignature => NoToken::TooEarly,
        ErrorKind::MissingRequiredClaim(claim) if claim == "exp" => NoToken::Endless,
        ErrorKind::InvalidIssuer
        | ErrorKind::InvalidAudience
        | ErrorKind::MissingRequiredClaim(_) => NoToken::Foreign,
        ErrorKind::InvalidClaimFormat(_) | ErrorKind::Json(_) => NoToken::Malformed,
        _ => return None,
    })
}

/// Is it one whose keys are shared secrets?
#[must_use]
pub fn is_shared(algorithm: Algorithm) -> bool {
    matches!(
        algorithm,
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512
    )
}

/// The token of one request: verified when a claim of it is first asked for, and once.
pub struct Token<'a> {
    verifier: Option<&'a Verifier>,
    fields: &'a HeaderMap,
    claims: OnceCell<Result<Map<String, Value>, NoToken>>,
}

impl<'a> Token<'a> {
    /// The token in `fields`, if anybody's are believed.
    #[must_use]
    pub fn new(verifier: Option<&'a Verifier>, fields: &'a HeaderMap) -> Self {
        Self {
            verifier,
            fields,
            claims: OnceCell::new(),
        }
    }

    /// Why it has no claims, if somebody has asked for one.
    pub fn why_not(&self) -> Option<NoToken> {
        self.claims.get()?.as_ref().err().copied()
    }

    fn claims(&self) -> Option<&Map<String, Value>> {
        let verifier = self.verifier?;
        let claims = self.claims.get_or_init(|| verifier.claims(self.fields));
        claims.as_ref().ok()
    }
}

/// No claim is shown.
impl fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("verifier", &self.verifier)
            .finish_non_exhaustive()
    }
}

impl Identity for Token<'_> {
    fn is_ambiguous(&self) -> bool {
        let Some(verifier) = self.verifier else {
            return false;
        };
        let mut lines = self.fields.get_all(&verifier.header).iter();
        let first = lines.next();
        lines.any(|line| Some(line) != first)
    }

    fn claim(&self, name: &str) -> Option<Cow<'_, str>> {
        match find(self.claims()?, name)? {
            Value::String(text) if !text.is_empty() => Some(Cow::Borrowed(text)),
            Value::Number(number) => spelled(number).map(Cow::Owned),
            _ => None,
        }
    }

    fn listed(&self, name: &str, each: &mut dyn FnMut(&str)) {
        match self.claims().and_then(|claims| find(claims, name)) {
            Some(Value::Array(entries)) => {
                for entry in entries {
                    match entry {
                        Value::String(text) => each(text),
                        Value::Number(number) => spelled(number).iter().for_each(|text| each(text)),
                        _ => {}
                    }
                }
            }
            // No other text is split: somebody may have called themselves "gold digger".
            Some(Value::String(text)) if SCOPES.contains(&name) => {
                text.split_ascii_whitespace().for_each(each);
            }
            _ => {}
        }
    }
}

/// A number as it is written; nothing for one so large that others have become the same when it was read.
fn spelled(number: &Number) -> Option<String> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = number.is_u64() || number.is_i64();
    let small = || number.as_f64().is_some_and(|value| value.abs() < EXACT);
    (whole || small()).then(|| number.to_string())
}

/// Claims that are words with blanks between them (RFC 8693, section 4.2; the second is what some issuers call it).
const SCOPES: [&str; 2] = ["scope", "scp"];

/// The claim of this whole name, else the one that its dots lead to.
fn find<'v>(claims: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    claims.get(name).or_else(|| {
        let mut steps = name.split('.');
        let first = claims.get(steps.next()?)?;
        steps.try_fold(first, |value, step| value.as_object()?.get(step))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::json;

    const SECRET: &[u8] = b"a shared secret of more than 32 bytes";

    fn verifier(header: HeaderName, change: impl FnOnce(&mut Validation)) -> Verifier {
        let mut validation = Validation::new(Algorithm::HS256);
        validation.required_spec_claims.clear();
        validation.validate_nbf = true;
        validation.validate_aud = false;
        validation.leeway = 0;
        change(&mut validation);
        let key = TokenKey {
            id: None,
            key: DecodingKey::from_secret(SECRET),
            validation,
        };
        Verifier::new(header, vec![key])
    }

    fn signed(algorithm: Algorithm, secret: &[u8], claims: &Value) -> String {
        let key = EncodingKey::from_secret(secret);
        encode(&Header::new(algorithm), claims, &key).unwrap()
    }

    fn bearer(token: &str) -> HeaderMap {
        let mut fields = HeaderMap::new();
        let value = HeaderValue::from_str(&format!("bearer  {token}")).unwrap();
        fields.insert(header::AUTHORIZATION, value);
        fields
    }

    #[test]
    fn only_what_is_signed_as_it_must_be_claims_anything() {
        let verifier = verifier(header::AUTHORIZATION, |_| ());
        let claims = json!({ "sub": "ann" });
        let good = signed(Algorithm::HS256, SECRET, &claims);
        assert!(verifier.claims(&bearer(&good)).is_ok());
        let (head, rest) = good.split_once('.').unwrap();
        let (body, signature) = rest.split_once('.').unwrap();
        let other = signed(
            Algorithm::HS256,
            b"another secret",
            &json!({ "sub": "eve" }),
        );
        let none = "eyJhbGciOiJub25lIn0";
        let stolen = other.split('.').nth(1).unwrap();
        for (token, why) in [
            (other.clone(), NoToken::Unbelieved),
            (
                signed(Algorithm::HS384, SECRET, &claims),
                NoToken::Unbelieved,
            ),
            (format!("{head}.{stolen}.{signature}"), NoToken::Unbelieved),
            (format!("{head}.{body}."), NoToken::Unbelieved),
            (format!("{none}.{body}."), NoToken::Malformed),
            (format!("{none}.{body}.{signature}"), NoToken::Malformed),
            (format!("{head}.{body}"), NoToken::Malformed),
            ("x".repeat(LONGEST + 1), NoToken::Malformed),
            (String::new(), NoToken::Absent),
        ] {
            assert_eq!(verifier.claims(&bearer(&token)), Err(why), "{token:.80}");
        }
        let mut twice = bearer(&good);
        twice.append(header::AUTHORIZATION, twice[header::AUTHORIZATION].clone());
        assert!(verifier.claims(&twice).is_ok());
        assert!(!Token::new(Some(&verifier), &twice).is_ambiguous());
        twice.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        assert_eq!(verifier.claims(&twice), Err(NoToken::Absent));
        assert!(Token::new(Some(&verifier), &twice).is_ambiguous());
        let mut basic = HeaderMap::new();
        let value = HeaderValue::from_str(&format!("Basic {good}")).unwrap();
        basic.insert(header::AUTHORIZATION, value);
        assert_eq!(verifier.claims(&basic), Err(NoToken::Absent));
    }

    #[test]
    fn time_issuer_and_audience_are_held_against_the_file() {
        let now = jsonwebtoken::get_current_timestamp();
        let verifier = verifier(HeaderName::from_static("x-token"), |validation| {
            validation.set_issuer(&["https://id.example.com"]);
            validation.set_audience(&["api"]);
            validation.validate_aud = true;
            validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        });
        let whole = json!({ "iss": "https://id.example.com", "aud": ["web", "api"], "exp": now + 60, "nbf": now - 60 });
        let told = |change: Value| {
            let mut claims = whole.as_object().unwrap().clone();
            for (name, value) in change.as_object().unwrap() {
                claims.insert(name.clone(), value.clone());
            }
            let mut fields = HeaderMap::new();
            let token = signed(Algorithm::HS256, SECRET, &claims.into());
            let value = HeaderValue::from_str(&token).unwrap();
            fields.insert("x-token", value);
            verifier.claims(&fields).map(|_| ())
        };
        assert_eq!(told(json!({})), Ok(()));
        for (change, why) in [
            (json!({ "exp": now - 2 }), NoToken::Expired),
            (json!({ "exp": "soon" }), NoToken::Endless),
            (json!({ "nbf": now + 60 }), NoToken::TooEarly),
            (
                json!({ "iss": "https://evil.example.com" }),
                NoToken::Foreign,
            ),
            (json!({ "iss": null }), NoToken::Foreign),
            (json!({ "aud": "web" }), NoToken::Foreign),
            (json!({ "aud": null }), NoToken::Foreign),
            (json!({ "exp": null }), NoToken::Endless),
        ] {
            assert_eq!(told(change.clone()), Err(why), "{change}");
        }
    }

    #[test]
    fn lists_and_scopes_have_entries_and_other_texts_have_none() {
        let verifier = verifier(header::AUTHORIZATION, |_| ());
        let claims = json!({
            "roles": ["gold", 7, "", ["inner"], null, { "a": 1 }, true], "aud": "web api", "none": [],
            "realm": { "roles": ["a b"] }, "scope": "read  write", "scp": ["x"], "name": "gold digger",
            "inner": { "scope": "read write" },
        });
        let fields = bearer(&signed(Algorithm::HS256, SECRET, &claims));
        let token = Token::new(Some(&verifier), &fields);
        for (name, entries) in [
            ("roles", &["gold", "7", ""][..]),
            ("realm.roles", &["a b"]),
            ("scope", &["read", "write"]),
            ("scp", &["x"]),
            ("none", &[]),
            ("aud", &[]),
            ("name", &[]),
            ("inner.scope", &[]),
            ("nobody", &[]),
        ] {
            let mut found = Vec::new();
            token.listed(name, &mut |entry| found.push(entry.to_owned()));
            assert_eq!(found, entries, "{name}");
        }
        assert_eq!(token.claim("roles"), None, "a list is no key");
        assert_eq!(token.claim("scope").as_deref(), Some("read  write"));
    }

    #[test]
    fn claims_are_texts_and_numbers_and_dots_lead_into_tables() {
        let verifier = verifier(header::AUTHORIZATION, |_| ());
        let claims = json!({
            "sub": "ann", "n": 7, "empty": "", "yes": true, "list": ["a"], "none": null,
            "realm": { "tenant": { "id": "t1" } }, "a.b": "whole", "a": { "b": "inner" },
            "https://example.com/tenant": "t2",
        });
        let fields = bearer(&signed(Algorithm::HS256, SECRET, &claims));
        let token = Token::new(Some(&verifier), &fields);
        for (name, value) in [
            ("sub", Some("ann")),
            ("n", Some("7")),
            ("realm.tenant.id", Some("t1")),
            ("a.b", Some("whole")),
            ("https://example.com/tenant", Some("t2")),
            ("empty", None),
            ("yes", None),
            ("list", None),
            ("none", None),
            ("realm.tenant", None),
            ("realm.tenant.id.x", None),
            ("nobody", None),
        ] {
            assert_eq!(token.claim(name).as_deref(), value, "{name}");
        }
        assert_eq!(Token::new(None, &fields).claim("sub"), None);
        Token::new(None, &fields).listed("list", &mut |entry| panic!("{entry}"));
        let nothing = HeaderMap::new();
        let token = Token::new(Some(&verifier), &nothing);
        assert_eq!((token.why_not(), token.claim("sub")), (None, None));
        assert_eq!(token.why_not(), Some(NoToken::Absent));
        assert!(!format!("{verifier:?} {token:?}").contains("secret"));
    }
}
