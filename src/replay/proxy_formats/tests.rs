//! Lines from the documentation of their servers, and lines with nearly such a shape.

use super::*;
use crate::replay::line::LineReader;

fn read_line(line: &str) -> Result<LoggedRequest<'_>, Fault> {
    let mut request = LoggedRequest::default();
    let read = LineReader::new(None).read(&mut request, line);
    read.map(|()| request)
}

#[test]
fn how_long_it_took_and_how_it_ended_is_read() {
    let lines = [
        include_str!("../../../tests/simulate/traces/caddy.json"),
        include_str!("../../../tests/simulate/traces/traefik.json"),
        include_str!("../../../tests/simulate/traces/traefik.log"),
        include_str!("../../../tests/simulate/traces/envoy.log"),
        include_str!("../../../tests/simulate/traces/haproxy.log"),
        include_str!("../../../tests/simulate/traces/alb.log"),
    ];
    let read_lines = lines.map(|text| {
        let requests = text.lines().filter_map(|line| read_line(line).ok());
        requests
            .map(|one| (one.status, one.duration))
            .collect::<Vec<_>>()
    });
    assert_eq!(read_lines[0], [(200, 24_102), (502, 250_000), (500, 10)]);
    assert_eq!(read_lines[1], [(200, 24_102), (404, 100), (200, 100)]);
    assert_eq!(read_lines[2], [(200, 250_000), (404, 0), (200, 1_000)]);
    assert_eq!(read_lines[3], [(204, 226_000), (503, 5_000), (200, 18_000)]);
    assert_eq!(
        read_lines[4],
        [(200, 109_000), (503, 5_000_000), (200, 109_000)]
    );
    assert_eq!(
        read_lines[5],
        [(200, 1_000), (502, 145_000), (101, 600_000_000)]
    );
}

#[test]
fn what_is_nearly_a_line_is_none() {
    for line in [
        "[2026-11-20T17:48:50.310Z]",
        "[2026-11-20T17:48:50.310Z] \"GET / HTTP/1.1\"",
        "[2026-11-20T17:48:50.310Z] \"GET / HTTP/1.1\" 200 - 0 \"",
        "http 2026-11-20T17:48:50.186641Z",
        "http 2026-11-20T17:48:50.186641Z app 1.2.3.4 \"GET / HTTP/1.1\"",
        "1.2.3.4:80 [20/Nov/2026:17:48:50.655] a b/c 1/2/3 200",
        "x | ",
        "x | x | x | x | x | {}",
        "\x1b[",
        "a:1 1.2.3.4 - -",
        ", - - [",
        "{\"ts\":1,\"request\":{\"uri\":\"/\",\"remote_ip\":\"nobody\"}}",
        "{\"RequestPath\":\"/\",\"ClientHost\":\"1.2.3.4\",\"StartUTC\":\"yesterday\"}",
    ] {
        assert!(read_line(line).is_err(), "{line}");
    }
}
