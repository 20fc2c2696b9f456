//! `[jwt]`. The table names files of keys; [`crate::config::settings::jwt`] reads the keys.

use crate::config::document::{
    Fields, Items, List, Setting, ValueShape, Zero, any, custom, entry_table, flag, table, text_as,
    text_form, texts, texts_as, time, whole, word_list, words,
};
use crate::config::input::At;
use crate::config::presentation::{show, show_list, show_time};
use crate::config::value::field;
use http::HeaderName;
use jsonwebtoken::Algorithm;
use std::time::Duration;
use toml::de::DeValue;

table! {
    /// The JSON Web Tokens that are trusted, for `by = "jwt:CLAIM"`. A token is verified once for a request, when a
    /// limit of its route asks for a claim: the signature, `exp`, and `nbf` where the token has one. A token that is
    /// present but not trusted is answered 401, whatever `missing` says. A claim that is neither a text nor a number
    /// counts as absent, so `missing` decides; only groups look into lists. But a token whose `sub` is a list or a
    /// table is not trusted: RFC 7519 demands a text. The gateway's log shows no key and no claim.
    Jwt { place } = JWT, "jwt", "the tokens";

    /// Files with public keys in PEM; a file may have several. Where `algorithms` are HS256, HS384 or HS512, each file
    /// has one shared secret instead. A table gives the keys of its file an id, by which tokens name them (`kid`). At
    /// most 4 keys without an id are for one algorithm. Paths start at this file's folder; the files are watched as
    /// this file is.
    keys: Items<KeyFile> = custom(ValueShape::KeyFiles(&JWT_KEY), key_files), Words("none, beside those of `jwks`"), "[\"issuer.pem\", { file = \"2026.pem\", kid = \"2026\" }]";

    /// JSON Web Key Sets: files, and URLs where issuers publish them (`https://`; `http://` of this machine alone). A
    /// token that names its key (`kid`) is tried with keys of that name and keys without a name. A token that names no
    /// key is tried with 4 keys at most. A URL is read at start, then as often as its answer says (`max-age`), between
    /// 5 min and 24 h, or each hour where the answer says nothing. It is also read when a token names an unknown key,
    /// for this reason at most once a minute. While its server is away the keys stay valid. Until they are read for the
    /// first time, requests that need a token are answered 503.
    jwks: Items<String> = texts_as(ValueShape::Files, any), Words("none, beside `keys`"), "\"https://id.example.com/jwks.json\"";

    /// A file of authorities (PEM) that are trusted for servers of `jwks`, in place of the system's.
    ca: String = text_as(ValueShape::File, any), Words("the system's"), "\"internal-ca.pem\"";

    /// The algorithms that tokens may be signed with; no other is accepted. They are algorithms of private keys or of
    /// shared secrets, not of both.
    algorithms: Items<Algorithm> = word_list(), Required, "[\"RS256\"]", Tokens(|tokens| show_list(&tokens.algorithms));

    /// The issuers that are trusted. A token must name one of them (`iss`).
    issuer: Items<String> = texts(any), Words("any issuer"), "\"https://id.example.com\"",
        Tokens(|tokens| show_list(&tokens.issuer));

    /// The audiences that are accepted. A token must name one of them (`aud`).
    audience: Items<String> = texts(any), Words("any audience"), "\"orders-api\"",
        Tokens(|tokens| show_list(&tokens.audience));

    /// The difference that clocks may have, in whole seconds, `"1h"` at most. A token is valid for that much longer
    /// than `exp`, and from that much earlier than `nbf`.
    leeway: Duration = time(Zero::Allowed), Value("\"0s\""), "\"30s\"", Tokens(|tokens| show_time(tokens.leeway));

    /// Whether a token needs an expiry (`exp`). With `false` a token without `exp` is trusted for as long as its key
    /// is.
    require_exp: bool = flag(), Value("true"), "false", Tokens(|tokens| show(tokens.require_exp));

    /// The field with the token. In `Authorization` the token follows `Bearer`; in other fields `Bearer` may be absent.
    header: HeaderName = text_form(field), Value("\"authorization\""), "\"x-token\"", Tokens(|tokens| show(&tokens.header));
}

table! {
    /// A file with keys of tokens.
    KeyFile = JWT_KEY, "jwt", "a file with keys";

    /// The path of the file.
    file: String = text_as(ValueShape::File, any), Required, "\"2026.pem\"";

    /// The id by which tokens name the file's keys.
    kid: String = text_form(any), Words("none"), "\"2026\"";
}

words! {
    Algorithm: HS256 "HS256", HS384 "HS384", HS512 "HS512", RS256 "RS256", RS384 "RS384", RS512 "RS512",
    PS256 "PS256", PS384 "PS384", PS512 "PS512", ES256 "ES256", ES384 "ES384", EdDSA "EdDSA"
}

/// A file, a table with a file and the id of its keys, or a list of these.
fn key_files(key: &'static str, fields: &mut Fields<'_>) -> List<KeyFile> {
    fields.items(key, |fields, item| match item.get_ref() {
        DeValue::String(text) => Some(KeyFile {
            file: Setting::Valid(At::new(text.to_string(), item.span())),
            kid: Setting::Absent,
        }),
        DeValue::Table(table) => entry_table(key, fields, table, item.span(), whole),
        _ => fields.wrong_type(key, item),
    })
}
