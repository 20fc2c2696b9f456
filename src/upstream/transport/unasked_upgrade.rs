//! A server that has switched to a protocol other than the requested one (RFC 9110, section 15.2.2).

use super::offending_line::OffendingLine;
use http::{HeaderMap, header};
use std::fmt;

/// The switch of a server (status 101) to something other than the requested WebSocket.
#[derive(Debug)]
pub struct UnaskedUpgrade {
    /// A WebSocket was requested.
    is_asked: bool,
    /// The protocol that the server names.
    line: Option<OffendingLine>,
    /// The line names only the WebSocket.
    is_websocket: bool,
}

impl UnaskedUpgrade {
    /// The switch in the `fields` of an answer.
    #[cold]
    #[must_use]
    pub fn of(is_asked: bool, fields: &HeaderMap) -> Self {
        let lines: Vec<&[u8]> = fields
            .get_all(header::UPGRADE)
            .iter()
            .map(|line| line.as_bytes().trim_ascii())
            .collect();
        let shown = || OffendingLine::of(&[b"upgrade: ", &lines.join(&b", "[..])[..]].concat());
        Self {
            is_asked,
            line: (!lines.is_empty()).then(shown),
            is_websocket: matches!(lines[..], [one] if one.eq_ignore_ascii_case(b"websocket")),
        }
    }

    /// The line in which the server names the protocol.
    pub(in crate::upstream) fn line(&self) -> Option<&OffendingLine> {
        self.line.as_ref()
    }
}

impl fmt::Display for UnaskedUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.is_asked, &self.line) {
            (false, _) => {
                "the server switched to another protocol (status 101), which the request had not asked for"
            }
            (true, None) => {
                "the server switched protocols (status 101) and does not say to which: its answer needs \
                 `Upgrade: websocket` and `Connection: Upgrade`"
            }
            (true, Some(_)) if self.is_websocket => {
                "the server switched protocols (status 101) without `Connection: Upgrade`"
            }
            (true, Some(_)) => {
                "the server switched to another protocol (status 101) than the WebSocket that the request had asked for"
            }
        })
    }
}
