//! Identities and the listeners that offer them, in words and for programs.

use super::orders::{self, KnownOrders};
use crate::config::describe::show_instant;
use crate::config::{Compiled, LoadedIdentity};
use crate::listen::listener::{ListenAddress, Listener, ProxyPeers};
use crate::tls::{ClientVerify, Offer, ServedName, ServerIdentity};
use serde_json::{Value, json};

/// A line for each identity, and one for each listener, if any listener has more than an address.
pub(super) fn lines(compiled: &Compiled) -> Vec<String> {
    let orders = KnownOrders::of(compiled);
    let identities = compiled.identities.all().map(LoadedIdentity::identity);
    let identities = identities.map(|identity| {
        let client = client(identity).map(|client| format!("; {client}"));
        format!(
            "identity {}: {}; {}{}",
            identity.name(),
            hosts(identity),
            certificate(&orders, identity),
            client.unwrap_or_default(),
        )
    });
    let listeners = listeners(compiled);
    let is_shown = listeners.iter().any(|(listener, _)| {
        listener.tls.is_some() || listener.redirects || listener.proxies.is_some()
    });
    let listeners = listeners.iter().filter(|_| is_shown);
    let listeners = listeners.map(|(listener, offer)| {
        let what = offer
            .as_ref()
            .map_or_else(|| without_tls(listener), offered);
        format!("listener {}: {what}{}", listener.address, proxies(listener))
    });
    let authorities = orders::authorities(compiled);
    identities.chain(authorities).chain(listeners).collect()
}

/// The certificate of an identity: `EC 256 bits, ends at ...; ordered from public, renewed by ...`.
fn certificate(orders: &KnownOrders<'_>, identity: &ServerIdentity) -> String {
    let facts = identity.facts();
    let certificate_line = || format!("{}, ends at {}", facts.key, show_instant(facts.not_after));
    match orders.named(identity.name()) {
        None => certificate_line(),
        Some(order) if identity.is_pending() => order.words(),
        Some(order) => format!("{}; {}", certificate_line(), order.words()),
    }
}

/// The identities, as a list for programs.
pub(super) fn identities_json(compiled: &Compiled) -> Value {
    let orders = KnownOrders::of(compiled);
    let all = compiled.identities.all().map(LoadedIdentity::identity);
    let all = all.map(|identity| {
        let facts = identity.facts();
        let is_there = !identity.is_pending();
        let names: Vec<&str> = identity.hosts().iter().map(ServedName::as_str).collect();
        let client = identity.client().map(
            |check| json!({ "verify": verify(check.verify()), "authorities": check.authorities() }),
        );
        json!({
            "name": identity.name(),
            "hosts": names,
            "default": identity.is_default(),
            "not_before": is_there.then(|| show_instant(facts.not_before)),
            "not_after": is_there.then(|| show_instant(facts.not_after)),
            "key": is_there.then_some(&facts.key),
            "subject": is_there.then_some(&facts.subject),
            "issuer": is_there.then_some(&facts.issuer),
            "fingerprint": is_there.then(|| facts.fingerprint_text()),
            "acme": orders.named(identity.name()).map(|order| order.json()),
            "client": client,
        })
    });
    all.collect()
}

/// The listeners, as a list for programs.
pub(super) fn listeners_json(compiled: &Compiled) -> Value {
    let all = listeners(compiled).into_iter().map(|(listener, offer)| {
        let names = |offer: &Offer| -> Vec<String> {
            let identities = offer.identities().iter();
            identities.map(|one| one.name().to_owned()).collect()
        };
        let default = offer.and_then(Offer::default_identity);
        json!({
            "address": listener.address.to_string(),
            "identities": offer.map(names),
            "default": default.map(|identity| identity.name()),
            "redirect": listener.redirects.then_some("https"),
            "proxy_protocol": listener.proxies.as_ref().map(ToString::to_string),
        })
    });
    all.collect()
}

fn listeners(compiled: &Compiled) -> Vec<(&Listener, Option<&Offer>)> {
    let listeners = compiled.boot.listen.listeners.iter();
    let offers = compiled.offers.iter().map(Option::as_ref);
    listeners
        .zip(offers.chain(std::iter::repeat(None)))
        .collect()
}

fn hosts(identity: &ServerIdentity) -> String {
    let hosts: Vec<&str> = identity.hosts().iter().map(ServedName::as_str).collect();
    match hosts.as_slice() {
        [] => "no host by name".to_owned(),
        hosts => hosts.join(", "),
    }
}

fn client(identity: &ServerIdentity) -> Option<String> {
    let check = identity.client()?;
    let by = match check.authorities() {
        1 => "1 authority".to_owned(),
        many => format!("{many} authorities"),
    };
    Some(match check.verify() {
        ClientVerify::Required => format!("clients must show a certificate of {by}"),
        ClientVerify::Optional => format!("clients may show a certificate of {by}"),
    })
}

fn verify(verify: ClientVerify) -> &'static str {
    match verify {
        ClientVerify::Required => "required",
        ClientVerify::Optional => "optional",
    }
}

/// The peers that must name their client, as the end of a listener's line.
fn proxies(listener: &Listener) -> String {
    let who = match (&listener.proxies, &listener.address) {
        (None, _) => return String::new(),
        (Some(_), ListenAddress::Unix(_)) => "all peers".to_owned(),
        (Some(ProxyPeers::Trusted), _) => "peers in the networks of `trust`".to_owned(),
        (Some(within), _) => format!("peers in {within}"),
    };
    format!("; {who} must begin with a header of the PROXY protocol")
}

fn without_tls(listener: &Listener) -> String {
    if listener.redirects {
        "no TLS; all requests are sent on to https".to_owned()
    } else {
        "no TLS".to_owned()
    }
}

/// The identities of an offer, and the treatment of clients that name no host.
fn offered(offer: &&Offer) -> String {
    let names: Vec<&str> = offer.identities().iter().map(|one| one.name()).collect();
    let others = match offer.default_identity() {
        Some(default) => format!("{} for clients with another host or none", default.name()),
        None => "clients with another host or none are refused".to_owned(),
    };
    format!("TLS by {}; {others}", names.join(", "))
}
