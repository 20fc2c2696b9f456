//! The reason why an HTTP/2 stream has failed, in words: the server's frame, its code, and the library's words about
//! bytes that it refuses.

use super::library_words::{self, HeardWords};
use super::offending_line::OffendingLine;
use h2::Reason;
use std::borrow::Cow;
use std::fmt;

/// The part of an answer in which its stream failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum AnswerPart {
    /// The head was awaited.
    Head,
    /// The body, or the trailers after it.
    Body,
}

/// The end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum StreamEnd {
    /// The server has reset it.
    Reset,
    /// The server has ended the connection by GOAWAY.
    GoAway,
    /// The server has not answered a ping.
    Silent,
    /// The connection ended before the answer.
    Ended,
    /// The connection ended inside its body.
    CutBody,
    /// The answer's head is malformed.
    Head,
    /// The answer's body is malformed.
    Body,
    /// Frames of the connection are malformed.
    Frames,
    /// Something else.
    Other,
}

/// The failure of a stream, or of its connection.
#[derive(Debug)]
pub struct StreamFault {
    error: h2::Error,
    part: AnswerPart,
    /// The server has not answered a ping.
    is_silent: bool,
    /// The malformed item, in words.
    said: Option<Cow<'static, str>>,
    /// The GOAWAY that the server has sent.
    goaway: Option<GoAway>,
}

/// The GOAWAY with which a server has ended a connection.
#[derive(Debug, Clone)]
pub(in crate::upstream) struct GoAway {
    reason: Option<Reason>,
    debug_data: OffendingLine,
}

impl GoAway {
    /// The server's GOAWAY, if `error` is one.
    #[cold]
    pub(in crate::upstream) fn of(error: &h2::Error) -> Option<Self> {
        let is_one = error.is_remote() && error.is_go_away();
        is_one.then(|| Self {
            reason: error.reason(),
            debug_data: OffendingLine::of(&debug_data(&error.to_string())),
        })
    }
}

impl StreamFault {
    /// The failure in this part of an answer.
    pub(in crate::upstream) fn new(error: h2::Error, part: AnswerPart) -> Self {
        Self {
            goaway: GoAway::of(&error),
            error,
            part,
            is_silent: false,
            said: None,
        }
    }

    /// The same, on a connection that has ended after this GOAWAY: streams below its last one learn only of the end.
    pub(in crate::upstream) fn behind(mut self, goaway: Option<GoAway>) -> Self {
        if self.error.is_io() {
            self.goaway = goaway;
        }
        self
    }

    /// The same, on a connection that was abandoned since its server did not answer a ping.
    pub(super) fn of_silent(mut self, is_silent: bool) -> Self {
        self.is_silent = is_silent;
        self
    }

    /// The same, with the malformed item that `heard` has for stream `id`.
    pub(in crate::upstream) fn explained_by(mut self, heard: &HeardWords, id: Option<u32>) -> Self {
        if self.is_malformed() {
            let by_code = || self.error.reason().and_then(library_words::of_code);
            self.said = heard.about(id).or_else(|| by_code().map(Cow::Borrowed));
        }
        self
    }

    /// Is only the stream over?
    pub(super) fn is_reset(&self) -> bool {
        self.error.is_reset()
    }

    /// Has the server sent bytes that are not HTTP/2?
    pub(in crate::upstream) fn is_malformed(&self) -> bool {
        self.error.is_library()
    }

    /// The debug data of the server's GOAWAY.
    pub(in crate::upstream) fn debug_data(&self) -> Option<&OffendingLine> {
        self.goaway.as_ref().map(|goaway| &goaway.debug_data)
    }

    /// The end of the stream.
    pub(in crate::upstream) fn end(&self) -> StreamEnd {
        let error = &self.error;
        match self.part {
            _ if error.is_remote() && error.is_reset() => StreamEnd::Reset,
            _ if self.goaway.is_some() => StreamEnd::GoAway,
            AnswerPart::Head if error.is_library() && error.is_reset() => StreamEnd::Head,
            AnswerPart::Body if error.is_library() && error.is_reset() => StreamEnd::Body,
            _ if error.is_library() => StreamEnd::Frames,
            _ if error.is_io() && self.is_silent => StreamEnd::Silent,
            AnswerPart::Head if error.is_io() => StreamEnd::Ended,
            AnswerPart::Body if error.is_io() => StreamEnd::CutBody,
            _ => StreamEnd::Other,
        }
    }

    /// The server's frame that ended the stream, with its code: `RST_STREAM with INTERNAL_ERROR (2)`.
    pub(in crate::upstream) fn frame(&self) -> String {
        match &self.goaway {
            Some(goaway) => format!("GOAWAY with {}", code(goaway.reason)),
            None => format!("RST_STREAM with {}", code(self.error.reason())),
        }
    }
}

impl fmt::Display for StreamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match (self.end(), self.part) {
            (StreamEnd::Reset, _) => {
                write!(f, "the server has ended the stream: {}", self.frame())?;
                return self.write_advice(f);
            }
            (StreamEnd::GoAway, _) => {
                write!(f, "the server has ended the connection: {}", self.frame())?;
                return self.write_advice(f);
            }
            (StreamEnd::Silent, _) => {
                return f
                    .write_str("the server did not answer a PING: its connection was given up");
            }
            (StreamEnd::Ended, _) => {
                f.write_str("the connection ended before the answer")?;
                return self.write_io(f);
            }
            (StreamEnd::CutBody, _) => {
                f.write_str("the connection ended inside the answer's body")?;
                return self.write_io(f);
            }
            (StreamEnd::Head, _) => "the answer's head is malformed",
            (StreamEnd::Body, _) => "the answer's body is malformed",
            (StreamEnd::Frames, AnswerPart::Head) => "malformed frames came before the answer",
            (StreamEnd::Frames, AnswerPart::Body) => "malformed frames came inside the answer",
            _ => return write!(f, "the stream failed: {}", self.error),
        };
        write!(f, "{place}: {}", code(self.error.reason()))?;
        match &self.said {
            Some(said) => write!(f, ", {said}"),
            None => Ok(()),
        }
    }
}

impl StreamFault {
    /// The failure of the socket, unless it simply ended.
    fn write_io(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The library reports an end in these words.
        match self.error.get_io() {
            Some(error) if !error.to_string().contains("because of a broken pipe") => {
                write!(f, ": {error}")
            }
            _ => Ok(()),
        }
    }

    /// Advice for the file, if the server's code allows one.
    fn write_advice(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match &self.goaway {
            Some(goaway) => goaway.reason,
            None => self.error.reason(),
        };
        if reason == Some(Reason::HTTP_1_1_REQUIRED) {
            f.write_str(", write `http = \"1.1\"`, or `http://` in place of `h2c://`")?;
        }
        Ok(())
    }
}

/// The code as RFC 9113 names it (section 7), and its number.
fn code(reason: Option<Reason>) -> String {
    let Some(reason) = reason else {
        return "no code".to_owned();
    };
    let number = u32::from(reason);
    // A code without a name is shown as its number alone.
    match format!("{reason:?}") {
        name if name.starts_with("Reason(") => format!("code {number}"),
        name => format!("{name} ({number})"),
    }
}

/// The debug data in the library's words of a GOAWAY, which end with `(b"...")`. The library offers no other access to
/// them.
fn debug_data(words: &str) -> Vec<u8> {
    let quoted = words
        .split_once(" (b\"")
        .and_then(|(_, rest)| rest.strip_suffix("\")"));
    let mut data = Vec::new();
    let mut rest = quoted.unwrap_or_default().bytes();
    while let Some(byte) = rest.next() {
        let escaped = if byte == b'\\' { rest.next() } else { None };
        data.push(match escaped {
            None => byte,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'0') => 0,
            Some(b'x') => {
                let digit = |byte: Option<u8>| {
                    let digit = byte.and_then(|byte| char::from(byte).to_digit(16));
                    digit
                        .and_then(|digit| u8::try_from(digit).ok())
                        .unwrap_or(0)
                };
                digit(rest.next()) << 4 | digit(rest.next())
            }
            Some(other) => other,
        });
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_names() {
        assert_eq!(code(Some(Reason::INTERNAL_ERROR)), "INTERNAL_ERROR (2)");
        assert_eq!(code(Some(Reason::from(250))), "code 250");
    }

    #[test]
    fn debug_data_is_found_in_the_librarys_words() {
        let data = b"a\"b\\\n\0\xff (x) \x1b".as_slice();
        let words = format!(
            "connection error received: {} ({:?})",
            Reason::NO_ERROR,
            bytes::Bytes::from_static(data)
        );
        assert_eq!(debug_data(&words), data);
        assert_eq!(debug_data("stream error received: x"), b"");
    }
}
