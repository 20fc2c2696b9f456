//! The numbers of leases, for `check` and `explain`.

use crate::config::value::show_span;
use crate::limit::{LeaseSetting, Limit, Mode, Scope};
use crate::store::{LEASED_FROM, LEASED_WITHIN};

/// The terms of leases of a busy key: `a worker takes up to 50 permits at once ...`; `None` for a limit without leases.
#[must_use]
pub fn terms(limit: &Limit) -> Option<String> {
    let terms = limit.leases()?;
    let rest = if terms.give_back() {
        "go back"
    } else {
        "are lost"
    };
    let mut text = format!(
        "a worker takes up to {} permits at once of a key that is asked for {LEASED_FROM} times in {}, and uses them within {}; the rest {rest}",
        terms.most,
        show_span(LEASED_WITHIN),
        show_span(terms.longest()),
    );
    match terms.padding(0) {
        0 => {}
        extra => text.push_str(&format!(
            "; nearly full, a call takes up to {extra} more that go unused"
        )),
    }
    if terms.trickles() {
        let pause = show_span(terms.pause);
        text.push_str(&format!(
            "; if it gets fewer than it asked for, it refuses for {pause} before it asks again"
        ));
    }
    Some(text)
}

/// The terms of leases of a limit that counts a request, or the reason that it gives no leases. `None` if the limit
/// uses no store.
#[must_use]
pub fn of_request(limit: &Limit) -> Option<String> {
    if limit.mode != Mode::Enforce || limit.scope == Scope::Gateway {
        return None;
    }
    Some(match (limit.why_unleased(), terms(limit)) {
        _ if limit.leasing == LeaseSetting::Off => "never leased: lease = \"off\"".to_owned(),
        (Some(why), _) => format!("never leased: {why}"),
        (None, Some(terms)) => format!("leased while it is busy: {terms}"),
        (None, None) => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    /// The terms of a limit with these lines.
    fn terms(lines: &str) -> Option<String> {
        let text = format!(
            "[limits.l]\nby = \"ip\"\n{lines}\n[upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = \"l\"\n"
        );
        let compiled = parse("gateway.toml", &text).map_err(|report| report.json_lines());
        super::terms(&compiled.unwrap().outline.limits[0])
    }

    /// The numbers of docs/sparing.md. A lease takes 1 % of the quota, or the units of a bucket that refill in 25 ms. A
    /// lease lasts 100 ms at most, or a tenth of a window. Unused permits are returned, except permits of a bucket,
    /// which are lost.
    #[test]
    fn terms_are_said_in_numbers() {
        let of = |many: u32, lasts: &str, rest: &str| {
            format!(
                "a worker takes up to {many} permits at once of a key that is asked for 16 times in 50ms, and uses them within {lasts}; the rest {rest}"
            )
        };
        for (lines, said) in [
            (
                "rate = \"2000/s\"\nburst = 4000",
                of(50, "100ms", "are lost")
                    + "; nearly full, a call takes up to 50 more that go unused; if it gets fewer than it asked for, it refuses for 50ms before it asks again",
            ),
            (
                "rate = \"50000/min\"\nalgorithm = \"fixed-window\"",
                of(500, "100ms", "go back"),
            ),
            (
                "rate = \"5000/200ms\"\nalgorithm = \"fixed-window\"\nlease = 7",
                of(7, "20ms", "go back"),
            ),
        ] {
            assert_eq!(terms(lines), Some(said), "{lines}");
        }
        for none in [
            "rate = \"999/s\"",
            "rate = \"2000/s\"\nlease = \"off\"",
            "rate = \"2000/s\"\nscope = \"gateway\"",
        ] {
            assert_eq!(terms(none), None, "{none}");
        }
    }
}
