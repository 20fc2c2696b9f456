//! `[store]` and the tables inside it.

use super::super::Default::{Value, Words};
use super::super::{Key, Shape, Table};
use super::WHOLE;

/// `[store]`.
pub static STORE: Table = Table {
    name: "store",
    named: false,
    noun: "the store",
    about: "Where counters live: in this process, or in a Redis that several gateways share.",
    keys: &[
        Key {
            name: "url",
            shape: Shape::Text,
            default: Value("\"memory:\""),
            about: "`memory:`, `redis://[user[:password]@]host[:port][/database]`, `unix:/path[?db=NUMBER]`, `redis+sentinel://h1,h2,h3/NAME[/database]` or `redis+cluster://h1,h2,h3`; `rediss` in place of `redis` is with TLS.",
            example: "\"redis://cache:6379/0\"",
            live: false,
        },
        Key {
            name: "username",
            shape: Shape::Secret,
            default: Words("the default user"),
            about: "User of the Redis' access control list; `password` goes with it.",
            example: "\"tollgate\"",
            live: false,
        },
        Key {
            name: "password",
            shape: Shape::Secret,
            default: Words("none"),
            about: "Password of the Redis user, best kept in a file or in the environment.",
            example: "{ file = \"/run/secrets/redis\" }",
            live: true,
        },
        Key {
            name: "tls",
            shape: Shape::Inner(&STORE_TLS),
            default: Words("with `rediss://`: whom the system believes, and nothing to present"),
            about: "Whom to believe and what to present, where the `url` begins with `rediss`; a changed file is taken over by connections made from then on.",
            example: "{ ca = \"redis-ca.pem\" }",
            live: true,
        },
        Key {
            name: "sentinel",
            shape: Shape::Inner(&STORE_SENTINEL),
            default: Words("none are needed"),
            about: "What the sentinels of a `redis+sentinel://` want to be told, which is not what Redis wants to be told.",
            example: "{ password = { file = \"/run/secrets/sentinel\" } }",
            live: true,
        },
        Key {
            name: "functions",
            shape: Shape::Flag,
            default: Value("false"),
            about: "Keep the scripts in Redis as a library of functions: it is written to disk and to replicas, so that it is there after a restart or a failover. Redis 7 or Valkey.",
            example: "true",
            live: false,
        },
        Key {
            name: "timeout",
            shape: Shape::Duration,
            default: Value("\"50ms\""),
            about: "Longest a decision takes before `on_down` answers, waiting for its turn and the call itself together, so more than twice the round trip to Redis: 1ms to 60s.",
            example: "\"25ms\"",
            live: false,
        },
        Key {
            name: "on_down",
            shape: Shape::Choice(&["local", "open", "closed"]),
            default: Value("\"local\""),
            about: "What limits do while Redis is away, unless they say it themselves: count in each gateway, as one of the gateways that were there, let everything pass, or answer 503.",
            example: "\"closed\"",
            live: false,
        },
        Key {
            name: "prefix",
            shape: Shape::Text,
            default: Value("\"tollgate\""),
            about: "First part of every key in Redis; gateways that share counters share it.",
            example: "\"edge\"",
            live: false,
        },
        Key {
            name: "max_keys",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Value("1000000"),
            about: "Live counters held in memory at most. A quarter is kept in equal parts for the limits; a new key of a limit that has used up its part, when the rest is full, shares one counter with the limit's others.",
            example: "200000",
            live: false,
        },
        Key {
            name: "together",
            shape: Shape::Flag,
            default: Value("false"),
            about: "Whether all counters of a Redis Cluster live in one slot, so that every request is one call on one master. A change starts the counters afresh.",
            example: "true",
            live: true,
        },
    ],
    later: &["lease"],
};

/// `tls` of `[store]`.
pub static STORE_TLS: Table = Table {
    name: "store.tls",
    named: false,
    noun: "TLS to the store",
    about: "Whom to believe and what to present to a Redis with TLS. Files are PEM, and watched.",
    keys: &[
        Key {
            name: "ca",
            shape: Shape::Text,
            default: Words("whom the system believes"),
            about: "File with the certificates of the authorities to believe, instead of the system's.",
            example: "\"redis-ca.pem\"",
            live: true,
        },
        Key {
            name: "cert",
            shape: Shape::Text,
            default: Words("none"),
            about: "File with the certificate to present, and those between it and its authority.",
            example: "\"gateway.pem\"",
            live: true,
        },
        Key {
            name: "key",
            shape: Shape::Text,
            default: Words("none"),
            about: "File with the key of `cert`, without a passphrase.",
            example: "\"gateway.key\"",
            live: true,
        },
        Key {
            name: "server_name",
            shape: Shape::Text,
            default: Words("what is connected to"),
            about: "Name that the server's certificate has, where it is another than the one in the `url`.",
            example: "\"redis.internal\"",
            live: true,
        },
    ],
    later: &[],
};

/// `sentinel` of `[store]`.
pub static STORE_SENTINEL: Table = Table {
    name: "store.sentinel",
    named: false,
    noun: "the sentinels",
    about: "Who asks the sentinels where the master is. They have users and passwords of their own.",
    keys: &[
        Key {
            name: "username",
            shape: Shape::Secret,
            default: Words("the default user"),
            about: "User of the sentinels' access control list; `password` goes with it.",
            example: "\"tollgate\"",
            live: false,
        },
        Key {
            name: "password",
            shape: Shape::Secret,
            default: Words("none"),
            about: "Password for the sentinels.",
            example: "{ file = \"/run/secrets/sentinel\" }",
            live: true,
        },
    ],
    later: &[],
};
