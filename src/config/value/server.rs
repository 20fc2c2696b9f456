//! Where to connect to: servers of an upstream, and the store.
//!
//! What is written here may hold a password, so messages never repeat it.

use super::{Code, Wrong, mended};
use crate::store::{RedisTarget, Rotated, Secret, Source};
use crate::upstream::Server;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Reads `http://host:port`, `host:port` or `demo:`.
pub(in crate::config) fn server(text: &str) -> Result<Server, Wrong> {
    mended(text, read_server)
}

fn read_server(text: &str) -> Result<Server, Wrong> {
    let wrong = |label: &str| {
        Wrong::new(Code::BadServer, "this is not a server to forward to", label)
            .help("write it as `\"http://10.0.0.5:3000\"`")
    };
    if text == "demo:" {
        return Ok(Server::Demo);
    }
    if text == "demo" {
        return Err(wrong("the built-in server has a colon").help("write `\"demo:\"`"));
    }
    let (rest, port) = match text.split_once("://") {
        Some(("http", rest)) => (rest, Some(80)),
        Some(("https" | "h2c" | "grpc" | "grpcs", _)) => {
            return Err(Wrong::new(
                Code::NotAvailable,
                "TLS and HTTP/2 to an upstream are not available in this version",
                "`http://` is",
            ));
        }
        Some(("unix", _)) => {
            return Err(Wrong::new(
                Code::NotAvailable,
                "a Unix socket as a server is not available in this version",
                "`http://host:port` is",
            ));
        }
        Some(_) => return Err(wrong("the scheme must be `http`")),
        None => (text, None),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains('@') {
        return Err(wrong("credentials are not sent to servers")
            .help("leave out what stands before the `@`"));
    }
    if let Some(at) = rest.find(['/', '?', '#']) {
        return Err(
            wrong("a path or query has no place here: the request's own is forwarded")
                .offer([format!("http://{}", &rest[..at])]),
        );
    }
    let digits = text.strip_prefix(':').unwrap_or(text);
    let (host, port) = host_and_port(rest, port).map_err(|label| {
        // A port alone is somebody's own machine.
        let port = digits.parse::<u16>().ok();
        wrong(label).offer(port.map(|port| format!("http://127.0.0.1:{port}")))
    })?;
    Ok(Server::Http { host, port })
}

/// Reads the store's address. The second part is the password in it, if any.
pub(in crate::config) fn store(text: &str) -> Result<Source, Wrong> {
    mended(text, read_store)
}

fn read_store(text: &str) -> Result<Source, Wrong> {
    let wrong = |label: &str| {
        Wrong::new(Code::BadStore, "this is not the address of a store", label)
            .help("write `\"memory:\"` or `\"redis://host:6379/0\"`")
    };
    let later = |what: &str| {
        Wrong::new(
            Code::NotAvailable,
            format!("{what} is not available in this version"),
            "one Redis without TLS, `redis://host:port/database`, is",
        )
    };
    if text == "memory:" {
        return Ok(Source::Memory);
    }
    let (scheme, rest) = match text.split_once("://") {
        Some(parts) => parts,
        None if text == "memory" => {
            return Err(wrong("the store in this process has a colon").help("write `\"memory:\"`"));
        }
        // What may hold a password is not repeated.
        None if text.contains('@') => return Err(wrong("no scheme")),
        None => {
            let place = text.trim_start_matches("redis:");
            return Err(wrong("no scheme").offer([format!("redis://{place}")]));
        }
    };
    match scheme {
        "redis" => {}
        "rediss" => return Err(later("Redis over TLS")),
        "redis+unix" | "unix" => return Err(later("Redis over a Unix socket")),
        _ if scheme.contains("sentinel") => return Err(later("Redis Sentinel")),
        _ if scheme.contains("cluster") => return Err(later("Redis Cluster")),
        _ => return Err(wrong("the scheme must be `redis`")),
    }
    if rest.contains(['?', '#']) {
        return Err(wrong("no parameters can stand in the address"));
    }
    let (user, rest) = match rest.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, rest),
    };
    let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = host_and_port(place, Some(6379)).map_err(&wrong)?;
    let database = match database {
        "" => 0,
        number => number
            .parse()
            .map_err(|_| wrong("the database is a number, as in `redis://host:6379/0`"))?,
    };
    let (username, password) = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
        None => (None, None),
        Some((name, password)) => (
            Some(decode(name).ok_or_else(|| wrong("a `%` needs two hexadecimal digits"))?),
            Some(decode(password).ok_or_else(|| wrong("a `%` needs two hexadecimal digits"))?),
        ),
    };
    Ok(Source::Redis(RedisTarget {
        host,
        port,
        database,
        username: username.filter(|name| !name.is_empty()).map(Arc::from),
        password: password
            .filter(|word| !word.is_empty())
            .map(|word| Secret::new(&word)),
        rotated: Rotated::default(),
    }))
}

fn host_and_port(text: &str, default: Option<u16>) -> Result<(Arc<str>, u16), &'static str> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (inside, after) = rest.split_once(']').ok_or("no `]` after the address")?;
        inside
            .parse::<Ipv6Addr>()
            .map_err(|_| "an IPv6 address belongs between `[` and `]`")?;
        match after {
            "" => (inside, None),
            _ => (
                inside,
                Some(
                    after
                        .strip_prefix(':')
                        .ok_or("a `:` and a port should follow the `]`")?,
                ),
            ),
        }
    } else if text.parse::<Ipv6Addr>().is_ok() {
        return Err("an IPv6 address needs brackets");
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let port = match (port, default) {
        (Some(port), _) => port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or("the port must be a number from 1 to 65535")?,
        (None, Some(default)) => default,
        (None, None) => return Err("no port"),
    };
    let is_name = !host.is_empty()
        && host.len() <= 253
        && host.split('.').all(|label| {
            !label.is_empty()
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        });
    if host.parse::<IpAddr>().is_err() && !is_name {
        return Err("the host must be a name or an address");
    }
    Ok((Arc::from(host.to_ascii_lowercase()), port))
}

fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let pair = [bytes.next()?, bytes.next()?];
                let digits = std::str::from_utf8(&pair)
                    .ok()
                    .filter(|digits| !digits.starts_with('+'))?;
                u8::from_str_radix(digits, 16).ok()?
            }
            _ => byte,
        });
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers() {
        for (text, read) in [
            ("http://10.1.0.5:3000", "http://10.1.0.5:3000"),
            ("http://Orders/", "http://orders:80"),
            ("orders:3000", "http://orders:3000"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("[::1]:3000", "http://[::1]:3000"),
            ("demo:", "demo:"),
        ] {
            assert_eq!(server(text).unwrap().to_string(), read);
        }
        for text in [
            "",
            "orders",
            "https://orders",
            "http://",
            "http://a/b",
            "http://a?b",
            "http://u:p@a",
            "http://a:0",
            "http://::1",
            "ftp://a",
            "demo",
            "a b:1",
            "http://a:b",
            "http://[::1",
            "[::1]",
            "http://[::1]3",
        ] {
            assert!(server(text).is_err(), "{text}");
        }
    }

    #[test]
    fn stores() {
        let redis = |text: &str| match store(text).unwrap() {
            Source::Redis(target) => target,
            Source::Memory => panic!("memory"),
        };
        assert_eq!(store("memory:").unwrap(), Source::Memory);
        assert_eq!(redis("redis://cache").to_string(), "redis://cache:6379/0");
        assert_eq!(redis("redis://[::1]:7/3").to_string(), "redis://[::1]:7/3");
        let full = redis("redis://me:p%40ss@cache:1/2");
        assert_eq!(full.username.as_deref(), Some("me"));
        assert_eq!(full.password.unwrap().expose(), "p@ss");
        let alone = redis("redis://:pw@cache");
        assert_eq!(
            (alone.username, alone.password.unwrap().expose()),
            (None, "pw")
        );
        for text in [
            "",
            "memory",
            "cache:6379",
            "rediss://a",
            "redis+sentinel://a",
            "redis+cluster://a",
            "redis://",
            "redis://a/x",
            "redis://a:b",
            "redis://a?x=1",
            "http://a",
            "redis://%zz@a",
        ] {
            assert!(store(text).is_err(), "{text}");
        }
    }
}
