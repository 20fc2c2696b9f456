//! `[tls.NAME]`: the identities that listeners show to clients. [`crate::config::settings::identities`] reads their
//! files.

use crate::config::document::{
    Emptiness, Fields, Form, Items, Setting, ValueShape, any, as_written, custom, empty_list,
    filled_texts, filled_word_list, flag, inner_table, table, text_as, text_form, texts_as, word,
    words,
};
use crate::config::presentation::{show, show_list};
use crate::config::value::{pem_path, served_name};
use crate::tls::{Alpn, ClientVerify, ServedName, TlsVersion};

table! {
    /// An identity of the gateway towards its clients: a certificate with its key, its hosts, and its demands on
    /// clients' certificates. A listener with `tls` offers identities; a client gets the one for the host that it names
    /// in its handshake (SNI): by exact name, then by a wildcard for one label, then the default. Files are PEM, and
    /// watched: a certificate and its key are taken over once both read the same twice, 50 ms apart, and fit. Until
    /// then the earlier pair stays in use, and connections stay open.
    TlsTable { name, place } = TLS, "tls", "an identity", named true, main_only true;

    /// File with the certificate, followed by the intermediate certificates.
    cert: String = text_as(ValueShape::File, pem_path), Words("needed, unless `acme` is written"), "\"api.pem\"";

    /// File with the key of `cert`, without a passphrase. Only the gateway's user and group should be able to read it.
    key: String = text_as(ValueShape::File, pem_path), Words("needed, unless `acme` is written"), "\"api.key\"";

    /// The `[acme.NAME]` that the certificate is ordered from, in place of `cert` and `key`.
    acme: String = text_form(any), Words("the certificate comes from `cert` and `key`"), "\"public\"";

    /// Hosts that the identity answers for: exact, or with `*.` for one label in front. With `acme` they must be
    /// written, and be exact.
    hosts: Items<ServedName> = filled_texts(served_name, empty_list("leave it out for the names of the certificate")), Words("the DNS names of the certificate"), "[\"api.example.com\"]",
        Identity(|one| one.hosts.as_ref().map_or_else(|| show("those of the certificate"), |hosts| show_list(hosts)));

    /// Whether the identity is for clients that name no host, or one that no identity has. Where several identities are
    /// offered and none is the default, the handshakes of such clients are refused.
    default: bool = flag(), Words("`true` where the listener offers no other"), "true", Identity(|one| show(one.is_default));

    /// The least version of TLS. Both versions have only suites with forward secrecy and authenticated encryption;
    /// there is no key for suites.
    min: TlsVersion = word(), Value("\"1.2\""), "\"1.3\"", Identity(|one| show(one.least_version.as_str()));

    /// The protocols that clients may choose in a handshake (ALPN), the preferred one first. Clients of `http/1.0` are
    /// accepted where `http/1.1` is.
    alpn: Items<Alpn> = filled_word_list(empty_list("write `\"http/1.1\"` for that protocol alone")), Value("[\"h2\", \"http/1.1\"]"), "\"http/1.1\"",
        Identity(|one| show_list(&one.alpn));

    /// Client certificates: the file with the authorities that must have signed them, several files, or a table.
    client: ClientTable = custom(ValueShape::Authorities(&TLS_CLIENT), client), Words("none is asked for"), "\"partners-ca.pem\"",
        Identity(|one| show(&one.client));
}

table! {
    /// The certificates that clients must show in the handshake: signed by one of the authorities, valid at present,
    /// and for use by clients if they name a purpose. If certificates are asked for, no session is resumed, so that
    /// each connection is verified. A file that cannot be read is an error at the start; at a reload the identity stays
    /// as it was.
    ClientTable = TLS_CLIENT, "tls", "the check of clients", takes Some("a file with authorities, a list of files, or a table as `{ ca = \"partners-ca.pem\", verify = \"optional\" }`");

    /// Files with the certificates of the authorities.
    ca: Items<String> = filled_pem_paths(), Required, "[\"partners-ca.pem\"]";

    /// `required`: without a good certificate there is no handshake. `optional`: a client may show none, and a bad one
    /// ends the handshake.
    verify: ClientVerify = word(), Value("\"required\""), "\"optional\"";

    /// Files with revocation lists. If there is any, each authority in a client's chain needs one; clients are refused
    /// if a list has expired.
    crl: Items<String> = texts_as(ValueShape::Files, pem_path), Words("no list is checked"), "\"revoked.pem\"";
}

words! { TlsVersion: Tls12 "1.2", Tls13 "1.3" }
words! { Alpn: H2 "h2", Http11 "http/1.1" }
words! { ClientVerify: Required "required", Optional "optional" }

/// The report on an identity without a file of authorities.
const NO_AUTHORITY: Emptiness = Emptiness {
    message: "names no authority",
    label: "at least one file",
    help: "name the file with the authorities' certificates; without `client` no certificate is asked for",
};

fn filled_pem_paths() -> impl Form<Items<String>> {
    custom(ValueShape::Files, |key, fields| {
        let list = fields.texts(key, pem_path);
        fields.filled(key, list, &NO_AUTHORITY)
    })
}

/// A file, a list of files, or a table.
fn client(key: &'static str, fields: &mut Fields<'_>) -> Setting<ClientTable> {
    let Some(value) = fields.value(key) else {
        return Setting::Absent;
    };
    if value.get_ref().is_table() {
        return inner_table(as_written).read(key, fields);
    }
    let ca = fields.texts(key, pem_path);
    let ca = fields.filled(key, ca, &NO_AUTHORITY);
    let is_bad = ca.is_bad();
    let client = ClientTable {
        ca,
        ..ClientTable::default()
    };
    Setting::of((!is_bad).then_some(client), value.span())
}
