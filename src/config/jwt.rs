//! `[jwt]` as written → whose tokens are believed: keys read from their files, each for algorithms of its own family. No
//! message shows a key.

use super::diagnostic::{Code, Diagnostic};
use super::diff::TokenOutline;
use super::document::{self, Document, Jwt as Written};
use super::files::Files;
use super::source::{At, Source};
use super::value::{quoted, show_span};
use crate::key::Part;
use crate::key::token::{TokenKey, Verifier, is_shared};
use http::{HeaderName, header};
use jsonwebtoken::jwk::{JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, Validation};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// Keys at most: a token that does not say which signed it is tried with each.
const MOST_KEYS: usize = 32;
/// A larger file is none of keys.
const MOST_BYTES: u64 = 1024 * 1024;
/// Longer would be no leeway.
const MOST_LEEWAY: Duration = Duration::from_hours(1);

/// Whose tokens are believed.
#[derive(Debug)]
pub struct Jwt {
    /// What verifies them.
    pub verifier: Arc<Verifier>,
    /// All of it in a form that can be compared.
    pub outline: TokenOutline,
}

/// Reads the keys; `seen` has what was read for it. Nothing where there is no such table, or something about it is wrong.
pub(super) fn read(
    document: &Document,
    source: &Source,
    seen: &mut Files,
    found: &mut Vec<Diagnostic>,
) -> Option<Jwt> {
    let Some(written) = &document.jwt else {
        claims_without(document, found);
        return None;
    };
    let before = errors(found);
    if written.keys.is_absent() && written.jwks.is_absent() {
        found.push(
            Diagnostic::error(Code::MissingKey, "`[jwt]` does not say whose tokens are believed")
                .at(&written.place, "neither `keys` nor `jwks`")
                .help("add `keys = \"issuer.pem\"`, a public key or a shared secret, or `jwks = \"jwks.json\"`"),
        );
    }
    families(written, found);
    if let Some(leeway) = written.leeway.at().filter(|at| at.value > MOST_LEEWAY) {
        found.push(
            Diagnostic::error(Code::BadDuration, "`leeway` in `[jwt]` is out of range")
                .at(&leeway.span, "must be 1h at most"),
        );
    }
    let algorithms = pinned(written);
    if algorithms.is_empty() || written.algorithms.is_bad() || errors(found) > before {
        return None;
    }
    let mut reader = Reader {
        written,
        algorithms,
        keys: Vec::new(),
        digest: Sha256::new(),
        found,
    };
    let pem = written.keys.entries().iter().map(|file| (file, false));
    for (file, is_set) in pem.chain(written.jwks.entries().iter().map(|file| (file, true))) {
        let path = source.beside(file.span.start, &file.value);
        match seen.read(&path, MOST_BYTES) {
            Ok(content) => reader.file(file, &content, is_set),
            Err(error) => reader.found.push(
                Diagnostic::error(
                    Code::Unreadable,
                    format!(
                        "cannot read {}, the keys of `[jwt]`: {error}",
                        quoted(&file.value)
                    ),
                )
                .at(&file.span, "keys are to be there"),
            ),
        }
    }
    let Reader { keys, digest, .. } = reader;
    let header = written
        .header
        .get()
        .cloned()
        .unwrap_or(header::AUTHORIZATION);
    (errors(found) == before).then(|| Jwt {
        outline: TokenOutline {
            facts: facts(written, &header),
            files: shown(&[texts(&written.keys), texts(&written.jwks)].concat()),
            digest: digest.finalize().into(),
        },
        verifier: Arc::new(Verifier::new(header, keys)),
    })
}

fn shown(all: &[String]) -> String {
    match all.is_empty() {
        true => "none".to_owned(),
        false => all.join("+"),
    }
}

/// What the table says but for its keys.
fn facts(written: &Written, header: &HeaderName) -> Vec<(&'static str, String)> {
    let leeway = written.leeway.or(Duration::ZERO);
    let leeway = u64::try_from(leeway.as_micros()).unwrap_or(u64::MAX);
    let algorithms = pinned(written);
    let algorithms = algorithms.iter().map(|one| format!("{one:?}"));
    vec![
        ("algorithms", shown(&algorithms.collect::<Vec<_>>())),
        ("issuer", shown(&texts(&written.issuer))),
        ("audience", shown(&texts(&written.audience))),
        ("leeway", show_span(leeway)),
        ("require_exp", written.require_exp.or(true).to_string()),
        ("header", header.to_string()),
    ]
}

fn errors(found: &[Diagnostic]) -> usize {
    let errors = found
        .iter()
        .filter(|one| one.severity == super::Severity::Error);
    errors.count()
}

/// Secrets and public keys beside each other: what one is for must never be taken for the other.
fn families(written: &Written, found: &mut Vec<Diagnostic>) {
    let entries = written.algorithms.entries();
    let shared = entries.iter().find(|at| is_shared(at.value));
    let public = entries.iter().find(|at| !is_shared(at.value));
    if let (Some(shared), Some(public)) = (shared, public) {
        found.push(
            Diagnostic::error(
                Code::Conflict,
                "`[jwt]` believes tokens signed by a shared secret and by a private key",
            )
            .at(&public.span, "by a private key")
            .and(&shared.span, "by a shared secret")
            .help("choose one kind: a public key is no secret, and must never count as one"),
        );
    }
}

struct Reader<'a> {
    written: &'a Written,
    algorithms: Vec<Algorithm>,
    keys: Vec<TokenKey>,
    digest: Sha256,
    found: &'a mut Vec<Diagnostic>,
}

impl Reader<'_> {
    fn file(&mut self, file: &At<String>, content: &[u8], is_set: bool) {
        self.digest.update((content.len() as u64).to_be_bytes());
        self.digest.update(content);
        let before = self.keys.len();
        let read = match is_set {
            true => self.jwks(content),
            false if self.algorithms.iter().any(|one| is_shared(*one)) => {
                self.secret(file, content)
            }
            false => self.pem(content),
        };
        let why = match read {
            Err(why) => why,
            Ok(()) if self.keys.len() == before => format!(
                "no key for {}, or none that is long enough",
                self.algorithms
                    .iter()
                    .map(|one| format!("{one:?}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            Ok(()) if self.keys.len() > MOST_KEYS => format!("more than {MOST_KEYS} keys"),
            Ok(()) => return,
        };
        let message = format!("{} cannot verify tokens: {why}", quoted(&file.value));
        self.found.push(
            Diagnostic::error(Code::BadJwtKey, message)
                .at(&file.span, "in this file")
                .help(match is_set {
                    true => "a JWKS is JSON: `{ \"keys\": [ ... ] }`, as issuers publish it".to_owned(),
                    false => "public keys are PEM, `-----BEGIN PUBLIC KEY-----`; for HS256 and its like the file is the secret".to_owned(),
                }),
        );
    }

    /// The whole file is one secret; a line's end behind it does not count.
    fn secret(&mut self, file: &At<String>, content: &[u8]) -> Result<(), String> {
        let secret = content.strip_suffix(b"\n").unwrap_or(content);
        let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
        if secret.is_empty() {
            return Err("it is empty".into());
        }
        if secret.starts_with(b"-----BEGIN") {
            return Err("a key in PEM, and the algorithms are for a shared secret: whoever knows a public key could sign".into());
        }
        let longest = |algorithm: &Algorithm| match algorithm {
            Algorithm::HS512 => 64,
            Algorithm::HS384 => 48,
            _ => 32,
        };
        let least = self.algorithms.iter().map(longest).max().unwrap_or(32);
        if secret.len() < least {
            self.found.push(
                Diagnostic::warning(
                    Code::WeakSecret,
                    format!(
                        "the secret in {} is short enough to be guessed",
                        quoted(&file.value)
                    ),
                )
                .at(
                    &file.span,
                    format!(
                        "{} bytes; {least} at least are wanted (RFC 7518)",
                        secret.len()
                    ),
                )
                .help("share a random one: `openssl rand -base64 48`"),
            );
        }
        self.keep(None, DecodingKey::from_secret(secret), None);
        Ok(())
    }

    /// Public keys, one or several behind each other: while keys change both are believed.
    fn pem(&mut self, content: &[u8]) -> Result<(), String> {
        const BEGIN: &str = "-----BEGIN ";
        let text = std::str::from_utf8(content).map_err(|_| "not PEM")?;
        let starts: Vec<usize> = text.match_indices(BEGIN).map(|(at, _)| at).collect();
        if starts.is_empty() {
            return Err("not PEM".into());
        }
        for (index, start) in starts.iter().enumerate() {
            let end = starts.get(index + 1).copied().unwrap_or(text.len());
            let block = text[*start..end].trim();
            let label = block[BEGIN.len()..]
                .split("-----")
                .next()
                .unwrap_or_default();
            if label.contains("PRIVATE") {
                return Err(
                    "a private key, which only the issuer should have; its public one is needed"
                        .into(),
                );
            }
            let block = block.as_bytes();
            let key = DecodingKey::from_rsa_pem(block)
                .or_else(|_| DecodingKey::from_ec_pem(block))
                .or_else(|_| DecodingKey::from_ed_pem(block))
                .map_err(|_| format!("its block {} ({label}) is no public key", index + 1))?;
            self.keep(None, key, None);
        }
        Ok(())
    }

    /// Keys as issuers publish them. Those that are for something else are left alone.
    fn jwks(&mut self, content: &[u8]) -> Result<(), String> {
        // What serde says may show what stands there.
        let set: JwkSet = serde_json::from_slice(content)
            .map_err(|error| format!("not a JWKS, as of line {}", error.line()))?;
        for jwk in &set.keys {
            let common = &jwk.common;
            let signs =
                !matches!(&common.public_key_use, Some(other) if *other != PublicKeyUse::Signature);
            if let (true, Ok(key)) = (signs, DecodingKey::from_jwk(jwk)) {
                let pinned = common.key_algorithm.map(|one| one.to_string());
                self.keep(common.key_id.clone(), key, pinned.as_deref());
            }
        }
        Ok(())
    }

    /// Keeps a key for those of the algorithms that it is for, if any.
    fn keep(&mut self, id: Option<String>, key: DecodingKey, pinned: Option<&str>) {
        let mut algorithms = self.algorithms.clone();
        algorithms.retain(|one| {
            fits(*one, &key) && pinned.is_none_or(|pinned| format!("{one:?}") == pinned)
        });
        let Some(first) = algorithms.first() else {
            return;
        };
        let mut validation = Validation::new(*first);
        validation.leeway = self.written.leeway.get().map_or(0, Duration::as_secs);
        validation.validate_nbf = true;
        validation.required_spec_claims.clear();
        if self.written.require_exp.or(true) {
            validation.required_spec_claims.insert("exp".into());
        }
        // Without a word here a token may be for anybody.
        validation.validate_aud = !self.written.audience.is_absent();
        if validation.validate_aud {
            validation.set_audience(&texts(&self.written.audience));
            validation.required_spec_claims.insert("aud".into());
        }
        if !self.written.issuer.is_absent() {
            validation.set_issuer(&texts(&self.written.issuer));
            validation.required_spec_claims.insert("iss".into());
        }
        validation.algorithms = algorithms;
        self.keys.push(TokenKey {
            id,
            key,
            validation,
        });
    }
}

fn pinned(written: &Written) -> Vec<Algorithm> {
    written
        .algorithms
        .entries()
        .iter()
        .map(|at| at.value)
        .collect()
}

/// Could anything that is signed so be verified with this key? Keys too short for that verify nothing.
fn fits(algorithm: Algorithm, key: &DecodingKey) -> bool {
    /// 2048 bits.
    const LEAST_RSA: usize = 256;
    let bytes = match key.kind() {
        DecodingKeyKind::SecretOrDer(bytes)
        | DecodingKeyKind::RsaModulusExponent { n: bytes, .. } => bytes.len(),
    };
    let right = match algorithm {
        // A point of the curve, both coordinates behind one byte.
        Algorithm::ES256 => bytes == 65,
        Algorithm::ES384 => bytes == 97,
        _ if key.family() == AlgorithmFamily::Rsa => bytes >= LEAST_RSA,
        _ => true,
    };
    right && algorithm.family() == key.family()
}

fn texts(list: &document::List<String>) -> Vec<String> {
    list.entries().iter().map(|at| at.value.clone()).collect()
}

/// A claim is only one when somebody has verified it.
fn claims_without(document: &Document, found: &mut Vec<Diagnostic>) {
    if document.may_define("jwt", "jwt") {
        return;
    }
    let limits = document.limits.iter().flat_map(|limit| {
        let parts = limit.by.entries().iter();
        parts.map(|at| {
            (
                format!("limit {}", quoted(&limit.name.value)),
                at.value.as_ref(),
                &at.span,
            )
        })
    });
    let groups = document.groups.iter().filter_map(|group| {
        let at = group.by.at()?;
        Some((
            format!("group {}", quoted(&group.name.value)),
            Some(&at.value),
            &at.span,
        ))
    });
    for (user, part, span) in limits.chain(groups) {
        let Some(Part::Jwt { claim, .. }) = part else {
            continue;
        };
        found.push(
            Diagnostic::error(
                Code::UnverifiedClaim,
                format!("{user} asks for the claim {}, which nobody verifies", quoted(claim)),
            )
            .at(span, "anybody can claim anything")
            .help("say whose tokens are believed\n[jwt]\nkeys = \"issuer.pem\"\nalgorithms = [\"RS256\"]"),
        );
    }
}
