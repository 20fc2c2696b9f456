//! Identities and the listeners that offer them: names, and listeners that do not enforce an identity's demand for
//! certificates.

pub(super) mod authorities;
pub(super) mod unasked_certificates;

use super::names::{NameIndex, WholeFile};
use super::repeated;
use crate::config::document::{ClientTable, Document, ListenEntry, ListenerTls, TlsTable};
use crate::config::input::At;
use crate::config::report::{Code, Details as _, Findings};
use crate::config::value::quoted;
use crate::tls::ClientVerify;
use std::collections::{HashMap, HashSet};

/// Compares identities and listeners.
pub(super) fn check_identities(file: WholeFile<'_>, found: &mut Findings) {
    let document = file.document;
    let names = document.identities.iter().map(|table| &table.name);
    let mut identities = NameIndex::new("tls", Code::UnknownIdentity, names);
    let mut offers_all = false;
    for entry in document.server.listen.entries() {
        let Some(At { value: tls, span }) = entry.value.tls.at() else {
            continue;
        };
        let address = shown(&entry.value);
        match tls {
            ListenerTls::All => {
                offers_all = true;
                if document.identities.is_empty() && !may_define_any(document) {
                    let message = format!("{address} has TLS, and there is no identity");
                    found
                        .error(Code::UnknownIdentity, message)
                        .at(span, "there is no `[tls.NAME]`")
                        .help("add\n[tls.api]\ncert = \"api.pem\"\nkey = \"api.key\"");
                }
            }
            ListenerTls::Named(names) => {
                let user = format!("{address} offers identity");
                for name in names {
                    identities.used(&user, name, file, found);
                }
                let twice = |name: &String| format!("{address} offers {} twice", quoted(name));
                repeated(names, twice, found);
            }
            ListenerTls::Own(_) => {}
        }
    }
    for table in &document.identities {
        let host = |host: &_| format!("{table} has the host `{host}` twice");
        repeated(table.hosts.entries(), host, found);
        let protocol = |alpn: &crate::tls::Alpn| format!("{table} has {} twice", alpn.as_str());
        repeated(table.alpn.entries(), protocol, found);
    }
    redirects(document, found);
    if document.torn.is_empty() && !document.server.listen.is_bad() {
        if !offers_all {
            unused(document, &identities, found);
        }
        let demanding: Vec<Demanding<'_>> = demanding(document).collect();
        let open = OpenListeners::of(document);
        for one in demanding {
            without_tls(one, &open, found);
            not_demanded(one, &open, found);
        }
    }
}

fn may_define_any(document: &Document) -> bool {
    let lost_one = document.lost.iter().any(|(table, _)| *table == "tls");
    lost_one || !document.torn.is_empty()
}

fn unused(document: &Document, identities: &NameIndex<'_>, found: &mut Findings) {
    for table in &document.identities {
        if !identities.is_used(&table.name) {
            let listener = format!(
                "`listen = [{{ address = \":443\", tls = \"{}\" }}]`",
                table.name.value
            );
            let message = format!("{table} is shown to no client");
            found
                .warning(Code::UnusedIdentity, message)
                .at(&table.place, "no listener offers it")
                .help(format!("offer it in `[server]`: {listener}"));
        }
    }
}

/// A listener with TLS cannot redirect its requests to HTTPS, and a listener without TLS needs a listener with TLS as
/// the destination.
fn redirects(document: &Document, found: &mut Findings) {
    let entries = document.server.listen.entries();
    let has_tls = entries.iter().any(|entry| !entry.value.tls.is_absent());
    for At { value: entry, .. } in entries {
        let Some(redirect) = entry.redirect.at() else {
            continue;
        };
        let address = shown(entry);
        if let Some(tls) = entry.tls.span() {
            found
                .conflict(format!(
                    "{address} has TLS, and sends its requests on to `https`"
                ))
                .at(&redirect.span, "the requests came by `https`")
                .and(tls, "since it has TLS")
                .help("leave one of them out");
        } else if !has_tls && !document.server.listen.is_bad() {
            let message =
                format!("{address} sends requests on to `https`, and no listener has TLS");
            found
                .warning(Code::RedirectWithoutTls, message)
                .at(&redirect.span, "clients come to port 443 next")
                .help("add a listener: `{ address = \":443\", tls = true }`");
        }
    }
}

/// An identity that demands certificates of clients, and the place of the demand.
#[derive(Clone, Copy)]
struct Demanding<'a> {
    table: &'a TlsTable,
    client: &'a At<ClientTable>,
}

fn demanding(document: &Document) -> impl Iterator<Item = Demanding<'_>> {
    let tables = document.identities.iter();
    tables.filter_map(|table| demand(table).map(|client| Demanding { table, client }))
}

/// The listeners that other machines can reach, and on which clients connect without a certificate.
struct OpenListeners<'a> {
    /// The first listener without TLS.
    plain: Option<&'a At<ListenEntry>>,
    /// Listeners with TLS that serve hosts of identities which they do not offer, with the names of the identities that
    /// they offer.
    lenient: Vec<(&'a At<ListenEntry>, HashSet<&'a str>)>,
}

impl<'a> OpenListeners<'a> {
    fn of(document: &'a Document) -> Self {
        let entries = document.server.listen.entries().iter();
        let open: Vec<&At<ListenEntry>> = entries
            .filter(|entry| entry.value.serves_others())
            .collect();
        let is_plain = |entry: &&At<ListenEntry>| {
            entry.value.tls.is_absent() && entry.value.redirect.is_absent()
        };
        let tables = document.identities.iter();
        let tables: HashMap<&str, &TlsTable> = tables
            .map(|table| (table.name.value.as_str(), table))
            .collect();
        let lenient = open.iter().filter_map(|entry| {
            let names = serves_undemanded(&entry.value.tls.at()?.value, &tables)?;
            Some((*entry, names))
        });
        Self {
            lenient: lenient.collect(),
            plain: open.iter().copied().find(is_plain),
        }
    }
}

/// Notes an identity that demands certificates, together with a listener without TLS.
fn without_tls(one: Demanding<'_>, listeners: &OpenListeners<'_>, found: &mut Findings) {
    let Some(open) = listeners.plain else { return };
    let Demanding { table, client } = one;
    let message = format!(
        "{table} demands certificates of clients, and {} takes requests for its hosts without one",
        shown(&open.value)
    );
    found
        .warning(Code::ClientWithoutTls, message)
        .at(&open.span, "no TLS, and so no certificate")
        .and(&client.span, "demanded here")
        .help(
            "write `redirect = \"https\"` for that listener, or let it listen on `127.0.0.1` alone",
        );
}

/// The number of listeners that messages name for one identity.
const MOST_LISTENERS: usize = 8;

/// Notes an identity that demands certificates, together with a listener with TLS that does not offer it: there its
/// hosts get another identity, which demands no certificate.
fn not_demanded(one: Demanding<'_>, listeners: &OpenListeners<'_>, found: &mut Findings) {
    let Demanding { table, client } = one;
    let without = listeners
        .lenient
        .iter()
        .filter(|(_, offered)| !offered.contains(table.name.value.as_str()));
    for (At { value: entry, .. }, _) in without.take(MOST_LISTENERS) {
        let Some(tls) = entry.tls.span() else {
            continue;
        };
        let message = format!(
            "{table} demands certificates of clients, and {} takes requests for its hosts without one",
            shown(entry)
        );
        found
            .warning(Code::CertificateNotDemanded, message)
            .at(tls, "only other identities, which demand none")
            .and(&client.span, "demanded here")
            .help(format!(
                "offer identity `{}` there too: such requests are answered 421 then",
                table.name.value
            ));
    }
}

/// The names of the identities that a listener offers, if it serves all other hosts to clients without a certificate.
/// `None` if the identity that replaces the others demands a certificate too.
fn serves_undemanded<'a>(
    tls: &'a ListenerTls,
    tables: &HashMap<&str, &TlsTable>,
) -> Option<HashSet<&'a str>> {
    let names = match tls {
        ListenerTls::All => return None,
        ListenerTls::Own(_) => return Some(HashSet::new()),
        ListenerTls::Named(names) => names.iter().map(|name| name.value.as_str()),
    };
    let offered = names.clone().filter_map(|name| tables.get(name).copied());
    let does_without = |one: &TlsTable| demand(one).is_none();
    let is_lenient = match offered.clone().find(|one| one.default.or(false)) {
        Some(default) => does_without(default),
        None => offered.clone().any(does_without),
    };
    is_lenient.then(|| names.collect())
}

/// The table's demand that each client show a certificate, if the table has this demand.
fn demand(table: &TlsTable) -> Option<&At<ClientTable>> {
    let client = table.client.at();
    client.filter(|client| client.value.verify() == ClientVerify::Required)
}

fn shown(entry: &ListenEntry) -> String {
    let address = entry.listens_on();
    quoted(&address.map(|at| at.value.to_string()).unwrap_or_default())
}
