//! `[jwt]`. Keys are only pointed at here; [`super::super::jwt`] fetches them.

use super::super::outline::{show, show_list, show_time};
use super::super::source::At;
use super::super::value::field;
use super::super::vocabulary::ValueShape;
use super::fields::{Fields, Zero};
use super::form::{any, custom, flag, text, text_as, texts, texts_as, time, whole, word_list};
use super::table::{Section as _, table};
use super::words::words;
use super::{Items, List, Setting};
use http::HeaderName;
use jsonwebtoken::Algorithm;
use std::time::Duration;
use toml::de::DeValue;

table! {
    /// Which JSON Web Tokens are believed, for `by = "jwt:CLAIM"`. A token is verified once for a request, when a limit
    /// of its route asks for a claim: signature, `exp`, and `nbf` where it has one. A token that is there and not
    /// believed is answered 401, whatever `missing` says. A claim that is neither a text nor a number is none:
    /// `missing` says what then; only groups look into lists. No key and no claim is shown in the log of the gateway.
    Jwt { place } = JWT, "jwt", "the tokens";

    /// Files with public keys in PEM, several in one file if need be, or each with one shared secret where `algorithms`
    /// are HS256, HS384 or HS512. A table gives its keys an id, which tokens name them by (`kid`); of those without one
    /// at most 4 are for one algorithm. Paths start at this file's folder; the files are watched as this file is.
    keys: Items<KeyFile> = custom(ValueShape::KeyFiles(&JWT_KEY), key_files), Words("none, beside those of `jwks`"), "[\"issuer.pem\", { file = \"2026.pem\", kid = \"2026\" }]";

    /// Files with JSON Web Key Sets. A token that names its key (`kid`) is held against keys of that name, and against
    /// those that have none; one that names none, against 4 keys at most.
    jwks: Items<String> = texts_as(ValueShape::Files, any), Words("none, beside `keys`"), "\"jwks.json\"";

    /// How tokens may be signed, and no other way, whatever they say: with private keys, or with shared secrets, not
    /// both.
    algorithms: Items<Algorithm> = word_list(), Required, "[\"RS256\"]", Tokens(|tokens| show_list(&tokens.algorithms));

    /// The issuer that a token must name (`iss`), one of these.
    issuer: Items<String> = texts(any), Words("anybody"), "\"https://id.example.com\"",
        Tokens(|tokens| show_list(&tokens.issuer));

    /// The audience that a token must name (`aud`), one of these.
    audience: Items<String> = texts(any), Words("anybody"), "\"orders-api\"",
        Tokens(|tokens| show_list(&tokens.audience));

    /// How far clocks may differ: so much later `exp` and so much earlier `nbf` still count, in whole seconds, `"1h"`
    /// at most.
    leeway: Duration = time(Zero::Allowed), Value("\"0s\""), "\"30s\"", Tokens(|tokens| show_time(tokens.leeway));

    /// A token that says no end of its time (`exp`) is not believed; with `false` it is, for as long as its key is.
    require_exp: bool = flag(), Value("true"), "false", Tokens(|tokens| show(tokens.require_exp));

    /// The field with the token: behind `Bearer` in `Authorization`, with or without it in others.
    header: HeaderName = text(field), Value("\"authorization\""), "\"x-token\"", Tokens(|tokens| show(&tokens.header));
}

table! {
    /// A file with keys of tokens.
    KeyFile = JWT_KEY, "jwt", "a file with keys";

    /// The file.
    file: String = text_as(ValueShape::File, any), Required, "\"2026.pem\"";

    /// What tokens call its keys.
    kid: String = text(any), Words("none"), "\"2026\"";
}

words! {
    Algorithm: HS256 "HS256", HS384 "HS384", HS512 "HS512", RS256 "RS256", RS384 "RS384", RS512 "RS512",
    PS256 "PS256", PS384 "PS384", PS512 "PS512", ES256 "ES256", ES384 "ES384", EdDSA "EdDSA"
}

/// A file, a table of a file and the id of its keys, or a list of such.
fn key_files(key: &'static str, fields: &mut Fields<'_>) -> List<KeyFile> {
    fields.items(key, |fields, item| match item.get_ref() {
        DeValue::String(text) => Some(KeyFile {
            file: Setting::Valid(At::new(text.to_string(), item.span())),
            kid: Setting::Absent,
        }),
        DeValue::Table(table) => {
            let name = At::new(key.to_owned(), item.span());
            let read = fields.inner(&JWT_KEY, key, name, table, KeyFile::read);
            whole(read, fields)
        }
        _ => fields.wrong_type(key, item),
    })
}
