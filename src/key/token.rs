//! JSON Web Tokens: the trusted tokens, and the claims of a verified one. A claim without verification counts as none.

use super::key_rules::TokenKey;
use super::key_set::KeySet;
use super::{Identity, TokenDoubt, credential};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName, header};
use jsonwebtoken::{Algorithm, Header, decode, decode_header};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// Longest token; a longer one is not read.
const LONGEST: usize = 16 * 1024;

/// Most keys that one token is tried with: a forged token costs as many signature checks.
pub const MOST_TRIED: usize = 4;

/// The issuers and keys whose tokens are trusted.
pub struct Verifier {
    header: HeaderName,
    keys: Vec<TokenKey>,
    /// Keys that issuers publish.
    sets: Vec<Arc<KeySet>>,
}

/// The output shows no key.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("header", &self.header)
            .field("keys", &self.keys.len())
            .field("sets", &self.sets.len())
            .finish()
    }
}

impl Verifier {
    /// Trusts tokens in this field that one of `keys` has signed, or one of the keys in `sets`.
    #[must_use]
    pub fn new(header: HeaderName, keys: Vec<TokenKey>, sets: Vec<Arc<KeySet>>) -> Self {
        Self { header, keys, sets }
    }

    /// The claims of the token in `fields`.
    ///
    /// # Errors
    /// The reason, if there is no trusted token.
    pub fn claims(&self, fields: &HeaderMap) -> Result<Map<String, Value>, TokenDoubt> {
        let token = self.token(fields)?;
        let claims = self.verified(token);
        let is_spelled = || token.iter().copied().all(is_of_a_token);
        claims.map_err(|why| {
            if is_spelled() {
                why
            } else {
                TokenDoubt::Misspelt
            }
        })
    }

    fn verified(&self, token: &[u8]) -> Result<Map<String, Value>, TokenDoubt> {
        let head = decode_header(token).map_err(|_| unread_head(token))?;
        if head.crit.is_some() {
            // The token requires an extension that this verifier does not understand (RFC 7515, section 4.1.11).
            return Err(TokenDoubt::Malformed);
        }
        if self.sets.is_empty() {
            return tried(token, &head, &[&self.keys]);
        }
        self.verified_by_sets(token, &head)
    }

    /// Verifies a token by the keys of the file and those that issuers publish.
    fn verified_by_sets(
        &self,
        token: &[u8],
        head: &Header,
    ) -> Result<Map<String, Value>, TokenDoubt> {
        let read: Vec<_> = self.sets.iter().map(|set| set.keys()).collect();
        let published = read
            .iter()
            .filter_map(|keys| Some(keys.as_ref()?.as_slice()));
        let all: Vec<&[TokenKey]> = std::iter::once(&self.keys[..]).chain(published).collect();
        let doubt = match tried(token, head, &all) {
            Err(why @ (TokenDoubt::Untrusted | TokenDoubt::Algorithm)) => why,
            decided => return decided,
        };
        let is_named = |key: &TokenKey| head.kid.is_some() && key.id == head.kid;
        if all.iter().copied().flatten().any(is_named) {
            return Err(doubt);
        }
        let mut unread = self
            .sets
            .iter()
            .zip(&read)
            .filter(|(_, keys)| keys.is_none());
        if unread.any(|(set, _)| set.takes(head.alg)) {
            return Err(TokenDoubt::KeysUnread);
        }
        // The issuer may have a new key.
        self.sets.iter().for_each(|set| set.want());
        Err(doubt)
    }

    /// The token itself: after `Bearer` in `Authorization`, with or without `Bearer` in other fields. A token under
    /// another scheme is not read, and does not count as absent: servers may read it. If two tokens differ, it is
    /// unknown which one counts.
    fn token<'f>(&self, fields: &'f HeaderMap) -> Result<&'f [u8], TokenDoubt> {
        let mut values = fields.get_all(&self.header).iter();
        let Some(value) = values.next() else {
            return Err(TokenDoubt::Absent);
        };
        if values.any(|other| other != value) {
            return Err(TokenDoubt::Absent);
        }
        let value = value.as_bytes();
        let token = match credential::bearer(value) {
            Some(token) => token,
            None if self.header != header::AUTHORIZATION => credential::trim(value),
            None if credential::may_be_bearer(value) || credential::may_be_token(value) => {
                return Err(TokenDoubt::Misspelt);
            }
            None => return Err(TokenDoubt::Absent),
        };
        match token.len() {
            0 => Err(TokenDoubt::Absent),
            1..=LONGEST => Ok(token),
            _ => Err(TokenDoubt::Malformed),
        }
    }
}

/// Verifies a token by the keys that may have signed it.
fn tried(
    token: &[u8],
    head: &Header,
    keys: &[&[TokenKey]],
) -> Result<Map<String, Value>, TokenDoubt> {
    let mut why = TokenDoubt::Untrusted;
    for one in candidates(keys, head) {
        match decode::<Map<String, Value>>(token, &one.key, &one.validation) {
            Ok(token) => return Ok(token.claims),
            Err(error) => why = wrong(&error).unwrap_or(why),
        }
    }
    let takes = |key: &TokenKey| key.validation.algorithms.contains(&head.alg);
    if why == TokenDoubt::Untrusted && !keys.iter().copied().flatten().any(takes) {
        why = TokenDoubt::Algorithm;
    }
    Err(why)
}

/// The fault of a token whose head is not accepted: it names an algorithm without a verifier, such as `none`, or is
/// malformed.
#[cold]
fn unread_head(token: &[u8]) -> TokenDoubt {
    let mut parts = token.split(|byte| *byte == b'.');
    let head = parts.next().filter(|_| parts.count() == 2);
    let head = head.and_then(|head| URL_SAFE_NO_PAD.decode(head).ok());
    let head = head.and_then(|head| serde_json::from_slice::<Map<String, Value>>(&head).ok());
    if head.is_some_and(|head| head.get("alg").is_some_and(Value::is_string)) {
        TokenDoubt::Algorithm
    } else {
        TokenDoubt::Malformed
    }
}

/// The keys that may have signed a token with this head: the keys with the name in the head, or, if no key has that
/// name, the nameless keys. A head without a name may mean any key. Nameless keys are then tried first.
fn candidates<'k>(
    keys: &'k [&'k [TokenKey]],
    head: &'k Header,
) -> impl Iterator<Item = &'k TokenKey> {
    let all = || keys.iter().copied().flatten();
    let is_named = |key: &TokenKey| head.kid.is_some() && key.id == head.kid;
    let by_name = all().any(is_named);
    let is_first = move |key: &&TokenKey| {
        if by_name {
            is_named(key)
        } else {
            key.id.is_none()
        }
    };
    let first = all().filter(is_first);
    let then = all().filter(|key| head.kid.is_none() && key.id.is_some());
    first
        .chain(then)
        .filter(|key| key.validation.algorithms.contains(&head.alg))
        .take(MOST_TRIED)
}

/// Is the byte allowed in a token (RFC 7515, section 7.1)?
fn is_of_a_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// The fault of a token with a correct signature; `None` if the signature is wrong.
fn wrong(error: &jsonwebtoken::errors::Error) -> Option<TokenDoubt> {
    use jsonwebtoken::errors::ErrorKind;
    Some(match error.kind() {
        ErrorKind::ExpiredSignature => TokenDoubt::Expired,
        ErrorKind::ImmatureSignature => TokenDoubt::TooEarly,
        ErrorKind::MissingRequiredClaim(claim) if claim == "exp" => TokenDoubt::Endless,
        ErrorKind::InvalidIssuer
        | ErrorKind::InvalidAudience
        | ErrorKind::MissingRequiredClaim(_) => TokenDoubt::Foreign,
        ErrorKind::InvalidClaimFormat(_) | ErrorKind::Json(_) => TokenDoubt::ClaimForm,
        _ => return None,
    })
}

/// Is this an algorithm whose keys are shared secrets?
#[must_use]
pub fn is_shared(algorithm: Algorithm) -> bool {
    matches!(
        algorithm,
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512
    )
}

/// The token of one request, verified once, when one of its claims is first needed.
pub struct Token<'a> {
    verifier: Option<&'a Verifier>,
    fields: &'a HeaderMap,
    claims: OnceCell<TokenReading>,
}

/// The result of a token's verification: kept, so that a request's token is verified once. The output shows no claim.
#[derive(Clone)]
pub struct TokenReading(Rc<Result<Map<String, Value>, TokenDoubt>>);

impl fmt::Debug for TokenReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenReading").finish_non_exhaustive()
    }
}

impl<'a> Token<'a> {
    /// The token in `fields`, if the gateway verifies tokens at all.
    #[must_use]
    pub fn new(verifier: Option<&'a Verifier>, fields: &'a HeaderMap) -> Self {
        Self {
            verifier,
            fields,
            claims: OnceCell::new(),
        }
    }

    /// No token, in the same fields.
    #[must_use]
    pub fn unread(&self) -> Self {
        Self::new(None, self.fields)
    }

    /// The same token, with the result of an earlier verification.
    #[must_use]
    pub fn knowing(self, reading: Option<TokenReading>) -> Self {
        Self {
            claims: reading.map_or_else(OnceCell::new, OnceCell::from),
            ..self
        }
    }

    /// The result of its verification, if a claim was needed.
    #[must_use]
    pub fn reading(&self) -> Option<TokenReading> {
        self.claims.get().cloned()
    }

    /// Is there a token whose signature would have to be verified?
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.verifier
            .is_some_and(|verifier| verifier.token(self.fields).is_ok())
    }

    /// The reason why the token has no claims, if a claim was needed.
    pub fn why_not(&self) -> Option<TokenDoubt> {
        self.claims.get()?.0.as_ref().as_ref().err().copied()
    }

    fn claims(&self) -> Option<&Map<String, Value>> {
        let verifier = self.verifier?;
        let read = || TokenReading(Rc::new(verifier.claims(self.fields)));
        self.claims.get_or_init(read).0.as_ref().as_ref().ok()
    }
}

/// The output shows no claim.
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

    fn doubt(&self) -> Option<TokenDoubt> {
        self.why_not().filter(|why| *why != TokenDoubt::Absent)
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
            // No other text is split: a client may have the name "gold digger".
            Some(Value::String(text)) if SCOPES.contains(&name) => {
                text.split_ascii_whitespace().for_each(each);
            }
            _ => {}
        }
    }
}

/// A number as written. `None` for a number so large that different texts become equal when read.
fn spelled(number: &Number) -> Option<String> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = number.is_u64() || number.is_i64();
    let small = || number.as_f64().is_some_and(|value| value.abs() < EXACT);
    (whole || small()).then(|| number.to_string())
}

/// Claims that consist of words with blanks between them (RFC 8693, section 4.2; the second is some issuers' name for
/// it).
const SCOPES: [&str; 2] = ["scope", "scp"];

/// The claim of this whole name, else the claim at the end of its dotted path.
fn find<'v>(claims: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    claims.get(name).or_else(|| {
        let mut steps = name.split('.');
        let first = claims.get(steps.next()?)?;
        steps.try_fold(first, |value, step| value.as_object()?.get(step))
    })
}

#[cfg(test)]
mod tests;
