//! The answers to open challenges of other gateways, and of other processes, that are known here. Workers read them.

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;

/// Answers by the digests of their challenges' names: in folders nothing else is known of them.
type Answers = HashMap<[u8; 32], Vec<u8>>;

/// The answers of others.
#[derive(Default)]
pub(super) struct OthersAnswers {
    in_stores: ArcSwap<Answers>,
    in_folders: ArcSwap<Answers>,
}

impl OthersAnswers {
    /// What a challenge of this name is found by.
    pub(super) fn digest(name: &str) -> [u8; 32] {
        Sha256::digest(name).into()
    }

    /// The answer to the challenge of this name.
    pub(super) fn of(&self, challenge: &str) -> Option<Vec<u8>> {
        let (stores, folders) = (self.in_stores.load(), self.in_folders.load());
        if stores.is_empty() && folders.is_empty() {
            return None;
        }
        let digest = Self::digest(challenge);
        let found = stores.get(&digest).or_else(|| folders.get(&digest));
        found.cloned()
    }

    /// Replaces what is known of stores.
    pub(super) fn are_in_stores(&self, open: Answers) {
        self.in_stores.store(open.into());
    }

    /// Replaces what is known of folders.
    pub(super) fn are_in_folders(&self, open: Answers) {
        self.in_folders.store(open.into());
    }
}

impl std::fmt::Debug for OthersAnswers {
    /// The answers are left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OthersAnswers").finish_non_exhaustive()
    }
}
