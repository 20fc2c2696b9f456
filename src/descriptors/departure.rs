//! Detection of a peer's leaving by a second descriptor of the socket, without a read from the socket.

use super::SpareDescriptor;
use std::io;
use std::os::fd::AsFd;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The way in which a peer has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// The peer has closed its side: bytes that it sent before may be unread.
    End,
    /// The peer has reset the connection.
    Reset,
}

/// A second registration of a socket. It reports the peer's leaving even if bytes lie unread; the first registration
/// reports the leaving only after all bytes have been read.
#[derive(Debug)]
pub struct SecondDescriptor {
    watch: TcpStream,
    _descriptor: SpareDescriptor,
}

impl SecondDescriptor {
    /// Registers `socket`, of a network or of the file system, a second time.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn of(socket: &impl AsFd, descriptor: SpareDescriptor) -> io::Result<Self> {
        let copy = socket.as_fd().try_clone_to_owned()?;
        Ok(Self {
            watch: TcpStream::from_std(std::net::TcpStream::from(copy))?,
            _descriptor: descriptor,
        })
    }

    /// Resolves when the peer leaves.
    pub async fn departure(&self) -> Departure {
        loop {
            match self.watch.ready(Interest::READABLE | Interest::ERROR).await {
                Ok(ready) if ready.is_error() => return Departure::Reset,
                Ok(ready) if ready.is_read_closed() => return Departure::End,
                Err(_) => return Departure::Reset,
                Ok(_) => {
                    // The event was about bytes only. The error `WouldBlock` makes tokio wait for the next event; the
                    // bytes stay for the next read.
                    let _ = self.watch.try_io(Interest::READABLE, || {
                        Err::<(), _>(io::ErrorKind::WouldBlock.into())
                    });
                }
            }
        }
    }

    /// The same, with a future that owns the descriptor.
    pub async fn into_departure(self) -> Departure {
        self.departure().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::Budget;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn both_ways_of_leaving_are_seen_behind_unread_bytes() {
        let share = Budget::new(None, 1).share();
        for expected in [Departure::End, Departure::Reset] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap())
                .await
                .unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            let second = SecondDescriptor::of(&accepted, share.take_spare().unwrap()).unwrap();
            client.write_all(b"unread").await.unwrap();
            accepted.readable().await.unwrap();
            match expected {
                Departure::End => client.shutdown().await.unwrap(),
                Departure::Reset => {
                    client.set_zero_linger().unwrap();
                    drop(client);
                }
            }
            assert_eq!(second.departure().await, expected);
        }
    }
}
