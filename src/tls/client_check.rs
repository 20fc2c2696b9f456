//! The requirements of an identity for clients: a certificate of one of its authorities, valid and not revoked.

use super::client_verifier::ClientVerifier;
use super::named_certificate::NamedCertificates;
use super::revocation_list::{Age, RevocationList, by_subject, is_missigned, revoked, subject};
use super::same_name_lists::{ReadList, turns};
use super::{CertificateFacts, IdentityMistake, PROVIDER, certificates, failure, pem_fault};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientCertVerifierBuilder, VerifierBuilderError, WebPkiClientVerifier};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Bits of the shortest RSA key whose signatures are accepted in a handshake.
const LEAST_RSA: u32 = 2048;

/// Must a client show a certificate?
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientVerify {
    /// No certificate is accepted too; an invalid one ends the handshake.
    Optional,
    /// Without a valid one the handshake fails.
    Required,
}

/// The certificates that clients must show. The contents of files are PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientParts {
    /// Files of authorities.
    pub ca_pem: Vec<Vec<u8>>,
    /// Must a client show a certificate?
    pub verify: ClientVerify,
    /// Files of revocation lists. If there is any list, each authority in a client's chain must have a list, and no
    /// list may have expired.
    pub crl_pem: Vec<Vec<u8>>,
}

impl ClientParts {
    /// A digest of everything that equality depends on.
    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for part in self.bytes() {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }

    /// Do these lists revoke every certificate that the lists of `before` revoke, and do they belong to the same
    /// authorities at least?
    #[must_use]
    pub fn revokes_all_of(&self, before: &Self) -> bool {
        let kept: HashSet<&Vec<u8>> = self.crl_pem.iter().collect();
        let mut gone = before.crl_pem.iter().filter(|pem| !kept.contains(pem));
        let Some(first) = gone.next() else {
            return true;
        };
        let after = revoked(lists(&self.crl_pem));
        let before = revoked(lists([first].into_iter().chain(gone)));
        before.iter().all(|(authority, serials)| {
            let after = after.get(authority);
            after.is_some_and(|after| serials.is_subset(after))
        })
    }

    /// Everything that equality depends on.
    pub(super) fn bytes(&self) -> Vec<&[u8]> {
        let verify: &[u8] = match self.verify {
            ClientVerify::Optional => b"optional",
            ClientVerify::Required => b"required",
        };
        let files = self.ca_pem.iter().chain([const { &Vec::new() }]);
        let files = files.chain(&self.crl_pem).map(Vec::as_slice);
        [verify].into_iter().chain(files).collect()
    }
}

/// The check of clients' certificates. It is part of a handshake, never of a request.
pub struct ClientCheck {
    verify: ClientVerify,
    /// Digests of the authorities.
    authorities: BTreeSet<[u8; 32]>,
    digest: [u8; 32],
    /// A digest of all its parts.
    parts_digest: [u8; 32],
    lists: Vec<RevocationList>,
    /// Subjects of authorities without a list although others have one.
    unlisted: Vec<String>,
    /// Lists that were signed by another key than their authority's.
    missigned: Vec<RevocationList>,
    verifier: Arc<ClientVerifier>,
}

impl ClientCheck {
    pub(super) fn new(parts: &ClientParts) -> Result<Self, Vec<IdentityMistake>> {
        let mut mistakes = Vec::new();
        let (mut roots, mut authorities) = (RootCertStore::empty(), BTreeSet::new());
        for (at, pem) in parts.ca_pem.iter().enumerate() {
            let added = add_authorities(pem, &mut roots, &mut authorities);
            mistakes.extend(added.err().map(|why| IdentityMistake::Authority(at, why)));
        }
        let roots = Arc::new(roots);
        // Each list is checked separately, for which one authority is enough.
        let one_root = RootCertStore {
            roots: roots.roots.iter().take(1).cloned().collect(),
        };
        let one_root = Arc::new(one_root);
        let mut lists = Vec::new();
        for (at, pem) in parts.crl_pem.iter().enumerate() {
            match read_lists(pem, &one_root) {
                Ok(read) => lists.extend(read.into_iter().map(|der| {
                    let facts = RevocationList::read(&der, at);
                    (der, facts)
                })),
                Err(why) => mistakes.push(IdentityMistake::RevocationList(at, why)),
            }
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let facts = in_force(&lists);
        // The verifier uses only the first list of an authority.
        lists.sort_by_cached_key(|(_, facts)| facts.as_ref().map(RevocationList::newest_first));
        let named = if parts.crl_pem.is_empty() {
            authorities.clone()
        } else {
            NamedCertificates::new()
        };
        let verifier = verifier_of(&roots, parts.verify, &lists, named)
            .map_err(|error| vec![IdentityMistake::Client(error.to_string())])?;
        let mut digest = Sha256::new();
        for authority in &authorities {
            digest.update(authority);
        }
        Ok(Self {
            verify: parts.verify,
            unlisted: unlisted(&parts.ca_pem, &facts),
            missigned: missigned(&parts.ca_pem, &lists),
            authorities,
            digest: digest.finalize().into(),
            parts_digest: parts.digest(),
            lists: facts,
            verifier,
        })
    }

    /// Must a client show a certificate?
    #[must_use]
    pub fn verify(&self) -> ClientVerify {
        self.verify
    }

    /// The number of authorities.
    #[must_use]
    pub fn authorities(&self) -> usize {
        self.authorities.len()
    }

    /// A digest of the authorities, independent of their order. Two identities with different authorities always have
    /// different digests.
    #[must_use]
    pub fn authorities_digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// A digest of all its parts. Two checks with the same digest give the same results.
    pub(super) fn parts_digest(&self) -> &[u8; 32] {
        &self.parts_digest
    }

    /// The effective revocation lists, in the order of their files: the newest one of each authority.
    #[must_use]
    pub fn lists(&self) -> &[RevocationList] {
        &self.lists
    }

    /// The subjects of authorities without a list, if there is any list: every client of theirs is refused.
    #[must_use]
    pub fn unlisted(&self) -> &[String] {
        &self.unlisted
    }

    /// The lists that were signed by a key of none of the authorities with their issuer's name: every client of that
    /// name is refused.
    #[must_use]
    pub fn missigned(&self) -> &[RevocationList] {
        &self.missigned
    }

    /// Would every client that passed `earlier` pass this check too, judging by authorities and the requirement of a
    /// certificate?
    pub(super) fn is_met_by(&self, earlier: &Self) -> bool {
        self.verify <= earlier.verify && earlier.authorities.is_subset(&self.authorities)
    }

    /// Would a client that shows this certificate pass at `now`, in seconds since 1970? The file is PEM: the
    /// certificate, followed by its intermediates.
    ///
    /// # Errors
    /// The reason why the client would not pass.
    pub fn judge(&self, pem: &[u8], now: u64) -> Result<CertificateFacts, String> {
        let chain = certificates(pem)?;
        let (leaf, between) = chain.split_first().ok_or("it is empty")?;
        let facts = CertificateFacts::read(leaf).ok_or("it is broken")?;
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let judged = self.verifier.judge(leaf, between, now);
        judged.map_err(|error| failure::of_file(&error))?;
        match facts.key.strip_prefix("RSA ").map(str::parse::<u32>) {
            // The handshake would fail later, because of the client's signature.
            Some(Ok(bits)) if bits < LEAST_RSA => {
                let text =
                    format!("its key is too short, with {bits} bits: an RSA key needs {LEAST_RSA}");
                Err(text)
            }
            _ => Ok(facts),
        }
    }

    /// Verifies a chain, which begins with the client's own certificate.
    pub(super) fn verify_chain(
        &self,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let (leaf, between) = chain
            .split_first()
            .ok_or(rustls::Error::NoCertificatesPresented)?;
        self.verifier.judge(leaf, between, now)?;
        Ok(())
    }

    pub(super) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::<ClientVerifier>::clone(&self.verifier)
    }
}

impl fmt::Debug for ClientCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCheck")
            .field("verify", &self.verify)
            .field("authorities", &self.authorities.len())
            .finish_non_exhaustive()
    }
}

fn add_authorities(
    pem: &[u8],
    roots: &mut RootCertStore,
    digests: &mut BTreeSet<[u8; 32]>,
) -> Result<(), String> {
    for certificate in certificates(pem)? {
        if !digests.insert(Sha256::digest(&certificate).into()) {
            continue;
        }
        let added = roots.add(certificate);
        added.map_err(|error| failure::of_file(&error))?;
    }
    Ok(())
}

/// Those lists of these files that can be read.
fn lists<'a>(
    files: impl IntoIterator<Item = &'a Vec<u8>>,
) -> impl Iterator<Item = CertificateRevocationListDer<'static>> {
    let files = files.into_iter();
    let lists = files.flat_map(|pem| CertificateRevocationListDer::pem_slice_iter(pem));
    lists.flatten()
}

/// The subjects of authorities without a list, if there is any list.
fn unlisted(authorities: &[Vec<u8>], lists: &[RevocationList]) -> Vec<String> {
    let issuers: HashSet<&str> = lists.iter().map(|list| &*list.issuer).collect();
    let read = authorities.iter().filter_map(|pem| certificates(pem).ok());
    let subjects = read.flatten().filter_map(|one| subject(&one));
    let without = subjects.filter(|subject| !issuers.is_empty() && !issuers.contains(&**subject));
    without.collect()
}

/// The lists that were signed by a key of none of the authorities with their issuer's name.
fn missigned(authorities: &[Vec<u8>], lists: &[ReadList]) -> Vec<RevocationList> {
    let read = authorities.iter().filter_map(|pem| certificates(pem).ok());
    let authorities: Vec<_> = read.flatten().collect();
    let authorities = by_subject(&authorities);
    let wrong = lists
        .iter()
        .filter(|(der, _)| is_missigned(der, &authorities));
    wrong.filter_map(|(_, facts)| facts.clone()).collect()
}

/// The lists, without lists that a newer one replaces.
fn in_force<D>(lists: &[(D, Option<RevocationList>)]) -> Vec<RevocationList> {
    let all = || lists.iter().filter_map(|(_, facts)| facts.as_ref());
    let mut newest: HashMap<_, &Age> = HashMap::new();
    for list in all() {
        let age = newest.entry(list.series()).or_insert(list.age());
        *age = list.age().max(*age);
    }
    let is_newest = |list: &&RevocationList| newest[&list.series()] == list.age();
    all().filter(is_newest).cloned().collect()
}

/// The lists of a PEM file, at least one. A broken list is reported here, with its file, rather than by the verifier of
/// all lists.
fn read_lists(
    pem: &[u8],
    roots: &Arc<RootCertStore>,
) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|_| "it is no PEM file")?;
    if all.is_empty() {
        return Err(pem_fault::of_lists(pem));
    }
    match verifier(roots, all.clone()).build() {
        Err(VerifierBuilderError::InvalidCrl(why)) => {
            Err(format!("its list cannot be used ({why:?})"))
        }
        _ => Ok(all),
    }
}

/// The verifier with all lists: for each name, the lists of each key have a turn.
fn verifier_of(
    roots: &Arc<RootCertStore>,
    verify: ClientVerify,
    lists: &[ReadList],
    named: NamedCertificates,
) -> Result<Arc<ClientVerifier>, VerifierBuilderError> {
    let build = |lists| {
        let builder = verifier(roots, lists);
        match verify {
            ClientVerify::Required => builder.build(),
            ClientVerify::Optional => builder.allow_unauthenticated().build(),
        }
    };
    let mut turns = turns(lists).into_iter();
    let first = build(turns.next().unwrap_or_default())?;
    let others = turns.map(build).collect::<Result<_, _>>()?;
    Ok(Arc::new(ClientVerifier {
        named,
        first,
        others,
    }))
}

fn verifier(
    roots: &Arc<RootCertStore>,
    lists: Vec<CertificateRevocationListDer<'static>>,
) -> ClientCertVerifierBuilder {
    WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), PROVIDER.clone())
        .with_crls(lists)
        .enforce_revocation_expiration()
}

#[cfg(test)]
mod tests;
