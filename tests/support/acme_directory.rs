//! A small certification authority of the tests. It has what the packaged authority lacks (renewal windows, profiles),
//! and performs no look for as long as a test wants. The tests look in its place.

use super::{PATIENCE, free_port};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PublicKeyData, SignatureAlgorithm, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

/// The number of days for which its certificates are valid, from today on.
pub(crate) const LIFE: i64 = 90;

/// A running authority.
pub(crate) struct AcmeDirectory {
    folder: TempDir,
    state: Arc<State>,
}

struct State {
    port: u16,
    issuer: Issuer<'static, KeyPair>,
    ca: String,
    orders: Mutex<Vec<Order>>,
    /// The window that it suggests for every certificate, in the form of RFC 3339.
    window: Mutex<Option<(String, String)>>,
    /// Does it postpone all looks?
    waits: AtomicBool,
    /// Has the first order a name whose look fails? The failure is in the answer to the client's request for the look.
    refuses_first: AtomicBool,
    /// The kind of challenge by which a name was checked last.
    looked_by: Mutex<Option<String>>,
    /// The path of requests that are refused as too many, and the seconds that a client is asked to wait.
    limited: Mutex<Option<(String, u32)>>,
    nonces: AtomicU64,
}

/// An order, as the client requested it.
struct Order {
    asked: Value,
    hosts: Vec<String>,
    certificate: Option<String>,
}

/// The public key of a request for a certificate.
struct RequestedKey(Vec<u8>);

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl AcmeDirectory {
    /// An authority that accepts every name as its client's.
    pub(crate) async fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let port = free_port();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), &ca).unwrap();
        let tls = own_config(&issuer);
        let state = Arc::new(State {
            port,
            issuer,
            ca,
            orders: Mutex::default(),
            window: Mutex::default(),
            waits: AtomicBool::new(false),
            refuses_first: AtomicBool::new(false),
            looked_by: Mutex::default(),
            limited: Mutex::default(),
            nonces: AtomicU64::new(1),
        });
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let serving = Arc::clone(&state);
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(tls));
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, state) = (acceptor.clone(), Arc::clone(&serving));
                let serving = async move { state.serve(acceptor, tcp).await };
                tokio::spawn(timeout(PATIENCE, serving));
            }
        });
        Self { folder, state }
    }

    /// The URL of the authority's directory.
    pub(crate) fn url(&self) -> String {
        self.state.url("dir")
    }

    /// The file with the authority that signed its own server's certificate.
    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The orders so far, as they were requested.
    pub(crate) fn orders(&self) -> Vec<Value> {
        let orders = self.state.orders.lock().unwrap();
        orders.iter().map(|order| order.asked.clone()).collect()
    }

    /// Postpones all looks from now on, or accepts all names.
    pub(crate) fn wait(&self, waits: bool) {
        self.state.waits.store(waits, Ordering::SeqCst);
    }

    /// Makes the look at the name of the first order fail, and says so in the answer to the request for the look.
    pub(crate) fn refuse_first(&self) {
        self.state.refuses_first.store(true, Ordering::SeqCst);
    }

    /// Refuses requests for this path from now on, for this number of seconds.
    pub(crate) fn limit(&self, path: &str, seconds: u32) {
        *self.state.limited.lock().unwrap() = Some((path.to_owned(), seconds));
    }

    /// Refuses no more requests.
    pub(crate) fn unlimit(&self) {
        *self.state.limited.lock().unwrap() = None;
    }

    /// Suggests this window for every certificate.
    pub(crate) fn suggest(&self, start: &str, end: &str) {
        *self.state.window.lock().unwrap() = Some((start.to_owned(), end.to_owned()));
    }

    /// The token of an order for one name.
    pub(crate) fn token(order: usize) -> String {
        format!("token-of-order-{order}-0123456789abcdef")
    }
}

/// An answer: its status, further lines of its head, and its body.
struct Answer(u16, String, String);

impl Answer {
    fn json(status: u16, body: &Value) -> Self {
        let kind = "content-type: application/json\r\n".to_owned();
        Self(status, kind, body.to_string())
    }

    fn too_many(seconds: u32) -> Self {
        let problem = json!({
            "type": "urn:ietf:params:acme:error:rateLimited",
            "detail": "too many certificates for these names",
        });
        let fields =
            format!("content-type: application/problem+json\r\nretry-after: {seconds}\r\n");
        Self(429, fields, problem.to_string())
    }

    fn at(mut self, url: &str) -> Self {
        let _ = write!(self.1, "location: {url}\r\n");
        self
    }
}

impl State {
    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}/{path}", self.port)
    }

    async fn serve(&self, acceptor: TlsAcceptor, tcp: TcpStream) -> io::Result<()> {
        let mut stream = acceptor.accept(tcp).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.trim().parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let mut line = head.split(' ');
        let (method, path) = (line.next().unwrap(), line.next().unwrap());
        let Answer(status, fields, text) = self.answer(path, &payload(&body));
        let nonce = self.nonces.fetch_add(1, Ordering::SeqCst);
        let length = text.len();
        let text = if method == "head" { "" } else { &text };
        let answer = format!(
            "HTTP/1.1 {status} x\r\nreplay-nonce: nonce{nonce}\r\ncontent-length: {length}\r\nconnection: close\r\n{fields}\r\n{text}"
        );
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    }

    fn answer(&self, path: &str, asked: &Value) -> Answer {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let number = || parts[1].parse::<usize>().unwrap();
        if let Some((limited, seconds)) = &*self.limited.lock().unwrap()
            && limited == parts[0]
        {
            return Answer::too_many(*seconds);
        }
        match parts[0] {
            "dir" => Answer::json(200, &self.directory()),
            "nonce" => Answer(200, String::new(), String::new()),
            "account" => {
                Answer::json(201, &json!({ "status": "valid" })).at(&self.url("account/1"))
            }
            "new-order" => {
                let number = self.enter(asked);
                let url = self.url(&format!("order/{number}"));
                Answer::json(201, &self.order(number)).at(&url)
            }
            "order" => Answer::json(200, &self.order(number())),
            "authz" => Answer::json(200, &self.name(number())),
            "challenge" => {
                *self.looked_by.lock().unwrap() = Some(parts[2].to_owned());
                Answer::json(200, &self.challenge(number(), parts[2]))
            }
            "finalize" => {
                self.issue(number(), asked);
                Answer::json(200, &self.order(number()))
            }
            "cert" => {
                let orders = self.orders.lock().unwrap();
                let pem = orders[number()].certificate.clone().unwrap();
                let kind = "content-type: application/pem-certificate-chain\r\n";
                Answer(200, kind.into(), format!("{pem}{}", self.ca))
            }
            "renewal-info" => match &*self.window.lock().unwrap() {
                Some((start, end)) => {
                    let window = json!({ "suggestedWindow": { "start": start, "end": end } });
                    let mut answer = Answer::json(200, &window);
                    answer.1.push_str("retry-after: 60\r\n");
                    answer
                }
                None => Answer::json(404, &json!({})),
            },
            other => panic!("nothing is at {other}"),
        }
    }

    fn directory(&self) -> Value {
        json!({
            "newNonce": self.url("nonce"),
            "newAccount": self.url("account"),
            "newOrder": self.url("new-order"),
            "renewalInfo": self.url("renewal-info"),
            "meta": { "profiles": { "shortlived": self.url("profiles") } },
        })
    }

    fn enter(&self, asked: &Value) -> usize {
        let hosts = asked["identifiers"].as_array().unwrap().iter();
        let hosts = hosts.map(|one| one["value"].as_str().unwrap().to_owned());
        let order = Order {
            asked: asked.clone(),
            hosts: hosts.collect(),
            certificate: None,
        };
        let mut orders = self.orders.lock().unwrap();
        orders.push(order);
        orders.len() - 1
    }

    fn order(&self, number: usize) -> Value {
        let orders = self.orders.lock().unwrap();
        let order = &orders[number];
        let status = match &order.certificate {
            Some(_) => "valid",
            None if self.waits.load(Ordering::SeqCst) || self.refuses(number) => "pending",
            None => "ready",
        };
        let certificate = self.url(&format!("cert/{number}"));
        json!({
            "status": status,
            "identifiers": order.asked["identifiers"],
            "authorizations": [self.url(&format!("authz/{number}"))],
            "finalize": self.url(&format!("finalize/{number}")),
            "certificate": order.certificate.as_ref().map(|_| certificate),
            "replaces": order.asked["replaces"],
            "profile": order.asked["profile"],
        })
    }

    fn refuses(&self, number: usize) -> bool {
        number == 0 && self.refuses_first.load(Ordering::SeqCst)
    }

    fn name(&self, number: usize) -> Value {
        let is_looked_at = self.looked_by.lock().unwrap().is_some();
        let status = match is_looked_at {
            true if self.refuses(number) => "invalid",
            false if self.refuses(number) => "pending",
            _ if self.waits.load(Ordering::SeqCst) => "pending",
            _ => "valid",
        };
        let kinds = ["http-01", "tls-alpn-01"];
        let host = self.orders.lock().unwrap()[number].hosts[0].clone();
        json!({
            "status": status,
            "identifier": { "type": "dns", "value": host },
            "challenges": kinds.map(|kind| self.challenge(number, kind)),
        })
    }

    fn challenge(&self, number: usize, kind: &str) -> Value {
        let is_looked_by = self.looked_by.lock().unwrap().as_deref() == Some(kind);
        let is_refused = self.refuses(number) && is_looked_by;
        let error =
            json!({ "type": "urn:ietf:params:acme:error:connection", "detail": "nobody answers" });
        json!({
            "type": kind,
            "url": self.url(&format!("challenge/{number}/{kind}")),
            "token": AcmeDirectory::token(number),
            "status": if is_refused { "invalid" } else { "pending" },
            "error": is_refused.then_some(error),
        })
    }

    /// Signs the request for a certificate, for the names of the order.
    fn issue(&self, number: usize, asked: &Value) {
        let der = BASE64_URL_SAFE_NO_PAD.decode(asked["csr"].as_str().unwrap());
        let der = der.unwrap();
        let (_, request) = X509CertificationRequest::from_der(&der).unwrap();
        let info = &request.certification_request_info;
        let key = RequestedKey(info.subject_pki.subject_public_key.data.to_vec());
        let mut orders = self.orders.lock().unwrap();
        let order = &mut orders[number];
        let mut params = CertificateParams::new(order.hosts.clone()).unwrap();
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(u64::try_from(number + 1000).unwrap().into());
        let today = jiff::Timestamp::now()
            .to_zoned(jiff::tz::TimeZone::UTC)
            .date();
        let end = today + jiff::Span::new().days(LIFE);
        for (day, date) in [
            (today, &mut params.not_before),
            (end, &mut params.not_after),
        ] {
            let part = |number: i8| u8::try_from(number).unwrap();
            *date = date_time_ymd(day.year().into(), part(day.month()), part(day.day()));
        }
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        order.certificate = Some(signed.pem());
    }
}

/// The content of a signed request (RFC 8555, section 6.2). The signature is not checked.
fn payload(body: &[u8]) -> Value {
    let Ok(request) = serde_json::from_slice::<Value>(body) else {
        return Value::Null;
    };
    let text = request["payload"].as_str().unwrap_or_default();
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
    serde_json::from_slice(&bytes).unwrap_or(Value::Null)
}

/// The certificate of its own server.
fn own_config(issuer: &Issuer<'static, KeyPair>) -> ServerConfig {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap()
}
