//! The two ports at which an authority looks. The answers are the challenges that an order has posted.

use http::Uri;
use rustls::server::Acceptor;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use tollgate::tls::{AuthorityChallenges, CHALLENGE_PATH};

/// Answers on both ports as long as the process lives.
pub(super) fn answer(challenges: &AuthorityChallenges, http: u16, tls: u16) {
    let texts = challenges.clone();
    serve(http, move |stream| text(stream, &texts));
    let handshakes = challenges.clone();
    serve(tls, move |stream| handshake(stream, &handshakes));
}

fn serve(port: u16, answer: impl Fn(TcpStream) -> Option<()> + Send + 'static) {
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = answer(stream);
        }
    });
}

fn text(mut stream: TcpStream, challenges: &AuthorityChallenges) -> Option<()> {
    let mut head = [0; 4096];
    let length = stream.read(&mut head).ok()?;
    let head = str::from_utf8(&head[..length]).ok()?;
    let path: Uri = head.split(' ').nth(1)?.parse().ok()?;
    let host = head.lines().find_map(|line| line.strip_prefix("Host: "))?;
    let host = host.split(':').next()?;
    let token = path.path().strip_prefix(CHALLENGE_PATH)?;
    let text = challenges.text(host, token)?;
    let length = text.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
    )
    .ok()
}

fn handshake(mut stream: TcpStream, challenges: &AuthorityChallenges) -> Option<()> {
    let mut acceptor = Acceptor::default();
    let accepted = loop {
        acceptor.read_tls(&mut stream).ok()?;
        if let Some(accepted) = acceptor.accept().ok()? {
            break accepted;
        }
    };
    let host = accepted.client_hello().server_name()?.to_owned();
    let mut connection = accepted
        .into_connection(challenges.handshake(&host)?)
        .ok()?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).ok()?;
    }
    Some(())
}
