//! Addresses of the store: this process, one Redis, sentinels, a cluster.
//!
//! The address may contain a password, so messages never repeat it.

use super::net::ascii_form;
use super::servers::server::{host_and_port, in_ascii};
use super::{Code, ValueError};
use crate::store::{Address, Backend, RedisEndpoint, RedisTarget, Secret};
use crate::tls::{self, ClientTls};
use std::sync::Arc;

/// The default port of a Redis.
const REDIS: u16 = 6379;
/// The default port of a sentinel.
const SENTINEL: u16 = 26379;
/// The most nodes in one address.
const MOST_NODES: usize = 64;
/// The longest path of a socket that every system accepts.
const LONGEST_PATH: usize = 100;

/// Reads a name that the certificate of a server can have.
pub(in crate::config) fn server_name(text: &str) -> Result<String, ValueError> {
    match tls::server_name(text) {
        Some(_) => Ok(text.to_owned()),
        None => {
            let what = "no certificate can have this name";
            let label = "must be a name or an address, without a scheme or a port";
            let ascii = ascii_form(text).filter(|_| !text.is_ascii());
            Err(ValueError::new(Code::BadHost, what, label).offer(ascii))
        }
    }
}

fn wrong(label: &str) -> ValueError {
    ValueError::new(Code::BadStore, "this is not the address of a store", label).help(
        "write `\"memory:\"`, `\"redis://host:6379/0\"`, `\"unix:/path/redis.sock\"`, \
         `\"redis+sentinel://h1,h2,h3/NAME/0\"` or `\"redis+cluster://h1,h2,h3\"`; `rediss` is with TLS",
    )
}

/// Reads the store's address, which may have a password in it.
pub(in crate::config) fn store(text: &str) -> Result<Backend, ValueError> {
    if text == "memory:" {
        return Ok(Backend::Memory);
    }
    if let Some(path) = text.strip_prefix("unix:") {
        return unix(path.strip_prefix("//").unwrap_or(path));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(without_scheme(text));
    };
    if scheme == "redis+unix" {
        return unix(rest);
    }
    let (encrypted, kind) = match scheme.split_once('+').unwrap_or((scheme, "")) {
        ("redis", kind) => (false, kind),
        ("rediss", kind) => (true, kind),
        _ => return Err(wrong("the scheme must be `redis` or `rediss`")),
    };
    let (user, rest) = match rest.rsplit_once('@') {
        Some((user, _)) if user.contains(['?', '#']) => {
            return Err(encoded(
                "a `?` or `#` in front of the `@` would end the address",
            ));
        }
        Some((user, rest)) => (Some(user), rest),
        None => (None, rest),
    };
    if rest.contains(['?', '#']) {
        return Err(wrong("the address cannot have parameters"));
    }
    let (place, database) = match kind {
        "" => single(rest)?,
        "sentinel" => sentinel(rest)?,
        "cluster" => cluster(rest)?,
        _ => return Err(wrong("`sentinel` and `cluster` can follow the `+`")),
    };
    let (username, password) = user.map_or(Ok((None, None)), credentials)?;
    Ok(Backend::Redis(RedisTarget {
        tls: encrypted.then(ClientTls::of_system),
        database,
        username,
        password,
        ..RedisTarget::new(place)
    }))
}

/// The error about a user or password with a character that has a meaning in an address.
fn encoded(label: &str) -> ValueError {
    wrong(label).help(
        "write `%25` for a `%`, `%3F` for a `?`, `%23` for a `#`, or take the password out of the address and write \
         `password = { file = \"/run/secrets/redis\" }` and `username` beside it",
    )
}

fn without_scheme(text: &str) -> ValueError {
    if text == "memory" {
        return wrong("the store in this process has a colon").help("write `\"memory:\"`");
    }
    // The text may contain a password, and is not repeated.
    if text.contains('@') {
        return wrong("no scheme");
    }
    let place = text.trim_start_matches("redis:");
    if place.starts_with('/') {
        wrong("no scheme").offer([format!("unix:{place}")])
    } else {
        wrong("no scheme").offer([format!("redis://{place}")])
    }
}

/// `/path/redis.sock`, followed by `?db=N` for a database other than 0.
fn unix(text: &str) -> Result<Backend, ValueError> {
    let (path, database) = match text.split_once('?') {
        Some((path, query)) => match query.strip_prefix("db=") {
            Some(number) => (path, number),
            None => return Err(wrong("only `?db=NUMBER` can follow the path of a socket")),
        },
        None => (text, ""),
    };
    if path.contains('@') && !path.starts_with('/') {
        return Err(wrong("a user cannot be in front of a path")
            .help("write `username` and `password` beside the `url`"));
    }
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        return Err(wrong("the path of a socket begins with a `/`")
            .help("write `\"unix:/run/redis/redis.sock\"`"));
    }
    if path.len() > LONGEST_PATH {
        return Err(
            wrong("the path of a socket has at most 100 bytes").help("choose a shorter path")
        );
    }
    let database = number(database, "`unix:/run/redis/redis.sock?db=0`")?;
    Ok(Backend::Redis(RedisTarget {
        database,
        ..RedisTarget::new(RedisEndpoint::Unix(Arc::from(path)))
    }))
}

fn single(text: &str) -> Result<(RedisEndpoint, u16), ValueError> {
    let (place, database) = text.split_once('/').unwrap_or((text, ""));
    if place.contains(',') {
        return Err(wrong("one Redis has one address").help(
            "write `\"redis+sentinel://h1,h2,h3/NAME/0\"` where sentinels watch over it, \
             `\"redis+cluster://h1,h2,h3\"` for a cluster",
        ));
    }
    let address = address(place, REDIS)?;
    let database = number(database, "`redis://host:6379/0`")?;
    Ok((RedisEndpoint::Tcp(address), database))
}

fn sentinel(text: &str) -> Result<(RedisEndpoint, u16), ValueError> {
    let mut parts = text.splitn(3, '/');
    let nodes = addresses(parts.next().unwrap_or_default(), SENTINEL)?;
    let name = parts.next().unwrap_or_default();
    // The characters that sentinels accept in a name.
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if name.is_empty() || !name.bytes().all(good) {
        return Err(wrong(
            "after the addresses write the name that the sentinels have for the master",
        )
        .help("write `\"redis+sentinel://h1,h2,h3/NAME/0\"`"));
    }
    let database = number(
        parts.next().unwrap_or_default(),
        "`redis+sentinel://h1,h2,h3/NAME/0`",
    )?;
    let place = RedisEndpoint::Sentinel {
        nodes,
        name: Arc::from(name),
        username: None,
        password: None,
    };
    Ok((place, database))
}

fn cluster(text: &str) -> Result<(RedisEndpoint, u16), ValueError> {
    let (nodes, database) = text.split_once('/').unwrap_or((text, ""));
    let seeds = addresses(nodes, REDIS)?;
    if number(database, "0 in a cluster")? != 0 {
        return Err(wrong("a cluster has database 0 only").help("leave the number out"));
    }
    Ok((RedisEndpoint::Cluster { seeds }, 0))
}

fn addresses(text: &str, port: u16) -> Result<Arc<[Address]>, ValueError> {
    let mut all: Vec<Address> = Vec::new();
    for part in text.split(',') {
        let one = address(part, port)?;
        if all.contains(&one) {
            return Err(wrong("an address is in this list twice"));
        }
        all.push(one);
    }
    if all.len() > MOST_NODES {
        return Err(wrong("at most 64 addresses are allowed here")
            .help("name some of the nodes: each node knows the others"));
    }
    Ok(all.into())
}

/// The error about a host with non-ASCII letters. The rest of the address may contain a password, and is not repeated.
fn other_letters(place: &str) -> ValueError {
    let wrong = wrong("the name of a host has other letters in its ASCII form");
    match in_ascii(place) {
        Some(ascii) => wrong.help(format!("write `{ascii}` in place of `{place}`")),
        None => wrong.help("write the `xn--` form of the name"),
    }
}

fn address(text: &str, port: u16) -> Result<Address, ValueError> {
    if !text.is_ascii() {
        return Err(other_letters(text));
    }
    let (host, port) = host_and_port(text, Some(port)).map_err(wrong)?;
    Ok(Address { host, port })
}

fn number(text: &str, example: &str) -> Result<u16, ValueError> {
    match text {
        "" => Ok(0),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
            .parse()
            .map_err(|_| wrong("no Redis has so many databases")),
        _ => Err(wrong(&format!("the database is a number, as in {example}"))),
    }
}

type Credentials = (Option<Arc<str>>, Option<Secret>);

/// `user:password`, of which each part can be empty.
fn credentials(text: &str) -> Result<Credentials, ValueError> {
    let (name, password) = text.split_once(':').unwrap_or((text, ""));
    let read = |text| decode(text).ok_or_else(|| encoded("a `%` needs two hexadecimal digits"));
    let (name, password) = (read(name)?, read(password)?);
    let username = (!name.is_empty()).then(|| Arc::from(name));
    Ok((
        username,
        (!password.is_empty()).then(|| Secret::new(&password)),
    ))
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

    fn redis(text: &str) -> RedisTarget {
        match store(text) {
            Ok(Backend::Redis(target)) => target,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_is_written_and_what_is_read() {
        assert_eq!(store("memory:").unwrap(), Backend::Memory);
        for (text, shown) in [
            ("redis://cache", "redis://cache:6379/0"),
            ("redis://[::1]:7/3", "redis://[::1]:7/3"),
            ("rediss://cache/1", "rediss://cache:6379/1"),
            (
                "redis+sentinel://u:p@a,b:7/n",
                "redis+sentinel://a:26379,b:7/n/0",
            ),
            ("rediss+sentinel://a/n/3", "rediss+sentinel://a:26379/n/3"),
            ("unix:/run/redis.sock", "unix:/run/redis.sock"),
            ("unix:///run/redis.sock", "unix:/run/redis.sock"),
            ("unix:/run/r.sock?db=0", "unix:/run/r.sock"),
            ("redis+unix:///run/r.sock?db=3", "unix:/run/r.sock?db=3"),
            ("redis+cluster://a,b:7", "redis+cluster://a:6379,b:7"),
        ] {
            assert_eq!(redis(text).to_string(), shown);
            assert_eq!(redis(shown).to_string(), shown);
        }
    }

    #[test]
    fn several_addresses() {
        let shown = |read: Result<(RedisEndpoint, u16), ValueError>| {
            let (place, database) = read.unwrap();
            let target = RedisTarget {
                database,
                ..RedisTarget::new(place)
            };
            target.to_string()
        };
        assert_eq!(
            shown(sentinel("h1,[::1]:7,h3/main.1/2")),
            "redis+sentinel://h1:26379,[::1]:7,h3:26379/main.1/2"
        );
        assert_eq!(
            shown(sentinel("h1/main")),
            "redis+sentinel://h1:26379/main/0"
        );
        assert_eq!(shown(cluster("a,b:7/")), "redis+cluster://a:6379,b:7");
        for text in [
            "", "h1", "h1/", "h1/a b", "h1,/a", "h1,h1/a", "h1/a/x", "h1/a/0/0",
        ] {
            assert!(sentinel(text).is_err(), "{text}");
        }
        for text in ["", "a,", "a/1", "a/x", "a,a:6379"] {
            assert!(cluster(text).is_err(), "{text}");
        }
    }

    #[test]
    fn credentials_are_taken_out() {
        let full = redis("redis://me:p%40ss@cache:1/2");
        assert_eq!(full.to_string(), "redis://cache:1/2");
        assert_eq!(full.username.as_deref(), Some("me"));
        assert_eq!(full.password.unwrap().expose(), "p@ss");
        let alone = redis("redis://:pw@cache");
        assert_eq!(
            (alone.username, alone.password.unwrap().expose()),
            (None, "pw")
        );
        // No sign other than the last `@` ends the user or the password.
        for (text, password) in [
            ("redis://:a/b@cache", "a/b"),
            ("redis://:a@b@cache", "a@b"),
            ("redis+sentinel://:a:b@h/n", "a:b"),
        ] {
            assert_eq!(redis(text).password.unwrap().expose(), password);
        }
    }

    #[test]
    fn what_is_no_store() {
        for text in [
            "",
            "memory",
            "cache:6379",
            "redis+sentinel://a",
            "redis+sentinel://a/n/1/2",
            "redis+x://a",
            "redis://",
            "redis://a/x",
            "redis://a/+1",
            "redis://a/65536",
            "redis://a:b",
            "redis://a?x=1",
            "redis://a,b",
            "http://a",
            "redis://%zz@a",
            "unix:",
            "unix:relative",
            "unix:/",
            "unix:/a?database=1",
            "unix:/a?db=x",
            "redis+unix://u:p@/a",
        ] {
            assert!(store(text).is_err(), "{text}");
        }
    }
}
