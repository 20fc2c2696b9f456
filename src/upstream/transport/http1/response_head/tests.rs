//! Heads of answers as servers write them.

use super::*;

#[test]
fn a_name_is_the_same_however_it_is_spelled() {
    for name in [
        "Date",
        "ETag",
        "Vary",
        "Server",
        "Connection",
        "Content-Type",
        "Cache-Control",
        "Last-Modified",
        "Content-Length",
        "Transfer-Encoding",
        "X-Other",
    ] {
        let expected = HeaderName::from_bytes(name.as_bytes()).ok();
        for spelled in [
            name.to_owned(),
            name.to_ascii_lowercase(),
            name.to_ascii_uppercase(),
        ] {
            assert_eq!(field_name(spelled.as_bytes()), expected, "{spelled}");
        }
    }
    assert_eq!(field_name(b""), None);
    assert_eq!(field_name(b"a b"), None);
}

#[test]
fn keep_alive_is_left_out_where_it_stands_last() {
    for (sent, left) in [
        ("Connection: keep-alive\r\nb: 1\r\n", "connection b"),
        ("b: 1\r\nConnection: keep-alive\r\n", "b"),
        ("b: 1\r\nConnection: close\r\n", "b connection"),
        ("b: 1\r\nConnection: keep-alive, b\r\n", "b connection"),
    ] {
        let mut bytes = BytesMut::from(format!("HTTP/1.1 204 No\r\n{sent}\r\n").as_str());
        let mut fields = HeaderMap::new();
        let head = take_head(&mut bytes, false, &mut fields, &mut InterimCount::default()).unwrap();
        let head = head.unwrap();
        let names: Vec<_> = head
            .response
            .headers()
            .keys()
            .map(HeaderName::as_str)
            .collect();
        assert_eq!(names.join(" "), left);
        assert_eq!(head.keeps, !sent.contains("close"));
    }
}

/// The outcome of reading `sent` in pieces of `size` bytes.
fn taken(sent: &[u8], size: usize) -> Result<Option<ResponseHead>, HeadFault> {
    let (mut bytes, mut interim) = (BytesMut::new(), InterimCount::default());
    for piece in sent.chunks(size) {
        bytes.extend_from_slice(piece);
        let head = take_head(&mut bytes, false, &mut HeaderMap::new(), &mut interim);
        let head = head.map_err(|bad| bad.fault)?;
        if head.is_some() {
            return Ok(head);
        }
    }
    Ok(None)
}

#[test]
fn what_comes_before_an_answer_is_bounded_however_it_is_cut() {
    const INTERIM: &[u8] = b"HTTP/1.1 103 E\r\nLink: </a>\r\n\r\n";
    const ANSWER: &[u8] = b"HTTP/1.1 204 No\r\n\r\n";
    let long = format!("HTTP/1.1 103 E\r\nLink: {}\r\n\r\n", "a".repeat(50_000));
    for size in [70, 1_000, 100_000] {
        let after = |interim: &[u8], times| taken(&[&interim.repeat(times), ANSWER].concat(), size);
        assert!(after(INTERIM, 100).unwrap().is_some());
        assert!(matches!(after(INTERIM, 101), Err(HeadFault::Interim(_))));
        assert!(after(long.as_bytes(), 8).unwrap().is_some());
        assert!(matches!(
            after(long.as_bytes(), 9),
            Err(HeadFault::Interim(_))
        ));
        assert!(after(b"\r\n", 1000).unwrap().is_some());
        assert!(after(b"\n", 1000).unwrap().is_some());
        assert!(after(b"\r\n", MOST_ANSWER_HEAD).is_err());
        assert!(after(b"\r", 2).is_err());
        assert!(after(b"\r\r\n", 1).is_err());
    }
}

fn shown(head: &[u8]) -> (String, String) {
    let mut bytes = BytesMut::from(head);
    let (mut spare, mut interim) = (HeaderMap::new(), InterimCount::default());
    let taken = take_head(&mut bytes, false, &mut spare, &mut interim);
    let bad = taken.expect_err("a fault");
    (bad.fault.to_string(), bad.line.to_string())
}

#[test]
fn the_line_that_is_to_blame_is_found() {
    let large = format!(
        "a: {}\r\nb: {}\r\n",
        "x".repeat(300),
        "y".repeat(MOST_ANSWER_HEAD)
    );
    for (lines, line) in [
        (
            "good: 1\r\nbad name: 2\r\nbad too: 3\r\n\r\n",
            "bad name: 2",
        ),
        ("good: 1\r\n folded\r\n\r\n", " folded"),
        ("good: 1\r\nx: a\x01b\r\ngood: 2\r\n\r\n", "x: a\\x01b"),
        ("good: 1\r\nno colon\r\n\r\n", "no colon"),
        (
            "content-length: 3\r\nContent-Length: 4\r\n\r\n",
            "Content-Length: 4",
        ),
        (
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
            "transfer-encoding: chunked",
        ),
        (
            "Transfer-Encoding: gzip, chunked\r\n\r\n",
            "Transfer-Encoding: gzip, chunked",
        ),
        (&large, &format!("b: {}", "y".repeat(125))),
    ] {
        let (fault, found) = shown(format!("HTTP/1.1 200 OK\r\n{lines}").as_bytes());
        assert_eq!(found, line, "{fault}");
    }
    for garbage in [&b"garbage"[..], b"garbage\r\nmore\r\n"] {
        assert_eq!(shown(garbage).1, "garbage");
    }
    assert_eq!(shown(b"HTTP/1.1 2000 OK\r\n\r\n").1, "HTTP/1.1 2000 OK");
}

#[test]
fn a_coding_that_stands_twice_is_told_apart() {
    let fault = |lines: &str| shown(format!("HTTP/1.1 200 OK\r\n{lines}\r\n").as_bytes()).0;
    for twice in [
        "transfer-encoding: chunked, chunked\r\n",
        "transfer-encoding: chunked\r\nTransfer-Encoding: Chunked\r\n",
    ] {
        assert_eq!(fault(twice), "the transfer coding `chunked` is there twice");
    }
    for other in ["gzip", "gzip, chunked", "chunked, gzip", "", "chunked,"] {
        let words = fault(&format!("transfer-encoding: {other}\r\n"));
        assert!(words.contains("did not ask for"), "{other}: {words}");
    }
}
