//! The world around the cases: a recording server, a server of keys, certificates, tokens and files.

use super::dice::Dice;
use super::draw_file::DrawnFile;
use crate::support::tls::{Authority, Pair, TlsClient};
use crate::support::{Connection, Upstream};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::json;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

const RSA: &[u8] = include_bytes!("../config/jwt/rsa.key");
const SECRET: &[u8] = b"only for tests: 32 bytes or more of it";

/// Everything that outlives a file.
pub(super) struct World {
    upstream: Upstream,
    keys: Upstream,
    authority: Authority,
    client: Pair,
    now: u64,
}

impl World {
    pub(super) async fn build() -> Self {
        let authority = Authority::new();
        let client = authority.client("client one");
        authority.write("client", &client);
        authority.write("a", &authority.server(&["a.test", "*.a.test"]));
        authority.write("b", &authority.server(&["b.test"]));
        let secret = base64(SECRET);
        let set = json!({ "keys": [{ "kty": "oct", "kid": "one", "alg": "HS256", "k": secret }] });
        std::fs::write(authority.path("set.json"), set.to_string()).unwrap();
        std::fs::write(authority.path("hs.secret"), SECRET).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self {
            upstream: Upstream::playing(record).await,
            keys: key_server().await,
            authority,
            client,
            now: now.as_secs(),
        }
    }

    pub(super) fn upstream_url(&self) -> String {
        self.upstream.url()
    }

    /// The table of an identity, whose files exist.
    pub(super) fn identity(&self, name: &str) -> String {
        let file = |ending: &str| self.authority.path(&format!("{name}.{ending}"));
        format!(
            "[tls.{name}]\ncert = {:?}\nkey = {:?}\n",
            file("pem"),
            file("key")
        )
    }

    /// The file with the authorities that sign clients' certificates.
    pub(super) fn authorities(&self) -> PathBuf {
        self.authority.path("ca.pem")
    }

    /// The file with the client's certificate.
    pub(super) fn client_certificate(&self) -> PathBuf {
        self.authority.path("client.pem")
    }

    /// A client that accepts any certificate, and may show its own.
    pub(super) fn client(&self, shows: bool) -> TlsClient {
        if !shows {
            return TlsClient::looking();
        }
        let shown = self.authority.showing(&self.client);
        let mut client = TlsClient::looking();
        client.0.client_auth_cert_resolver = shown.0.client_auth_cert_resolver.clone();
        client
    }

    pub(super) fn secret(&self) -> PathBuf {
        self.authority.path("hs.secret")
    }

    pub(super) fn key_set(&self) -> PathBuf {
        self.authority.path("set.json")
    }

    pub(super) fn key_url(&self) -> String {
        format!("{}/jwks.json", self.keys.url())
    }

    /// A file with the members of a group.
    pub(super) fn members_file(&self, name: &str, members: &str) -> PathBuf {
        let path = self.authority.path(&format!("{name}.txt"));
        let members: Vec<String> = serde_json::from_str(members).unwrap();
        std::fs::write(&path, members.join("\n") + "\n").unwrap();
        path
    }

    /// A token, or a value in its place.
    pub(super) fn token(&self, dice: &mut Dice, file: &DrawnFile) -> String {
        let claims = json!({
            "sub": dice.pick(&["anna", "bob"]),
            "app": { "plan": dice.pick(&["pro", "free"]) },
            "iss": dice.pick(&["https://id.test", "https://id.test", "https://other.test"]),
            "aud": "api",
            "exp": self.now + 86_400,
        });
        let mut claims = claims.as_object().unwrap().clone();
        match dice.weighed(&[8, 1, 1, 1]) {
            1 => drop(claims.insert("exp".into(), json!(self.now - 3_600))),
            2 => drop(claims.remove("exp")),
            3 => drop(claims.remove("sub")),
            _ => {}
        }
        let mut header = Header::new(if file.keys_by_url {
            Algorithm::RS256
        } else {
            Algorithm::HS256
        });
        if dice.percent(30) {
            header.kid = Some(dice.pick(&["one", "r1", "two"]).to_owned());
        }
        let key = match file.keys_by_url {
            true => EncodingKey::from_rsa_pem(RSA).unwrap(),
            false if dice.percent(15) => {
                EncodingKey::from_secret(b"somebody else's secret of 32 bytes")
            }
            false => EncodingKey::from_secret(SECRET),
        };
        let token = encode(&header, &claims, &key).unwrap();
        match dice.weighed(&[12, 2, 1, 1, 1]) {
            0 => format!("Bearer {token}"),
            1 => format!("Bearer {}x", &token[..token.len() - 4]),
            2 => format!("bearer   {token}"),
            3 => token,
            _ => "Basic YTpi".to_owned(),
        }
    }
}

/// Answers each request with the received request, and with the cost that the request asks for.
async fn record(mut connection: Connection) {
    while let Ok(head) = connection.request().await {
        let Ok((body, _)) = connection.wire.request_body(&head).await else {
            return;
        };
        let units = head
            .fields
            .all("x-answer-units")
            .first()
            .map(|units| (*units).to_owned());
        let seen = json!({
            "line": head.line,
            "fields": head.fields.0,
            "body": String::from_utf8_lossy(&body),
            "usage": units.as_ref().map(|units| json!({ "total": units.parse::<u32>().unwrap_or(1) })),
        });
        let text = seen.to_string();
        let units = units.map_or(String::new(), |units| format!("X-Units: {units}\r\n"));
        let content = if head.method() == "HEAD" { "" } else { &text };
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{units}Content-Length: {}\r\n\r\n{content}",
            text.len()
        );
        if connection.wire.try_send(answer).await.is_err() {
            return;
        }
    }
}

/// Publishes the keys of tokens.
async fn key_server() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        while connection.request().await.is_ok() {
            let keys = include_str!("../config/jwt/jwks.json");
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{keys}",
                keys.len()
            );
            if connection.wire.try_send(answer).await.is_err() {
                return;
            }
        }
    })
    .await
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}
