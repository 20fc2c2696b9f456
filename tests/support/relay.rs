//! A wire between two ends that can be cut: quietly, so that nothing arrives any more, or with a reset.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// What the wire does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// It carries everything.
    Whole,
    /// Connections are taken and stay open, and nothing arrives at either end.
    Silent,
    /// Connections are reset, new ones too.
    Reset,
    /// Everything arrives so much later, there and back: what is sent meanwhile does not wait for it.
    Slow(Duration),
}

/// The wire.
#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    state: Arc<watch::Sender<Line>>,
    serving: JoinHandle<()>,
}

impl Relay {
    /// To a port of this machine.
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, watched) = watch::channel(Line::Whole);
        let serving = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, port, watched.clone()));
            }
        });
        Self {
            address,
            state: Arc::new(state),
            serving,
        }
    }

    /// The URL of the Redis at its end.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}/0", self.address)
    }

    /// Makes it so from now on.
    pub(crate) fn turn(&self, wire: Line) {
        self.state.send_replace(wire);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn carry(near: TcpStream, port: u16, mut wire: watch::Receiver<Line>) {
    if *wire.borrow() == Line::Reset {
        return reset(&near);
    }
    let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else {
        return reset(&near);
    };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    let mut there = tokio::spawn(one_way(near_in, far_out, wire.clone()));
    let mut back = tokio::spawn(one_way(far_in, near_out, wire.clone()));
    let was_reset = wire.wait_for(|wire| *wire == Line::Reset);
    tokio::select! {
        _ = was_reset => {}
        _ = &mut there => {}
        _ = &mut back => {}
    }
    there.abort();
    back.abort();
}

async fn one_way(mut from: OwnedReadHalf, to: OwnedWriteHalf, wire: watch::Receiver<Line>) {
    // Closed by a reset, whoever closes it: nothing is left behind in a half-closed state.
    reset(to.as_ref());
    let (sender, on_the_wire) = mpsc::channel(1024);
    let state = wire.clone();
    let read = async move {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut piece).await {
            let delay = match *state.borrow() {
                Line::Slow(delay) => delay,
                _ => Duration::ZERO,
            };
            let sent = (Instant::now() + delay, piece[..length].to_vec());
            if sender.send(sent).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(read, arrive(on_the_wire, to, wire));
}

async fn arrive(
    mut on_the_wire: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut to: OwnedWriteHalf,
    mut wire: watch::Receiver<Line>,
) {
    while let Some((due, piece)) = on_the_wire.recv().await {
        sleep_until(due).await;
        // What was on the wire when it fell silent arrives when it speaks again, as TCP would have it.
        if wire.wait_for(|wire| *wire != Line::Silent).await.is_err()
            || to.write_all(&piece).await.is_err()
        {
            return;
        }
    }
}

/// Makes its end a reset instead of a farewell.
fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
