//! The answers to open challenges of other gateways, and of other processes, that this process has read. Workers read
//! these answers.

use super::open_challenge::MOST_OPEN;
use crate::tls::OthersAnswer;
use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::Arc;

/// Answers by the digests of their challenges' names: folders show nothing but the digest.
type ChallengeAnswers = HashMap<[u8; 32], Arc<OthersAnswer>>;
/// Answers as they are read.
pub(super) type ReadAnswers = HashMap<[u8; 32], Vec<u8>>;

/// The answers of other processes to challenges.
#[derive(Default)]
pub(super) struct OthersAnswers {
    in_stores: ArcSwap<ChallengeAnswers>,
    in_folders: ArcSwap<ChallengeAnswers>,
    /// Answers that no list has and that are looked up by name each time: a gateway of 0.1.0 has posted them.
    by_name: ArcSwap<ChallengeAnswers>,
}

impl OthersAnswers {
    /// The digest by which a challenge of this name is found.
    pub(super) fn digest(name: &str) -> [u8; 32] {
        Sha256::digest(name).into()
    }

    /// The answer to the challenge of this name.
    pub(super) fn of(&self, challenge: &str) -> Option<Arc<OthersAnswer>> {
        let (stores, folders) = (self.in_stores.load(), self.in_folders.load());
        if stores.is_empty() && folders.is_empty() {
            return None;
        }
        let digest = Self::digest(challenge);
        let found = stores.get(&digest).or_else(|| folders.get(&digest));
        found.cloned()
    }

    /// Replaces the answers of stores.
    pub(super) fn are_in_stores(&self, open: ReadAnswers) {
        replace(&self.in_stores, open);
    }

    /// Replaces the answers of folders.
    pub(super) fn are_in_folders(&self, open: ReadAnswers) {
        replace(&self.in_folders, open);
    }

    /// Notes the answer to the challenge of this name, which the store has just returned, and returns the known one if
    /// it is the same.
    pub(super) fn found_by_name(&self, challenge: &str, answer: Vec<u8>) -> Arc<OthersAnswer> {
        let digest = Self::digest(challenge);
        let before = self.by_name.load();
        if let Some(known) = before.get(&digest)
            && known.bytes() == answer
        {
            return Arc::clone(known);
        }
        let found = OthersAnswer::new(answer);
        self.by_name.rcu(|known| {
            let mut known = ChallengeAnswers::clone(known);
            if known.len() >= MOST_OPEN {
                known.clear();
            }
            known.insert(digest, Arc::clone(&found));
            known
        });
        found
    }

    /// Forgets answers that were looked up by name: no order of a gateway of 0.1.0 is open.
    pub(super) fn forget_by_name(&self) {
        if !self.by_name.load().is_empty() {
            self.by_name.store(Arc::default());
        }
    }
}

/// Replaces the answers of a place. Answers that stay keep their identity, with the handshake data that was built from
/// them.
fn replace(known: &ArcSwap<ChallengeAnswers>, open: ReadAnswers) {
    let before = known.load();
    if before.is_empty() && open.is_empty() {
        return;
    }
    let all = open.into_iter().map(|(challenge, answer)| {
        let same = before.get(&challenge);
        let same = same.filter(|same| same.bytes() == answer).cloned();
        (challenge, same.unwrap_or_else(|| OthersAnswer::new(answer)))
    });
    known.store(Arc::new(all.collect()));
}

impl std::fmt::Debug for OthersAnswers {
    /// The answers are left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OthersAnswers").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_stays_the_same_one_as_long_as_it_is_read() {
        let answers = OthersAnswers::default();
        let read = |answer: &[u8]| HashMap::from([(OthersAnswers::digest("a"), answer.to_vec())]);
        answers.are_in_stores(read(b"one"));
        let first = answers.of("a").unwrap();
        answers.are_in_stores(read(b"one"));
        assert!(Arc::ptr_eq(&first, &answers.of("a").unwrap()));
        // Another order of the same host.
        answers.are_in_stores(read(b"two"));
        let second = answers.of("a").unwrap();
        assert_eq!(second.bytes(), b"two");
        answers.are_in_stores(ReadAnswers::new());
        assert!(answers.of("a").is_none());
        assert_eq!(Arc::strong_count(&second), 1, "it goes with its challenge");
    }

    #[test]
    fn what_is_found_by_its_name_is_the_same_one_too() {
        let answers = OthersAnswers::default();
        let first = answers.found_by_name("a", b"one".to_vec());
        let second = answers.found_by_name("a", b"one".to_vec());
        assert!(Arc::ptr_eq(&first, &second));
        assert!(
            answers.of("a").is_none(),
            "the store is asked for it each time"
        );
        assert_eq!(answers.found_by_name("a", b"two".to_vec()).bytes(), b"two");
        for number in 0..MOST_OPEN + 10 {
            let _ = answers.found_by_name(&number.to_string(), b"x".to_vec());
        }
        assert!(answers.by_name.load().len() <= MOST_OPEN);
        answers.forget_by_name();
        assert!(answers.by_name.load().is_empty());
    }
}
