//! Notifies systemd of the gateway's state (`sd_notify(3)`): ready, stopping, or replaced by another process.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The variable that names systemd's socket. Without the variable, systemd is not notified.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Longest wait for room in systemd's queue.
const WITHIN: Duration = Duration::from_secs(1);

/// A state to report to systemd.
#[derive(Debug, Clone, Copy)]
pub(super) enum ServiceState {
    /// The gateway serves.
    Ready,
    /// A successor starts.
    HandsOver,
    /// The process with this number serves in place of this one.
    HandedOver(u32),
    /// The gateway ends, within this time at the latest.
    Stops(Duration),
}

impl ServiceState {
    fn message(self) -> String {
        match self {
            Self::Ready => "READY=1\nSTATUS=serves".to_owned(),
            Self::HandsOver => "RELOADING=1\nSTATUS=serves; a successor starts".to_owned(),
            Self::HandedOver(process) => {
                format!(
                    "MAINPID={process}\nREADY=1\nSTATUS=serves, in place of the previous process"
                )
            }
            Self::Stops(within) => format!(
                "STOPPING=1\nSTATUS=stops; requests under way are finished\nEXTEND_TIMEOUT_USEC={}",
                within.as_micros()
            ),
        }
    }
}

/// Has systemd started this process, and does it expect notifications?
pub(super) fn is_there() -> bool {
    socket().is_some()
}

fn socket() -> Option<OsString> {
    std::env::var_os(SOCKET).filter(|socket| !socket.is_empty())
}

/// Notifies systemd, if it has started this process and expects notifications.
pub(super) fn tell(state: ServiceState) {
    if let Some(socket) = socket()
        && let Err(error) = send(&socket, &state.message())
    {
        tracing::warn!(
            "cannot report this gateway's state to systemd at {SOCKET}={}: {error}",
            socket.display()
        );
    }
}

fn send(socket: &OsStr, message: &str) -> io::Result<()> {
    let to = address(socket)?;
    let from = UnixDatagram::unbound()?;
    from.set_write_timeout(Some(WITHIN))?;
    from.send_to_addr(message.as_bytes(), &to)?;
    Ok(())
}

/// The address of a path, or of an abstract name, which starts with `@`.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.as_encoded_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt as _;
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let number = std::process::id();
        let by_name = format!("@tollgate-test-{number}");
        for name in [path.as_os_str(), OsStr::new(&by_name)] {
            let systemd = UnixDatagram::bind_addr(&address(name).unwrap()).unwrap();
            let state = ServiceState::Stops(Duration::from_secs(2));
            send(name, &state.message()).unwrap();
            let mut message = [0; 256];
            let length = systemd.recv(&mut message).unwrap();
            let message = std::str::from_utf8(&message[..length]).unwrap();
            assert!(message.starts_with("STOPPING=1\n"), "{message}");
            assert!(
                message.ends_with("EXTEND_TIMEOUT_USEC=2000000"),
                "{message}"
            );
        }
        assert!(send(OsStr::new("/nowhere/notify"), "READY=1").is_err());
    }
}
