//! The address at which a server listens, and the protocol for it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The address at which one server listens. Its text in normal form is the server's identity in an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerUrl {
    /// `http://host:port`, HTTP/1.1 over TCP.
    Http {
        /// Name or address, IPv6 without brackets.
        host: Arc<str>,
        /// TCP port.
        port: u16,
    },
    /// `https://host:port`, with TLS; the handshake selects the protocol.
    Https {
        /// Name or address, IPv6 without brackets.
        host: Arc<str>,
        /// TCP port.
        port: u16,
    },
    /// `h2c://host:port`, HTTP/2 over TCP without TLS (RFC 9113, section 3.3).
    H2c {
        /// Name or address, IPv6 without brackets.
        host: Arc<str>,
        /// TCP port.
        port: u16,
    },
    /// `unix:/path`, HTTP/1.1 over a Unix socket.
    Unix(Arc<str>),
    /// `demo:`, the built-in server, started if the file contains it.
    Demo,
}

impl ServerUrl {
    /// The host and the port, if the server is reached by TCP.
    #[must_use]
    pub fn host_and_port(&self) -> Option<(&Arc<str>, u16)> {
        match self {
            Self::Http { host, port } | Self::Https { host, port } | Self::H2c { host, port } => {
                Some((host, *port))
            }
            Self::Unix(_) | Self::Demo => None,
        }
    }

    /// The name that must be resolved before the server can be reached; `None` if the file has an address.
    #[must_use]
    pub fn name(&self) -> Option<&Arc<str>> {
        let (host, _) = self.host_and_port()?;
        host.parse::<IpAddr>().is_err().then_some(host)
    }

    /// The address in the file.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        let (host, port) = self.host_and_port()?;
        Some(SocketAddr::new(host.parse().ok()?, port))
    }

    /// The part before the address: `https`, `http`, `h2c`, `unix` or `demo`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        match self {
            Self::Http { .. } => "http",
            Self::Https { .. } => "https",
            Self::H2c { .. } => "h2c",
            Self::Unix(_) => "unix",
            Self::Demo => "demo",
        }
    }

    /// Is the connection encrypted?
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Https { .. })
    }

    /// Does a connection to the server carry several concurrent requests, judging by the URL?
    #[must_use]
    pub fn shares_connections(&self) -> bool {
        matches!(self, Self::H2c { .. } | Self::Https { .. })
    }

    /// The host of a request that names the server itself: without the port if it is the scheme's default (RFC 9110,
    /// section 4.2.3). A server on a Unix socket has no host, and gets `localhost`.
    #[must_use]
    pub fn host(&self) -> String {
        let all = self.authority();
        let usual = if self.is_encrypted() { ":443" } else { ":80" };
        match all.strip_suffix(usual) {
            Some(host) => host.to_owned(),
            None => all,
        }
    }

    /// The host of a request to this server if the request names none.
    #[must_use]
    pub fn authority(&self) -> String {
        let url = self.to_string();
        let place = url.split_once("://");
        place.map_or("localhost", |(_, place)| place).to_owned()
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{path}"),
            Self::Demo => f.write_str("demo:"),
            Self::Http { host, port } | Self::Https { host, port } | Self::H2c { host, port } => {
                let scheme = self.scheme();
                if host.contains(':') {
                    write!(f, "{scheme}://[{host}]:{port}")
                } else {
                    write!(f, "{scheme}://{host}:{port}")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_shown_as_it_is_written() {
        let (host, port): (Arc<str>, u16) = ("orders".into(), 3000);
        let https = ServerUrl::Https { host, port };
        assert_eq!(https.to_string(), "https://orders:3000");
        assert_eq!(https.authority(), "orders:3000");
        assert_eq!(https.host(), "orders:3000");
        assert_eq!(https.name().map(|name| &**name), Some("orders"));
        let (host, port): (Arc<str>, u16) = ("::1".into(), 80);
        let h2c = ServerUrl::H2c { host, port };
        assert_eq!(h2c.to_string(), "h2c://[::1]:80");
        assert_eq!(
            (h2c.authority(), h2c.host()),
            ("[::1]:80".into(), "[::1]".into())
        );
        assert_eq!((h2c.name(), h2c.address()), (None, "[::1]:80".parse().ok()));
        let unix = ServerUrl::Unix("/run/app.sock".into());
        assert_eq!(unix.to_string(), "unix:/run/app.sock");
        assert_eq!(
            (unix.authority(), unix.host()),
            ("localhost".into(), "localhost".into())
        );
        let (host, port): (Arc<str>, u16) = ("orders".into(), 443);
        let plain = ServerUrl::Http {
            host: Arc::clone(&host),
            port,
        };
        assert_eq!(plain.host(), "orders:443");
        assert_eq!(ServerUrl::Https { host, port }.host(), "orders");
    }
}
