//! The rules for readers and operators, as the file has them: names of the listener, tokens as digests, roles.

use sha2::{Digest as _, Sha256};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The least length of a token, in characters.
pub const LEAST_TOKEN: usize = 32;

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// To read.
    Read,
    /// To read and to change.
    Operate,
}

/// The clients that may read without a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadAccess {
    /// Those that connect to a loopback address or to a Unix socket.
    #[default]
    Local,
    /// None.
    Token,
}

/// SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// The digest of a token.
    #[must_use]
    pub fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// The digest itself, for a comparison of two files.
    #[must_use]
    pub const fn bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Are both the same? The time does not depend on where they differ.
    pub(super) fn equals(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        pairs.fold(0, |differences, (one, other)| differences | (one ^ other)) == 0
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A token of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessToken {
    /// The name that records of changes have.
    pub name: Arc<str>,
    /// What it allows.
    pub role: Role,
    /// The token itself is not kept.
    pub digest: TokenDigest,
}

/// The rules of the admin listener, which a reload replaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessRules {
    /// Further names of the listener, in lower case.
    pub hosts: Vec<String>,
    /// The tokens, in the order of the file.
    pub tokens: Vec<AccessToken>,
    /// The clients that may read without a token.
    pub read: ReadAccess,
    /// The file of the records of changes; `None` for the gateway's own log.
    pub audit: Option<PathBuf>,
}

impl AccessRules {
    /// The names and roles of all tokens; the whole of it tells whether a token is another.
    #[must_use]
    pub fn described(&self) -> Vec<String> {
        let tokens = self.tokens.iter();
        tokens
            .map(|token| match token.role {
                Role::Read => format!("{} (read)", token.name),
                Role::Operate => format!("{} (operate)", token.name),
            })
            .collect()
    }

    /// The token with this digest. All tokens are compared, whether one is found or not.
    pub(super) fn token(&self, digest: &TokenDigest) -> Option<&AccessToken> {
        self.tokens.iter().fold(None, |found, token| {
            let is_it = token.digest.equals(digest);
            if is_it { Some(token) } else { found }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_all_of_its_digest() {
        let token = |name: &str| AccessToken {
            name: name.into(),
            role: Role::Read,
            digest: TokenDigest::of(name.as_bytes()),
        };
        let rules = AccessRules {
            tokens: vec![token("a"), token("b")],
            ..AccessRules::default()
        };
        let found = |text: &str| rules.token(&TokenDigest::of(text.as_bytes()));
        assert_eq!(found("b").map(|token| &*token.name), Some("b"));
        assert!(found("c").is_none() && found("").is_none());
        assert_eq!(format!("{:?}", TokenDigest::of(b"a")), "***");
    }
}
