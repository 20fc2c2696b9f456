//! `[store]` and the tables inside it. Secrets are only pointed at here; [`super::super::store`] fetches them.

use super::super::outline::{show, show_time};
use super::super::secret::SecretLocation;
use super::super::value::{key_prefix, server_name, store};
use super::super::vocabulary::ValueShape;
use super::Setting;
use super::fields::Fields;
use super::form::{
    any, as_written, count, custom, flag, inner_table, text, text_as, time_within, word,
};
use super::table::table;
use super::words::{Words as _, words};
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

    /// Which authorities to believe and what to present, where the `url` begins with `rediss`; a changed file is taken
    /// over by connections made from then on.
    tls: StoreTls = inner_table(as_written), Words("with `rediss://`: whom the system believes, and nothing to present"), "{ ca = \"redis-ca.pem\" }";

    /// The credentials for the sentinels of a `redis+sentinel://`, which are not those for Redis.
    sentinel: Sentinel = inner_table(as_written), Words("none are needed"), "{ password = { file = \"/run/secrets/sentinel\" } }";

    /// Keep the scripts in Redis as a library of functions: it is written to disk and to replicas, so that it is there
    /// after a restart or a failover. Redis 7 or Valkey.
    functions: bool = flag(), Value("false"), "true", StoreAddress;

    /// Longest a decision takes before `on_down` answers, waiting for its turn and the call itself together, so more
    /// than twice the round trip to Redis: 1ms to 60s.
    timeout: Duration = time_within("1ms"..="60s", "a request waits for that long where the store does not answer"), Value("\"50ms\""), "\"25ms\"",
        Restart(|boot| show_time(boot.store.timeout));

    /// What limits do while Redis is away, unless they say it themselves: count in each gateway, as one of the gateways
    /// that were there, let everything pass, or answer 503.
    on_down: OnDown = word(), Value("\"local\""), "\"closed\"", Restart(|boot| show(boot.store.on_down.word()));

    /// First part of every key in Redis; gateways that share counters share it.
    prefix: String = text(key_prefix), Value("\"tollgate\""), "\"edge\"",
        Restart(|boot| show(&boot.store.prefix));

    /// Live counters held in memory at most. A quarter is kept in equal parts for the limits; a new key of a limit that
    /// has used up its part, when the rest is full, shares one counter with the limit's others.
    max_keys: u32 = count(), Value("1000000"), "200000", Restart(|boot| show(boot.store.max_keys));

    /// Whether all counters of a Redis Cluster live in one slot, so that every request is one call on one master. A
    /// change starts the counters afresh.
    together: bool = flag(), Value("false"), "true";
}

table! {
    /// Which authorities to believe and what to present to a Redis with TLS. Files are PEM, and watched.
    StoreTls = STORE_TLS, "store.tls", "TLS to the store";

    /// File with the certificates of the authorities to believe, instead of the system's.
    ca: String = text_as(ValueShape::File, any), Words("whom the system believes"), "\"redis-ca.pem\"";

    /// File with the certificate to present, and those between it and its authority.
    cert: String = text_as(ValueShape::File, any), Words("none"), "\"gateway.pem\"";

    /// File with the key of `cert`, without a passphrase.
    key: String = text_as(ValueShape::File, any), Words("none"), "\"gateway.key\"";

    /// Name that the server's certificate has, where it is another than the one in the `url`.
    server_name: String = text(server_name), Words("what is connected to"), "\"redis.internal\"";
}

table! {
    /// The user that asks the sentinels where the master is. Sentinels have users and passwords of their own.
    Sentinel = STORE_SENTINEL, "store.sentinel", "the sentinels";

    /// User of the sentinels' access control list; `password` goes with it.
    username: SecretSource = custom(ValueShape::UserName, secret), Words("the default user"), "\"tollgate\"", StoreAddress;

    /// Password for the sentinels.
    password: SecretSource = custom(ValueShape::Secret, secret), Words("none"), "{ file = \"/run/secrets/sentinel\" }";
}

words! { OnDown: Local "local", Open "open", Closed "closed" }

/// What need not stand in the file, or where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum SecretSource {
    /// In the file itself.
    Literal(Secret),
    /// Somewhere else.
    Elsewhere(SecretLocation),
}

fn secret(key: &'static str, fields: &mut Fields<'_>) -> Setting<SecretSource> {
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
