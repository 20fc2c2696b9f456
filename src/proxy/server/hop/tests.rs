//! Fields that end here, fields that are forwarded, and the upgrade that is relayed.

use super::*;

fn fields(lines: &[(&str, &str)]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for (name, value) in lines {
        let name: HeaderName = name.parse().unwrap();
        fields.append(name, value.parse().unwrap());
    }
    fields
}

fn left(fields: &HeaderMap) -> Vec<String> {
    let line =
        |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
    let mut lines: Vec<String> = fields.iter().map(line).collect();
    lines.sort();
    lines
}

fn request(lines: &[(&str, &str)]) -> Vec<String> {
    let mut fields = fields(lines);
    strip_request(&mut fields);
    left(&fields)
}

fn response(lines: &[(&str, &str)]) -> Vec<String> {
    let mut fields = fields(lines);
    strip_response(StatusCode::OK, &mut fields);
    left(&fields)
}

#[test]
fn places_are_those_of_the_list() {
    for (index, name) in HOP_BY_HOP.iter().enumerate() {
        assert_eq!(place(name), Some(index), "{name}");
    }
    assert_eq!(HOP_BY_HOP[CONNECTION], "connection");
    assert_eq!(HOP_BY_HOP[TE], "te");
    assert_eq!(HOP_BY_HOP[TRANSFER_ENCODING], "transfer-encoding");
}

#[test]
fn the_static_list_goes_both_ways_but_for_what_only_requests_lose() {
    let mut lines: Vec<(&str, &str)> = HOP_BY_HOP.iter().map(|n| (n.as_str(), "x")).collect();
    lines.extend([("trailer", "x-sum"), ("accept", "a"), ("accept", "b")]);
    let kept = ["accept: a", "accept: b", "trailer: x-sum"];
    assert_eq!(request(&lines), kept);
    let mut kept = Vec::from(kept);
    kept.extend(["expect: x", "tollgate-granted: x"]);
    kept.sort_unstable();
    assert_eq!(response(&lines), kept);
}

#[test]
fn every_connection_line_is_obeyed() {
    let lines = [
        ("connection", "keep-alive, X-One ,, x-two"),
        ("connection", "X-Three"),
        ("x-one", "1"),
        ("x-one", "1"),
        ("x-two", "2"),
        ("x-three", "3"),
        ("x-four", "4"),
    ];
    assert_eq!(request(&lines), ["x-four: 4"]);
    assert_eq!(response(&lines), ["x-four: 4"]);
}

#[test]
fn end_to_end_fields_cannot_be_named_away() {
    let lines = [
        (
            "connection",
            "host, content-length, Authorization, X-Forwarded-For, forwarded, via",
        ),
        ("host", "a"),
        ("content-length", "5"),
        ("authorization", "b"),
        ("x-forwarded-for", "1.1.1.1"),
        ("forwarded", "for=1.1.1.1"),
        ("via", "1.1 edge"),
    ];
    assert_eq!(request(&lines).len(), 6);
}

#[test]
fn names_that_are_no_names_are_passed_over() {
    let long = "x".repeat(70_000);
    let line = format!("@, \"a b\", {long}, x-a");
    assert_eq!(request(&[("connection", &line), ("x-a", "1")]), [""; 0]);
}

#[test]
fn trailers_are_asked_for_only_if_the_client_did() {
    let kept = ["connection: te", "te: trailers"];
    assert_eq!(request(&[("te", "trailers")]), kept);
    assert_eq!(
        request(&[("te", "gzip, Trailers"), ("connection", "te")]),
        kept
    );
    assert_eq!(request(&[("te", "gzip;q=1")]), [""; 0]);
    assert_eq!(response(&[("te", "trailers")]), [""; 0]);
}

#[test]
fn a_coded_response_has_no_length() {
    let coding = ("transfer-encoding", "chunked");
    assert_eq!(response(&[("content-length", "3"), coding]), [""; 0]);
    assert_eq!(response(&[coding]), [""; 0]);
    assert_eq!(response(&[("content-length", "3")]), ["content-length: 3"]);
    let twice = [("content-length", "3"), ("content-length", "3")];
    assert_eq!(response(&twice), ["content-length: 3"]);
    assert_eq!(
        response(&[("content-length", "3, 3")]),
        ["content-length: 3"]
    );
}

#[test]
fn a_websocket_is_asked_for_in_one_way() {
    let asks = |method, version, more: &[(&str, &str)]| {
        let usual = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
        ];
        wants_websocket(&method, version, &fields(&[&usual[..], more].concat()))
    };
    assert!(asks(Method::GET, Version::HTTP_11, &[]));
    assert!(asks(
        Method::GET,
        Version::HTTP_11,
        &[("content-length", "0")]
    ));
    assert!(!asks(Method::POST, Version::HTTP_11, &[]));
    assert!(!asks(Method::GET, Version::HTTP_10, &[]));
    assert!(!asks(Method::GET, Version::HTTP_2, &[]));
    assert!(!asks(
        Method::GET,
        Version::HTTP_11,
        &[("content-length", "1")]
    ));
    assert!(!asks(
        Method::GET,
        Version::HTTP_11,
        &[("transfer-encoding", "chunked")]
    ));
    assert!(!asks(Method::GET, Version::HTTP_11, &[("upgrade", "h2c")]));
    let without = |lines| wants_websocket(&Method::GET, Version::HTTP_11, &fields(lines));
    assert!(!without(&[("upgrade", "websocket")]));
    assert!(!without(&[("connection", "upgrade")]));
    assert!(!without(&[("connection", "upgrade"), ("upgrade", "h2c")]));
    assert!(!without(&[
        ("connection", "upgrade"),
        ("upgrade", "websocket, h2c")
    ]));
}

#[test]
fn a_switch_is_relayed_only_when_asked_for() {
    let granted = fields(&[("connection", "upgrade"), ("upgrade", "websocket")]);
    let other = fields(&[("connection", "upgrade"), ("upgrade", "h2c")]);
    let status = StatusCode::SWITCHING_PROTOCOLS;
    assert_eq!(switch(true, status, &granted), Switch::WebSocket);
    assert_eq!(switch(false, status, &granted), Switch::Unasked);
    assert_eq!(switch(true, status, &other), Switch::Unasked);
    assert_eq!(switch(true, StatusCode::OK, &granted), Switch::None);
    let mut fields = granted;
    strip_response(StatusCode::OK, &mut fields);
    assert!(fields.is_empty());
    mark_websocket(&mut fields);
    assert_eq!(left(&fields), ["connection: upgrade", "upgrade: websocket"]);
}
