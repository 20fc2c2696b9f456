//! The answers of `check`, with their exit codes.

mod costs;
mod identities;
mod ignored;
mod shares;

use super::*;

/// The output without colours.
fn plainly(file: &Path, task: &CheckTask, format: Format, deny_warnings: bool) -> CheckOutput {
    let colour = Colour::Off;
    let style = Style { format, colour };
    let environment = &EnvironmentFiles::default();
    let file = CheckedFile {
        path: file,
        environment,
    };
    output(file, task, style, deny_warnings, connectivity::probe)
}

fn checked(text: &str, format: Format, deny_warnings: bool) -> CheckOutput {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, text).unwrap();
    let mut answer = plainly(&file, &CheckTask::Meaning, format, deny_warnings);
    let shown = format!("{}/", folder.path().display());
    answer.out = answer.out.replace(&shown, "");
    answer.err = answer.err.replace(&shown, "");
    answer
}

const GOOD: &str = "\
    [store]\nurl = \"redis://cache\"\n\
    [limits.per-key]\nby = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"100/min\"\nburst = 20\n\
    [upstreams.u]\nservers = \"a:1\"\n\
    [routes.r]\nupstream = \"u\"\n";

#[test]
fn a_good_file_is_said_in_numbers() {
    let text = format!("{GOOD}limits = \"per-key\"\n");
    let answer = checked(&text, Format::Human, true);
    assert_eq!(
        answer.out,
        "gateway.toml is good: 1 route, 1 upstream, 1 limit\n  \
         per-key  at most 20 at once, 120 in the first minute, 100 in each later minute, per x-api-key; 401 without one\n\
         note: while Redis is away each gateway counts alone, as one of the N known gateways: together they admit each limit once, but one request in each gateway where a burst or a window's limit is smaller than N\n\
         note: counted byte for byte: x-api-key; if a server reads several spellings as one value, a client has a counter for each spelling\n\
         note: a request that per-key answers 401 is counted by no other limit, so guesses cost nothing; a limit by ip would count them\n"
    );
    assert_eq!((answer.err.as_str(), answer.code), ("", 0));
}

#[test]
fn forged_tokens_that_are_verified_whatever_limits_say_are_named() {
    let report = |members: &str, others: &str, defaults: &str| {
        let key = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/jwt/rsa.pem");
        let text = format!(
            "{defaults}[jwt]\nkeys = {key:?}\nalgorithms = \"RS256\"\n\
            [groups.gold]\nby = \"jwt:plan\"\nmembers = \"gold\"\n\
            [limits.per-ip]\nby = \"ip\"\nrate = \"1/s\"\n\
            [limits.per-route]\nby = [\"ip\", \"route\"]\nrate = \"1/s\"\n\
            [upstreams.u]\nservers = \"a:1\"\n\
            [routes.members]\nhost = \"*.a.test\"\npath = \"/x/{{id}}\"\ngroups = \"gold\"\nupstream = \"u\"\nlimits = [{members}]\n\
            {others}"
        );
        let answer = checked(&text, Format::Human, false);
        assert_eq!(answer.code, 0, "{}", answer.err);
        let notes = answer
            .out
            .lines()
            .filter(|line| line.contains("forged tokens"));
        notes.map(str::to_owned).collect::<Vec<_>>()
    };
    let others = |limits: &str| format!("[routes.others]\nupstream = \"u\"\nlimits = [{limits}]\n");
    let by_post = "methods = \"POST\"\n";
    let defaults = "[defaults]\nlimits = \"per-ip\"\n";
    let is_other = "note: forged tokens are verified for members, even if a limit refuses their client: others, which takes clients outside their groups, has no limit in common";
    let is_memberless = "note: forged tokens are verified for members, even if a limit refuses their client: the answer 404 to clients outside their groups has no limit in common";
    let second_limits = others("").replace("others", "beside");
    for (members, others, defaults, note) in [
        ("\"per-ip\"", others("\"per-ip\""), "", None),
        ("\"per-ip\"", others(""), "", Some(is_other)),
        ("", others("\"per-ip\""), "", Some(is_other)),
        ("", others(""), defaults, None),
        ("\"!per-ip\"", others(""), defaults, Some(is_other)),
        ("\"per-route\"", others("\"per-route\""), "", Some(is_other)),
        ("\"per-ip\"", String::new(), "", Some(is_memberless)),
        ("", String::new(), defaults, None),
        ("", others(""), "", None),
        (
            "\"per-ip\"",
            others("\"per-ip\"") + &second_limits + by_post,
            "",
            Some("beside, which takes clients outside their groups"),
        ),
    ] {
        let found = report(members, &others, defaults);
        match note {
            None => assert_eq!(found, [""; 0], "{members} {others} {defaults}"),
            Some(note) => assert!(
                found.len() == 1 && found[0].contains(note),
                "{found:?} {members} {others} {defaults}"
            ),
        }
    }
}

/// Each route is compared with all routes, which for a very large file would take minutes.
#[test]
fn of_very_many_routes_by_a_token_the_first_ones_are_looked_at() {
    let key = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/jwt/rsa.pem");
    let mut text = format!(
        "[jwt]\nkeys = {key:?}\nalgorithms = \"RS256\"\n[groups.gold]\nby = \"jwt:plan\"\nmembers = \"gold\"\n\
        [limits.per-ip]\nby = \"ip\"\nrate = \"1/s\"\n[upstreams.u]\nservers = \"a:1\"\n"
    );
    for n in 0..2000 {
        let _ = write!(
            text,
            "[routes.r{n}]\npath = \"/p\"\nheaders = {{ x-a = \"{n}\" }}\nmethods = \"GET\"\ngroups = \"gold\"\nupstream = \"u\"\nlimits = \"per-ip\"\n"
        );
    }
    let answer = checked(&text, Format::Human, false);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let report = "note: 2000 routes have groups by a token; only the first 999 were checked for";
    assert!(answer.out.contains(report), "{}", &answer.out[..2000]);
}

#[test]
fn what_the_manual_shows_is_good_and_says_what_many_gateways_admit() {
    let manual = concat!(
        include_str!("../../../docs/repeats-and-scope.md"),
        include_str!("../../../docs/outages.md"),
        include_str!("../../../docs/costs-and-shadows.md")
    );
    let examples = manual.split("```toml\n").skip(1);
    let mut all = String::new();
    for example in examples.map(|rest| rest.split("```").next().unwrap()) {
        let names: Vec<&str> = example
            .lines()
            .filter_map(|line| line.strip_prefix("[limits.")?.strip_suffix(']'))
            .collect();
        let text = format!(
            "{example}\n[upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = {names:?}\n"
        );
        let answer = checked(&text, Format::Human, true);
        assert_eq!((answer.err.as_str(), answer.code), ("", 0), "{text}");
        all.push_str(&answer.out);
    }
    assert!(all.contains("within 10min counts once, and 3 repeats go free"));
    assert!(all.contains("at most 200 in flight, for everyone together; each gateway by itself"));
    assert!(all.contains("so N gateways together admit N times as much"));
}

#[test]
fn weeks_credentials_and_braces_are_noted() {
    let noted = |limit: &str, route: &str| {
        let text = format!(
            "[limits.l]\nmissing = \"refuse\"\n{limit}\n[upstreams.u]\nservers = \"a:1\"\n\
             [routes.r]\nupstream = \"u\"\nlimits = \"l\"\n{route}"
        );
        let report = checked(&text, Format::Human, true);
        assert_eq!((report.err.as_str(), report.code), ("", 0), "{text}");
        report.out
    };
    let by = "by = \"header:x-user\"\n";
    let week = format!("{by}algorithm = \"fixed-window\"\nanchor = \"clock\"\nrate = \"100/w\"");
    let thursday = "limit l counts weeks from Thursday 00:00 UTC; `rate = \"100/w\"` with `timezone = \"UTC\"` begins on Monday";
    let report = noted(&week, "");
    assert!(report.contains(thursday), "{report}");
    for settled in [
        "timezone = \"UTC\"",
        "timezone = \"Europe/Berlin\"",
        "offset = \"4d\"",
    ] {
        let report = noted(&format!("{week}\n{settled}"), "");
        assert!(!report.contains("Thursday"), "{report}");
    }
    let guess = "limit l counts by header:authorization: each guess";
    for (by, is_noted) in [
        ("\"header:authorization\"", true),
        ("[\"header:authorization\", \"ip\"]", false),
        ("\"header:x-user\"", false),
    ] {
        let report = noted(&format!("by = {by}\nrate = \"9/s\""), "");
        assert_eq!(report.contains(guess), is_noted, "{report}");
    }
    let braces = "`response_headers` of route r are sent as they are: `x-client` has braces";
    for (value, is_noted) in [
        ("{ip}", true),
        ("{{ client.ip }}", true),
        ("{env.HOST}", true),
        ("plain", false),
        ("{}", false),
        ("{'group': 'a'}", false),
    ] {
        let route = format!("response_headers = {{ set = {{ x-client = \"{value}\" }} }}\n");
        let report = noted(&format!("{by}rate = \"9/s\""), &route);
        assert_eq!(report.contains(braces), is_noted, "{value} {report}");
    }
}

#[test]
fn names_in_front_of_members_are_noted() {
    let sum = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    for (member, is_noted) in [
        (format!("acme {sum}"), true),
        (format!("acme\\t{sum}"), false),
        (sum.to_owned(), false),
        ("acme plain".to_owned(), false),
    ] {
        let text = format!(
            "[groups.gold]\nby = \"header:x-api-key\"\nmembers = \"{member}\"\n\
             [limits.l]\nby = \"ip\"\nrate = \"9/s\"\ntiers.gold = {{ rate = \"99/s\" }}\n\
             [upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = \"l\"\n"
        );
        let report = checked(&text, Format::Human, false).out;
        let note = "note: group gold has 1 member with a name in front of `sha256:` (first: the list); each is one literal value";
        assert_eq!(report.contains(note), is_noted, "{member} {report}");
    }
}

#[test]
fn how_limits_count_is_said() {
    let noted = |store: &str, limit: &str| {
        let text = format!(
            "{store}[limits.l]\nby = \"ip\"\n{limit}\n[upstreams.u]\nservers = \"a:1\"\n\
             [routes.r]\nupstream = \"u\"\nlimits = \"l\"\n"
        );
        let report = checked(&text, Format::Human, true);
        assert_eq!((report.err.as_str(), report.code), ("", 0), "{text}");
        report.out
    };
    let redis = "[store]\nurl = \"redis://cache\"\n";
    let queue = "algorithm = \"leaky-bucket\"\nrate = \"10/s\"\n";
    let never = noted("", &format!("{queue}queue = 100\nmax_wait = \"2s\""));
    assert!(
        never.contains("note: queue-never-full: limit l has a queue of 100, and `max_wait` lets at most 20 wait: `queue = 20` means the same; to let the whole queue wait, write `max_wait = \"10s\"`"),
        "{never}"
    );
    for full in [
        "queue = 20\nmax_wait = \"2s\"",
        "max_wait = \"2s\"",
        "queue = 3",
    ] {
        let report = noted("", &format!("{queue}{full}"));
        assert!(!report.contains("queue-never-full"), "{report}");
    }
    // A day and more: a restart of a gateway with counters in memory loses them, and so does a Redis that writes
    // nothing to disk.
    let month = "algorithm = \"fixed-window\"\nanchor = \"clock\"\nrate = \"10000/month\"";
    let settings = format!("{month}\nscope = \"gateway\"");
    let in_memory = "counted in memory over a day and more: l; a restart forgets what was used";
    let in_redis = "counted in Redis over a day and more: l; Redis must write to disk";
    for (store, limit, memory, shared) in [
        ("", month, true, false),
        (redis, month, false, true),
        (redis, settings.as_str(), true, false),
        ("", "rate = \"100/d\"", true, false),
        ("", "rate = \"1000/d\"\nburst = 10", false, false),
        ("", "rate = \"100/h\"", false, false),
    ] {
        let report = noted(store, limit);
        assert_eq!(report.contains(in_memory), memory, "{limit} {report}");
        assert_eq!(report.contains(in_redis), shared, "{limit} {report}");
    }
    let tiers = |limit: &str, tier: &str| {
        let group = "[groups.free]\nby = \"ip\"\nmembers = \"192.0.2.1\"\n";
        noted(group, &format!("{limit}\ntiers.free = {{ rate = {tier} }}"))
    };
    let report = tiers("rate = \"100/s\"", "\"1000/d\"");
    let note = "counted in memory over a day and more: l (group free); a restart forgets";
    assert!(report.contains(note), "{report}");
    let rates = "algorithm = \"fixed-window\"\nrate = [\"9/min\", \"100/d\"]";
    let report = tiers(rates, "[\"99/min\", \"9000/d\"]");
    let note = "counted in memory over a day and more: l, l (group free); a restart forgets";
    assert!(report.contains(note), "{report}");
    // A note that the file ignores is left out.
    let quiet = "queue = 100\nmax_wait = \"2s\"\nignore_warnings = \"queue-never-full\"";
    let report = noted("", &format!("{queue}{quiet}"));
    assert!(!report.contains("queue-never-full"), "{report}");
    let whole = "ignore_warnings = [\"queue-never-full\", \"cost-never-said\"]\n";
    let report = noted(whole, &format!("{queue}queue = 100\nmax_wait = \"2s\""));
    assert!(!report.contains("queue-never-full"), "{report}");
    // Tiers have numbers of their own.
    let tiered = format!(
        "[groups.free]\nby = \"ip\"\nmembers = \"192.0.2.1\"\n{redis}[limits.l]\nby = \"ip\"\nrate = \"100/s\"\ntiers.free = {{ rate = \"5/d\" }}\n\
         [upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = \"l\"\n"
    );
    let report = checked(&tiered, Format::Human, true).out;
    let note = "limit l (group free) lets a few requests a day through";
    assert!(report.contains(note), "{report}");
    // The cost of a request that a server fails lasts for an hour or more.
    for (limit, report) in [
        ("rate = \"1/h\"", true),
        ("rate = \"5/d\"", true),
        ("rate = \"5/d\"\nrefund = \"5xx\"", false),
        ("rate = \"5/d\"\nmode = \"shadow\"", false),
        ("rate = \"100/h\"", false),
        ("algorithm = \"concurrency\"\nmax = 1", false),
    ] {
        let note = "limit l lets a few requests a day through and gives nothing back after a 502";
        assert_eq!(noted("", limit).contains(note), report, "{limit}");
    }
}

#[test]
fn blocks_that_strangers_can_bring_about_are_noted() {
    let noted = |by: &str, more: &str| {
        let text = format!(
            "[limits.l]\nby = {by}\nrate = \"5/h\"\n{more}\n[upstreams.u]\nservers = \"a:1\"\n\
             [routes.r]\npath = \"/{{user}}\"\nupstream = \"u\"\nlimits = \"l\"\n"
        );
        let report = checked(&text, Format::Human, true);
        assert_eq!((report.err.as_str(), report.code), ("", 0), "{text}");
        report
            .out
            .contains("note: limit l blocks keys that any client can name: ")
    };
    let (block, missing) = ("block = \"1h\"", "missing = \"ip\"");
    let both = format!("{block}\n{missing}");
    for (by, more, is_noted) in [
        ("\"path:user\"", block, true),
        ("\"path:user\"", "", false),
        ("\"everyone\"", block, true),
        ("\"header:x-username\"", &both, true),
        ("[\"ip\", \"header:x-username\"]", &both, false),
        ("\"ip\"", block, false),
        ("\"header:authorization\"", &both, false),
        (
            "\"path:user\"",
            &format!("{block}\nmode = \"shadow\""),
            false,
        ),
    ] {
        assert_eq!(noted(by, more), is_noted, "{by} {more}");
    }
}

/// Addresses behind a translator count as the IPv4 addresses inside, even if a larger network contains them.
#[test]
fn networks_that_lose_a_translators_clients_are_noted() {
    let noted = |server: &str, lists: &str| {
        let text = format!(
            "[server]\nlisten = \":8080\"\n{server}\n[limits.l]\nby = \"ip\"\nrate = \"9/s\"\n{lists}\n[upstreams.u]\n\
             servers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = \"l\"\n"
        );
        let report = checked(&text, Format::Human, true);
        assert_eq!(report.code, 0, "{}", report.err);
        let lines = report.out.lines().filter(|line| line.contains("NAT64"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let exempt = |networks: &str| format!("exempt = {{ ip = {networks} }}");
    assert_eq!(
        noted("", &exempt("[\"64:ff9b::/64\"]")),
        [
            "note: clients behind NAT64 count by their IPv4 addresses, which 64:ff9b::/64 (`exempt` of limit l) does not contain: write \
             64:ff9b::/96 beside it to include all of them"
        ]
    );
    assert_eq!(noted("trust = \"::/8\"", "").len(), 1);
    let settings = "nat64 = \"2001:db8:64::/96\"";
    assert_eq!(noted(settings, &exempt("[\"2001:db8::/32\"]")).len(), 1);
    let members = "tiers.g = { rate = \"99/s\" }\n[groups.g]\nby = \"ip\"\nmembers = [\"::/0\", \"2001:db8::/32\"]";
    assert_eq!(noted("", members).len(), 1);
    for held in [
        "[\"64:ff9b::/96\", \"64:ff9b::/64\"]",
        "[\"0.0.0.0/0\", \"64:ff9b::/64\"]",
        "[\"64:ff9b::808:808\"]",
        "[\"2001:db8::/32\"]",
    ] {
        assert_eq!(noted("", &exempt(held)), [""; 0], "{held}");
    }
}

#[test]
fn what_keys_leave_open_is_said() {
    let text = format!(
        "{GOOD}limits = [\"per-key\", \"per-ip\"]\n[limits.per-ip]\nby = \"ip\"\nrate = \"9/s\"\n"
    );
    let guessed = checked(&text, Format::Human, true).out;
    assert!(!guessed.contains("guesses are free"), "{guessed}");
    let exempt = "exempt = { methods = [\"OPTIONS\"] }\n";
    for (more, why) in [
        ("mode = \"shadow\"", Some("per-ip is a shadow")),
        (
            "cost = { header = \"x-cost\", max = 9, min = 0 }",
            Some("per-ip may cost 0"),
        ),
        ("cost = { header = \"x-cost\", max = 9 }", None),
        ("cost = 2", None),
        (exempt, Some("per-ip exempts OPTIONS")),
        ("exempt = { paths = [\"/healthz\"] }", None),
    ] {
        let report = checked(&format!("{text}{more}\n"), Format::Human, false);
        assert_eq!(report.code, 0, "{more} {}", report.err);
        let note =
            why.map(|why| format!("counted by no other limit ({why}), so guesses cost nothing"));
        match note {
            Some(note) => assert!(report.out.contains(&note), "{more} {}", report.out),
            None => assert!(!report.out.contains("guesses"), "{more} {}", report.out),
        }
    }
    // A request that both limits exempt gets no 401.
    let both = text.replace("burst = 20\n", &format!("burst = 20\n{exempt}")) + exempt;
    let both = checked(&both, Format::Human, false).out;
    assert!(!both.contains("guesses are free"), "{both}");
    let in_flight = text.replace("rate = \"9/s\"", "algorithm = \"concurrency\"\nmax = 9");
    let in_flight = checked(&in_flight, Format::Human, false).out;
    assert!(
        in_flight.contains("(per-ip counts what is in flight)"),
        "{in_flight}"
    );
    let by = text.replace("header:x-api-key", "header:authorization")
        + "[groups.gold]\nby = \"header:authorization\"\nmembers = \"Bearer k\"\n";
    let credentials = checked(&by, Format::Human, false).out;
    assert!(!credentials.contains("byte for byte"), "{credentials}");
    let digest =
        "members of group gold are looked up with their scheme in small letters and one blank";
    assert!(credentials.contains(digest), "{credentials}");
    let object = checked(&by, Format::Json, false).out;
    assert!(object.contains(digest), "{object}");
}

#[test]
fn a_list_of_rates_is_one_limit() {
    let text = format!("{GOOD}limits = \"per-key\"\n").replace(
        "\"100/min\"\nburst = 20",
        "[\"10/s\", \"100/min\"]\ncandidate = { rate = [\"9/s\", \"90/min\"] }",
    );
    let answer = checked(&text, Format::Human, true);
    let first = answer.out.lines().next();
    assert_eq!(
        first,
        Some("gateway.toml is good: 1 route, 1 upstream, 1 limit"),
        "{}{}",
        answer.err,
        answer.out
    );
    assert_eq!(answer.out.matches("\n  per-key").count(), 4);
}

#[test]
fn warnings_are_told_and_denied_only_when_asked() {
    let answer = checked(GOOD, Format::Human, false);
    assert!(answer.err.starts_with("warning[unused-limit]") && answer.code == 0);
    assert!(answer.err.ends_with("1 warning in gateway.toml\n"));
    assert_eq!(checked(GOOD, Format::Human, true).code, 1);
}

#[test]
fn mistakes_are_told_for_people_and_for_programs() {
    let text = GOOD.replace("100/min", "100");
    let people = checked(&text, Format::Human, false);
    assert!(people.out.is_empty() && people.code == 1);
    assert!(
        people.err.contains("--> gateway.toml:6:8"),
        "{}",
        people.err
    );
    let programs = checked(&text, Format::Json, false);
    let lines: Vec<Value> = programs
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["code"], "unused-limit");
    assert_eq!(
        (&lines[1]["line"], &lines[1]["column"]),
        (&json!(6), &json!(8))
    );
    assert_eq!(lines[2]["errors"], 1);
}

/// A queue that holds for a minute, in front of a route that gives its upstream 30 s. The file ignores the finding.
const PATIENT: &str = "\
    [limits.patient]\nby = \"route\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/s\"\nmax_wait = \"1min\"\n\
    [upstreams.u]\nservers = \"a:1\"\n\
    [routes.r]\nupstream = \"u\"\nlimits = \"patient\"\n";

#[test]
fn what_may_be_granted_in_part_is_not_said_never_to_pass() {
    let text = |more: &str| {
        format!(
            "[limits.a]\nby = \"ip\"\nrate = \"10/min\"\nburst = 5\ncost = 6\n{more}\
             [upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = \"a\"\n"
        )
    };
    let whole = checked(&text(""), Format::Human, true);
    assert!(whole.err.contains("warning[never-admits]"), "{}", whole.err);
    let part = checked(&text("partial = true\n"), Format::Human, true);
    assert_eq!((part.err.as_str(), part.code), ("", 0));
}
