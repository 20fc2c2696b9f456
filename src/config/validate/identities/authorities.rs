//! Ordered identities, and the authorities from which their certificates are ordered.

use crate::acme::ChallengeKind;
use crate::config::document::{
    AcmeTable, CounterStore, Document, IN_STORE, SecretSource, TlsTable,
};
use crate::config::report::{Code, Details as _, Findings};
use crate::config::settings::authorities::has_listener;
use crate::config::validate::names::{NameIndex, WholeFile};

/// Compares ordered identities with authorities.
pub(in crate::config::validate) fn check_authorities(file: WholeFile<'_>, found: &mut Findings) {
    let document = file.document;
    let names = document.authorities.iter().map(|table| &table.name);
    let mut authorities = NameIndex::new("acme", Code::UnknownAuthority, names);
    for table in &document.identities {
        match table.acme.at() {
            Some(acme) => {
                let user = format!("{table} is ordered from authority");
                authorities.used(&user, acme, file, found);
                ordered(table, found);
            }
            None if table.acme.is_absent() => pair(table, found),
            None => {}
        }
    }
    let can_tell = document.torn.is_empty() && !document.server.listen.is_bad();
    for table in &document.authorities {
        if !authorities.is_used(&table.name) {
            if can_tell && !document.lost.iter().any(|(lost, _)| *lost == "tls") {
                let message = format!("nothing is ordered from {table}");
                found
                    .warning(Code::UnusedAuthority, message)
                    .at(&table.place, "no `[tls.NAME]` names it")
                    .help(format!(
                        "write `acme = \"{}\"` in a `[tls.NAME]`, or leave it out",
                        table.name.value
                    ));
            }
            continue;
        }
        account(table, found);
        storage(document, table, found);
        if can_tell {
            reachable(document, table, found);
        }
    }
}

/// Notes the mistakes in the settings of an authority's account.
fn account(table: &AcmeTable, found: &mut Findings) {
    if !table.agree() && !table.agree.is_bad() {
        let message = format!("the terms of {table} are not agreed to");
        found
            .error(Code::AcmeNotAgreed, message)
            .at(
                table.agree.span().unwrap_or(&table.place),
                "it gives no account without that",
            )
            .help(
                "read the terms, which the authority's directory names, and write `agree = true`",
            );
    }
    if let Some(key) = table.eab.get().and_then(|eab| eab.key.at())
        && matches!(key.value, SecretSource::Literal(_))
    {
        let message = "the key of an external account is written into the file";
        found
            .warning(Code::SecretInFile, message)
            .at(&key.span, "every reader of the file knows it")
            .help("write `key = { file = \"/run/secrets/eab\" }` or `key = { env = \"EAB_KEY\" }`");
    }
}

/// Notes the missing keys of an identity with a certificate from files.
fn pair(table: &TlsTable, found: &mut Findings) {
    for (key, setting) in [("cert", &table.cert), ("key", &table.key)] {
        if !setting.is_absent() {
            continue;
        }
        found
            .error(Code::MissingKey, format!("{table} has no `{key}`"))
            .at(&table.place, format!("`{key}` is needed"))
            .help("name the files with `cert` and `key`, or order the certificate with `acme`");
    }
}

/// Notes missing settings of storage in the store, and a secret without use.
fn storage(document: &Document, table: &AcmeTable, found: &mut Findings) {
    let Some(storage) = table.storage.at() else {
        return;
    };
    if let Some(secret) = table.secret.at()
        && matches!(secret.value, SecretSource::Literal(_))
    {
        let message = format!("the secret of {table} is written into the file");
        found
            .warning(Code::SecretInFile, message)
            .at(&secret.span, "every reader of the file can open what is kept in the store")
            .help("write `secret = { file = \"/run/secrets/acme\" }` or `secret = { env = \"ACME_SECRET\" }`");
    }
    if storage.value != IN_STORE {
        let is_word = storage.value.eq_ignore_ascii_case(IN_STORE);
        if is_word || storage.value.trim().is_empty() {
            let message = format!("`storage` of {table} is neither a folder nor `\"store\"`");
            found
                .error(Code::BadChoice, message)
                .at(&storage.span, "keys and certificates are kept there")
                .help("write a folder, as `\"/var/lib/tollgate/acme\"`, or `\"store\"` for the Redis of all gateways");
        }
        if let Some(secret) = table.secret.span() {
            found
                .conflict(format!(
                    "{table} has a `secret`, and keeps its files in a folder"
                ))
                .at(secret, "it encrypts only certificates in the store")
                .and(&storage.span, "a folder")
                .help("leave `secret` out, or write `storage = \"store\"`");
        }
        return;
    }
    if table.secret.is_absent() {
        let message = format!(
            "{table} keeps private keys in the store, and has no `secret` to seal them with"
        );
        found
            .error(Code::AcmeNeedsSecret, message)
            .at(&storage.span, "every reader of the store could take them")
            .help("make a secret with `openssl rand -hex 32`, give it to every gateway, and write `secret = { file = \"/run/secrets/acme\" }`");
    }
    if document.counted == CounterStore::Memory {
        found
            .conflict(format!("{table} keeps its certificates in the store, which is this process's memory"))
            .at(&storage.span, "a Redis is needed, which all gateways share")
            .help("name it: `[store] url = \"redis://HOST\"`; one gateway alone keeps them in a folder, as in `storage = \"/var/lib/tollgate/acme\"`");
    }
}

/// Notes settings that contradict an order.
fn ordered(table: &TlsTable, found: &mut Findings) {
    let Some(acme) = table.acme.span() else {
        return;
    };
    for (key, setting) in [("cert", &table.cert), ("key", &table.key)] {
        let Some(span) = setting.span() else { continue };
        found
            .conflict(format!("{table} has both `acme` and `{key}`"))
            .at(span, "its certificate comes from a file")
            .and(acme, "its certificate is ordered")
            .help("leave one of them out");
    }
    if table.hosts.is_absent() {
        found
            .error(Code::MissingKey, format!("{table} has no `hosts`"))
            .at(&table.place, "`hosts` is needed with `acme`")
            .help("write the hosts that the certificate is ordered for: `hosts = [\"shop.example.com\"]`");
    }
    let wildcards = table.hosts.entries().iter();
    for host in wildcards.filter(|host| host.value.is_wildcard()) {
        let message = format!("{table} is ordered for `{}`", host.value);
        found
            .error(Code::BadHost, message)
            .at(
                &host.span,
                "no challenge here can show that all such hosts are ours",
            )
            .help("write each host, or name a certificate from elsewhere with `cert` and `key`");
    }
}

/// Notes an authority that checks challenges at a port without a listener.
fn reachable(document: &Document, table: &AcmeTable, found: &mut Findings) {
    let kinds = table.challenge();
    if kinds.iter().any(|kind| has_listener(document, kind.value)) {
        return;
    }
    let where_to = |kind: &ChallengeKind| match kind {
        ChallengeKind::Http01 => "port 80 without TLS",
        ChallengeKind::TlsAlpn01 => "port 443 with TLS",
    };
    let places: Vec<_> = kinds.iter().map(|kind| where_to(&kind.value)).collect();
    let places = places.join(", or ");
    let message = format!("{table} verifies hosts at {places}, and no listener is there");
    found
        .warning(Code::AcmeUnreachableChallenge, message)
        .at(
            table.challenge.span().unwrap_or(&table.place),
            "clients and authorities come to these ports",
        )
        .help("add a listener there; where another machine sends the port on to this one, ignore this warning");
}
