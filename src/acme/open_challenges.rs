//! The open challenges of all gateways, in one entry of the store: each gateway reads the entry every second, so that
//! an authority finds its answer at any gateway. While no order is open the entry does not exist.

use super::failure::OrderFailure;
use super::open_challenge::{CHALLENGE_LIFE, MOST_OPEN, OpenChallenge};
use super::schedule::{Seconds, seconds};
use super::store_vault::StoreVault;
use crate::clock;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// Tries to change the entry, which other gateways change too.
const TRIES: u8 = 100;
/// The longest pause before such a try, in milliseconds.
const PAUSE: u64 = 50;

/// The entry: each challenge with the time by which it ends if its gateway is killed.
#[derive(Debug, Default, PartialEq, Eq)]
struct OpenList(Vec<(OpenChallenge, Seconds)>);

impl OpenList {
    /// Reads the list from an entry's text. A challenge that cannot be read is left out: it has an entry of its own
    /// too.
    fn read(text: &[u8]) -> Self {
        let read = serde_json::from_slice::<Value>(text).unwrap_or_default();
        let all = read["open"].as_array().into_iter().flatten();
        let open = all.filter_map(|one| {
            let answer = BASE64_STANDARD.decode(one["answer"].as_str()?).ok()?;
            let name = one["name"].as_str()?.to_owned();
            Some((OpenChallenge { name, answer }, one["until"].as_i64()?))
        });
        Self(open.take(MOST_OPEN).collect())
    }

    fn text(&self) -> Vec<u8> {
        let open = self.0.iter().map(|(one, until)| {
            json!({ "name": one.name, "answer": BASE64_STANDARD.encode(&one.answer), "until": until })
        });
        let all = json!({ "open": open.collect::<Vec<_>>() });
        all.to_string().into_bytes()
    }

    /// Adds these challenges, and replaces challenges of the same names.
    fn add(&mut self, more: &[OpenChallenge], now: Seconds) -> Result<(), OrderFailure> {
        let until = now + i64::try_from(CHALLENGE_LIFE.as_secs()).unwrap_or(i64::MAX);
        self.0.retain(|(_, end)| *end > now);
        self.remove(more);
        self.0.extend(more.iter().map(|one| (one.clone(), until)));
        if self.0.len() > MOST_OPEN {
            return Err(OrderFailure::TooManyOpen { most: MOST_OPEN });
        }
        Ok(())
    }

    /// Removes the challenges that equal these.
    fn remove(&mut self, gone: &[OpenChallenge]) {
        self.0
            .retain(|(one, _)| !gone.iter().any(|other| other.name == one.name));
    }
}

impl StoreVault {
    /// The challenges of all gateways that are open.
    pub(super) async fn open_challenges(&self) -> Result<Vec<OpenChallenge>, OrderFailure> {
        let key = self.open_key();
        let raw = self.shared.keys.get(&key).await;
        let raw = raw.map_err(|error| self.failed(error))?;
        let list = raw
            .map(|raw| self.open_list(&key, &raw))
            .unwrap_or_default();
        Ok(list.0.into_iter().map(|(one, _)| one).collect())
    }

    /// Publishes these answers to every gateway.
    pub(super) async fn list_open(&self, more: &[OpenChallenge]) -> Result<(), OrderFailure> {
        let now = seconds(clock::wall());
        let patience = self.shared.pace.patience();
        loop {
            match self.change_open(|list| list.add(more, now)).await {
                Err(OrderFailure::Store { source, .. }) if patience.wait(&source).await => {}
                done => return done,
            }
        }
    }

    /// Removes these answers from the list. They expire if the removal fails.
    pub(super) async fn unlist_open(&self, gone: &[OpenChallenge]) {
        let changed = self.change_open(|list| {
            list.remove(gone);
            Ok(())
        });
        if let Err(failure) = changed.await {
            tracing::debug!("{failure}");
        }
    }

    /// Changes the list, which other gateways may change at the same time.
    async fn change_open(
        &self,
        change: impl Fn(&mut OpenList) -> Result<(), OrderFailure>,
    ) -> Result<(), OrderFailure> {
        let key = self.open_key();
        // Orders of one gateway change the list one after the other.
        let _turn = self.shared.changing.lock().await;
        for _ in 0..TRIES {
            if self.try_to_change(&key, &change).await? {
                return Ok(());
            }
            sleep(Duration::from_millis(fastrand::u64(1..=PAUSE))).await;
        }
        Err(OrderFailure::Contended { entry: key })
    }

    /// Changes the list, unless another gateway changes it at the same time.
    async fn try_to_change(
        &self,
        key: &str,
        change: impl Fn(&mut OpenList) -> Result<(), OrderFailure>,
    ) -> Result<bool, OrderFailure> {
        let keys = &self.shared.keys;
        let there = keys.get(key).await.map_err(|error| self.failed(error))?;
        let before = there.unwrap_or_default();
        let mut list = self.open_list(key, &before);
        change(&mut list)?;
        let changed = if list.0.is_empty() {
            if before.is_empty() {
                return Ok(true);
            }
            keys.release(key, &before).await
        } else {
            let sealed = self.seal(key, clock::wall().micros(), &list.text())?;
            keys.swap(key, &before, &sealed, Some(CHALLENGE_LIFE)).await
        };
        changed.map_err(|error| self.failed(error))
    }

    /// Reads the list from the entry's bytes. A damaged list counts as empty, and the next order writes it anew.
    fn open_list(&self, key: &str, raw: &[u8]) -> OpenList {
        let opened = self.key.open(key, raw).ok();
        opened.map_or_else(OpenList::default, |opened| OpenList::read(&opened.text))
    }

    /// The name of the entry. Each secret has an entry of its own: authorities with different secrets may share one
    /// store.
    fn open_key(&self) -> String {
        self.full(&format!("open:{}", HEXLOWER.encode(&self.key.id())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn challenge(name: &str, answer: &[u8]) -> OpenChallenge {
        OpenChallenge {
            name: name.into(),
            answer: answer.into(),
        }
    }

    #[test]
    fn a_list_is_read_as_it_was_written_and_forgets_what_has_ended() {
        let mut list = OpenList::default();
        let (one, two) = (
            challenge("text:a:b", b"x"),
            challenge("handshake:a", &[0, 255]),
        );
        list.add(std::slice::from_ref(&one), 1000).unwrap();
        list.add(std::slice::from_ref(&two), 1500).unwrap();
        assert_eq!(OpenList::read(&list.text()), list);
        let newer = challenge("handshake:a", &[1]);
        list.add(std::slice::from_ref(&newer), 1601).unwrap();
        let left: Vec<_> = list.0.iter().map(|(one, _)| one.clone()).collect();
        assert_eq!(
            left,
            std::slice::from_ref(&newer),
            "an order was killed, another is newer"
        );
        list.remove(&[newer]);
        assert_eq!(list, OpenList::default());
        for odd in [
            "",
            "[]",
            "{\"open\":[{},{\"name\":\"a\",\"answer\":\"!\",\"until\":1}]}",
        ] {
            assert_eq!(OpenList::read(odd.as_bytes()), OpenList::default());
        }
    }

    #[test]
    fn a_list_has_a_bound() {
        let mut list = OpenList::default();
        let many = |count: usize| -> Vec<_> {
            let names = (0..count).map(|number| challenge(&number.to_string(), b"x"));
            names.collect()
        };
        list.add(&many(MOST_OPEN), 1).unwrap();
        let beyond = list.add(&[challenge("one more", b"x")], 1);
        assert!(matches!(beyond, Err(OrderFailure::TooManyOpen { .. })));
    }
}
