//! One order, from its beginning to the certificate (RFC 8555, section 7.4).

use super::authority::{ChallengeKind, OrderedIdentity};
use super::failure::{BAD_NONCE, OrderFailure, is_problem, reason};
use super::issued::Bundle;
use super::open_challenge::{ChallengeEntry, OpenChallenge};
use super::vault::{OrderRight, Vault};
use crate::tls::{AuthorityChallenges, PostedAnswer};
use instant_acme::{
    Account, AuthorizationHandle, AuthorizationStatus, CertificateIdentifier, ChallengeStatus,
    ChallengeType, Identifier, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use std::time::Duration;

/// The longest time for an order. An authority checks from several places, and tries again.
pub(super) const ORDER_WITHIN: Duration = Duration::from_secs(300);
/// The state of an order is polled; the first time after this.
const POLL: Duration = Duration::from_millis(250);
/// The longest time for the authority's check, or for its signature.
const POLL_WITHIN: Duration = Duration::from_secs(120);

/// The most times that a request of an order is sent while its nonces are rejected, each with the library's own
/// retries. A request that is polled, such as whether the order is ready, has this number for all polls together.
const NONCE_TRIES: usize = 10;

/// Repeats a request when the authority rejects the nonce (RFC 8555, section 6.5), beyond the three tries of the
/// library. Without the retry an existing order or certificate would be ordered a second time. A macro, since a closure
/// that lends the order to its future is not `Send`.
macro_rules! insist {
    ($ask:expr) => {{
        let mut tries = 1;
        loop {
            match $ask.await {
                Err(instant_acme::Error::Api(problem))
                    if tries < NONCE_TRIES && is_problem(&problem, BAD_NONCE) =>
                {
                    tries += 1;
                }
                done => break done,
            }
        }
    }};
}

/// The content and the means of an order.
pub(super) struct Purchase<'a> {
    pub(super) identity: &'a OrderedIdentity,
    /// The certificate that is replaced, if the authority supports the statement.
    pub(super) replaces: Option<CertificateIdentifier<'a>>,
    /// Failures in a row. After each failure the next kind of challenge is tried.
    pub(super) failures: usize,
    pub(super) challenges: &'a AuthorityChallenges,
    /// The place where other gateways and processes find the answers to challenges.
    pub(super) vault: &'a Vault,
    pub(super) right: &'a OrderRight,
}

/// An answer that is ready here, and the place where others find it.
struct Shown {
    posted: PostedAnswer,
    kind: ChallengeKind,
    open: OpenChallenge,
}

impl Purchase<'_> {
    /// Orders, proves control of the names, and fetches the certificate. The certificate's key is new.
    pub(super) async fn make(&self, account: &Account) -> Result<Bundle, OrderFailure> {
        let hosts = &self.identity.hosts;
        let identifiers: Vec<Identifier> = hosts.iter().cloned().map(Identifier::Dns).collect();
        let mut order = self.begin(account, &identifiers).await?;
        let policy = RetryPolicy::new().initial_delay(POLL).timeout(POLL_WITHIN);
        let mut shown = Vec::new();
        let found = self.show_names(&mut order, &policy, &mut shown).await;
        self.withdraw(shown).await;
        found?;
        let key = KeyPair::generate().map_err(crypto)?;
        let mut params = CertificateParams::new(hosts.clone()).map_err(crypto)?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key).map_err(crypto)?;
        // Another gateway may be ordering by now.
        self.right.confirm().await?;
        insist!(order.finalize_csr(request.der()))?;
        let chain = insist!(order.poll_certificate(&policy))?;
        self.usable(&chain, &key.serialize_pem())
    }

    async fn begin(&self, account: &Account, names: &[Identifier]) -> Result<Order, OrderFailure> {
        let new_order = || match &self.identity.authority.profile {
            Some(profile) => NewOrder::new(names).profile(profile),
            None => NewOrder::new(names),
        };
        if let Some(replaces) = &self.replaces {
            let replacing = new_order().replaces(replaces.clone());
            match insist!(account.new_order(&replacing)).map_err(OrderFailure::from) {
                // The certificate was already replaced, or is not of this account: the order is made without
                // `replaces`.
                Err(failure) if failure.is("alreadyReplaced") || failure.is("malformed") => {}
                made => return made,
            }
        }
        Ok(insist!(account.new_order(&new_order()))?)
    }

    /// Posts an answer for each name without a valid authorization, and lets the authority check until all are valid.
    async fn show_names(
        &self,
        order: &mut Order,
        policy: &RetryPolicy,
        shown: &mut Vec<Shown>,
    ) -> Result<(), OrderFailure> {
        if let Err(failure) = self.show_each(order, shown).await {
            return Err(self.found_at_once(order, failure).await);
        }
        if order.state().status == OrderStatus::Pending {
            let status = insist!(order.poll_ready(policy));
            if !matches!(status, Ok(OrderStatus::Ready)) {
                return Err(self.why_not(order, shown, status.err()).await);
            }
        }
        Ok(())
    }

    /// Posts the answers, and lets the authority check after all gateways have read them: the authority may come to any
    /// gateway.
    async fn show_each(
        &self,
        order: &mut Order,
        shown: &mut Vec<Shown>,
    ) -> Result<(), OrderFailure> {
        insist!(learn_names(order))?;
        self.post_each(order, shown).await?;
        if shown.is_empty() {
            return Ok(());
        }
        self.vault.announce(&open_of(shown)).await?;
        let mut names = order.authorizations();
        while let Some(name) = names.next().await {
            let mut name = name?;
            let host = name.identifier().to_string();
            let Some(one) = shown.iter().find(|one| one.is_of(&host)) else {
                continue;
            };
            let Some(mut challenge) = name.challenge(wire(one.kind)) else {
                return Err(OrderFailure::Crypto(
                    "the authority no longer lists a challenge".into(),
                ));
            };
            tracing::info!(
                "tls.{}: {} verifies {host} by {}",
                self.identity.name,
                self.identity.authority.name,
                one.kind.as_str()
            );
            insist!(challenge.set_ready())?;
        }
        Ok(())
    }

    /// Posts an answer for each name without a valid authorization.
    async fn post_each(
        &self,
        order: &mut Order,
        shown: &mut Vec<Shown>,
    ) -> Result<(), OrderFailure> {
        let mut names = order.authorizations();
        while let Some(name) = names.next().await {
            let mut name = name?;
            match name.status {
                AuthorizationStatus::Valid => {}
                AuthorizationStatus::Pending => self.post_name(&mut name, shown).await?,
                status => {
                    return Err(OrderFailure::NotOurs {
                        host: name.identifier().to_string(),
                        kind: self.kinds()[0],
                        why: format!("its authorization is {status:?}").to_lowercase(),
                    });
                }
            }
        }
        Ok(())
    }

    async fn post_name<'a>(
        &self,
        name: &'a mut AuthorizationHandle<'a>,
        shown: &mut Vec<Shown>,
    ) -> Result<(), OrderFailure> {
        let host = name.identifier().to_string();
        let offers = |kind: &ChallengeKind| {
            let kind = wire(*kind);
            name.challenges.iter().any(|one| one.r#type == kind)
        };
        let Some(kind) = self.kinds().into_iter().find(offers) else {
            return Err(OrderFailure::NoChallenge {
                host,
                allowed: self.identity.authority.challenges.clone(),
            });
        };
        let Some(challenge) = name.challenge(wire(kind)) else {
            return Err(OrderFailure::Crypto(
                "the authority no longer lists a challenge".into(),
            ));
        };
        let answer = challenge.key_authorization();
        let digest = answer.digest();
        let token = (kind == ChallengeKind::Http01).then(|| challenge.token.clone());
        let posted = match &token {
            Some(token) => self.challenges.post_text(&host, token, answer.as_str()),
            None => self
                .challenges
                .post_handshake(&host, digest.as_ref())
                .map_err(OrderFailure::Crypto)?,
        };
        let text = match &token {
            Some(_) => answer.as_str().as_bytes(),
            None => digest.as_ref(),
        };
        let entry = ChallengeEntry::of(posted.host(), token.as_deref());
        let open = OpenChallenge {
            name: entry.name(),
            answer: text.to_vec(),
        };
        // Gateways of 0.1.0 look an answer up by its name.
        self.vault.post(&open).await?;
        shown.push(Shown { posted, kind, open });
        Ok(())
    }

    /// The cause behind `failure` of showing the names: an authority may have checked before it answers the request for
    /// the check, and then states the result.
    async fn found_at_once(&self, order: &mut Order, failure: OrderFailure) -> OrderFailure {
        if !matches!(failure, OrderFailure::Refused(_)) {
            return failure;
        }
        self.refused_of(order, &[]).await.unwrap_or(failure)
    }

    /// The failure of the first name that the authority has refused, or has not checked although its answer is posted.
    async fn refused_of(&self, order: &mut Order, shown: &[Shown]) -> Option<OrderFailure> {
        let mut names = order.authorizations();
        while let Some(Ok(mut name)) = names.next().await {
            if insist!(name.refresh()).is_err() {
                break;
            }
            if let Some(refused) = self.refused_name(&name) {
                return Some(refused);
            }
            let host = name.identifier().to_string();
            let asked = shown.iter().any(|one| one.posted.host() == host);
            if asked && name.status == AuthorizationStatus::Pending {
                let why = "the authority has not looked yet".into();
                let kind = self.kinds()[0];
                return Some(OrderFailure::NotOurs { host, kind, why });
            }
        }
        None
    }

    /// The failure of a name that the authority has found not to be ours.
    fn refused_name(&self, name: &AuthorizationHandle<'_>) -> Option<OrderFailure> {
        let (kind, why) = name.challenges.iter().find_map(|one| {
            let refused = one.error.as_ref()?;
            (one.status == ChallengeStatus::Invalid).then(|| (one.r#type.clone(), reason(refused)))
        })?;
        let kinds = self.kinds();
        let kind = kinds
            .iter()
            .copied()
            .find(|candidate| wire(*candidate) == kind);
        Some(OrderFailure::NotOurs {
            host: name.identifier().to_string(),
            kind: kind.unwrap_or(kinds[0]),
            why,
        })
    }

    /// Withdraws the answers.
    async fn withdraw(&self, shown: Vec<Shown>) {
        if !shown.is_empty() {
            self.vault.conceal(&open_of(&shown)).await;
        }
        for one in &shown {
            self.vault.withdraw(&one.open.name).await;
        }
    }

    /// The allowed kinds, starting with another one after each failure.
    fn kinds(&self) -> Vec<ChallengeKind> {
        let mut kinds = self.identity.authority.challenges.clone();
        let first = self.failures % kinds.len().max(1);
        kinds.rotate_left(first);
        kinds
    }

    /// The cause for which an order is not ready: the authority's result for the first name that it refuses.
    async fn why_not(
        &self,
        order: &mut Order,
        shown: &[Shown],
        error: Option<instant_acme::Error>,
    ) -> OrderFailure {
        if let Some(refused) = self.refused_of(order, shown).await {
            return refused;
        }
        match error {
            Some(error) => error.into(),
            None => OrderFailure::Useless("the authority calls the order invalid".into()),
        }
    }

    /// The certificate and its key, if the certificate is for the ordered names.
    fn usable(&self, chain: &str, key: &str) -> Result<Bundle, OrderFailure> {
        let pem = format!("{}\n{key}", chain.trim_end());
        let bundle =
            Bundle::read(&pem).ok_or_else(|| OrderFailure::Useless("it cannot be read".into()))?;
        if !bundle.covers(&self.identity.hosts) {
            let names = bundle.facts().names.join(", ");
            return Err(OrderFailure::Useless(format!("it is for {names}")));
        }
        Ok(bundle)
    }
}

/// Fetches the state of each name of the order. A known state is not fetched again.
async fn learn_names(order: &mut Order) -> Result<(), instant_acme::Error> {
    let mut names = order.authorizations();
    while let Some(name) = names.next().await {
        name?;
    }
    Ok(())
}

impl Shown {
    /// Is this answer for this host?
    fn is_of(&self, host: &str) -> bool {
        self.posted.host().eq_ignore_ascii_case(host)
    }
}

/// The challenges that other gateways read.
fn open_of(shown: &[Shown]) -> Vec<OpenChallenge> {
    shown.iter().map(|one| one.open.clone()).collect()
}

fn wire(kind: ChallengeKind) -> ChallengeType {
    match kind {
        ChallengeKind::Http01 => ChallengeType::Http01,
        ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
    }
}

fn crypto(error: rcgen::Error) -> OrderFailure {
    OrderFailure::Crypto(error.to_string())
}
