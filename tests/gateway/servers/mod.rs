//! Servers with TLS or HTTP/2, at Unix sockets, and with names.

mod hosts;
mod http2;
mod http2_answers;
mod http2_faults;
mod http2_repeats;
mod http2_retirement;
mod http2_window;
mod interim_answers;
mod names;
mod other_protocols;
mod tls;

use crate::support::{File, Gateway, Manner, ModernServer, Wire, get};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

/// A file with one upstream, whose table has these lines.
fn file(lines: &str) -> File {
    File::default()
        .server("workers = 1")
        .with(&format!("[upstreams.main]\n{lines}"))
        .route("all", "/{*rest}", "main", &[])
}

async fn gateway(lines: &str) -> Gateway {
    Gateway::start(&file(lines)).await
}

/// A gateway in front of a server of HTTP/2 without TLS.
async fn h2c(manner: Manner) -> (ModernServer, Gateway) {
    let server = ModernServer::start(manner).await;
    let gateway = gateway(&format!("servers = \"h2c://{}\"", server.address)).await;
    (server, gateway)
}

#[tokio::test]
async fn a_socket_of_the_file_system_is_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = [0; 4096];
            while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nunix";
                stream.write_all(answer).await.unwrap();
            }
        }
    });
    let gateway = gateway(&format!("servers = \"unix:{}\"", path.display())).await;
    for _ in 0..3 {
        let answer = gateway.get("/").await.expect(200);
        assert_eq!(answer.text(), "unix");
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["upstream"], format!("unix:{}", path.display()));
    }
}

#[tokio::test]
async fn a_connection_of_age_takes_no_further_request() {
    let server = crate::support::Upstream::echo().await;
    let gateway = gateway(&format!(
        "servers = \"{}\"\nmax_age = \"50ms\"",
        server.url()
    ))
    .await;
    let mut client = Wire::to(gateway.address()).await;
    client.ask(get("/")).await.expect(200);
    tokio::time::sleep(std::time::Duration::from_millis(60)).await;
    client.ask(get("/")).await.expect(200);
    assert_eq!(server.connections(), 2);
}
