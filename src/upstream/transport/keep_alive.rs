//! The idle time of a connection before its next request, and the age from which it gets none. Our idle time is always
//! shorter than the server's: a request that is sent at the moment of closing is lost, and only an idempotent one can
//! be sent again.

use http::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;
use tokio::time::Instant;

/// The idle time if the server states none. The shortest time that common servers keep a connection is 2 s.
const DEFAULT: Duration = Duration::from_millis(1500);
/// The longest idle time, for any time of the server.
const LONGEST: Duration = Duration::from_secs(4);
/// The time by which our idle time ends earlier than the server's: for the round trip, and for delays on either side.
const EARLIER: Duration = Duration::from_secs(1);

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// The idle time of a connection after an answer with these fields.
pub(in crate::upstream) fn rest(fields: &HeaderMap) -> Duration {
    match fields.get(KEEP_ALIVE).and_then(timeout) {
        None => DEFAULT,
        Some(kept) => kept.saturating_sub(EARLIER).max(kept / 2).min(LONGEST),
    }
}

/// The time from which a connection that is opened at `now` gets no further request: after `age`, up to a fifth sooner.
/// Connections that were opened together do not end together.
pub(super) fn retires(now: Instant, age: Duration) -> Instant {
    now + age.mul_f64(1.0 - fastrand::f64() / 5.0)
}

/// Reads `timeout=5, max=100` (RFC 2068, section 19.7.1.1): the seconds that the server keeps the connection. A value
/// that cannot be read cannot be relied on.
fn timeout(value: &HeaderValue) -> Option<Duration> {
    let mut parameters = value.to_str().ok()?.split([',', ';']);
    let seconds = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_timeout = name.trim().eq_ignore_ascii_case("timeout");
        is_timeout.then(|| value.trim().trim_matches('"'))
    })?;
    // A number with more digits than fit means a very long time.
    let is_number = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Duration::from_secs(seconds.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest_after(value: &'static str) -> u64 {
        let fields = [(KEEP_ALIVE, HeaderValue::from_static(value))];
        let rest = rest(&fields.into_iter().collect());
        u64::try_from(rest.as_millis()).unwrap()
    }

    #[test]
    fn it_ends_before_the_server_would_end_it() {
        for (value, millis) in [
            ("timeout=0", 0),
            ("timeout=1", 500),
            ("timeout=2", 1_000),
            ("timeout=3", 2_000),
            ("timeout=5", 4_000),
            ("timeout=5, max=100", 4_000),
            ("max=100,Timeout = 2", 1_000),
            ("timeout=\"2\"", 1_000),
            ("timeout=75", 4_000),
            ("timeout=99999999999999999999999", 4_000),
        ] {
            assert_eq!(rest_after(value), millis, "{value}");
        }
    }

    #[test]
    fn connections_of_one_time_retire_at_others() {
        let (now, age) = (Instant::now(), Duration::from_secs(600));
        let all: Vec<Duration> = (0..1_000).map(|_| retires(now, age) - now).collect();
        let (first, last) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        assert!(*first >= age * 4 / 5 && *last <= age, "{first:?} {last:?}");
        assert!(*last - *first > age / 10, "{first:?} {last:?}");
    }

    #[test]
    fn without_a_time_the_shortest_is_assumed() {
        let nothing = rest(&HeaderMap::new());
        assert_eq!(nothing, DEFAULT);
        for value in [
            "",
            "max=5",
            "timeout",
            "timeout=",
            "timeout=-1",
            "timeout=soon",
            "5",
        ] {
            assert_eq!(
                u128::from(rest_after(value)),
                DEFAULT.as_millis(),
                "{value}"
            );
        }
    }
}
