//! Errors for an unreachable Redis name the remedy, and no part of any secret.

use super::certificates::{Authority, TlsServer, has_tls};
use super::clusters::command_text;
use super::support::{Server, look, until_up};
use super::watched::{Sentinel, by};
use crate::store::redis::RedisStore;
use crate::store::{Address, RedisEndpoint, RedisTarget, Secret};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn at(port: u16) -> Address {
    Address::new("127.0.0.1", port)
}

fn alone(port: u16) -> RedisTarget {
    RedisTarget::new(RedisEndpoint::Tcp(at(port)))
}

fn with(target: RedisTarget, username: Option<&str>, password: &str) -> RedisTarget {
    RedisTarget {
        username: username.map(Arc::from),
        password: Some(Secret::new(password)),
        ..target
    }
}

/// Asserts that `target` cannot be reached, and the cause.
async fn refused(target: &RedisTarget, words: &[&str]) {
    let said = look(target).await.unwrap_err().to_string();
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!said.contains("s3cret"), "{said}");
}

#[tokio::test(flavor = "local")]
async fn a_password_is_said_to_be_whose_it_is() {
    let master = Server::start_with(&["--requirepass", "s3cret-of-redis"]);
    let sentinel = Sentinel::start(
        master.port,
        "sentinel auth-pass cache s3cret-of-redis\nrequirepass s3cret-of-sentinel",
    );
    let open = Sentinel::start(master.port, "sentinel auth-pass cache s3cret-of-redis");
    let target = |sentinel: &Sentinel, theirs| by(&[sentinel.address()], "cache", theirs);
    let password = Some("s3cret-of-sentinel");
    let names = format!("it names 127.0.0.1:{}, and Redis ", master.port);
    for (target, words) in [
        (
            with(target(&sentinel, password), None, "s3cret-wrong"),
            [
                &*names,
                "(WRONGPASS): look at `username` and `password` in `[store]`",
            ],
        ),
        (
            target(&sentinel, password),
            [
                &*names,
                "none is given (NOAUTH): write `password` in `[store]`",
            ],
        ),
        (
            with(target(&sentinel, Some("s3cret-x")), None, "s3cret-of-redis"),
            [
                "the sentinel does not take",
                "look at `username` and `password` in `sentinel` of `[store]`",
            ],
        ),
        (
            with(target(&sentinel, None), None, "s3cret-of-redis"),
            [
                "the sentinel wants a password",
                "write `password` in `sentinel` of `[store]`",
            ],
        ),
        (
            with(target(&open, Some("s3cret-x")), None, "s3cret-of-redis"),
            [
                "the sentinel wants no password",
                "leave `password` in `sentinel` of `[store]` out",
            ],
        ),
    ] {
        refused(&target, &words).await;
    }
}

/// A server without AUTH repeats the password in its error.
#[tokio::test(flavor = "local")]
async fn a_login_that_is_not_taken_says_what_to_change() {
    let (plain, renamed) = (
        Server::start(),
        Server::start_with(&["--rename-command", "AUTH", ""]),
    );
    for (target, word) in [
        (
            with(alone(plain.port), None, "s3cret"),
            "Redis wants no password: leave `password` in `[store]` out",
        ),
        (
            with(alone(plain.port), Some("nobody"), "s3cret"),
            "look at `username` and `password` in `[store]`",
        ),
        (
            with(alone(renamed.port), None, "s3cret"),
            "Redis knows no AUTH, which has been renamed or taken away",
        ),
        (
            RedisTarget {
                database: 9999,
                ..alone(plain.port)
            },
            "no database 9999: ERR",
        ),
    ] {
        refused(&target, &[word]).await;
    }
}

#[tokio::test(flavor = "local")]
async fn who_is_something_else_is_told_so() {
    let master = Server::start();
    let (open, closed) = (
        Sentinel::start(master.port, ""),
        Sentinel::start(master.port, "requirepass s3cret"),
    );
    let RedisEndpoint::Sentinel { nodes, .. } = by(&[open.address()], "cache", None).place else {
        panic!("sentinels");
    };
    let meant = format!(
        "{0} is a sentinel: write `redis+sentinel://{0}/cache`",
        nodes[0]
    );
    let cluster = |address: Address| {
        RedisTarget::new(RedisEndpoint::Cluster {
            seeds: Arc::from([address]),
        })
    };
    for target in [
        RedisTarget::new(RedisEndpoint::Tcp(open.address())),
        cluster(open.address()),
        RedisTarget {
            database: 3,
            ..RedisTarget::new(RedisEndpoint::Tcp(open.address()))
        },
        RedisTarget {
            functions: true,
            ..RedisTarget::new(RedisEndpoint::Tcp(open.address()))
        },
    ] {
        refused(&target, &[&meant]).await;
    }
    let hidden = RedisTarget::new(RedisEndpoint::Tcp(closed.address()));
    let said = look(&hidden).await.unwrap_err().to_string();
    // Valkey requires the password before it reports unknown commands.
    let names_itself = said.contains("where it is a sentinel, write `redis+sentinel://");
    assert!(names_itself || said.contains("(NOAUTH)"), "{said}");
    refused(
        &cluster(at(master.port)),
        &["is no node of a cluster: leave `+cluster` out of the address"],
    )
    .await;
    let none = by(&[at(master.port)], "cache", None);
    let instead = format!(
        "`redis://127.0.0.1:{}` where it is the Redis itself",
        master.port
    );
    refused(&none, &["it is no sentinel", &instead]).await;
}

#[tokio::test(flavor = "local")]
async fn tls_is_asked_about_where_it_may_be_missing() {
    let plain = Server::start();
    let encrypted = RedisTarget {
        tls: Some(crate::tls::ClientTls::of_system()),
        ..alone(plain.port)
    };
    // No handshake begins without a trusted authority, as on a machine without a list of authorities.
    if crate::tls::ClientTls::of_system().config().is_ok() {
        refused(&encrypted, &["write `redis` in place of `rediss`"]).await;
    }
    if !has_tls() {
        return;
    }
    let authority = Authority::new();
    let server = TlsServer::start(&authority, &authority.signs("127.0.0.1"), "no");
    for target in [alone(server.port), with(alone(server.port), None, "s3cret")] {
        let words = [
            "is it a port with TLS?",
            "write `rediss` in place of `redis`",
        ];
        refused(&target, &words).await;
    }
}

#[tokio::test(flavor = "local")]
async fn a_user_without_a_password_logs_in_by_name() {
    let server = Server::start();
    let mut client = server.client();
    client.say("ACL SETUSER free on nopass ~* +@all");
    client.say("ACL SETUSER strict on >s3cret-of-strict ~* +@all");
    let named = |name: &str| RedisTarget {
        username: Some(Arc::from(name)),
        ..alone(server.port)
    };
    for target in [named("free"), with(alone(server.port), Some("free"), "")] {
        let store = RedisStore::new(&target, &server.settings());
        until_up(&store, Duration::from_secs(10)).await;
        let list = command_text(&server, "CLIENT LIST");
        assert!(list.contains("user=free"), "{list}");
    }
    refused(&named("strict"), &["(WRONGPASS): look at `username`"]).await;
}

#[tokio::test(flavor = "local")]
async fn a_server_that_talks_without_end_is_cut_short() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let words = format!("-ERR {}\r\n", "\u{e4}".repeat(100_000));
        while let Ok((mut client, _)) = listener.accept().await {
            let mut asked = [0; 4096];
            while let Ok(read @ 1..) = client.read(&mut asked).await {
                let commands = asked[..read].iter().filter(|byte| **byte == b'*').count();
                let all = words.repeat(commands);
                if client.write_all(all.as_bytes()).await.is_err() {
                    break;
                }
            }
        }
    });
    let said = look(&alone(port)).await.unwrap_err().to_string();
    assert!(said.contains("\u{e4}..."), "{said}");
    assert!(said.len() < 500, "{}", said.len());
    server.abort();
}

/// The server's words may be lost with their connection.
#[tokio::test(flavor = "local")]
async fn what_a_server_says_that_ends_connections_at_once_is_told() {
    for (words, expected) in [
        (
            "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set\r\n",
            "protected mode, in which no other machine is let in",
        ),
        (
            "-ERR max number of clients reached\r\n",
            "ends every connection at once: ERR max number of clients reached",
        ),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let _ = client.write_all(words.as_bytes()).await;
            }
        });
        for _ in 0..5 {
            let said = look(&alone(port)).await.unwrap_err().to_string();
            assert!(said.contains(expected) && !said.contains("TLS"), "{said}");
        }
        server.abort();
    }
}
