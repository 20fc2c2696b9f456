//! Compiles `[tls.NAME]` and the identities of listeners into identities that are ready for handshakes, and into the
//! offer of each listener.
//!
//! At start, a file that cannot be used is an error. During a reload, the previous identity stays in force, so that a
//! certificate that is being renewed does not block other changes. A broken file never makes an identity require less
//! of its clients than before.
//!
//! Its parts:
//!
//! ```text
//! written           an identity as it is written
//! pem_files         the contents of its files, and what is wrong with them
//! chain             certificates in the chain that signed nothing
//! certificate_life  warnings of a life that ends soon
//! revocation        revocation lists that refuse everyone
//! loaded            an identity made of its files, or kept as it was before
//! listeners         the identities of each listener
//! coverage          hosts without a certificate
//! demand            routes that are reached past a demand for certificates
//! client_files      the files that clients are judged by, read again without the configuration
//! ```

mod certificate_life;
mod chain;
mod client_files;
mod coverage;
mod demand;
mod listeners;
mod loaded;
mod pem_files;
mod revocation;
mod written;

use super::authorities::Authorities;
use crate::acme::OrderedIdentity;
use crate::config::document::Document;
use crate::config::input::SideFiles;
use crate::config::presentation::IdentityOutline;
use crate::tls::{IdentityMistake, IdentityParts, Offer, ServerIdentity};
use client_files::ClientFiles;
use loaded::Loading;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use written::WrittenIdentity;

/// The identities of a file.
#[derive(Debug, Default)]
pub struct Identities {
    /// The identities in the order of the file, followed by the identities that belong to one listener.
    all: Vec<LoadedIdentity>,
    /// The position of each identity by its name.
    positions: HashMap<String, usize>,
}

/// An identity that was made from files.
#[derive(Clone)]
pub struct LoadedIdentity {
    identity: Arc<ServerIdentity>,
    parts: IdentityParts,
    kept: Option<String>,
    is_ordered: bool,
    client_files: ClientFiles,
}

/// The identities of a file, and the offer of each listener.
pub(in crate::config) struct ReadIdentities {
    pub(in crate::config) identities: Identities,
    /// The offers in the order of the listeners; `None` for a listener without TLS.
    pub(in crate::config) offers: Vec<Option<Offer>>,
    pub(in crate::config) outlines: Vec<IdentityOutline>,
    /// The certificates to order.
    pub(in crate::config) orders: Vec<OrderedIdentity>,
}

impl Identities {
    fn new(all: Vec<LoadedIdentity>) -> Self {
        let names = all.iter().enumerate().rev();
        let positions = names
            .map(|(at, one)| (one.identity.name().to_owned(), at))
            .collect();
        Self { all, positions }
    }

    /// All identities.
    pub fn all(&self) -> impl Iterator<Item = &LoadedIdentity> {
        self.all.iter()
    }

    /// The identity with this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&LoadedIdentity> {
        self.all.get(*self.positions.get(name)?)
    }
}

impl LoadedIdentity {
    /// The identity.
    #[must_use]
    pub fn identity(&self) -> &Arc<ServerIdentity> {
        &self.identity
    }

    /// The identity with another certificate: a chain and its key, as PEM.
    ///
    /// # Errors
    /// If the certificate has faults: the faults.
    pub fn certified(&self, pem: &str) -> Result<ServerIdentity, Vec<IdentityMistake>> {
        ServerIdentity::new(IdentityParts {
            cert_pem: pem.into(),
            key_pem: pem.into(),
            ..self.parts.clone()
        })
    }

    /// Is its certificate ordered, according to the file?
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// The reason why the current files were not used and the previous files stay in force.
    #[must_use]
    pub fn kept(&self) -> Option<&str> {
        self.kept.as_deref()
    }
}

impl fmt::Debug for LoadedIdentity {
    /// The private key is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedIdentity")
            .field("identity", &self.identity)
            .field("kept", &self.kept)
            .finish_non_exhaustive()
    }
}

/// Reads the files of every identity. Identities of `before` stay if their files are broken or unchanged.
pub(in crate::config) fn read_identities(
    document: &Document,
    authorities: &Authorities,
    before: Option<&Identities>,
    side_files: &mut SideFiles<'_>,
) -> ReadIdentities {
    let written = written::written_identities(document, authorities);
    let loading = Loading {
        before,
        may_lack: side_files.source.is_without_store(),
    };
    let loaded = loading.all(&written, side_files);
    let mut both: Vec<(&WrittenIdentity<'_>, LoadedIdentity)> = Vec::new();
    for (written, loaded) in written.iter().zip(loaded) {
        let Some(loaded) = loaded else { continue };
        certificate_life::note_life(written, &loaded.identity, side_files.found);
        chain::note_chain(written, &loaded.identity, side_files.found);
        revocation::note_revocation(written, &loaded.identity, side_files.found);
        coverage::of_hosts(written, &loaded.identity, side_files.found);
        both.push((written, loaded));
    }
    let offers = listeners::offers(document, &both, side_files.found);
    // An unreadable identity also has hosts and may also request certificates of clients.
    if both.len() == written.len() {
        coverage::of_routes(document, &offers, side_files.found);
        demand::of_routes(document, &both, &offers, side_files.found);
    }
    ReadIdentities {
        orders: both
            .iter()
            .filter_map(|(written, _)| written.order())
            .collect(),
        outlines: both
            .iter()
            .map(|(written, loaded)| written.outline(loaded))
            .collect(),
        identities: Identities::new(both.into_iter().map(|(_, loaded)| loaded).collect()),
        offers,
    }
}

#[cfg(test)]
mod tests;
