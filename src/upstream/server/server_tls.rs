//! TLS towards the servers of an upstream: trusted authorities, our certificate, and the offered protocols.

use crate::tls::ClientTls;
use rustls::ClientConfig;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// The encryption of connections to the servers of an upstream. Clones share one value.
#[derive(Debug, Clone)]
pub struct ServerTls(Arc<ServerTlsState>);

#[derive(Debug)]
struct ServerTlsState {
    client: ClientTls,
    /// One configuration for each offer, created when first needed.
    configs: [OnceLock<Result<Arc<ClientConfig>, Arc<str>>>; 3],
}

/// The protocols that a handshake offers (ALPN, RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferedProtocols {
    /// HTTP/2, and HTTP/1.1 for servers without it.
    Both,
    /// HTTP/2 alone.
    Http2,
    /// HTTP/1.1 alone.
    Http1,
}

impl ServerTls {
    /// Encryption with these authorities and this certificate.
    #[must_use]
    pub fn new(client: ClientTls) -> Self {
        Self(Arc::new(ServerTlsState {
            client,
            configs: Default::default(),
        }))
    }

    /// Is every certificate trusted?
    #[must_use]
    pub fn is_insecure(&self) -> bool {
        self.0.client.is_insecure()
    }

    /// The settings that all offers share.
    #[must_use]
    pub fn client(&self) -> &ClientTls {
        &self.0.client
    }

    /// The configuration of a handshake with this offer.
    ///
    /// # Errors
    /// If the system trusts no authority and none is named.
    pub fn config(&self, offer: OfferedProtocols) -> Result<Arc<ClientConfig>, Arc<str>> {
        let config = &self.0.configs[offer as usize];
        config
            .get_or_init(|| {
                let mut config = ClientConfig::clone(&*self.0.client.config()?);
                let both: [&[u8]; 2] = [b"h2", b"http/1.1"];
                let names = match offer {
                    OfferedProtocols::Both => &both[..],
                    OfferedProtocols::Http2 => &both[..1],
                    OfferedProtocols::Http1 => &both[1..],
                };
                config.alpn_protocols = names.iter().map(|name| name.to_vec()).collect();
                Ok(Arc::new(config))
            })
            .clone()
    }
}

impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        self.0.client == other.0.client
    }
}

impl Eq for ServerTls {}

impl Hash for ServerTls {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.client.digest().hash(state);
    }
}
