//! `[jwt]` as written → whose tokens are believed: keys read from their files, each for algorithms of its own family. No
//! message shows a key.

mod claims;

use super::diagnostic::{Code, Diagnostic};
use super::document::{self, Document, Jwt as Written, KeyFile};
use super::files::Files;
use super::outline::TokenOutline;
use super::source::{At, Source};
use super::value::quoted;
use crate::key::token::{MOST_TRIED, TokenKey, Verifier, is_shared};
use jsonwebtoken::jwk::{JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, Validation};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// Keys at most.
const MOST_KEYS: usize = 32;
/// A larger file is none of keys.
const MOST_BYTES: u64 = 1024 * 1024;
/// Longer would be no leeway.
const MOST_LEEWAY: Duration = Duration::from_hours(1);

/// Whose tokens are believed.
#[derive(Debug)]
pub struct TokenRules {
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
) -> Option<TokenRules> {
    let Some(written) = &document.jwt else {
        claims::unverified(document, found);
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
    let mut reader = KeyReader {
        written,
        algorithms,
        keys: Vec::new(),
        digest: Sha256::new(),
        found,
    };
    let own = written.keys.entries().iter();
    let own = own.map(|at| (&at.value.file, KeySource::Own(at.value.kid.as_deref())));
    let sets = written
        .jwks
        .entries()
        .iter()
        .map(|file| (file, KeySource::Set));
    for (file, kind) in own.chain(sets) {
        let path = source.beside(file.span.start, &file.value);
        match seen.read(&path, MOST_BYTES) {
            Ok(content) => reader.file(file, &content, kind),
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
    reader.count();
    let KeyReader { keys, digest, .. } = reader;
    let algorithms = pinned(written);
    (errors(found) == before).then(|| TokenRules {
        outline: TokenOutline {
            algorithms: algorithms.iter().map(|one| format!("{one:?}")).collect(),
            issuer: texts(&written.issuer),
            audience: texts(&written.audience),
            leeway: written.leeway(),
            require_exp: written.require_exp(),
            header: written.header(),
            files: [names(&written.keys), texts(&written.jwks)].concat(),
            digest: digest.finalize().into(),
        },
        verifier: Arc::new(Verifier::new(written.header(), keys)),
    })
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

/// What a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeySource<'a> {
    /// Keys, that tokens may have a name for.
    Own(Option<&'a str>),
    /// A JWKS, which names its own.
    Set,
}

struct KeyReader<'a> {
    written: &'a Written,
    algorithms: Vec<Algorithm>,
    keys: Vec<TokenKey>,
    digest: Sha256,
    found: &'a mut Vec<Diagnostic>,
}

impl KeyReader<'_> {
    fn file(&mut self, file: &At<String>, content: &[u8], kind: KeySource<'_>) {
        self.digest.update((content.len() as u64).to_be_bytes());
        self.digest.update(content);
        let before = self.keys.len();
        let is_shared = self.algorithms.iter().any(|one| is_shared(*one));
        let read = match kind {
            KeySource::Set => self.jwks(content),
            KeySource::Own(kid) if is_shared => self.secret(file, kid, content),
            KeySource::Own(kid) => self.pem(kid, content),
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
                .help(match kind {
                    KeySource::Set => "a JWKS is JSON: `{ \"keys\": [ ... ] }`, as issuers publish it".to_owned(),
                    KeySource::Own(_) => "public keys are PEM, `-----BEGIN PUBLIC KEY-----`; for HS256 and its like the file is the secret".to_owned(),
                }),
        );
    }

    /// More keys of one name, or without one, than are tried: the last would never be believed.
    fn count(&mut self) {
        let (keys, algorithms) = (&self.keys, &self.algorithms);
        let many = algorithms.iter().flat_map(|algorithm| {
            keys.iter().map(move |key| {
                let same = |other: &&TokenKey| {
                    other.id == key.id && other.validation.algorithms.contains(algorithm)
                };
                (keys.iter().filter(same).count(), key, algorithm)
            })
        });
        let Some((many, key, algorithm)) = many.max_by_key(|(many, ..)| *many) else {
            return;
        };
        if many <= MOST_TRIED {
            return;
        }
        let (whose, help) = match &key.id {
            None => (
                "without an id".to_owned(),
                "give them ids that their tokens name: `keys = [{ file = \"2026.pem\", kid = \"2026\" }]`",
            ),
            Some(id) => (
                format!("of the id {}", quoted(id)),
                "give each an id of its own",
            ),
        };
        let place = self.written.keys.at().map(|at| &at.span);
        let place = place.or(self.written.jwks.at().map(|at| &at.span));
        let message = format!("`[jwt]` has {many} keys {whose} for {algorithm:?}");
        self.found.push(
            Diagnostic::error(Code::BadJwtKey, message)
                .at(
                    place.unwrap_or(&self.written.place),
                    format!("a token is tried with {MOST_TRIED} of them at most"),
                )
                .help(help),
        );
    }

    /// The whole file is one secret; a line's end behind it does not count.
    fn secret(
        &mut self,
        file: &At<String>,
        kid: Option<&str>,
        content: &[u8],
    ) -> Result<(), String> {
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
        self.keep(kid, DecodingKey::from_secret(secret), None);
        Ok(())
    }

    /// Public keys, one or several behind each other: while keys change both are believed.
    fn pem(&mut self, kid: Option<&str>, content: &[u8]) -> Result<(), String> {
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
            self.keep(kid, key, None);
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
                self.keep(common.key_id.as_deref(), key, pinned.as_deref());
            }
        }
        Ok(())
    }

    /// Keeps a key for those of the algorithms that it is for, if any.
    fn keep(&mut self, id: Option<&str>, key: DecodingKey, pinned: Option<&str>) {
        let mut algorithms = self.algorithms.clone();
        algorithms.retain(|one| {
            fits(*one, &key) && pinned.is_none_or(|pinned| format!("{one:?}") == pinned)
        });
        let Some(first) = algorithms.first() else {
            return;
        };
        let mut validation = Validation::new(*first);
        validation.leeway = self.written.leeway().as_secs();
        validation.validate_nbf = true;
        validation.required_spec_claims.clear();
        if self.written.require_exp() {
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
            id: id.map(str::to_owned),
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

/// Files with keys, and the ids of these.
fn names(list: &document::List<KeyFile>) -> Vec<String> {
    let files = list.entries().iter().map(|at| &at.value);
    files
        .map(|KeyFile { file, kid }| match kid {
            Some(kid) => format!("{} ({kid})", file.value),
            None => file.value.clone(),
        })
        .collect()
}
