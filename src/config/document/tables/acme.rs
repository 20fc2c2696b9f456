//! `[acme.NAME]`: authorities from which certificates are ordered. [`crate::config::settings::authorities`] reads their
//! files and secrets.

use super::store::{SecretSource, secret};
use crate::acme::ChallengeKind;
use crate::config::document::{
    Items, ValueShape, any, as_written, custom, empty_list, filled_word_list, flag, inner_table,
    table, text_as, text_form, words,
};
use crate::config::value::{directory, mail_address};

table! {
    /// An authority that certificates are ordered from by ACME (RFC 8555): for each `[tls.NAME]` with `acme = "NAME"`
    /// one certificate for all its `hosts`. It is renewed when a third of its lifetime is left, or when the authority
    /// asks for it (RFC 9773). After a failure the next order waits 1 min, 5 min, 30 min, 2 h, 6 h, then a day, also
    /// over restarts; at most 4 orders of an identity fail in an hour. Until the first certificate has come, handshakes
    /// for its hosts are refused.
    AcmeTable { name, place } = ACME, "acme", "an authority", named true, main_only true;

    /// Whether you agree to the authority's terms of service, which its directory names. Nothing is ordered without.
    agree: bool = flag(), Value("false"), "true";

    /// An address that the authority may write to, when a certificate is about to end or has to be replaced.
    contact: String = text_form(mail_address), Words("none"), "\"ops@example.com\"";

    /// The folder of the account, the certificates, their keys, and the failures. A missing folder is created, for its
    /// owner alone. If several processes use one folder, one orders, and all answer the authority and serve the
    /// certificates. The folder has to outlast restarts: an authority gives few certificates for the same names in a
    /// week. `"store"` keeps everything in the Redis of `[store]`, encrypted with `secret`: one gateway orders, and all
    /// gateways answer the authority and serve the certificates. A folder with the name `store` is written `"./store"`.
    storage: String = text_as(ValueShape::FolderOr(IN_STORE), any), Required, "\"/var/lib/tollgate/acme\"";

    /// The secret that encrypts entries in the store: 64 hexadecimal digits, the same for all gateways, best kept in a
    /// file or in the environment. `openssl rand -hex 32` makes one. A gateway with another secret reads nothing there,
    /// and overwrites nothing.
    secret: SecretSource = custom(ValueShape::Secret, secret), Words("none; needed with `storage = \"store\"`"), "{ file = \"/run/secrets/acme\" }";

    /// The ways to show that a host is ours, the preferred one first. After a failure the next one is tried.
    /// `tls-alpn-01` needs a listener with TLS that clients reach on port 443, `http-01` one without on port 80.
    /// Challenges are answered before redirects, routes and limits. Without this key, `http-01` is preferred if there
    /// is a listener for `http-01` and none for `tls-alpn-01`.
    challenge: Items<ChallengeKind> = filled_word_list(empty_list("leave it out for both")), Value("[\"tls-alpn-01\", \"http-01\"]"), "\"http-01\"";

    /// The directory of the authority: a URL, `"production"` or `"staging"`. The two words mean the directories of
    /// Let's Encrypt; no browser trusts certificates of the second, and many may be ordered.
    directory: String = text_form(directory), Value("\"production\""), "\"https://ca.internal/acme/directory\"";

    /// File with the authorities that the directory's own server must show, in place of the system's.
    ca: String = text_as(ValueShape::File, any), Words("the system's authorities"), "\"internal-ca.pem\"";

    /// The kind of certificate, by the authority's name for it.
    profile: String = text_form(any), Words("the authority's choice"), "\"shortlived\"";

    /// An external account, which the authority has given out. The gateway's own account is bound to it.
    eab: ExternalAccountTable = inner_table(as_written), Words("none"), "{ id = \"kid-1\", key = { file = \"/run/secrets/eab\" } }";
}

table! {
    /// An account that the authority has given out (external account binding).
    ExternalAccountTable = ACME_EAB, "acme.eab", "the external account";

    /// The id of its key.
    id: String = text_form(any), Required, "\"kid-1\"";

    /// Its key, in the characters of base64url, best kept in a file or in the environment.
    key: SecretSource = custom(ValueShape::Secret, secret), Required, "{ file = \"/run/secrets/eab\" }";
}

/// The word for storage in the counter store.
pub(in crate::config) const IN_STORE: &str = "store";

words! { ChallengeKind: TlsAlpn01 "tls-alpn-01", Http01 "http-01" }
