//! Random limits: every source of keys, every algorithm, costs, groups, tiers, exemptions and shadows.

use super::dice::Dice;
use super::draw_file::{DrawnFile, DrawnGroup};
use std::fmt::Write as _;

/// A limit of the file.
#[derive(Debug, Clone)]
pub(super) struct DrawnLimit {
    pub(super) name: String,
    pub(super) text: String,
    /// Only routes with `{id}` can have it.
    pub(super) asks_path: bool,
    /// Is its cost known only from the response?
    pub(super) is_settled: bool,
    /// May a request get less than it asks for? At most one limit of a request allows it.
    pub(super) is_partial: bool,
}

/// Files with numbers of customers beside each drawn file, for limits with little and with much room.
pub(super) const TIGHT_NUMBERS: (&str, &str) = ("own-tight.txt", "acme 5/h\n");
pub(super) const WIDE_NUMBERS: (&str, &str) = ("own-wide.txt", "acme 9000/h\n");

/// The sources of keys, as the schema names them, each with parts to draw from.
pub(super) const SOURCES: [(&str, &[&str]); 14] = [
    ("ip", &["ip"]),
    ("ip/24,64", &["ip/24,64", "ip/16,48"]),
    (
        "header",
        &[
            "header:x-api-key",
            "header:x-tenant",
            "header:authorization",
        ],
    ),
    ("cookie", &["cookie:sid", "cookie:lang"]),
    ("query", &["query:k", "query:api_key"]),
    ("path", &["path:id"]),
    ("jwt", &["jwt:sub", "jwt:app.plan"]),
    ("tls:subject", &["tls:subject"]),
    ("tls:fingerprint", &["tls:fingerprint"]),
    ("basic:user", &["basic:user"]),
    ("customer", &["customer"]),
    ("method", &["method"]),
    ("host", &["host"]),
    ("route", &["route"]),
];

/// The source by which only groups go.
pub(super) const OF_GROUPS: &str = "basic";

/// The source that cannot be combined with others.
pub(super) const EVERYONE: &str = "everyone";

pub(super) fn draw(dice: &mut Dice, file: &DrawnFile, has_client: bool) -> Vec<DrawnLimit> {
    let count = 1 + dice.below(4);
    let mut has_partial = false;
    let draws = (0..count).map(|number| {
        let limit = draw_one(dice, file, has_client, number, !has_partial);
        has_partial |= limit.is_partial;
        limit
    });
    draws.collect()
}

fn draw_one(
    dice: &mut Dice,
    file: &DrawnFile,
    has_client: bool,
    number: usize,
    may_be_partial: bool,
) -> DrawnLimit {
    let name = format!("l{number}");
    let parts = parts(dice, file, has_client);
    let mut limit = DrawnLimit {
        text: format!("[limits.{name}]\nby = {}\n", listed(&parts)),
        asks_path: parts.contains(&"path:id"),
        is_settled: false,
        is_partial: false,
        name,
    };
    if parts.iter().any(|part| can_be_absent(part)) {
        let _ = writeln!(
            limit.text,
            "missing = {:?}",
            dice.pick(&["refuse", "ip", "skip", "shared"])
        );
        if dice.percent(15) {
            limit.text += "missing_status = 403\n";
        }
    }
    if parts.iter().any(|part| file.has_groups_by(part)) && dice.percent(45) {
        let _ = writeln!(limit.text, "unknown = {:?}", dice.pick(&["ip", "refuse"]));
    } else if dice.percent(20) && parts.iter().any(|part| has_case(part)) {
        limit.text += "key_case = \"insensitive\"\n";
    }
    numbers(dice, file, &mut limit, may_be_partial);
    exceptions(dice, file, &mut limit);
    limit
}

/// Is the part a text that clients may write in several ways?
fn has_case(part: &str) -> bool {
    part.contains(':') && part != "tls:fingerprint"
}

fn parts(dice: &mut Dice, file: &DrawnFile, has_client: bool) -> Vec<&'static str> {
    if dice.percent(8) {
        return vec![EVERYONE];
    }
    let can_be = SOURCES.iter().filter(|(source, _)| match *source {
        "jwt" => file.token_field.is_some(),
        "customer" => file.names_customers,
        "tls:subject" | "tls:fingerprint" => has_client,
        _ => true,
    });
    let can_be: Vec<_> = can_be.collect();
    let most = 1 + usize::from(dice.percent(35));
    let mut sources = dice.some(&can_be, most, most);
    // A key contains the address at most once.
    if sources.iter().all(|(source, _)| source.starts_with("ip")) {
        sources.truncate(1);
    }
    let parts = sources.iter().map(|(_, parts)| dice.pick(parts));
    parts.collect()
}

fn can_be_absent(part: &str) -> bool {
    let (kind, _) = part.split_once(':').unwrap_or((part, ""));
    [
        "header", "cookie", "query", "jwt", "tls", "basic", "customer",
    ]
    .contains(&kind)
}

fn listed(parts: &[&str]) -> String {
    match parts {
        [one] => format!("{one:?}"),
        many => format!("{many:?}"),
    }
}

/// Draws the algorithm and its numbers.
fn numbers(dice: &mut Dice, file: &DrawnFile, limit: &mut DrawnLimit, may_be_partial: bool) {
    let count = if file.is_tight {
        1 + dice.below(4)
    } else {
        100_000
    };
    let algorithm = dice.weighed(&[6, 2, 3, 3, 2, 1]);
    let out = &mut limit.text;
    match algorithm {
        0 if dice.percent(25) => {
            let _ = writeln!(
                out,
                "rate = [{{ rate = \"{count}/h\", burst = {count} }}, \"{}/d\"]",
                2 * count
            );
        }
        0 => {
            let _ = writeln!(out, "rate = \"{count}/h\"");
            if dice.percent(20) {
                let _ = writeln!(out, "burst = {}", count + 1);
            }
        }
        1 => {
            // A limit with little room holds no request for long, and has leaked nothing when the next request comes.
            let rate = if file.is_tight { "2/min" } else { "5000/s" };
            let _ = writeln!(out, "algorithm = \"leaky-bucket\"\nrate = {rate:?}");
            if dice.percent(20) {
                *out += "over = \"refuse\"\n";
            } else if file.is_tight || dice.percent(50) {
                *out += "max_wait = \"200ms\"\nqueue = 3\n";
            }
        }
        2 => {
            let _ = writeln!(out, "algorithm = \"fixed-window\"\nrate = \"{count}/h\"");
            if dice.percent(30) {
                *out += "anchor = \"clock\"\noffset = \"17min\"\n";
            }
        }
        3 => {
            let _ = writeln!(
                out,
                "algorithm = \"sliding-window\"\nrate = \"{count}/h\"\nbuckets = 6"
            );
            if dice.percent(30) {
                *out += "strict = true\n";
            }
        }
        4 => {
            let count = count.min(10_000);
            let _ = writeln!(out, "algorithm = \"sliding-log\"\nrate = \"{count}/h\"");
        }
        _ => *out += "algorithm = \"concurrency\"\nmax = 50\n",
    }
    if !matches!(algorithm, 1 | 4 | 5) {
        cost(dice, limit, may_be_partial);
    }
    if algorithm == 0 || algorithm == 2 {
        dedupe(dice, limit);
    }
    if algorithm == 5 {
        return;
    }
    tiers(dice, file, limit, algorithm);
    // A bucket that delays would hold requests for long.
    if algorithm != 1 {
        customer_numbers(dice, file, limit);
    }
}

/// Draws numbers of the customer `acme`, for a limit with one rate that counts customers.
fn customer_numbers(dice: &mut Dice, file: &DrawnFile, limit: &mut DrawnLimit) {
    let counts_customers = limit.text.contains("\"customer\"");
    if counts_customers && !limit.text.contains("rate = [") && dice.percent(40) {
        let own = if file.is_tight {
            TIGHT_NUMBERS
        } else {
            WIDE_NUMBERS
        };
        let _ = writeln!(limit.text, "own = {:?}", own.0);
    }
}

fn cost(dice: &mut Dice, limit: &mut DrawnLimit, may_be_partial: bool) {
    let out = &mut limit.text;
    match dice.weighed(&[6, 1, 3, 1, 1, 1]) {
        0 => {}
        1 => *out += "cost = 2\n",
        2 => {
            let min = if dice.percent(40) { ", min = 0" } else { "" };
            let default = if dice.percent(40) {
                ", default = 3"
            } else {
                ""
            };
            let _ = writeln!(
                out,
                "cost = {{ header = \"x-cost\", max = 5{min}{default} }}"
            );
            if may_be_partial && dice.percent(25) {
                limit.is_partial = true;
                *out += "partial = true\n";
            }
        }
        3 => {
            limit.is_settled = true;
            *out += "cost = { response_header = \"x-units\", estimate = 2, max = 9 }\n";
        }
        4 => {
            limit.is_settled = true;
            let members = dice.pick(&[
                "\"usage.total\"",
                "[\"usage.total\", \"usage.more\"]",
                "{ \"usage.total|total\" = 2, \"usage.less\" = -0.5 }",
            ]);
            let silent = dice.pick(&["", ", on_silent = \"max\""]);
            let _ = writeln!(
                out,
                "cost = {{ response_json = {members}, estimate = 2, max = 9, on_leave = \"estimate\"{silent} }}"
            );
        }
        _ => {
            limit.is_settled = true;
            *out += "cost = { status = { \"200\" = 1, \"4xx\" = 2, else = 1 } }\n";
        }
    }
}

fn dedupe(dice: &mut Dice, limit: &mut DrawnLimit) {
    if limit.is_settled || limit.is_partial || !dice.percent(15) {
        return;
    }
    let of = if dice.percent(50) {
        ", of = \"path\""
    } else {
        ""
    };
    let _ = writeln!(
        limit.text,
        "dedupe = {{ header = \"idempotency-key\", ttl = \"10min\", repeats = 2{of} }}"
    );
}

fn tiers(dice: &mut Dice, file: &DrawnFile, limit: &mut DrawnLimit, algorithm: usize) {
    let is_of_customers = |one: &&DrawnGroup| one.is_named || one.by == "customer";
    let counts_customers = limit.text.contains("\"customer\"");
    let groups = file.groups.iter();
    let groups = groups.filter(|one| !counts_customers || is_of_customers(one));
    let mut groups: Vec<&str> = groups.map(|one| one.name).collect();
    if !limit.asks_path {
        groups.retain(|name| *name != "place");
    }
    if groups.is_empty() || !dice.percent(35) || limit.text.contains("rate = [") {
        return;
    }
    let count = if file.is_tight { 7 } else { 200_000 };
    for name in dice.some(&groups, 1, 2) {
        let rate = match algorithm {
            1 if file.is_tight => "rate = \"4/min\"".to_owned(),
            1 => "rate = \"900/s\"".to_owned(),
            4 => "rate = \"9/h\"".to_owned(),
            _ => format!("rate = \"{count}/h\""),
        };
        let is_plain = !limit.text.contains("cost = ") && !limit.is_partial;
        let cost = match algorithm {
            0 | 2 | 3 if is_plain && dice.percent(30) => ", cost = 2",
            0 | 2 | 3 if is_plain && dice.percent(30) => {
                ", cost = { header = \"x-cost\", max = 4 }"
            }
            _ => "",
        };
        let _ = writeln!(limit.text, "tiers.{name} = {{ {rate}{cost} }}");
    }
}

/// Draws exemptions, preflights and shadows.
fn exceptions(dice: &mut Dice, file: &DrawnFile, limit: &mut DrawnLimit) {
    if dice.percent(25) {
        let mut kinds: Vec<String> = vec![
            "ip = [\"127.0.0.4\", \"198.51.100.0/24\"]".to_owned(),
            "methods = [\"DELETE\", \"OPTIONS\"]".to_owned(),
            "paths = [\"/free\", \"/one/free\"]".to_owned(),
        ];
        let mut groups = file.group_names();
        if limit.asks_path && file.has_groups_by("path:id") {
            groups.push("place");
        }
        if !groups.is_empty() {
            kinds.push(format!("groups = {:?}", dice.some(&groups, 1, 2)));
        }
        let _ = writeln!(
            limit.text,
            "exempt = {{ {} }}",
            dice.some(&kinds, 1, 3).join(", ")
        );
    }
    if dice.percent(20) {
        limit.text += "preflights = \"counted\"\n";
    }
    if dice.percent(12) {
        limit.text += "status = 503\n";
    }
    if dice.percent(12) {
        limit.text += "mode = \"shadow\"\n";
    } else if dice.percent(8) && limit.text.contains("\nrate = \"") {
        let rate = if limit.text.contains("leaky") {
            "10/s"
        } else {
            "3/h"
        };
        let _ = writeln!(limit.text, "candidate = {{ rate = \"{rate}\" }}");
    }
}
