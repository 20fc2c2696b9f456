//! Compiles `[jwt]` into the rules that verify tokens: keys from files, each for algorithms of its own family, and the
//! URLs where issuers publish keys. No message shows a key.

mod claims;
mod published;

pub use published::PublishedKeys;

use crate::config::document;
use crate::config::document::{Document, Jwt as Written, KeyFile};
use crate::config::input::{At, Reference, SideFiles};
use crate::config::presentation::TokenOutline;
use crate::config::report::{Code, Details as _, Findings};
use crate::config::value::quoted;
use crate::key::key_rules::{KeyRules, MOST_KEYS, TokenKey};
use crate::key::token::{MOST_TRIED, Verifier, is_shared};
use jsonwebtoken::{Algorithm, DecodingKey};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// The largest file of keys.
const MOST_BYTES: u64 = 1024 * 1024;
/// The longest leeway.
const MOST_LEEWAY: Duration = Duration::from_hours(1);

/// The rules that verify tokens.
#[derive(Debug)]
pub struct TokenRules {
    /// The verifier of tokens.
    pub verifier: Arc<Verifier>,
    /// The keys of the verifier that are read from URLs.
    pub published: Vec<PublishedKeys>,
    /// The rules in a form that can be compared.
    pub outline: TokenOutline,
}

impl TokenRules {
    /// The verifier, and its keys that are read from URLs.
    pub(in crate::config) fn split(self) -> (Arc<Verifier>, Vec<PublishedKeys>) {
        (self.verifier, self.published)
    }
}

/// Reads the keys. `None` without `[jwt]`, or if the table has a mistake.
pub(in crate::config) fn read_tokens(
    document: &Document,
    side_files: &mut SideFiles<'_>,
) -> Option<TokenRules> {
    let Some(written) = &document.jwt else {
        claims::unverified(document, side_files.found);
        return None;
    };
    let before = side_files.found.len();
    settings(written, side_files.found);
    let algorithms: Vec<Algorithm> = written.algorithms.values();
    let is_wrong = written.algorithms.is_bad() || side_files.found.has_error_since(before);
    if algorithms.is_empty() || is_wrong {
        return None;
    }
    let rules = KeyRules {
        algorithms,
        leeway: written.leeway(),
        require_exp: written.require_exp(),
        audience: named(&written.audience),
        issuer: named(&written.issuer),
    };
    let published = published::read_published(written, &rules, side_files);
    let mut reader = KeyReader {
        written,
        rules,
        keys: Vec::new(),
        digest: Sha256::new(),
        found: Findings::default(),
    };
    reader.files(side_files);
    reader.count();
    let KeyReader {
        rules,
        keys,
        digest,
        mut found,
        ..
    } = reader;
    side_files.found.append(&mut found);
    (!side_files.found.has_error_since(before)).then(|| TokenRules {
        outline: TokenOutline {
            algorithms: rules.spelled(),
            issuer: written.issuer.values(),
            audience: written.audience.values(),
            leeway: written.leeway(),
            require_exp: written.require_exp(),
            header: written.header(),
            files: [names(&written.keys), written.jwks.values()].concat(),
            digest: digest.finalize().into(),
        },
        verifier: Arc::new(Verifier::new(
            written.header(),
            keys,
            published.iter().map(|one| Arc::clone(&one.set)).collect(),
        )),
        published,
    })
}

/// The names of a list, if the list is written.
fn named(list: &document::List<String>) -> Option<Vec<String>> {
    (!list.is_absent()).then(|| list.values())
}

/// Notes mistakes of the table that are not about its keys.
fn settings(written: &Written, found: &mut Findings) {
    if written.keys.is_absent() && written.jwks.is_absent() {
        let message = "`[jwt]` names no keys to verify tokens with";
        found
            .error(Code::MissingKey, message)
            .at(&written.place, "neither `keys` nor `jwks`")
            .help("add `keys = \"issuer.pem\"`, a public key or a shared secret, or `jwks = \"https://id.example.com/jwks.json\"`");
    }
    families(written, found);
    if let Some(leeway) = written.leeway.at().filter(|at| at.value > MOST_LEEWAY) {
        found
            .error(Code::BadDuration, "`leeway` in `[jwt]` is out of range")
            .at(&leeway.span, "must be 1h at most");
    }
}

/// Notes algorithms for secrets together with algorithms for public keys: a key of one kind must never be used as the
/// other kind.
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
    /// Keys with this id.
    Own(Option<&'a str>),
    /// A JWKS, which contains the ids of its keys.
    Set,
}

struct KeyReader<'a> {
    written: &'a Written,
    rules: KeyRules,
    keys: Vec<TokenKey>,
    digest: Sha256,
    found: Findings,
}

impl KeyReader<'_> {
    /// Reads every file of keys.
    fn files(&mut self, side_files: &mut SideFiles<'_>) {
        let single_keys = self.written.keys.entries().iter();
        let single_keys = single_keys.filter_map(|at| {
            let kid = at.value.kid.get().map(String::as_str);
            Some((at.value.file.at()?, KeySource::Own(kid)))
        });
        let sets = self.written.jwks.entries().iter();
        let sets = sets.filter(|at| !published::is_url(&at.value));
        let sets = sets.map(|file| (file, KeySource::Set));
        for (file, kind) in single_keys.chain(sets) {
            let at = Reference {
                span: &file.span,
                failure: &format!("cannot read {}, the keys of `[jwt]`", quoted(&file.value)),
                label: "a file of keys",
            };
            if let Some(content) = side_files.bytes(&file.value, MOST_BYTES, at) {
                self.file(file, &content, kind);
            }
        }
    }

    fn file(&mut self, file: &At<String>, content: &[u8], kind: KeySource<'_>) {
        self.digest.update((content.len() as u64).to_be_bytes());
        self.digest.update(content);
        let before = self.keys.len();
        let is_shared = self.rules.algorithms.iter().any(|one| is_shared(*one));
        let read = match kind {
            KeySource::Set => self.rules.set(content).map(|keys| self.keys.extend(keys)),
            KeySource::Own(kid) if is_shared => self.secret(file, kid, content),
            KeySource::Own(kid) => self.pem(kid, content),
        };
        let why = match read {
            Err(why) => why,
            Ok(()) if self.keys.len() == before => {
                let algorithms = self.rules.spelled().join(", ");
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

    /// Notes more keys with one id, or without an id, than are tried for a token: the last keys would never verify a
    /// token.
    fn count(&mut self) {
        let (keys, algorithms) = (&self.keys, &self.rules.algorithms);
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

    /// Reads a file that contains one secret; a trailing newline does not count.
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
        let least = self
            .rules
            .algorithms
            .iter()
            .map(longest)
            .max()
            .unwrap_or(32);
        if secret.len() < least {
            let (file_name, many) = (quoted(&file.value), secret.len());
            let message = format!("the secret in {file_name} is short enough to be guessed");
            let label = format!("{many} bytes; at least {least} are needed (RFC 7518)");
            self.found
                .warning(Code::WeakSecret, message)
                .at(&file.span, label)
                .help("share a random one: `openssl rand -base64 48`");
        }
        self.keep(kid, DecodingKey::from_secret(secret));
        Ok(())
    }

    /// Reads public keys in PEM. A file may contain several keys: during a key change both keys are trusted.
    fn pem(&mut self, kid: Option<&str>, content: &[u8]) -> Result<(), String> {
        const BEGIN: &str = "-----BEGIN ";
        let text = std::str::from_utf8(content).map_err(|_| "not PEM")?;
        // The text before the first block is a comment.
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
            self.keep(kid, key);
        }
        Ok(())
    }

    /// Keeps a key for the algorithms that the key fits, if there are any.
    fn keep(&mut self, id: Option<&str>, key: DecodingKey) {
        self.keys.extend(self.rules.key(id, key, None));
    }
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
