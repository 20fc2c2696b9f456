//! The answers that a certification authority finds when it checks whether we control a name: a text on port 80 (RFC
//! 8555, section 8.3) or a handshake on port 443 (RFC 8737).

use super::challenge_answer::challenge_config;
use super::challenge_lookup::{ChallengeDesk, OtherGateways};
use crate::client::Client;
use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::ServerConfig;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The path prefix of such texts.
pub const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/";
/// Lengths of tokens; RFC 8555 (section 8.1) requires at least 22 characters.
const TOKEN: std::ops::RangeInclusive<usize> = 16..=128;

/// The posted answers. Clones share them. Workers read them, for requests and handshakes that only an authority sends.
#[derive(Debug, Clone, Default)]
pub struct AuthorityChallenges(Arc<Board>);

#[derive(Default)]
struct Board {
    /// May any text be posted?
    has_texts: AtomicBool,
    /// The access to the answers of other gateways, if there are others.
    elsewhere: ArcSwapOption<OtherGateways>,
    ready: ArcSwap<ReadyAnswers>,
    /// Locked by every change of the answers.
    changing: Mutex<()>,
}

#[derive(Clone, Default)]
struct ReadyAnswers {
    /// Texts by host and token.
    texts: HashMap<(Box<str>, Box<str>), Arc<str>>,
    /// Handshakes by host.
    handshakes: HashMap<Box<str>, Arc<ServerConfig>>,
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ready = self.ready.load();
        f.debug_struct("Board")
            .field("texts", &ready.texts.len())
            .field("handshakes", &ready.handshakes.len())
            .finish_non_exhaustive()
    }
}

/// An answer that is posted until this is dropped.
#[derive(Debug)]
pub struct PostedAnswer {
    board: AuthorityChallenges,
    host: Box<str>,
    /// The token of a text.
    token: Option<Box<str>>,
}

impl AuthorityChallenges {
    /// Is any text posted, here or possibly elsewhere? Every request calls this, so that it reads a single flag.
    #[must_use]
    #[inline]
    pub fn has_texts(&self) -> bool {
        self.0.has_texts.load(Ordering::Relaxed)
    }

    /// The text for a token, if it is for `host`, which is in lower case, without port and trailing dot.
    #[must_use]
    pub fn text(&self, host: &str, token: &str) -> Option<Arc<str>> {
        let ready = self.0.ready.load();
        if ready.texts.is_empty() || !TOKEN.contains(&token.len()) {
            return None;
        }
        ready.texts.get(&(host.into(), token.into())).cloned()
    }

    /// The handshake that proves to an authority that we control `host`.
    #[must_use]
    pub fn handshake(&self, host: &str) -> Option<Arc<ServerConfig>> {
        self.0.ready.load().handshakes.get(host).cloned()
    }

    /// From now on other gateways may have posted answers for these hosts: such answers are requested from `desk`.
    /// Without hosts no request is made.
    pub fn look_elsewhere(&self, hosts: HashSet<Box<str>>, desk: &ChallengeDesk) {
        let before = self.0.elsewhere.load();
        let is_same = match &*before {
            Some(other) => other.knows_just(&hosts),
            None => hosts.is_empty(),
        };
        if is_same {
            return;
        }
        let elsewhere =
            (!hosts.is_empty()).then(|| Arc::new(OtherGateways::new(hosts, desk.clone())));
        self.0.elsewhere.store(elsewhere);
        self.change(|_| {});
    }

    /// The text for a token, posted here ([`AuthorityChallenges::text`]) or at another gateway. It takes three seconds
    /// at most. A request for an unknown text counts against `asker`.
    pub async fn text_anywhere(&self, host: &str, token: &str, asker: Client) -> Option<Arc<str>> {
        if let Some(text) = self.text(host, token) {
            return Some(text);
        }
        if !is_challenge_token(token) {
            return None;
        }
        let elsewhere = self.0.elsewhere.load_full()?;
        let answer = elsewhere.ask(host, Some(token), asker).await?;
        Some(str::from_utf8(answer.bytes()).ok()?.into())
    }

    /// May there be a handshake for `host`, here or at another gateway?
    #[must_use]
    pub fn may_have_handshake(&self, host: &str) -> bool {
        let elsewhere = self.0.elsewhere.load();
        self.0.ready.load().handshakes.contains_key(host)
            || elsewhere.as_ref().is_some_and(|other| other.knows(host))
    }

    /// The handshake that proves to an authority that we control `host`, posted here or at another gateway. It takes
    /// three seconds at most. A request for an unknown handshake counts against `asker`.
    pub async fn handshake_anywhere(&self, host: &str, asker: Client) -> Option<Arc<ServerConfig>> {
        if let Some(config) = self.handshake(host) {
            return Some(config);
        }
        let elsewhere = self.0.elsewhere.load_full()?;
        let answer = elsewhere.ask(host, None, asker).await?;
        answer.handshake(host)
    }

    /// Posts a text.
    #[must_use]
    pub fn post_text(&self, host: &str, token: &str, text: &str) -> PostedAnswer {
        let host: Box<str> = host.to_ascii_lowercase().into();
        let key = (host.clone(), token.into());
        self.change(|ready| drop(ready.texts.insert(key, text.into())));
        PostedAnswer {
            board: self.clone(),
            host,
            token: Some(token.into()),
        }
    }

    /// Posts a handshake whose certificate states `digest`, the SHA-256 of the challenge's answer.
    ///
    /// # Errors
    /// If no key or no certificate can be made.
    pub fn post_handshake(&self, host: &str, digest: &[u8]) -> Result<PostedAnswer, String> {
        let host: Box<str> = host.to_ascii_lowercase().into();
        let config = Arc::new(challenge_config(&host, digest)?);
        let key = host.clone();
        self.change(|ready| drop(ready.handshakes.insert(key, config)));
        Ok(PostedAnswer {
            board: self.clone(),
            host,
            token: None,
        })
    }

    fn change(&self, change: impl FnOnce(&mut ReadyAnswers)) {
        let changing = self.0.changing.lock();
        let _changing = changing.unwrap_or_else(PoisonError::into_inner);
        let mut ready = ReadyAnswers::clone(&self.0.ready.load());
        change(&mut ready);
        let has_texts = !ready.texts.is_empty() || self.0.elsewhere.load().is_some();
        self.0.ready.store(Arc::new(ready));
        self.0.has_texts.store(has_texts, Ordering::Relaxed);
    }
}

impl PostedAnswer {
    /// The name that the answer is for.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }
}

impl Drop for PostedAnswer {
    fn drop(&mut self) {
        let host = self.host.clone();
        match self.token.take() {
            Some(token) => self
                .board
                .change(|ready| drop(ready.texts.remove(&(host, token)))),
            None => self
                .board
                .change(|ready| drop(ready.handshakes.remove(&host))),
        }
    }
}

/// May this be the token of a challenge: base64url of a usual length (RFC 8555 section 8.3)?
#[must_use]
pub fn is_challenge_token(token: &str) -> bool {
    let is_of_base64url = |one: u8| one.is_ascii_alphanumeric() || one == b'-' || one == b'_';
    TOKEN.contains(&token.len()) && token.bytes().all(is_of_base64url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{CHALLENGE_PROTOCOL, OthersAnswer};
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn an_answer_is_for_its_host_alone_and_goes_with_its_order() {
        let challenges = AuthorityChallenges::default();
        let token = "a".repeat(43);
        assert_eq!(challenges.text("a.example", &token), None);
        assert!(!challenges.has_texts());
        let posted = challenges.post_text("A.example", &token, "text");
        let found = challenges.clone().text("a.example", &token);
        assert_eq!(found.as_deref(), Some("text"));
        assert_eq!(challenges.text("b.example", &token), None);
        assert_eq!(challenges.text("a.example", &token[1..]), None);
        let handshake = challenges.post_handshake("a.example", &[7; 32]).unwrap();
        assert!(challenges.has_texts());
        drop(posted);
        assert!(!challenges.has_texts());
        assert_eq!(challenges.text("a.example", &token), None);
        let config = challenges.handshake("a.example").unwrap();
        assert_eq!(config.alpn_protocols, [CHALLENGE_PROTOCOL]);
        drop(handshake);
        assert!(challenges.handshake("a.example").is_none());
        assert!(challenges.post_handshake("a.example", &[7; 31]).is_err());
    }

    #[tokio::test]
    async fn other_gateways_are_asked_for_own_hosts_where_nothing_is_known() {
        let challenges = AuthorityChallenges::default();
        let (token, asker) = ("a".repeat(43), Client::of(None));
        let refusals = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&refusals);
        let (desk, mut asks) = ChallengeDesk::new(
            Arc::new(|_: &str, token: Option<&str>| {
                let is_known = token?.starts_with('k');
                is_known.then(|| OthersAnswer::new(b"known".to_vec()))
            }),
            Arc::new(move || {
                counted.fetch_add(1, Ordering::SeqCst);
            }),
        );
        let asked = tokio::spawn(async move {
            let mut asked = 0;
            while let Some(question) = asks.recv().await {
                asked += 1;
                let known = match &question.token {
                    Some(token) => token.starts_with('a').then(|| b"text".to_vec()),
                    None => Some(vec![7; 32]),
                };
                let _ = question.answer.send(known.map(OthersAnswer::new));
            }
            asked
        });
        let text =
            async |host: &str, token: &str| challenges.text_anywhere(host, token, asker).await;
        assert_eq!(text("a.example", &token).await, None);
        assert!(!challenges.may_have_handshake("a.example"));
        challenges.look_elsewhere(HashSet::from(["a.example".into()]), &desk);
        assert!(challenges.has_texts() && challenges.may_have_handshake("a.example"));
        assert_eq!(text("a.example", &token).await.as_deref(), Some("text"));
        let handshake = async |host: &str| challenges.handshake_anywhere(host, asker).await;
        assert!(handshake("a.example").await.is_some());
        // None of these handshakes causes a request.
        let known = text("a.example", &"k".repeat(43)).await;
        assert_eq!(known.as_deref(), Some("known"));
        assert_eq!(text("b.example", &token).await, None);
        assert!(handshake("b.example").await.is_none());
        for wrong in [
            "short",
            &"a".repeat(129),
            &"a/".repeat(20),
            &"\u{e9}".repeat(20),
        ] {
            assert_eq!(text("a.example", wrong).await, None);
        }
        for _ in 0..50 {
            assert_eq!(text("a.example", &"b".repeat(20)).await, None);
        }
        challenges.look_elsewhere(HashSet::new(), &desk);
        assert!(!challenges.has_texts());
        drop((challenges, desk));
        // In sequence, so that no bound is reached.
        assert_eq!(asked.await.unwrap(), 52);
        assert_eq!(refusals.load(Ordering::SeqCst), 0);
    }
}
