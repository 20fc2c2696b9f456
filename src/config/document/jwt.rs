//! `[jwt]` as written. Keys are only pointed at here; [`super::super::jwt`] fetches them.

use super::super::source::Span;
use super::super::value::{Wrong, field};
use super::fields::{Fields, Zero};
use super::{Given, List};
use http::HeaderName;
use jsonwebtoken::Algorithm;
use std::time::Duration;

/// The algorithms that tokens may be signed with.
pub(in crate::config) const ALGORITHMS: &[&str] = &[
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256",
    "ES384", "EdDSA",
];

/// `[jwt]`.
#[derive(Debug)]
pub(in crate::config) struct Jwt {
    pub(in crate::config) place: Span,
    pub(in crate::config) keys: List<String>,
    pub(in crate::config) jwks: List<String>,
    pub(in crate::config) algorithms: List<Algorithm>,
    pub(in crate::config) issuer: List<String>,
    pub(in crate::config) audience: List<String>,
    pub(in crate::config) leeway: Given<Duration>,
    pub(in crate::config) require_exp: Given<bool>,
    pub(in crate::config) header: Given<HeaderName>,
}

pub(super) fn read(mut fields: Fields<'_>) -> Jwt {
    let text = |text: &str| Ok(text.to_owned());
    Jwt {
        place: fields.place(),
        keys: fields.texts("keys", text),
        jwks: fields.texts("jwks", text),
        algorithms: fields.texts("algorithms", algorithm),
        issuer: fields.texts("issuer", text),
        audience: fields.texts("audience", text),
        leeway: fields.time("leeway", Zero::Allowed),
        require_exp: fields.flag("require_exp"),
        header: fields.text("header", field),
    }
}

fn algorithm(text: &str) -> Result<Algorithm, Wrong> {
    let known = ALGORITHMS.contains(&text).then(|| text.parse().ok());
    known
        .flatten()
        .ok_or_else(|| Wrong::choice("algorithms", text, ALGORITHMS))
}
