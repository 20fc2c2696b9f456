//! The answer that hyper writes by itself to a head that it refuses: recognised among the written bytes, and withheld,
//! so that the gateway's own answer replaces it.
//!
//! hyper reports the refusal only after its answer is written. A text that only resembles such an answer, as the end of
//! a body may, is written later.

use std::io;

/// The longest answer of that kind, with room for another `Date`.
const LONGEST: usize = 160;

/// The number of bytes, at the end of `bytes`, that are an answer as hyper writes it: a 4xx answer with exactly these
/// fields and without a body.
pub(in crate::listen) fn at_end(bytes: &[u8]) -> Option<usize> {
    let tail = &bytes[bytes.len().saturating_sub(LONGEST)..];
    let whole = tail.strip_suffix(b"\r\n\r\n")?;
    let start = memchr::memmem::rfind(whole, b"HTTP/1.")?;
    let mut lines = whole[start..].split(|byte| *byte == b'\n');
    let status = lines.next()?;
    let is_status = status.get(8..10) == Some(b" 4");
    let is_ours = |line: &[u8]| {
        [&b"connection: close"[..], b"content-length: 0"].contains(&line.trim_ascii_end())
            || line.starts_with(b"date: ")
    };
    (is_status && lines.all(is_ours)).then(|| tail.len() - start)
}

/// The part of a write that goes to the socket, if the write may end with hyper's own answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sifted {
    /// The whole write.
    All,
    /// This number of bytes of the first parts: the answer follows them.
    Before(usize),
    /// Nothing: the write is only the answer.
    Nothing,
}

/// Looks for hyper's own answer at the end of `bufs`.
pub(super) fn sift(bufs: &[io::IoSlice<'_>]) -> Sifted {
    let Some(length) = bufs.last().and_then(|last| at_end(last)) else {
        return Sifted::All;
    };
    let all: usize = bufs.iter().map(|buf| buf.len()).sum();
    match all - length {
        0 => Sifted::Nothing,
        before => Sifted::Before(before),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: Thu, 26 Nov 2026 23:47:19 GMT\r\n\r\n";

    fn sifted(parts: &[&[u8]]) -> Sifted {
        let bufs: Vec<_> = parts.iter().map(|part| io::IoSlice::new(part)).collect();
        sift(&bufs)
    }

    #[test]
    fn an_answer_of_the_librarys_is_told_from_others() {
        assert_eq!(sifted(&[ANSWER]), Sifted::Nothing);
        let before = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        let joined = [&before[..], ANSWER].concat();
        assert_eq!(sifted(&[&joined]), Sifted::Before(before.len()));
        assert_eq!(sifted(&[before, ANSWER]), Sifted::Before(before.len()));
        assert_eq!(sifted(&[before, &joined]), Sifted::Before(2 * before.len()));
        let ours = b"HTTP/1.1 400 Bad Request\r\nx-request-id: a\r\ncontent-length: 0\r\n\r\n";
        for other in [
            &before[..],
            ours,
            &ANSWER[1..],
            &ANSWER[..90],
            b"",
            b"\r\n\r\n",
        ] {
            assert_eq!(sifted(&[other]), Sifted::All, "{other:?}");
        }
    }
}
