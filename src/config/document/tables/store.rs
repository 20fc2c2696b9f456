//! `[store]` and the tables inside it. The tables may name the places of secrets; [`crate::config::settings::store`]
//! reads the secrets.

use crate::config::document::{
    Fields, Setting, ValueShape, Words as _, any, as_written, count, custom, flag, inner_table,
    table, text_as, text_form, time_within, word, words,
};
use crate::config::presentation::{show, show_time};
use crate::config::secrets::SecretLocation;
use crate::config::value::{key_prefix, server_name, store};
use crate::store::{Backend, OnDown, Secret};
use std::time::Duration;
use toml::de::DeValue;

table! {
    /// Where counters live: in this process, or in a Redis that several gateways share.
    Store = STORE, "store", "the store", later &["lease"];

    /// `memory:`, `redis://[user[:password]@]host[:port][/database]`, `unix:/path[?db=NUMBER]`,
    /// `redis+sentinel://h1,h2,h3/NAME[/database]` or `redis+cluster://h1,h2,h3`; `rediss` in place of `redis` is with
    /// TLS.
    url: Backend = text_as(ValueShape::StoreUrl, store), Value("\"memory:\""), "\"redis://cache:6379/0\"", StoreAddress;

    /// User of the Redis' access control list; `password` goes with it.
    username: SecretSource = custom(ValueShape::UserName, secret), Words("the default user"), "\"tollgate\"", StoreAddress;

    /// Password of the Redis user, best kept in a file or in the environment.
    password: SecretSource = custom(ValueShape::Secret, secret), Words("none"), "{ file = \"/run/secrets/redis\" }";

    /// The authorities to trust and the certificate to present, where the `url` begins with `rediss`. Connections that
    /// are made after a file changed use the new file.
    tls: StoreTls = inner_table(as_written), Words("with `rediss://`: the system's authorities, and no certificate"), "{ ca = \"redis-ca.pem\" }";

    /// The credentials for the sentinels of a `redis+sentinel://`. They are separate from the credentials for Redis.
    sentinel: Sentinel = inner_table(as_written), Words("none are needed"), "{ password = { file = \"/run/secrets/sentinel\" } }";

    /// Whether the scripts are kept in Redis as a library of functions. Redis writes the library to disk and to
    /// replicas, so that it is there after a restart or a failover. Redis 7 or Valkey is needed.
    functions: bool = flag(), Value("false"), "true", StoreAddress;

    /// The longest time that a decision takes before `on_down` answers, 1ms to 60s. The wait for a turn and the call
    /// itself share this time, so set it to more than twice the round trip to Redis.
    timeout: Duration = time_within("1ms"..="60s", "a request waits for that long where the store does not answer"), Value("\"50ms\""), "\"25ms\"",
        Restart(|boot| show_time(boot.store.timeout));

    /// What limits without an `on_down` of their own do while Redis is away. With `local` each gateway counts by
    /// itself, as one of the gateways that were last known. `open` lets every request pass, `closed` answers 503.
    on_down: OnDown = word(), Value("\"local\""), "\"closed\"", Restart(|boot| show(boot.store.on_down.word()));

    /// The first part of every key in Redis. Gateways that share counters share the prefix.
    prefix: String = text_form(key_prefix), Value("\"tollgate\""), "\"edge\"",
        Restart(|boot| show(&boot.store.prefix));

    /// The number of live counters in memory. A quarter is kept in equal parts for the limits. Where a limit has used
    /// up its part and the rest is full, its new keys share one counter.
    max_keys: u32 = count(), Value("1000000"), "200000", Restart(|boot| show(boot.store.max_keys));

    /// Whether all counters of a Redis Cluster live in one slot, so that every request is one call on one master. A
    /// change starts the counters afresh.
    together: bool = flag(), Value("false"), "true";
}

table! {
    /// The authorities to trust, and the certificate to present to a Redis with TLS. Files are PEM, and watched.
    StoreTls = STORE_TLS, "store.tls", "TLS to the store";

    /// File with the certificates of the authorities to trust, instead of the system's.
    ca: String = text_as(ValueShape::File, any), Words("the system's authorities"), "\"redis-ca.pem\"";

    /// File with the certificate to present, and the certificates between it and its authority.
    cert: String = text_as(ValueShape::File, any), Words("none"), "\"gateway.pem\"";

    /// File with the key of `cert`, without a passphrase.
    key: String = text_as(ValueShape::File, any), Words("none"), "\"gateway.key\"";

    /// Name in the server's certificate, where it is not the name in the `url`.
    server_name: String = text_form(server_name), Words("the host that is connected to"), "\"redis.internal\"";
}

table! {
    /// The user that asks the sentinels for the master's address. Sentinels have users and passwords of their own.
    Sentinel = STORE_SENTINEL, "store.sentinel", "the sentinels";

    /// User of the sentinels' access control list; `password` goes with it.
    username: SecretSource = custom(ValueShape::UserName, secret), Words("the default user"), "\"tollgate\"", StoreAddress;

    /// Password for the sentinels.
    password: SecretSource = custom(ValueShape::Secret, secret), Words("none"), "{ file = \"/run/secrets/sentinel\" }";
}

words! { OnDown: Local "local", Open "open", Closed "closed" }

/// A secret that is written in the file, or the secret's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum SecretSource {
    /// The secret is in this file.
    Literal(Secret),
    /// The secret is in another file or in a variable.
    Elsewhere(SecretLocation),
}

/// Reads a secret, or the place of a secret.
pub(in crate::config::document) fn secret(
    key: &'static str,
    fields: &mut Fields<'_>,
) -> Setting<SecretSource> {
    let value = fields.typed(key, |value| {
        (value.is_str() || value.is_table()).then_some(value)
    });
    value.and_then(|value, span| match value {
        DeValue::Table(table) => {
            let place = SecretLocation::read_table(table, key, span);
            match place {
                Ok(place) => Some(SecretSource::Elsewhere(place)),
                Err(wrong) => fields.refuse(*wrong),
            }
        }
        text => text
            .as_str()
            .map(|text| SecretSource::Literal(Secret::new(text))),
    })
}
