//! `listen` of `[server]`: an entry is an address, or a table with an address and further settings.

use crate::client::Nat64;
use crate::config::document::{
    Emptiness, Fields, Form, Items, List, Setting, ValueShape, any, custom, empty_list,
    entry_table, inner_table, table, text_as, text_form, whole, word, words,
};
use crate::config::input::At;
use crate::config::report::{Code, Details as _};
use crate::config::value::{file_mode, listen_address, network, pem_path};
use crate::listen::listener::{ListenAddress, ProxyPeers};
use ipnet::IpNet;
use toml::de::DeValue;

/// The report on a list without addresses.
const NO_ADDRESS: Emptiness = Emptiness {
    message: "names no address",
    label: "at least one address",
    help: "leave it out for `\":8080\"`",
};

table! {
    /// One listener.
    ListenEntry = LISTENER, "server", "a listener";

    /// The address to listen on, as in an entry that is a text.
    address: ListenAddress = text_as(ValueShape::ListenAddress, listen_address), Required, "\":8080\"";

    /// The rights on the file of a Unix socket, as `chmod` takes them. Programs that may write to the file may connect,
    /// and are trusted as peers in `trust` are.
    mode: u32 = text_form(file_mode), Value("\"0660\""), "\"0600\"";

    /// The identities that the listener offers: `true` for every `[tls.NAME]`, the name of one, a list of names, or a
    /// certificate and key of its own, `{ cert = "api.pem", key = "api.key" }`. A reload takes other identities over;
    /// whether there is TLS at all needs a restart.
    tls: ListenerTls = custom(ValueShape::ListenerTls(&OWN_IDENTITY), tls), Words("no TLS"), "true";

    /// Redirects all requests of the listener with 308, to the same host, path and query under `https`, on the default
    /// port. No route is looked up, and no limit is asked.
    redirect: RedirectTo = word(), Words("nowhere"), "\"https\"";

    /// The proxies that name the client of each connection in a header of the PROXY protocol, version 1 or 2: their
    /// networks, or `true` for those of `trust`. These peers must send the header, and the client that it names is the
    /// client for all limits, logs and fields. Bytes of any other peer are read as a request.
    proxy_protocol: ProxyProtocol = custom(ValueShape::FlagOrTexts, proxy_protocol), Words("no peer"), "[\"10.0.0.0/8\"]";
}

table! {
    /// The certificate and key of one listener alone, for all hosts. The identity has the listener's address as its
    /// name.
    OwnIdentity = OWN_IDENTITY, "server", "the identity of a listener";

    /// File with the certificate, followed by the intermediate certificates.
    cert: String = text_as(ValueShape::File, pem_path), Required, "\"api.pem\"";

    /// File with the key of `cert`, without a passphrase.
    key: String = text_as(ValueShape::File, pem_path), Required, "\"api.key\"";
}

/// The identities of a listener, as written.
#[derive(Debug, Clone)]
pub(in crate::config) enum ListenerTls {
    /// Every `[tls.NAME]`.
    All,
    /// The identities with these names.
    Named(Items<String>),
    /// An identity of this listener alone.
    Own(OwnIdentity),
}

/// The destination to which a listener redirects its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum RedirectTo {
    Https,
}

words! { RedirectTo: Https "https" }

/// The peers that send a PROXY protocol header, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum ProxyProtocol {
    /// No peer.
    Off,
    /// The peers of `trust`.
    Trusted,
    /// The peers of these networks, at least one.
    Within(Items<IpNet>),
}

/// The report on a list without networks.
const NO_NETWORK: Emptiness = Emptiness {
    message: "names no network",
    label: "at least one network",
    help: "leave it out where no peer sends the header, or write `true` for the networks of `trust`",
};

fn proxy_protocol(key: &'static str, fields: &mut Fields<'_>) -> Setting<ProxyProtocol> {
    if fields
        .value(key)
        .is_some_and(|value| value.get_ref().is_bool())
    {
        let flag = fields.typed(key, DeValue::as_bool);
        return flag.map(|is_on| {
            if is_on {
                ProxyProtocol::Trusted
            } else {
                ProxyProtocol::Off
            }
        });
    }
    let networks = fields.texts(key, network);
    fields
        .filled(key, networks, &NO_NETWORK)
        .map(ProxyProtocol::Within)
}

impl ListenEntry {
    /// The entry for a plain address.
    fn plain(address: At<ListenAddress>) -> Self {
        Self {
            address: Setting::Valid(address),
            ..Self::default()
        }
    }

    /// The peers that send a header, if any peer does. Their addresses are compared after the translation by `nat64`.
    pub(in crate::config) fn proxies(&self, nat64: &Nat64) -> Option<ProxyPeers> {
        match self.proxy_protocol.get()? {
            ProxyProtocol::Off => None,
            ProxyProtocol::Trusted => Some(ProxyPeers::Trusted),
            ProxyProtocol::Within(networks) => {
                let networks = networks
                    .iter()
                    .flat_map(|network| nat64.networks(network.value));
                Some(ProxyPeers::Within(networks.collect()))
            }
        }
    }

    /// Do clients on other machines use this listener, either directly or through proxies that name the clients?
    pub(in crate::config) fn serves_others(&self) -> bool {
        let is_proxied = self.proxy_protocol.get();
        let is_proxied = is_proxied.is_some_and(|peers| !matches!(peers, ProxyProtocol::Off));
        let address = self.address.at();
        address.is_some_and(|at| is_proxied || at.value.is_for_others())
    }

    /// The address of an entry without mistakes.
    pub(in crate::config) fn listens_on(&self) -> Option<&At<ListenAddress>> {
        self.address.at()
    }
}

/// An address, a table of a listener, or a list of these. An empty list is a mistake.
pub(in crate::config::document) fn listeners() -> impl Form<Items<ListenEntry>> {
    custom(ValueShape::Listeners(&LISTENER), |key, fields| {
        let list = entries(key, fields);
        fields.filled(key, list, &NO_ADDRESS)
    })
}

fn entries(key: &'static str, fields: &mut Fields<'_>) -> List<ListenEntry> {
    fields.items(key, |fields, item| match item.get_ref() {
        DeValue::Table(table) => entry_table(key, fields, table, item.span(), whole),
        _ => {
            let address = fields.text_item(key, item, listen_address)?;
            Some(ListenEntry::plain(At::new(address, item.span())))
        }
    })
}

/// `true`, a name, a list of names, or a table of a certificate and its key.
fn tls(key: &'static str, fields: &mut Fields<'_>) -> Setting<ListenerTls> {
    match fields.value(key).map(|value| value.get_ref()) {
        Some(DeValue::Boolean(_)) => {
            let flag = fields.typed(key, DeValue::as_bool);
            flag.and_then(|is_on, span| {
                if !is_on {
                    fields
                        .wrong(key, Code::BadChoice, "is `false`")
                        .at(span, "")
                        .help("leave it out for a listener without TLS");
                }
                is_on.then_some(ListenerTls::All)
            })
        }
        Some(DeValue::Table(_)) => {
            let table = inner_table(whole).read(key, fields);
            table.map(ListenerTls::Own)
        }
        _ => {
            let names = fields.texts(key, any);
            let names = fields.filled(
                key,
                names,
                &empty_list("leave it out for a listener without TLS"),
            );
            names.map(ListenerTls::Named)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    #[test]
    fn a_table_with_an_address_alone_is_the_text() {
        let listeners = |listen: &str| {
            let rest = "[upstreams.a]\nservers = \"a:1\"\n[routes.a]\nupstream = \"a\"\n";
            let text = format!("[server]\nlisten = {listen}\n{rest}");
            parse("gateway.toml", &text).unwrap().boot.listen.listeners
        };
        let text = listeners("\"127.0.0.1:8080\"");
        assert_eq!(text, listeners("{ address = \"127.0.0.1:8080\" }"));
        assert_eq!(text, listeners("[{ address = \"127.0.0.1:8080\" }]"));
        let two = listeners("[\":80\", { address = \"[::1]:81\" }]");
        assert_eq!(two, listeners("[\":80\", \"[::1]:81\"]"));
    }
}
