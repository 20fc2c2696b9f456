//! HTTP/2 frames, byte by byte, for clients that do what no library does.

use super::{End, Gateway, Wire};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const PING: u8 = 6;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const GOAWAY: u8 = 7;

/// The head of a request with the fields `GET`, `http`, `/` and `a`.
pub(crate) const HEAD: [u8; 6] = [0x82, 0x86, 0x84, 0x41, 1, b'a'];

/// The header of a frame, and its payload.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    frame.extend(payload);
    frame
}

/// A connection on which the opening of HTTP/2 is done.
pub(crate) async fn greeted(gateway: &Gateway) -> Wire {
    let mut client = gateway.connect().await;
    let greeting = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    client.send(greeting).await;
    client
}

/// The next frame: its kind, its flags and its payload.
pub(crate) async fn read_frame(wire: &mut Wire) -> Result<(u8, u8, Vec<u8>), End> {
    let front = wire.exactly(9).await?;
    let length = usize::from(front[1]) << 8 | usize::from(front[2]);
    let payload = wire.exactly(length).await?;
    Ok((front[3], front[4], payload.to_vec()))
}
