//! An identity as written, either a separate table or a part of a listener.

use super::LoadedIdentity;
use crate::acme::{Authority, OrderedIdentity};
use crate::config::document::{
    ClientTable, Document, ListenerTls, OwnIdentity, TlsTable, Words as _,
};
use crate::config::input::{At, Span};
use crate::config::presentation::IdentityOutline;
use crate::config::settings::authorities::Authorities;
use crate::config::value::quoted;
use crate::tls::{Alpn, ServedName, TlsVersion};
use std::sync::Arc;

/// An identity as written, without mistakes in its form.
pub(super) struct WrittenIdentity<'a> {
    /// The name of its table, or the address of its listener.
    pub(super) name: String,
    /// "identity `api`", for messages.
    pub(super) subject: String,
    /// The place of its name.
    pub(super) place: &'a Span,
    /// Does it belong to one listener?
    pub(super) is_of_listener: bool,
    pub(super) certificate: WrittenCertificate<'a>,
    pub(super) hosts: &'a [At<ServedName>],
    pub(super) is_default: bool,
    pub(super) least_version: TlsVersion,
    pub(super) alpn: Vec<Alpn>,
    pub(super) client: Option<&'a ClientTable>,
    /// The place of `client`.
    pub(super) client_place: Option<&'a Span>,
}

/// The source of a certificate.
pub(super) enum WrittenCertificate<'a> {
    /// Two files.
    Files {
        cert: &'a At<String>,
        key: &'a At<String>,
    },
    /// An authority that issues the certificate; `None` if the authority has a mistake.
    Ordered {
        acme: &'a At<String>,
        authority: Option<Arc<Authority>>,
    },
}

impl WrittenCertificate<'_> {
    /// The place that names it.
    pub(super) fn span(&self) -> &Span {
        match self {
            Self::Files { cert, .. } => &cert.span,
            Self::Ordered { acme, .. } => &acme.span,
        }
    }
}

/// Every identity whose table has no mistake.
pub(super) fn written_identities<'a>(
    document: &'a Document,
    authorities: &Authorities,
) -> Vec<WrittenIdentity<'a>> {
    let tables = document.identities.iter();
    let tables = tables.filter_map(|table| of_table(table, authorities));
    let listeners = document.server.listen.entries().iter();
    let of_listeners = listeners.filter_map(|entry| {
        let address = entry.value.listens_on()?;
        match entry.value.tls.at() {
            Some(At {
                value: ListenerTls::Own(of_listeners),
                span,
            }) => of_listener(address.value.to_string(), of_listeners, span),
            _ => None,
        }
    });
    tables.chain(of_listeners).collect()
}

fn of_table<'a>(table: &'a TlsTable, authorities: &Authorities) -> Option<WrittenIdentity<'a>> {
    let is_bad = table.hosts.is_bad()
        || table.default.is_bad()
        || table.min.is_bad()
        || table.alpn.is_bad()
        || table.client.is_bad();
    let certificate = match table.acme.at() {
        Some(acme) => WrittenCertificate::Ordered {
            acme,
            authority: authorities.named(&acme.value),
        },
        None => WrittenCertificate::Files {
            cert: table.cert.at()?,
            key: table.key.at()?,
        },
    };
    let client = table.client.get();
    let has_bad_client = client.is_some_and(|client| {
        client.ca.at().is_none() || client.crl.is_bad() || client.verify.is_bad()
    });
    if is_bad || has_bad_client {
        return None;
    }
    Some(WrittenIdentity {
        name: table.name.value.clone(),
        subject: table.to_string(),
        place: &table.name.span,
        is_of_listener: false,
        certificate,
        hosts: table.hosts.entries(),
        is_default: table.default.or(false),
        least_version: table.min(),
        alpn: table.alpn().into_iter().map(|at| at.value).collect(),
        client,
        client_place: table.client.span(),
    })
}

fn of_listener<'a>(
    name: String,
    listener_identity: &'a OwnIdentity,
    place: &'a Span,
) -> Option<WrittenIdentity<'a>> {
    Some(WrittenIdentity {
        subject: format!("the identity of {}", quoted(&name)),
        name,
        place,
        is_of_listener: true,
        certificate: WrittenCertificate::Files {
            cert: listener_identity.cert.at()?,
            key: listener_identity.key.at()?,
        },
        hosts: &[],
        is_default: true,
        least_version: TlsVersion::Tls12,
        alpn: vec![Alpn::H2, Alpn::Http11],
        client: None,
        client_place: None,
    })
}

impl WrittenIdentity<'_> {
    /// Is its certificate ordered?
    pub(super) fn is_ordered(&self) -> bool {
        matches!(self.certificate, WrittenCertificate::Ordered { .. })
    }

    /// The hosts that are written; `None` if the hosts come from the certificate.
    pub(super) fn named_hosts(&self) -> Option<Vec<ServedName>> {
        let hosts = self.hosts.iter().map(|at| at.value.clone());
        (!self.hosts.is_empty()).then(|| hosts.collect())
    }

    /// The order for its certificate; `None` if its certificate is a file, or if its settings for the order have a
    /// mistake.
    pub(super) fn order(&self) -> Option<OrderedIdentity> {
        let WrittenCertificate::Ordered { authority, .. } = &self.certificate else {
            return None;
        };
        let hosts = self.hosts.iter().map(|at| at.value.as_str().to_owned());
        Some(OrderedIdentity {
            name: self.name.as_str().into(),
            hosts: hosts.collect(),
            authority: Arc::clone(authority.as_ref()?),
        })
    }

    /// The identity in a form that can be compared.
    pub(super) fn outline(&self, loaded: &LoadedIdentity) -> IdentityOutline {
        let identity = &loaded.identity;
        let order = self.order().map(|order| order.to_string());
        let facts = identity.facts();
        let (fingerprint, not_after) = match &order {
            Some(_) => Default::default(),
            None => (facts.fingerprint, facts.not_after),
        };
        let client = identity.client().map(|check| {
            let authorities = match check.authorities() {
                1 => "1 authority".to_owned(),
                many => format!("{many} authorities"),
            };
            let has_lists = self.client.is_some_and(|one| !one.crl.entries().is_empty());
            let lists = if has_lists {
                ", with revocation lists"
            } else {
                ""
            };
            format!("{} by {authorities}{lists}", check.verify().word())
        });
        IdentityOutline {
            name: self.name.as_str().into(),
            hosts: self.named_hosts(),
            is_default: self.is_default,
            least_version: self.least_version,
            alpn: self.alpn.iter().map(|alpn| alpn.as_str()).collect(),
            client: client.unwrap_or_else(|| "none".to_owned()),
            order,
            fingerprint,
            not_after,
            check: loaded.parts.client.clone(),
        }
    }
}
