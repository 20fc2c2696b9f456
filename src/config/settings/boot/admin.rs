//! Compiles `[admin]`: its addresses, and the rules for readers and operators. Tokens are read from their places and
//! kept as digests.

use super::placed;
use crate::admin::{AccessRules, AccessToken, AdminSettings, LEAST_TOKEN, Role, TokenDigest};
use crate::config::document::{Admin, Document, SecretSource};
use crate::config::input::{At, SideFiles, Source};
use crate::config::report::{Code, Details as _};
use crate::config::settings::store::secret;
use crate::config::value::quoted;
use crate::listen::listener::ListenAddress;
use std::collections::HashMap;
use std::sync::Arc;

/// The admin listener of a file, with the texts of its tokens.
#[derive(Debug, Default)]
pub(in crate::config) struct ReadAdmin {
    /// `None` without `[admin]`.
    pub(in crate::config) settings: Option<AdminSettings>,
    /// The tokens as operators send them, which no output shows.
    pub(in crate::config) secrets: Vec<String>,
}

/// Reads the settings; secrets are read from their places.
pub(in crate::config) fn read_admin(
    document: &Document,
    side_files: &mut SideFiles<'_>,
) -> ReadAdmin {
    let Some(admin) = &document.admin else {
        return ReadAdmin::default();
    };
    let (tokens, secrets) = read_tokens(admin, side_files);
    let source = side_files.source;
    let audit = admin.audit.at();
    let settings = AdminSettings {
        listen: admin_addresses(admin, source),
        mode: admin.mode(),
        name: admin.name.get().map(|name| name.as_str().into()),
        access: Arc::new(AccessRules {
            hosts: admin.hosts.values(),
            tokens,
            read: admin.read(),
            audit: audit.map(|at| source.resolve_path(at.span.start, &at.value)),
        }),
    };
    ReadAdmin {
        settings: Some(settings),
        secrets,
    }
}

/// A token that the file names.
struct WrittenToken<'a> {
    name: &'a str,
    role: Role,
    source: &'a At<SecretSource>,
}

fn written_tokens(admin: &Admin) -> impl Iterator<Item = WrittenToken<'_>> {
    let alone = admin.token.at().map(|source| WrittenToken {
        name: "admin",
        role: Role::Operate,
        source,
    });
    let named = admin.tokens.entries().iter().filter_map(|at| {
        Some(WrittenToken {
            name: &at.value.name.value,
            role: at.value.role(),
            source: at.value.token.at()?,
        })
    });
    alone.into_iter().chain(named)
}

/// The tokens with their texts.
fn read_tokens(admin: &Admin, side_files: &mut SideFiles<'_>) -> (Vec<AccessToken>, Vec<String>) {
    let (mut tokens, mut texts) = (Vec::new(), Vec::new());
    let mut places = HashMap::new();
    for written in written_tokens(admin) {
        let at = &written.source.span;
        let is_literal = matches!(written.source.value, SecretSource::Literal(_));
        // Commands that need no token read the file on machines that have none.
        if !is_literal && side_files.source.is_without_store() {
            continue;
        }
        let Some(text) = secret("token", "token", written.source, side_files) else {
            continue;
        };
        let (text, found) = (text.expose().trim(), &mut *side_files.found);
        // The stars of a printed file open nothing.
        if !text.is_empty() && text.bytes().all(|byte| byte == b'*') {
            continue;
        }
        if let Some(label) = weakness(text) {
            let message = format!("the token {} can be guessed", quoted(written.name));
            found
                .error(Code::WeakToken, message)
                .at(at, label)
                .help("make one with `openssl rand -hex 32`");
            continue;
        }
        if is_literal {
            found
                .warning(Code::SecretInFile, "a token is written into the file")
                .at(at, "every reader of the file knows it")
                .help("write `{ file = \"/run/secrets/tollgate-admin\" }` or `{ env = \"NAME\" }`");
        }
        let digest = TokenDigest::of(text.as_bytes());
        if let Some((first, there)) = places.insert(digest, (written.name, at)) {
            let (one, other) = (quoted(first), quoted(written.name));
            found
                .error(
                    Code::TokenTwice,
                    format!("the tokens {one} and {other} are the same"),
                )
                .at(at, "the second time")
                .and(there, "the first time")
                .help(
                    "give each operator a token of its own: the record of changes names the token",
                );
        }
        tokens.push(AccessToken {
            name: written.name.into(),
            role: written.role,
            digest,
        });
        texts.push(text.to_owned());
    }
    (tokens, texts)
}

/// Why a token can be guessed, or not sent.
fn weakness(token: &str) -> Option<String> {
    let length = token.chars().count();
    if length < LEAST_TOKEN {
        return Some(format!(
            "{length} characters, and {LEAST_TOKEN} at least are needed"
        ));
    }
    let is_visible = token.bytes().all(|byte| byte.is_ascii_graphic());
    (!is_visible).then(|| "a token has visible ASCII characters alone".to_owned())
}

/// The admin listener's addresses; paths of Unix sockets begin in the folder of the file.
fn admin_addresses(admin: &Admin, source: &Source) -> Vec<ListenAddress> {
    let written = admin.listen.entries().iter();
    let written: Vec<ListenAddress> = written
        .map(|at| placed(&at.value, &at.span, source))
        .collect();
    if admin.listen.is_absent() {
        admin.listen().into_iter().map(|at| at.value).collect()
    } else {
        written
    }
}
