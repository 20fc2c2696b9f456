//! Sealing of entries of the store: AES-256-GCM under a secret that gateways share. A reader of the store learns no
//! key, and a writer cannot replace one entry by another.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use data_encoding::HEXLOWER_PERMISSIVE;
use sha2::{Digest as _, Sha256};
use std::fmt;

/// The first byte of a sealed text: the format version.
const FORM: u8 = 1;
/// Bytes that name the secret.
const ID: usize = 8;
/// Bytes before the nonce: format, secret, version.
const HEAD: usize = 1 + ID + 8;

/// The secret that gateways seal with: 256 bits.
#[derive(Clone, PartialEq, Eq)]
pub struct SealingKey([u8; 32]);

/// An opened text, with the version that it was sealed with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) text: Vec<u8>,
    pub(super) version: u64,
}

/// Causes for which a text cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SealFault {
    /// Another secret sealed it.
    OtherSecret,
    /// The text is not sealed, or not for this entry.
    Damaged,
}

impl SealingKey {
    /// Reads 64 hexadecimal digits. `None` if the text is anything else.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let key = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        key.try_into().ok().map(Self)
    }

    /// A name for the secret from which the secret cannot be found.
    pub(super) fn id(&self) -> [u8; ID] {
        let mut digest = Sha256::new();
        digest.update(b"tollgate acme secret\n");
        digest.update(self.0);
        let mut id = [0; ID];
        id.copy_from_slice(&digest.finalize()[..ID]);
        id
    }

    /// Seals a text for the entry of this name. `None` if the random source or the library fails.
    pub(super) fn seal(&self, entry: &str, version: u64, text: &[u8]) -> Option<Vec<u8>> {
        let key = RandomizedNonceKey::new(&AES_256_GCM, &self.0).ok()?;
        let mut out = self.head(version);
        let mut body = text.to_vec();
        let about = Aad::from(about(&out, entry));
        let nonce = key.seal_in_place_append_tag(about, &mut body).ok()?;
        out.extend_from_slice(nonce.as_ref());
        out.extend_from_slice(&body);
        Some(out)
    }

    /// Opens the entry of this name.
    pub(super) fn open(&self, entry: &str, sealed: &[u8]) -> Result<Opened, SealFault> {
        let (head, rest) = sealed.split_at_checked(HEAD).ok_or(SealFault::Damaged)?;
        if head[0] != FORM {
            return Err(SealFault::Damaged);
        }
        if head[1..=ID] != self.id() {
            return Err(SealFault::OtherSecret);
        }
        let mut version = [0; 8];
        version.copy_from_slice(&head[1 + ID..]);
        let (nonce, body) = rest.split_at_checked(NONCE_LEN).ok_or(SealFault::Damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealFault::Damaged)?;
        let key = RandomizedNonceKey::new(&AES_256_GCM, &self.0).map_err(|_| SealFault::Damaged)?;
        let mut body = body.to_vec();
        let about = Aad::from(about(head, entry));
        let opened = key.open_in_place(nonce, about, &mut body);
        Ok(Opened {
            text: opened.map_err(|_| SealFault::Damaged)?.to_vec(),
            version: u64::from_be_bytes(version),
        })
    }

    fn head(&self, version: u64) -> Vec<u8> {
        let mut head = vec![FORM];
        head.extend_from_slice(&self.id());
        head.extend_from_slice(&version.to_be_bytes());
        head
    }
}

/// The data that a sealed text is bound to: its head and its name.
fn about(head: &[u8], entry: &str) -> Vec<u8> {
    [head, entry.as_bytes()].concat()
}

impl fmt::Debug for SealingKey {
    /// The secret is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(digit: &str) -> SealingKey {
        SealingKey::read(&digit.repeat(64)).unwrap()
    }

    #[test]
    fn a_secret_is_64_hexadecimal_digits() {
        assert_eq!(key("f").0, [255; 32]);
        assert_eq!(key("A"), key("a"));
        let long = "0".repeat(65);
        let sign = format!("+1{}", "0".repeat(62));
        for wrong in ["", "00", &long, &"g".repeat(64), &"é".repeat(32), &sign] {
            assert!(SealingKey::read(wrong).is_none(), "{wrong}");
        }
        assert_eq!(format!("{:?}", key("1")), "***");
    }

    #[test]
    fn an_entry_is_opened_by_its_name_and_secret_alone() {
        let sealed = key("1").seal("acme:a", 7, b"PRIVATE KEY").unwrap();
        let second = key("1").seal("acme:a", 7, b"PRIVATE KEY").unwrap();
        assert_ne!(sealed, second, "a nonce was used twice");
        assert!(!sealed.windows(7).any(|part| part == b"PRIVATE"));
        let opened = key("1").open("acme:a", &sealed).unwrap();
        assert_eq!(
            (opened.text.as_slice(), opened.version),
            (&b"PRIVATE KEY"[..], 7)
        );
        assert_eq!(key("1").open("acme:b", &sealed), Err(SealFault::Damaged));
        assert_eq!(
            key("2").open("acme:a", &sealed),
            Err(SealFault::OtherSecret)
        );
        for at in 0..sealed.len() {
            let mut other = sealed.clone();
            other[at] ^= 1;
            assert!(key("1").open("acme:a", &other).is_err(), "byte {at}");
            assert!(key("1").open("acme:a", &sealed[..at]).is_err());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_opened_or_panic(bytes: Vec<u8>) {
            prop_assert!(key("1").open("acme:a", &bytes).is_err());
        }
    }
}
