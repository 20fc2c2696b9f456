//! Servers of an upstream.
//!
//! The address may contain a password, so messages never repeat it.

use crate::config::report::nearest;
use crate::config::value::net::ascii_form;
use crate::config::value::{Code, ValueError};
use crate::intake::head::is_host;
use crate::upstream::{ServerHost, ServerUrl};
use http::HeaderValue;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Reads the `Host` for servers: `client`, `upstream`, or a host with or without a port.
pub(in crate::config) fn server_host(text: &str) -> Result<Option<ServerHost>, ValueError> {
    match text {
        "client" => Ok(None),
        "upstream" => Ok(Some(ServerHost::Own)),
        _ => {
            // A word that is similar to one of the two would be a host that no server knows.
            if let Some(word) = nearest(text, ["client", "upstream"]) {
                return Err(ValueError::of(
                    Code::BadHost,
                    text,
                    "resembles a word that `host` takes",
                    "",
                )
                .help(format!(
                    "write `\"{word}\"`; if a host has this name, write it with its port"
                )));
            }
            named_host(text).map(|host| Some(ServerHost::Text(host)))
        }
    }
}

/// Reads a host in the form of requests, with or without a port.
pub(in crate::config::value) fn named_host(text: &str) -> Result<HeaderValue, ValueError> {
    let host = HeaderValue::from_str(text).ok();
    host.filter(|_| is_host(text.as_bytes())).ok_or_else(|| {
        let label = "a name or an address, with or without a port";
        let wrong = ValueError::of(Code::BadHost, text, "is not a host", label);
        if !text.is_ascii() {
            return wrong
                .help("write the `xn--` form of the name")
                .offer(in_ascii(text))
                .keep_valid(named_host);
        }
        let bare = text.split_once("://").map_or(text, |(_, rest)| rest);
        let bare = bare.split('/').next().unwrap_or(bare);
        if bare != text && is_host(bare.as_bytes()) {
            wrong.help(format!("write `\"{bare}\"`"))
        } else {
            wrong.help("write `\"orders.internal\"`")
        }
    })
}

/// Reads `http://host:port`, `https://host:port`, `h2c://host:port`, `unix:/path`, `host:port` or `demo:`.
pub(in crate::config) fn server(text: &str) -> Result<ServerUrl, ValueError> {
    let wrong = |label: &str| {
        ValueError::new(Code::BadServer, "this is not a server's address", label)
            .help("write it as `\"http://10.0.0.5:3000\"`")
    };
    if text == "demo:" {
        return Ok(ServerUrl::Demo);
    }
    if text == "demo" {
        return Err(wrong("the built-in server has a colon").help("write `\"demo:\"`"));
    }
    if let Some(path) = text.strip_prefix("unix:") {
        return unix(path, wrong);
    }
    let scheme = text.split_once("://");
    let (rest, port) = match scheme {
        Some(("http" | "h2c", rest)) => (rest, Some(80)),
        Some(("https", rest)) => (rest, Some(443)),
        Some(("grpc" | "http2", rest)) => {
            return Err(wrong("gRPC and HTTP/2 without TLS are written `h2c`")
                .offer([format!("h2c://{rest}")]));
        }
        Some(("grpcs" | "h2", rest)) => {
            return Err(wrong("gRPC and HTTP/2 with TLS are written `https`")
                .offer([format!("https://{rest}")]));
        }
        Some(_) => return Err(wrong("the scheme must be `http`, `https`, `h2c` or `unix`")),
        None => (text, None),
    };
    let scheme = scheme.map_or("http", |(scheme, _)| scheme);
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains('@') {
        return Err(
            wrong("credentials are not sent to servers").help("leave out the part before the `@`")
        );
    }
    if let Some(at) = rest.find(['/', '?', '#']) {
        return Err(
            wrong("a server has no path or query: those of the request are forwarded")
                .offer([format!("{scheme}://{}", &rest[..at])]),
        );
    }
    if !rest.is_ascii() {
        let label = "names have other letters in their ASCII form";
        return Err(wrong(label)
            .offer(in_ascii(rest).map(|rest| format!("{scheme}://{rest}")))
            .help("write the `xn--` form of the name"));
    }
    let digits = text.strip_prefix(':').unwrap_or(text);
    let (host, port) = host_and_port(rest, port).map_err(|label| {
        // A port alone probably means a server on this machine.
        let port = digits.parse::<u16>().ok();
        wrong(label).offer(port.map(|port| format!("http://127.0.0.1:{port}")))
    })?;
    Ok(match scheme {
        "https" => ServerUrl::Https { host, port },
        "h2c" => ServerUrl::H2c { host, port },
        _ => ServerUrl::Http { host, port },
    })
}

/// A host with or without a port, with the host in its ASCII form.
pub(in crate::config::value) fn in_ascii(text: &str) -> Option<String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, format!(":{port}")),
        None => (text, String::new()),
    };
    ascii_form(host).map(|host| format!("{host}{port}"))
}

/// The longest path of a socket that the system accepts.
const MOST_PATH: usize = 107;

/// Reads the path of a socket, `/run/app.sock` or `///run/app.sock`.
fn unix(path: &str, wrong: impl Fn(&str) -> ValueError) -> Result<ServerUrl, ValueError> {
    let path = path.strip_prefix("//").unwrap_or(path);
    if !path.starts_with('/') {
        return Err(wrong("the path of a server's socket begins with `/`").help(
            "write the whole path, as `\"unix:/run/app.sock\"`; in an included file, name a socket in the file's own folder",
        ));
    }
    if path.len() > MOST_PATH || path.ends_with('/') || path.contains('\0') {
        return Err(wrong("no socket can have this path")
            .help("write it as `\"unix:/run/app.sock\"`, with 107 bytes at most"));
    }
    Ok(ServerUrl::Unix(path.into()))
}

/// Splits `host:port` or `[address]:port`.
pub(in crate::config::value) fn host_and_port(
    text: &str,
    default: Option<u16>,
) -> Result<(Arc<str>, u16), &'static str> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::with_valid_offers;

    #[test]
    fn a_name_with_other_letters_is_offered_in_its_ascii_form() {
        for (text, offer) in [
            (
                "http://bücher.example:3000",
                "http://xn--bcher-kva.example:3000",
            ),
            ("https://BÜCHER.example/", "https://xn--bcher-kva.example"),
            ("straße.example:80", "http://xn--strae-oqa.example:80"),
            ("http://例え.jp", "http://xn--r8jz45g.jp"),
        ] {
            let help = with_valid_offers(text, server).unwrap_err().shown_help();
            assert_eq!(help, Some(format!("write `\"{offer}\"`")), "{text}");
        }
        let help = named_host("müller.example:8080").unwrap_err().shown_help();
        assert_eq!(help.unwrap(), "write `\"xn--mller-kva.example:8080\"`");
    }

    #[test]
    fn servers() {
        for (text, read) in [
            ("http://10.1.0.5:3000", "http://10.1.0.5:3000"),
            ("http://Orders/", "http://orders:80"),
            ("orders:3000", "http://orders:3000"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("[::1]:3000", "http://[::1]:3000"),
            ("demo:", "demo:"),
            ("https://orders", "https://orders:443"),
            ("https://10.1.0.5:8443/", "https://10.1.0.5:8443"),
            ("h2c://orders:50051", "h2c://orders:50051"),
            ("unix:/run/app.sock", "unix:/run/app.sock"),
            ("unix:///run/app.sock", "unix:/run/app.sock"),
        ] {
            assert_eq!(server(text).unwrap().to_string(), read);
        }
        for text in [
            "",
            "orders",
            "https://",
            "grpc://orders:1",
            "unix:app.sock",
            "unix:",
            "unix:/",
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
}
