//! Revocation lists of authorities that share a name, as one does that goes on with a new key. Of the lists of one name
//! webpki looks at the first alone, and refuses the client where another key has signed it: so the lists of each key
//! have a turn as the first. A list counts in no turn but for certificates of the key that has signed it.

use super::revocation_list::RevocationList;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertRevocationListError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
};
use std::sync::Arc;

/// A list as the verifier takes it, with what stands in it.
pub(super) type ReadList = (
    CertificateRevocationListDer<'static>,
    Option<RevocationList>,
);

/// Most turns. An authority changes its key once in years.
const MOST_TURNS: usize = 8;

/// The lists once for each turn, where they stand in the order in which they count. Without two keys of one name there is
/// one turn.
pub(super) fn turns(lists: &[ReadList]) -> Vec<Vec<CertificateRevocationListDer<'static>>> {
    let ranks: Vec<usize> = lists.iter().map(|(_, list)| rank(list, lists)).collect();
    let count = ranks.iter().max().map_or(1, |most| most + 1);
    let turn = |turn: usize| {
        let mut order: Vec<usize> = (0..lists.len()).collect();
        order.sort_by_key(|at| (ranks[*at] + count - turn) % count);
        order.into_iter().map(|at| lists[at].0.clone()).collect()
    };
    (0..count.min(MOST_TURNS)).map(turn).collect()
}

/// How many other keys of its issuer's name have lists before it?
fn rank(list: &Option<RevocationList>, lists: &[ReadList]) -> usize {
    let Some(list) = list else { return 0 };
    let mut keys: Vec<Option<&[u8]>> = Vec::new();
    let read = lists.iter().filter_map(|(_, other)| other.as_ref());
    for other in read.filter(|other| other.issuer == list.issuer) {
        if !keys.contains(&other.key()) {
            keys.push(other.key());
        }
    }
    keys.iter().position(|key| *key == list.key()).unwrap_or(0)
}

/// Asks one verifier after the other, as long as the list that it looks at is another key's.
#[derive(Debug)]
pub(super) struct EachInTurn {
    pub(super) first: Arc<dyn ClientCertVerifier>,
    pub(super) others: Vec<Arc<dyn ClientCertVerifier>>,
}

impl ClientCertVerifier for EachInTurn {
    fn offer_client_auth(&self) -> bool {
        self.first.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.first.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.first.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let by_another_key =
            Error::InvalidCertRevocationList(CertRevocationListError::BadSignature);
        let ask = |one: &Arc<dyn ClientCertVerifier>| {
            one.verify_client_cert(end_entity, intermediates, now)
        };
        let mut judged = ask(&self.first);
        for next in &self.others {
            match &judged {
                Err(error) if *error == by_another_key => judged = ask(next),
                _ => break,
            }
        }
        judged
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.first.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.first.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.first.supported_verify_schemes()
    }
}
