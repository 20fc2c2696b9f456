//! The rules of `[jwt]` for token keys and for the tokens that they sign, applied to keys from files and from URLs
//! alike.

use jsonwebtoken::jwk::{JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, Validation};
use std::time::Duration;

/// The most keys of one source.
pub const MOST_KEYS: usize = 32;

/// One key, and the properties of tokens that it may have signed.
#[derive(Debug)]
pub struct TokenKey {
    /// The name of the key in tokens, if it has one.
    pub id: Option<String>,
    /// The key.
    pub key: DecodingKey,
    /// Algorithms of the key's own family only, so that no algorithm can be confused with another.
    pub validation: Validation,
}

/// The requirements of `[jwt]` for keys and tokens.
#[derive(Debug, Clone)]
pub struct KeyRules {
    /// The algorithms that tokens may be signed with.
    pub algorithms: Vec<Algorithm>,
    /// The allowed difference between clocks.
    pub leeway: Duration,
    /// Must a token state the end of its validity?
    pub require_exp: bool,
    /// The audiences of which a token must name one; `None` allows every audience.
    pub audience: Option<Vec<String>>,
    /// The issuers of which a token must name one; `None` allows every issuer.
    pub issuer: Option<Vec<String>>,
}

impl KeyRules {
    /// A key for the algorithms that it fits; `None` if it fits none.
    #[must_use]
    pub fn key(
        &self,
        id: Option<&str>,
        key: DecodingKey,
        pinned: Option<&str>,
    ) -> Option<TokenKey> {
        let mut algorithms = self.algorithms.clone();
        algorithms.retain(|one| {
            fits(*one, &key) && pinned.is_none_or(|pinned| format!("{one:?}") == pinned)
        });
        let mut validation = Validation::new(*algorithms.first()?);
        validation.leeway = self.leeway.as_secs();
        validation.validate_nbf = true;
        validation.required_spec_claims.clear();
        if self.require_exp {
            validation.required_spec_claims.insert("exp".into());
        }
        // Without `audience` a token may be for any audience.
        validation.validate_aud = self.audience.is_some();
        if let Some(audience) = &self.audience {
            validation.set_audience(audience);
            validation.required_spec_claims.insert("aud".into());
        }
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(issuer);
            validation.required_spec_claims.insert("iss".into());
        }
        validation.algorithms = algorithms;
        Some(TokenKey {
            id: id.map(str::to_owned),
            key,
            validation,
        })
    }

    /// The keys of a JWKS (RFC 7517, section 5) that may sign tokens, in its order. Keys for other uses, and keys that fit no
    /// algorithm, are left out.
    ///
    /// # Errors
    /// If the content is not a JWKS. The words show no part of the content.
    pub fn set(&self, content: &[u8]) -> Result<Vec<TokenKey>, String> {
        // The error of serde may show a part of the key.
        let set: JwkSet = serde_json::from_slice(content)
            .map_err(|error| format!("not a JWKS, as of line {}", error.line()))?;
        let keys = set.keys.iter().filter_map(|jwk| {
            let common = &jwk.common;
            let signs =
                !matches!(&common.public_key_use, Some(other) if *other != PublicKeyUse::Signature);
            let key = DecodingKey::from_jwk(jwk).ok().filter(|_| signs)?;
            let pinned = common.key_algorithm.map(|one| one.to_string());
            self.key(common.key_id.as_deref(), key, pinned.as_deref())
        });
        Ok(keys.collect())
    }

    /// The algorithms as tokens name them.
    #[must_use]
    pub fn spelled(&self) -> Vec<String> {
        let algorithms = self.algorithms.iter();
        algorithms.map(|one| format!("{one:?}")).collect()
    }
}

/// Can this key verify signatures of `algorithm`? A key that is too short cannot.
fn fits(algorithm: Algorithm, key: &DecodingKey) -> bool {
    /// At least 2048 bits.
    const LEAST_RSA: usize = 256;
    let bytes = match key.kind() {
        DecodingKeyKind::SecretOrDer(bytes)
        | DecodingKeyKind::RsaModulusExponent { n: bytes, .. } => bytes.len(),
    };
    let right = match algorithm {
        // A point of the curve: one byte, then both coordinates.
        Algorithm::ES256 => bytes == 65,
        Algorithm::ES384 => bytes == 97,
        _ if key.family() == AlgorithmFamily::Rsa => bytes >= LEAST_RSA,
        _ => true,
    };
    right && algorithm.family() == key.family()
}
