//! The tracker of heads: in step with a connection for any division of its bytes.

use super::*;

const GOOD: &str = "GET /a?b HTTP/1.1\r\nHost: a.test\r\nTe: trailers\r\nCookie: c\r\n\r\n";
const LURE: &str = "GET /#x HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n";

/// The fault and the number of its head, the same for every division of the bytes.
fn found(bytes: &str) -> Option<(u64, FramingFault)> {
    let mut whole = FramingTracker::default();
    whole.advance(bytes.as_bytes());
    let mut single = FramingTracker::default();
    for byte in bytes.as_bytes() {
        single.advance(std::slice::from_ref(byte));
    }
    assert_eq!(single.fault, whole.fault, "{bytes:?}");
    for cut in 1..bytes.len() {
        let mut twice = FramingTracker::default();
        twice.advance(&bytes.as_bytes()[..cut]);
        twice.advance(&bytes.as_bytes()[cut..]);
        assert_eq!(twice.fault, whole.fault, "cut at {cut}: {bytes:?}");
        assert_eq!((twice.ended, twice.at), (whole.ended, whole.at), "{cut}");
    }
    whole.fault
}

fn head(line: &str, fields: &[&str]) -> String {
    format!("{line}\r\nHost: a.test\r\n{}\r\n\r\n", fields.join("\r\n"))
}

#[test]
fn both_framings_are_found_in_either_order_and_any_case() {
    for fields in [
        ["Content-Length: 4", "Transfer-Encoding: chunked"],
        ["transfer-encoding:chunked", "CONTENT-LENGTH:\t4 "],
        ["Transfer-Encoding: chunked", "Content-Length: nonsense"],
    ] {
        let post = head("POST / HTTP/1.1", &fields);
        let expected = Some((1, FramingFault::LengthAndCoding));
        assert_eq!(found(&post), expected, "{fields:?}");
        assert_eq!(found(&post.replace("\r\n", "\n")), expected, "{fields:?}");
        assert_eq!(found(&format!("\r\n\n{post}")), expected, "{fields:?}");
    }
}

#[test]
fn a_fragment_is_found_in_a_target_only() {
    for line in [
        "GET /a#b HTTP/1.1",
        "GET http://a.test/#b HTTP/1.1",
        "GET # HTTP/1.0",
    ] {
        assert_eq!(
            found(&head(line, &["A: b"])),
            Some((1, FramingFault::Fragment))
        );
    }
    for line in ["G#T /a HTTP/1.1", "GET /a%23b HTTP/1.1"] {
        assert_eq!(found(&head(line, &["A: #b", "Content-Type: #"])), None);
    }
}

#[test]
fn what_only_looks_like_a_head_is_not_one() {
    let length = LURE.len();
    let post = head("POST / HTTP/1.1", &[&format!("Content-Length: {length}")]);
    assert_eq!(found(&format!("{GOOD}{post}{LURE}{GOOD}")), None);
    let post = head("POST / HTTP/1.1", &["Transfer-Encoding: chunked"]);
    let chunks = format!("{length:x}\r\n{LURE}\r\n0\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(found(&format!("{GOOD}{post}{chunks}{GOOD}")), None);
    for field in [
        "Content-Length-X: 4",
        "X-Content-Length: 4",
        "Content-Lengthy: 4",
    ] {
        let post = head("POST / HTTP/1.1", &["Transfer-Encoding: chunked", field]);
        assert_eq!(found(&post), None);
    }
}

#[test]
fn every_head_of_a_connection_is_followed() {
    let bad = head(
        "POST / HTTP/1.1",
        &["Content-Length: 3", "Transfer-Encoding: chunked"],
    );
    let sized = head(
        "POST / HTTP/1.1",
        &["Content-Length: 4", "Content-Length: 4"],
    ) + "body";
    let empty = head("POST / HTTP/1.1", &["Content-Length: 0"]);
    let chunked = head("POST / HTTP/1.1", &["Transfer-Encoding: chunked"])
        + "3\r\nGET\r\n0\r\nSum: 1\r\n\r\n";
    let all = format!("{GOOD}{sized}{empty}{chunked}{bad}{GOOD}");
    assert_eq!(found(&all), Some((5, FramingFault::LengthAndCoding)));
    assert_eq!(
        found(&format!("{bad}{all}")),
        Some((1, FramingFault::LengthAndCoding))
    );
}

#[test]
fn it_knows_when_a_body_is_on_its_way() {
    let mut heads = FramingTracker::default();
    heads.advance(GOOD.as_bytes());
    assert_eq!(heads.in_body(), None);
    heads.advance(head("POST / HTTP/1.1", &["Content-Length: 4"]).as_bytes());
    assert!(heads.in_body().is_some());
    heads.advance(b"body");
    assert_eq!(heads.in_body(), None);
}

#[test]
fn the_beginning_of_the_latest_head_is_kept_within_bounds() {
    let mut heads = FramingTracker::default();
    heads.advance(GOOD.as_bytes());
    assert!(heads.is_ahead());
    heads.takes(1);
    assert!(!heads.is_ahead());
    heads.advance(b"GET /second HTTP/1.1\r\nHo");
    heads.advance(b"st: a.test\r\n");
    assert_eq!(heads.kept(), b"GET /second HTTP/1.1\r\nHost: a.test\r\n");
    let mut heads = FramingTracker::default();
    heads.advance(&[b'x'; 100_000]);
    assert_eq!(heads.kept().len(), KEPT);
    heads.advance(b"\nOther: ");
    heads.advance(&[b'x'; 100_000]);
    assert_eq!(
        heads.cut.capacity(),
        0,
        "fields that do not matter are not kept"
    );
}

#[test]
fn of_heads_behind_one_another_the_first_untaken_one_is_kept() {
    let (first, second) = (GOOD.as_bytes(), b"GET /b c HTTP/1.1\r\n\r\n");
    let mut heads = FramingTracker::default();
    heads.advance(&[first, second, &[b'x'; 5000]].concat());
    assert!(heads.kept().starts_with(first));
    heads.takes(1);
    assert!(heads.kept().starts_with(b"GET /b c "));
    heads.takes(2);
    assert!(heads.kept().starts_with(b"xxx"));
}
