//! A relay between two ends. It can be cut silently, so that nothing arrives any more, or with a reset.

use super::ports::free_port;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

/// The behaviour of the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// The relay carries everything.
    Whole,
    /// Connections are taken and stay open, and nothing arrives at either end.
    Silent,
    /// Connections are reset, new ones too.
    Reset,
    /// The relay stops listening, and existing connections are reset.
    Refused,
    /// All questions arrive, and all answers are lost. The connections are reset when the behaviour changes again.
    Unheard,
    /// Everything arrives byte by byte, with this time between two bytes.
    Dripping(Duration),
    /// Everything arrives later by this time in either direction. Bytes that are sent meanwhile do not wait longer.
    Slow(Duration),
}

/// A running relay.
#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    state: Arc<watch::Sender<Line>>,
    serving: JoinHandle<()>,
}

impl Relay {
    /// A relay to a port of this machine.
    pub(crate) async fn to(port: u16) -> Self {
        // A port at which the relay can listen again later.
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let listener = TcpListener::bind(address).await.unwrap();
        let (state, watched) = watch::channel(Line::Whole);
        let serving = tokio::spawn(serve(listener, port, watched));
        Self {
            address,
            state: Arc::new(state),
            serving,
        }
    }

    /// The address at which it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the Redis behind it.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}/0", self.address)
    }

    /// The port at which it listens.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Changes the behaviour of the relay from now on.
    pub(crate) fn turn(&self, wire: Line) {
        self.state.send_replace(wire);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, port: u16, mut wire: watch::Receiver<Line>) {
    let address = listener.local_addr().unwrap();
    let mut listener = Some(listener);
    loop {
        if *wire.borrow_and_update() == Line::Refused {
            listener = None;
            if wire.wait_for(|wire| *wire != Line::Refused).await.is_err() {
                return;
            }
        }
        let listening = match listener.take() {
            Some(listening) => listening,
            None => TcpListener::bind(address).await.unwrap(),
        };
        tokio::select! {
            taken = listening.accept() => if let Ok((near, _)) = taken {
                tokio::spawn(carry(near, port, wire.clone()));
            },
            changed = wire.changed() => if changed.is_err() {
                return;
            },
        }
        listener = Some(listening);
    }
}

fn is_broken(wire: Line) -> bool {
    matches!(wire, Line::Reset | Line::Refused)
}

async fn carry(near: TcpStream, port: u16, mut wire: watch::Receiver<Line>) {
    if is_broken(*wire.borrow()) {
        return reset(&near);
    }
    let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else {
        return reset(&near);
    };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    let mut there = tokio::spawn(one_way(near_in, (far_out, false), wire.clone()));
    let mut back = tokio::spawn(one_way(far_in, (near_out, true), wire.clone()));
    let was_reset = wire.wait_for(|wire| is_broken(*wire));
    tokio::select! {
        _ = was_reset => {}
        _ = &mut there => {}
        _ = &mut back => {}
    }
    there.abort();
    back.abort();
}

async fn one_way(
    mut from: OwnedReadHalf,
    (to, answers): (OwnedWriteHalf, bool),
    wire: watch::Receiver<Line>,
) {
    // Either end closes the connection by a reset, so that nothing is left behind in a half-closed state.
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
    let read = async {
        read.await;
        std::future::pending::<()>().await;
    };
    // Bytes that were read arrive, unless they are to be lost.
    tokio::select! {
        () = read => {}
        () = arrive(on_the_wire, (to, answers), wire) => {}
    }
}

async fn arrive(
    mut on_the_wire: mpsc::Receiver<(Instant, Vec<u8>)>,
    (mut to, answers): (OwnedWriteHalf, bool),
    mut wire: watch::Receiver<Line>,
) {
    while let Some((due, piece)) = on_the_wire.recv().await {
        sleep_until(due).await;
        // Bytes that were under way when the relay fell silent arrive when it carries again, as with TCP.
        if wire.wait_for(|wire| *wire != Line::Silent).await.is_err() {
            return;
        }
        let now = *wire.borrow();
        let gone = match now {
            Line::Unheard if answers => {
                let _ = wire.wait_for(|wire| *wire != Line::Unheard).await;
                return;
            }
            Line::Dripping(apart) => drip(&piece, &mut to, (apart, &mut wire)).await.is_err(),
            _ => to.write_all(&piece).await.is_err(),
        };
        if gone {
            return;
        }
    }
}

/// Carries bytes one by one. The bytes that are left when the behaviour changes arrive at once.
async fn drip(
    piece: &[u8],
    to: &mut OwnedWriteHalf,
    (apart, wire): (Duration, &mut watch::Receiver<Line>),
) -> std::io::Result<()> {
    for (at, byte) in piece.iter().enumerate() {
        let is_another = wire.wait_for(|wire| *wire != Line::Dripping(apart));
        if timeout(apart, is_another).await.is_ok() {
            return to.write_all(&piece[at..]).await;
        }
        to.write_all(&[*byte]).await?;
    }
    Ok(())
}

/// Makes the connection end with a reset in place of an orderly close.
fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
