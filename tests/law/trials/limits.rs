//! Random limits: their lines in the file, and the bounds that these lines mean.

use crate::law::numbers::SECOND;
use std::time::Duration;

/// The bound of a limit. Times are in microseconds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bound {
    /// At most `burst`, and `count` more in each `period`.
    Bucket { burst: u64, count: u64, period: u64 },
    /// At most `count` in any stretch of `period`.
    Any { count: u64, period: u64, reach: u64 },
    /// At most `count` in each `period` that begins at a whole multiple of `step`. Counted requests reach back by
    /// `reach`.
    Aligned {
        count: u64,
        period: u64,
        step: u64,
        reach: u64,
    },
    /// At most `count` in each of the windows of `period`, which begin anywhere.
    Windows { count: u64, period: u64 },
    /// At most `most` requests in flight.
    Flight { most: usize },
}

/// A limit of the file, and its expected bounds.
#[derive(Debug, Clone)]
pub(super) struct Meant {
    pub(super) lines: String,
    /// The bounds of the limit; a list of rates has several.
    pub(super) bounds: Vec<Bound>,
    /// Does the limit hold requests? Held requests are judged by the instant at which they go on.
    pub(super) holds: bool,
    pub(super) partial: bool,
    /// The largest cost of a request.
    pub(super) dearest: u64,
}

/// The clients of a trial, and its duration.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) time: Duration,
    /// For each client, the gateway that it asks, and a seed of its own.
    pub(super) clients: Vec<(usize, u64)>,
    pub(super) dearest: u64,
    /// The longest time that an upstream keeps a request or a client pauses, in milliseconds.
    pub(super) slowest: u64,
}

impl Meant {
    /// A plan with random clients for this limit.
    pub(super) fn plan(&self, random: &mut fastrand::Rng) -> Plan {
        let clients = 0..random.usize(3..10);
        Plan {
            time: Duration::from_millis(random.u64(60..260)),
            clients: clients
                .map(|_| (random.usize(..3), random.u64(..)))
                .collect(),
            dearest: self.dearest,
            slowest: random.u64(1..6),
        }
    }
}

/// N and P: mostly small numbers that come back during a trial, and some that do not.
fn rate(random: &mut fastrand::Rng) -> (u64, u64) {
    let milliseconds = [10, 20, 40, 60, 100, 3_600_000][random.usize(..6)];
    let count = match milliseconds {
        3_600_000 => random.u64(5..80),
        short => random.u64(1..=short / 4),
    };
    (count, milliseconds * 1000)
}

fn shown((count, period): (u64, u64)) -> String {
    format!("rate = \"{count}/{}ms\"", period / 1000)
}

/// A limit of any algorithm.
pub(super) fn random_limit(random: &mut fastrand::Rng) -> Meant {
    let (count, period) = rate(random);
    let numbers = shown((count, period));
    let (mut lines, bounds): (String, Vec<Bound>) = match random.u8(..9) {
        0 => {
            let burst = random.u64(1..30);
            let bucket = Bound::Bucket {
                burst,
                count,
                period,
            };
            (format!("{numbers}\nburst = {burst}"), vec![bucket])
        }
        1 => {
            let burst = random.u64(1..30);
            let bucket = Bound::Bucket {
                burst,
                count,
                period,
            };
            let lines = format!(
                "algorithm = \"leaky-bucket\"\n{numbers}\nover = \"refuse\"\nburst = {burst}"
            );
            (lines, vec![bucket])
        }
        2 => return queue(random),
        3 => {
            let lines = format!("algorithm = \"fixed-window\"\n{numbers}");
            (lines, vec![Bound::Windows { count, period }])
        }
        4 => {
            let lines = format!("algorithm = \"fixed-window\"\nanchor = \"clock\"\n{numbers}");
            (lines, vec![aligned((count, period), period, period)])
        }
        5 => {
            let parts = [1, 2, 5, 10][random.usize(..4)];
            let lines = format!("algorithm = \"sliding-window\"\nbuckets = {parts}\n{numbers}");
            let bound = aligned((count, period), period / parts, 2 * period);
            (lines, vec![bound])
        }
        6 => {
            let parts = [1, 2, 5, 10][random.usize(..4)];
            let lines = format!(
                "algorithm = \"sliding-window\"\nstrict = true\nbuckets = {parts}\n{numbers}"
            );
            (lines, vec![any((count, period), 2 * period)])
        }
        7 => {
            let lines = format!("algorithm = \"sliding-log\"\n{numbers}");
            (lines, vec![any((count, period), period)])
        }
        _ => return other(random),
    };
    let dearest = match random.u8(..3) {
        0 => random.u64(2..6),
        _ => 1,
    };
    let partial = dearest > 1 && random.bool();
    if dearest > 1 {
        lines.push_str(&format!(
            "\ncost = {{ header = \"x-cost\", max = {dearest} }}"
        ));
    }
    if partial {
        lines.push_str("\npartial = true");
    }
    if random.bool() {
        // The candidate's numbers are counted beside the limit and change nothing.
        lines.push_str("\ncandidate = { rate = \"3/h\" }");
    }
    Meant {
        lines,
        bounds,
        holds: false,
        partial,
        dearest,
    }
}

fn any((count, period): (u64, u64), reach: u64) -> Bound {
    Bound::Any {
        count,
        period,
        reach,
    }
}

fn aligned((count, period): (u64, u64), step: u64, reach: u64) -> Bound {
    Bound::Aligned {
        count,
        period,
        step,
        reach,
    }
}

/// A leaky bucket that holds requests.
fn queue(random: &mut fastrand::Rng) -> Meant {
    let (burst, count) = (random.u64(1..4), random.u64(40..400));
    let queue = random.u64(2..20);
    let lines = format!(
        "algorithm = \"leaky-bucket\"\nrate = \"{count}/s\"\nburst = {burst}\nqueue = {queue}\nmax_wait = \"400ms\""
    );
    Meant {
        lines,
        bounds: vec![Bound::Bucket {
            burst,
            count,
            period: SECOND,
        }],
        holds: true,
        partial: false,
        dearest: 1,
    }
}

/// A limit on requests in flight, or a list of rates.
fn other(random: &mut fastrand::Rng) -> Meant {
    let plain = |lines, bounds| Meant {
        lines,
        bounds,
        holds: false,
        partial: false,
        dearest: 1,
    };
    if random.bool() {
        let most = random.usize(1..5);
        let lines = format!("algorithm = \"concurrency\"\nmax = {most}");
        return plain(lines, vec![Bound::Flight { most }]);
    }
    let short = (random.u64(2..10), 20_000);
    let long = (random.u64(10..40), 200_000);
    let lines = format!(
        "algorithm = \"sliding-log\"\nrate = [\"{}/20ms\", \"{}/200ms\"]",
        short.0, long.0
    );
    plain(lines, vec![any(short, short.1), any(long, long.1)])
}
