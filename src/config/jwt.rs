//! `[jwt]` as written → the rules that verify tokens: keys read from their files, each for algorithms of its own family. No
//! message shows a key.

mod claims;

use super::diagnostic::{Code, Details as _, Findings};
use super::document::{self, Document, Jwt as Written, KeyFile};
use super::outline::TokenOutline;
use super::side_files::{Reference, SideFiles};
use super::source::At;
use super::value::quoted;
use crate::key::token::{MOST_TRIED, TokenKey, Verifier, is_shared};
use jsonwebtoken::jwk::{JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, Validation};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// The most keys.
const MOST_KEYS: usize = 32;
/// The largest file of keys.
const MOST_BYTES: u64 = 1024 * 1024;
/// The longest leeway.
const MOST_LEEWAY: Duration = Duration::from_hours(1);

/// The rules that verify tokens.
#[derive(Debug)]
pub struct TokenRules {
    /// The verifier of tokens.
    pub verifier: Arc<Verifier>,
    /// The rules in a form that can be compared.
    pub outline: TokenOutline,
}

/// Reads the keys. None without `[jwt]`, or when the table has a mistake.
pub(super) fn read(document: &Document, beside: &mut SideFiles<'_>) -> Option<TokenRules> {
    let Some(written) = &document.jwt else {
        claims::unverified(document, beside.found);
        return None;
    };
    let before = beside.found.len();
    settings(written, beside.found);
    let algorithms: Vec<Algorithm> = written.algorithms.values();
    if algorithms.is_empty() || written.algorithms.is_bad() || beside.found.has_error_since(before)
    {
        return None;
    }
    let mut reader = KeyReader {
        written,
        algorithms,
        keys: Vec::new(),
        digest: Sha256::new(),
        found: Findings::default(),
    };
    reader.files(beside);
    reader.count();
    let KeyReader {
        algorithms,
        keys,
        digest,
        mut found,
        ..
    } = reader;
    beside.found.append(&mut found);
    (!beside.found.has_error_since(before)).then(|| TokenRules {
        outline: TokenOutline {
            algorithms: spelled(&algorithms),
            issuer: written.issuer.values(),
            audience: written.audience.values(),
            leeway: written.leeway(),
            require_exp: written.require_exp(),
            header: written.header(),
            files: [names(&written.keys), written.jwks.values()].concat(),
            digest: digest.finalize().into(),
        },
        verifier: Arc::new(Verifier::new(written.header(), keys)),
    })
}

/// Notes mistakes of the table beside its keys.
fn settings(written: &Written, found: &mut Findings) {
    if written.keys.is_absent() && written.jwks.is_absent() {
        let message = "`[jwt]` names no keys to verify tokens with";
        found
            .error(Code::MissingKey, message)
            .at(&written.place, "neither `keys` nor `jwks`")
            .help("add `keys = \"issuer.pem\"`, a public key or a shared secret, or `jwks = \"jwks.json\"`");
    }
    families(written, found);
    if let Some(leeway) = written.leeway.at().filter(|at| at.value > MOST_LEEWAY) {
        found
            .error(Code::BadDuration, "`leeway` in `[jwt]` is out of range")
            .at(&leeway.span, "must be 1h at most");
    }
}

/// Notes algorithms for secrets beside algorithms for public keys: a key of one kind must never count as one of the other.
fn families(written: &Written, found: &mut Findings) {
    let entries = written.algorithms.entries();
    let shared = entries.iter().find(|at| is_shared(at.value));
    let public = entries.iter().find(|at| !is_shared(at.value));
    if let (Some(shared), Some(public)) = (shared, public) {
        found
            .conflict("`[jwt]` takes tokens signed by a shared secret and by a private key")
            .at(&public.span, "by a private key")
            .and(&shared.span, "by a shared secret")
            .help("choose one kind: a public key is no secret, and must never count as one");
    }
}

/// The kind of a file of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeySource<'a> {
    /// Keys that tokens may name by this id.
    Own(Option<&'a str>),
    /// A JWKS, which has the ids of its keys.
    Set,
}

struct KeyReader<'a> {
    written: &'a Written,
    algorithms: Vec<Algorithm>,
    keys: Vec<TokenKey>,
    digest: Sha256,
    found: Findings,
}

impl KeyReader<'_> {
    /// Reads every file of keys.
    fn files(&mut self, beside: &mut SideFiles<'_>) {
        let own = self.written.keys.entries().iter();
        let own = own.filter_map(|at| {
            let kid = at.value.kid.get().map(String::as_str);
            Some((at.value.file.at()?, KeySource::Own(kid)))
        });
        let sets = self.written.jwks.entries().iter();
        let sets = sets.map(|file| (file, KeySource::Set));
        for (file, kind) in own.chain(sets) {
            let at = Reference {
                span: &file.span,
                failure: &format!("cannot read {}, the keys of `[jwt]`", quoted(&file.value)),
                label: "a file of keys",
            };
            if let Some(content) = beside.bytes(&file.value, MOST_BYTES, at) {
                self.file(file, &content, kind);
            }
        }
    }

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
            Ok(()) if self.keys.len() == before => {
                let algorithms = spelled(&self.algorithms).join(", ");
                format!("no key for {algorithms}, or none that is long enough")
            }
            Ok(()) if self.keys.len() > MOST_KEYS => format!("more than {MOST_KEYS} keys"),
            Ok(()) => return,
        };
        let message = format!("{} cannot verify tokens: {why}", quoted(&file.value));
        let help = match kind {
            KeySource::Set => "a JWKS is JSON: `{ \"keys\": [ ... ] }`, as issuers publish it",
            KeySource::Own(_) => {
                "public keys are PEM, `-----BEGIN PUBLIC KEY-----`; for HS256 and its like the file is the secret"
            }
        };
        self.found
            .error(Code::BadJwtKey, message)
            .at(&file.span, "in this file")
            .help(help);
    }

    /// Notes more keys of one id, or without an id, than a token is tried with: the last keys would never verify a
    /// token.
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
        let most = many.max_by_key(|(many, ..)| *many);
        let Some((many, key, algorithm)) = most.filter(|(many, ..)| *many > MOST_TRIED) else {
            return;
        };
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
        let place = self.written.keys.span().or(self.written.jwks.span());
        let place = place.unwrap_or(&self.written.place);
        let message = format!("`[jwt]` has {many} keys {whose} for {algorithm:?}");
        let label = format!("a token is tried with {MOST_TRIED} keys at most");
        self.found
            .error(Code::BadJwtKey, message)
            .at(place, label)
            .help(help);
    }

    /// Reads a file that is one secret; a newline at its end does not count.
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
            return Err("a key in PEM, and the algorithms are for a shared secret: any holder of a public key could sign".into());
        }
        let longest = |algorithm: &Algorithm| match algorithm {
            Algorithm::HS512 => 64,
            Algorithm::HS384 => 48,
            _ => 32,
        };
        let least = self.algorithms.iter().map(longest).max().unwrap_or(32);
        if secret.len() < least {
            let (file_name, many) = (quoted(&file.value), secret.len());
            let message = format!("the secret in {file_name} is short enough to be guessed");
            let label = format!("{many} bytes; {least} at least are wanted (RFC 7518)");
            self.found
                .warning(Code::WeakSecret, message)
                .at(&file.span, label)
                .help("share a random one: `openssl rand -base64 48`");
        }
        self.keep(kid, DecodingKey::from_secret(secret), None);
        Ok(())
    }

    /// Reads public keys in PEM. A file may have several: while keys change both are believed.
    fn pem(&mut self, kid: Option<&str>, content: &[u8]) -> Result<(), String> {
        const BEGIN: &str = "-----BEGIN ";
        let text = std::str::from_utf8(content).map_err(|_| "not PEM")?;
        // The text in front of the first block is a comment.
        let mut blocks = text.split(BEGIN).skip(1).enumerate().peekable();
        if blocks.peek().is_none() {
            return Err("not PEM".into());
        }
        for (index, rest) in blocks {
            let label = rest.split("-----").next().unwrap_or_default();
            if label.contains("PRIVATE") {
                let why =
                    "a private key, which only the issuer should have; its public one is needed";
                return Err(why.into());
            }
            let block = format!("{BEGIN}{}", rest.trim_end());
            let block = block.as_bytes();
            let key = DecodingKey::from_rsa_pem(block)
                .or_else(|_| DecodingKey::from_ec_pem(block))
                .or_else(|_| DecodingKey::from_ed_pem(block))
                .map_err(|_| format!("its block {} ({label}) is no public key", index + 1))?;
            self.keep(kid, key, None);
        }
        Ok(())
    }

    /// Reads keys as issuers publish them, without those for other uses.
    fn jwks(&mut self, content: &[u8]) -> Result<(), String> {
        // The error of serde may show a part of the key.
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

    /// Keeps a key for the algorithms that it fits, if any.
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
        // Without `audience` a token may be for any audience.
        validation.validate_aud = !self.written.audience.is_absent();
        if validation.validate_aud {
            validation.set_audience(&self.written.audience.values::<Vec<_>>());
            validation.required_spec_claims.insert("aud".into());
        }
        if !self.written.issuer.is_absent() {
            validation.set_issuer(&self.written.issuer.values::<Vec<_>>());
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

/// The algorithms as tokens name them.
fn spelled(algorithms: &[Algorithm]) -> Vec<String> {
    algorithms.iter().map(|one| format!("{one:?}")).collect()
}

/// Can this key verify signatures of `algorithm`? A key that is too short cannot.
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

/// Files with keys, and the ids of the keys.
fn names(list: &document::List<KeyFile>) -> Vec<String> {
    let files = list.entries().iter().filter_map(|at| {
        let file = at.value.file.get()?;
        Some(match at.value.kid.get() {
            Some(kid) => format!("{file} ({kid})"),
            None => file.clone(),
        })
    });
    files.collect()
}
