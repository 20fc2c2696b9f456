//! `[tls.NAME]` and the identities of listeners as written → identities that are ready for handshakes, and what each
//! listener offers.
//!
//! At the start a file that cannot be used is an error. At a reload the identity of before stays in force, so that a
//! certificate that is being renewed keeps nothing else from being taken over. Never does an identity ask less of its
//! clients than before because a file is broken.
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
    /// In the order of the file; behind them those that listeners have of their own.
    all: Vec<LoadedIdentity>,
    /// The position of each by its name.
    positions: HashMap<String, usize>,
}

/// An identity that was made of files.
#[derive(Clone)]
pub struct LoadedIdentity {
    identity: Arc<ServerIdentity>,
    parts: IdentityParts,
    kept: Option<String>,
    is_ordered: bool,
    client_files: ClientFiles,
}

/// What each listener of a file offers.
pub(in crate::config) struct ReadIdentities {
    pub(in crate::config) identities: Identities,
    /// In the order of the listeners; none of a listener without TLS.
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

    /// The identity of this name.
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
    /// The faults of the certificate.
    pub fn certified(&self, pem: &str) -> Result<ServerIdentity, Vec<IdentityMistake>> {
        ServerIdentity::new(IdentityParts {
            cert_pem: pem.into(),
            key_pem: pem.into(),
            ..self.parts.clone()
        })
    }

    /// Is its certificate ordered, by what the file says?
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// Why the files as they are now were not taken over, where those of before stay in force.
    #[must_use]
    pub fn kept(&self) -> Option<&str> {
        self.kept.as_deref()
    }
}

impl fmt::Debug for LoadedIdentity {
    /// The key is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedIdentity")
            .field("identity", &self.identity)
            .field("kept", &self.kept)
            .finish_non_exhaustive()
    }
}

/// Reads the files of every identity. Identities of `before` stay where files are broken, and where nothing has
/// changed.
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
    // An identity that could not be read has hosts and may ask clients for certificates all the same.
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
