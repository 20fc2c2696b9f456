//! Handshakes and encrypted connections between a real rustls client and a stream of ours, over a pair of sockets.

use super::*;
use crate::descriptors::Budget;
use crate::listen::socket::minimum_rate::RateBound;
use crate::tls::tests::{Authority, parts};
use crate::tls::{Alpn, ClientParts, ClientVerify, IdentityParts, Offer, OfferInForce, Offers};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, ClientConfig, RootCertStore};
use std::net::TcpListener;
use std::pin::pin;
use std::task::Poll;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const IDLE: Duration = Duration::from_secs(20);

/// Both ends of a connection.
async fn pair() -> (Stream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let client = client.await.unwrap();
    let (tcp, _) = listener.accept().unwrap();
    let share = Budget::new(None, 1).share();
    let stream = Stream::new(tcp, true, RateBound::new(IDLE, 0), share).unwrap();
    (stream, client)
}

/// An offer of identities, and a client's trust in all of their certificates.
struct Scene {
    offer: OfferInForce,
    challenges: AuthorityChallenges,
    roots: RootCertStore,
}

impl Scene {
    fn new(parts: Vec<IdentityParts>) -> Self {
        let mut roots = RootCertStore::empty();
        let made = parts.into_iter().map(|parts| {
            let chain = CertificateDer::pem_slice_iter(&parts.cert_pem);
            roots.add(chain.last().unwrap().unwrap()).unwrap();
            Arc::new(ServerIdentity::new(parts).unwrap())
        });
        let identities = made.collect();
        let offers: Offers = [Offer::new(identities).unwrap()].into_iter().collect();
        let offer = OfferInForce::new(0, Arc::new(offers));
        Self {
            offer,
            challenges: AuthorityChallenges::default(),
            roots,
        }
    }

    fn client(&self, alpn: &[&str]) -> ClientConfig {
        let mut config = ClientConfig::builder_with_provider(
            rustls::crypto::aws_lc_rs::default_provider().into(),
        )
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(self.roots.clone())
        .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }

    /// Makes a handshake on both ends of a new connection.
    async fn meet(&self, config: ClientConfig, name: &str) -> Meeting {
        let (stream, client) = pair().await;
        self.meet_over(stream, client, config, name).await
    }

    async fn meet_over(
        &self,
        mut stream: Stream,
        client: TcpStream,
        config: ClientConfig,
        name: &str,
    ) -> Meeting {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, client);
        let (client, ours) = tokio::join!(connecting, self.shake(&mut stream, 5000));
        Meeting {
            stream,
            ours,
            client,
        }
    }

    async fn shake(&self, stream: &mut Stream, millis: u64) -> Result<Shaken, FailedHandshake> {
        let mut first = BytesMut::with_capacity(1);
        stream.read_buf(&mut first).await.unwrap();
        let deadline = Instant::now() + Duration::from_millis(millis);
        let sources = HandshakeSources {
            offer: &self.offer,
            challenges: &self.challenges,
            client: Client::of(None),
            refused: None,
        };
        shake_hands(stream, first, sources, deadline).await
    }
}

struct Meeting {
    stream: Stream,
    ours: Result<Shaken, FailedHandshake>,
    client: io::Result<TlsStream<TcpStream>>,
}

impl Meeting {
    fn both(self) -> (Stream, Rc<TlsSession>, TlsStream<TcpStream>) {
        let Shaken::Session(session) = self.ours.unwrap() else {
            panic!("an authority looks");
        };
        (self.stream, session, self.client.unwrap())
    }

    /// The error that the client got.
    async fn alert_received(self) -> rustls::Error {
        // In TLS 1.3 a client learns of its refusal when it reads.
        let error = match self.client {
            Err(error) => error,
            Ok(mut client) => client.read_u8().await.unwrap_err(),
        };
        let inner = error.get_ref().unwrap();
        inner.downcast_ref::<rustls::Error>().unwrap().clone()
    }
}

#[tokio::test]
async fn the_named_host_chooses_the_identity_and_alpn_the_protocol() {
    let wild = parts("wild", &["*.example.test"]);
    let mut first = parts("first", &["api.example.test"]);
    first.alpn = vec![Alpn::H2, Alpn::Http11];
    let scene = Scene::new(vec![wild, first]);
    for (name, alpn, identity, protocol) in [
        (
            "api.example.test",
            &["http/1.1", "h2"][..],
            "first",
            Alpn::H2,
        ),
        ("API.example.test", &["http/1.1"], "first", Alpn::Http11),
        ("api.example.test", &["http/1.0"], "first", Alpn::Http11),
        ("api.example.test", &["http/1.0", "h2"], "first", Alpn::H2),
        ("other.example.test", &[], "wild", Alpn::Http11),
    ] {
        let (_, session, client) = scene.meet(scene.client(alpn), name).await.both();
        assert_eq!(session.identity.name(), identity);
        assert_eq!(session.protocol, protocol, "{name}");
        assert_eq!(session.sni.as_deref(), Some(&*name.to_ascii_lowercase()));
        assert_eq!(session.version, TlsVersion::Tls13);
        assert!(!session.is_resumed && session.client.is_none());
        let (_, connection) = client.get_ref();
        let shown = &connection.peer_certificates().unwrap()[0];
        let shown = crate::tls::CertificateFacts::read(shown).unwrap();
        assert_eq!(&shown, session.identity.facts());
    }
}

#[tokio::test]
async fn a_host_without_an_identity_is_refused_by_an_alert() {
    let scene = Scene::new(vec![parts("a", &["a.test"]), parts("b", &["b.test"])]);
    let met = scene.meet(scene.client(&[]), "c.test").await;
    let failed = met.ours.as_ref().unwrap_err();
    assert!(matches!(&failed.cause, HandshakeFailure::NoName(Some(host)) if &**host == "c.test"));
    let refused = rustls::Error::AlertReceived(AlertDescription::UnrecognisedName);
    assert_eq!(met.alert_received().await, refused);
    let mut nameless = scene.client(&[]);
    nameless.enable_sni = false;
    let met = scene.meet(nameless, "a.test").await;
    let failed = met.ours.as_ref().unwrap_err();
    assert!(matches!(&failed.cause, HandshakeFailure::NoName(None)));
    assert_eq!(met.alert_received().await, refused);
}

#[tokio::test]
async fn a_protocol_that_is_not_offered_is_refused_by_an_alert() {
    let scene = Scene::new(vec![parts("a", &["a.test"])]);
    let met = scene.meet(scene.client(&["spdy/3"]), "a.test").await;
    let failed = met.ours.as_ref().unwrap_err();
    assert!(matches!(failed.cause, HandshakeFailure::Protocol(_)));
    assert_eq!(failed.identity.as_ref().unwrap().name(), "a");
    let refused = rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol);
    assert_eq!(met.alert_received().await, refused);
}

#[tokio::test]
async fn a_demanded_certificate_that_is_missing_ends_the_handshake() {
    let mut inner = parts("inner", &["inner.test"]);
    inner.client = Some(ClientParts {
        ca_pem: vec![Authority::new().pem()],
        verify: ClientVerify::Required,
        crl_pem: Vec::new(),
    });
    let scene = Scene::new(vec![inner]);
    let met = scene.meet(scene.client(&[]), "inner.test").await;
    let failed = met.ours.as_ref().unwrap_err();
    assert!(matches!(&failed.cause, HandshakeFailure::Client(_)));
    assert_eq!(failed.version, Some(TlsVersion::Tls13));
    let refused = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
    assert_eq!(met.alert_received().await, refused);
}

#[tokio::test]
async fn a_client_that_does_not_speak_tls_is_told_so_and_the_connection_ends_in_order() {
    let scene = Scene::new(vec![parts("a", &["a.test"])]);
    let (mut stream, mut client) = pair().await;
    let asking = async {
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        drop(client);
        answer
    };
    let (answer, ours) = tokio::join!(asking, scene.shake(&mut stream, 5000));
    assert!(matches!(
        ours.unwrap_err().cause,
        HandshakeFailure::PlainText
    ));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
    assert!(head.contains(&format!("content-length: {}", body.len())));
    assert!(body.contains("https://"));
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_is_given_up_wherever_it_stands() {
    let scene = Scene::new(vec![parts("a", &["a.test"])]);
    // Half a hello.
    let (mut stream, mut client) = pair().await;
    client.write_all(&[0x16, 3, 1, 0, 200, 1]).await.unwrap();
    let late = scene.shake(&mut stream, 50).await.unwrap_err();
    assert!(matches!(late.cause, HandshakeFailure::Late));
    assert!(late.identity.is_none());
    // A whole hello, without reading the answer.
    let (mut stream, mut client) = pair().await;
    let name = ServerName::try_from("a.test").unwrap();
    let config = Arc::new(scene.client(&[]));
    let mut hello = Vec::new();
    let mut connection = rustls::ClientConnection::new(config, name).unwrap();
    connection.write_tls(&mut hello).unwrap();
    client.write_all(&hello).await.unwrap();
    let late = scene.shake(&mut stream, 50).await.unwrap_err();
    assert!(matches!(late.cause, HandshakeFailure::Late));
    assert_eq!(late.identity.unwrap().name(), "a");
}

#[tokio::test]
async fn a_hello_in_pieces_is_taken() {
    let scene = Scene::new(vec![parts("a", &["a.test"])]);
    let (mut stream, client) = pair().await;
    let (client_end, mut relay_end) = tokio::io::duplex(1);
    let relay = async {
        let mut client = client;
        tokio::io::copy_bidirectional(&mut relay_end, &mut client).await
    };
    let name = ServerName::try_from("a.test").unwrap();
    let connecting = async {
        let config = Arc::new(scene.client(&[]));
        TlsConnector::from(config).connect(name, client_end).await
    };
    let mut relay = pin!(relay);
    let both = async { tokio::join!(connecting, scene.shake(&mut stream, 5000)) };
    let mut both = pin!(both);
    let (client, ours) = poll_fn(|cx| {
        let _ = relay.as_mut().poll(cx);
        both.as_mut().poll(cx)
    })
    .await;
    client.unwrap();
    ours.unwrap();
}

#[tokio::test]
async fn sessions_are_resumed_in_both_versions() {
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let scene = Scene::new(vec![parts("a", &["a.test"])]);
        let mut config = ClientConfig::builder_with_provider(
            rustls::crypto::aws_lc_rs::default_provider().into(),
        )
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(scene.roots.clone())
        .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        for is_resumed in [false, true] {
            let met = scene.meet(config.clone(), "a.test").await;
            let (mut stream, session, mut client) = met.both();
            assert_eq!(session.is_resumed, is_resumed, "{version:?}");
            // Tickets arrive with the first bytes.
            stream.write_all(b"!").await.unwrap();
            stream.flush().await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), b'!');
        }
    }
}

#[tokio::test]
async fn every_orderly_end_is_announced() {
    let scene = Scene::new(vec![parts("a", &["a.test"])]);
    // By a shutdown.
    let (mut stream, _, mut client) = scene.meet(scene.client(&[]), "a.test").await.both();
    stream.write_all(b"bye").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut read = Vec::new();
    client.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, b"bye");
    // The client may continue to send, and its end is recognised.
    client.write_all(b"more").await.unwrap();
    client.shutdown().await.unwrap();
    read.clear();
    stream.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, b"more");
    // By being dropped.
    let (stream, _, mut client) = scene.meet(scene.client(&[]), "a.test").await.both();
    drop(stream);
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    // A cut connection ends in a reset.
    let (stream, _, mut client) = scene.meet(scene.client(&[]), "a.test").await.both();
    stream.watch().end_in_reset();
    drop(stream);
    let end = client.read(&mut [0]).await.unwrap_err();
    assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_client_that_leaves_without_a_word_is_noticed() {
    let scene = Scene::new(vec![parts("a", &["a.test"])]);
    let (mut stream, _, mut client) = scene.meet(scene.client(&[]), "a.test").await.both();
    client.write_all(b"half").await.unwrap();
    client.flush().await.unwrap();
    let (mut tcp, _) = client.into_inner();
    tcp.shutdown().await.unwrap();
    let mut read = Vec::new();
    let end = stream.read_to_end(&mut read).await.unwrap_err();
    assert_eq!(read, b"half");
    assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn bytes_that_wait_are_seen_without_being_taken() {
    let scene = Scene::new(vec![parts("a", &["a.test"])]);
    let (mut stream, _, mut client) = scene.meet(scene.client(&[]), "a.test").await.both();
    let probe = stream.track_http1();
    // The tickets, and the client's last part of the handshake, are not HTTP bytes.
    poll_fn(|cx| {
        assert!(probe.poll_unread(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    client.write_all(b"GET").await.unwrap();
    client.flush().await.unwrap();
    assert!(poll_fn(|cx| probe.poll_unread(cx)).await);
    assert!(poll_fn(|cx| probe.poll_unread(cx)).await);
    let mut read = [0; 3];
    stream.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"GET");
    client.shutdown().await.unwrap();
    assert!(!poll_fn(|cx| probe.poll_unread(cx)).await);
}

#[tokio::test]
async fn a_slow_reader_is_felt_and_gets_every_byte() {
    let scene = Scene::new(vec![parts("a", &["a.test"])]);
    let (mut stream, _, mut client) = scene.meet(scene.client(&[]), "a.test").await.both();
    let all: Vec<u8> = (0..40_000_000_u32).map(|at| (at % 251) as u8).collect();
    let probe = stream.track_http1();
    let taken = std::cell::Cell::new(0);
    let writing = async {
        for piece in all.chunks(100_000) {
            stream.write_all(piece).await.unwrap();
            taken.set(taken.get() + piece.len());
        }
        stream.flush().await.unwrap();
        assert!(!probe.is_full());
        stream.shutdown().await.unwrap();
    };
    let mut writing = pin!(writing);
    // Nothing is read yet: the writer waits, and little is buffered between the two besides the buffers of the sockets.
    for _ in 0..1000 {
        let _ = poll_fn(|cx| Poll::Ready(writing.as_mut().poll(cx))).await;
        tokio::task::yield_now().await;
        if probe.is_full() {
            break;
        }
    }
    assert!(probe.is_full() && taken.get() < all.len());
    let mut read = Vec::new();
    let reading = client.read_to_end(&mut read);
    let ((), count) = tokio::join!(writing, reading);
    assert_eq!(count.unwrap(), all.len());
    assert!(read == all);
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_given_up() {
    let scene = Scene::new(vec![parts("a", &["a.test"])]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = TcpStream::connect(address).await.unwrap();
    let (tcp, _) = listener.accept().unwrap();
    let bound = RateBound::new(Duration::from_millis(200), 0);
    let stream = Stream::new(tcp, true, bound, Budget::new(None, 1).share()).unwrap();
    let met = scene.meet_over(stream, client, scene.client(&[]), "a.test");
    let (mut stream, _, _client) = met.await.both();
    let flag = stream.watch().stalled();
    let piece = vec![0; 1 << 20];
    let end = loop {
        // A flush waits for the client like a write.
        if let Err(error) = stream.write_all(&piece).await {
            break error;
        }
        if let Err(error) = stream.flush().await {
            break error;
        }
    };
    assert_eq!(end.kind(), io::ErrorKind::TimedOut);
    assert!(flag.get().is_some());
}

#[tokio::test]
async fn an_old_version_is_told_from_wherever_its_hello_is_cut() {
    let mut hello = vec![0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 2];
    hello.extend([7; 32]);
    // No session, one suite, no compression.
    hello.extend([0, 0, 2, 0, 0x2f, 1, 0]);
    for cut in [1, 5, 9, 10, 11, 30] {
        let (mut stream, mut client) = pair().await;
        client.write_all(&hello[cut..]).await.unwrap();
        let refused = read_hello(&mut stream, BytesMut::from(&hello[..cut])).await;
        assert!(refused.is_err(), "{cut}");
        let mut alert = [0; 7];
        client.read_exact(&mut alert).await.unwrap();
        assert_eq!(alert, PROTOCOL_VERSION, "{cut}");
    }
}
