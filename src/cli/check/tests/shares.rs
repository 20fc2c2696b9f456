//! The notes about what one client takes, and what is left to others.

use super::*;

#[test]
fn what_clients_share_is_listed_where_servers_have_bounds() {
    let report = |server: &str, limits: &str| {
        let text = format!(
            "[limits.own]\nby = \"ip\"\nalgorithm = \"concurrency\"\nmax = 1\n\
             [limits.all]\nby = \"everyone\"\nalgorithm = \"concurrency\"\nmax = 9\n\
             [upstreams.u]\nservers = [{{ url = \"a:1\"{server} }}]\nqueue = {{ max = 9 }}\n\
             [routes.r]\nupstream = \"u\"\nlimits = [{limits}]\n\
             [routes.s]\npath = \"/s\"\nupstream = \"u\"\nlimits = [\"own\", \"all\"]\n"
        );
        checked(&text, Format::Human, false).out
    };
    let note = "note: one client may have all places at the servers of upstream u, by route r: a `concurrency` limit by client in front leaves some to others\n";
    let list = "; 9 places in the queue of upstream u: 5; 2 places at the servers of upstream u: ";
    let of_places = |text: &str| {
        text.contains(
            "; 1000000 counters in memory: no bound for a client; each limit keeps a part; docs",
        )
    };
    for limits in ["", "\"all\""] {
        let text = report(", max_requests = 2", limits);
        assert!(of_places(&text), "{text}");
        assert!(text.contains(note), "{text}");
        assert!(text.contains(&format!("{list}all of them,")), "{text}");
        assert!(text.contains(": 100000 connections: 10000, while more than half are taken; 10000 held requests: 1000; "), "{text}");
    }
    let text = report(", max_connections = 2", "\"own\"");
    assert!(!text.contains("one client may have all places"), "{text}");
    assert!(text.contains(&format!("{list}1 (own); ")), "{text}");
    let text = report("", "");
    assert!(!text.contains("one client (an address"), "{text}");
    let file = "[server]\nmax_connections_per_client = 100\n[upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\n";
    let text = checked(file, Format::Human, false).out;
    assert!(text.contains(": 100000 connections: 100; "), "{text}");
}

/// The message names the limit that allows a client too much, with the number to write.
#[test]
fn a_limit_that_leaves_no_place_is_named_with_the_number_that_does() {
    let report = |places: u32, limit: &str| {
        let text = format!(
            "[limits.in-flight]\nby = \"ip\"\nalgorithm = \"concurrency\"\n{limit}\n\
             [upstreams.u]\nservers = [{{ url = \"a:1\", max_requests = {places} }}]\n\
             [routes.r]\nupstream = \"u\"\nlimits = \"in-flight\"\n"
        );
        checked(&text, Format::Human, false).out
    };
    let note = "note: one client may have all places at the servers of upstream u, by route r: ";
    for (places, limit, act, share) in [
        (
            2,
            "max = 5",
            "`in-flight` lets one client have 5 of the 2 places: write `max = 1`\n",
            "2 places at the servers of upstream u: all of them, since `in-flight` lets one client have 5;",
        ),
        (
            1,
            "max = 1",
            "`in-flight` lets one client have the only place\n",
            "1 place at the servers of upstream u: all of them, since `in-flight` lets one client have 1;",
        ),
        (
            2,
            "max = 1\nexempt = { methods = [\"GET\"] }",
            "`in-flight` does not bound the requests that it exempts: leave `exempt` out\n",
            "2 places at the servers of upstream u: all of them, by requests that `in-flight` exempts;",
        ),
    ] {
        let text = report(places, limit);
        assert!(text.contains(&format!("{note}{act}")), "{text}");
        assert!(text.contains(share), "{text}");
    }
}

/// Not every `concurrency` limit bounds what a client has in flight.
#[test]
fn a_limit_that_a_client_gets_around_leaves_nothing_to_others() {
    let is_bounded = |limit: &str| {
        let text = format!(
            "[groups.g]\nby = \"header:x-api-key\"\nmembers = [\"a-long-secret-key\"]\n\
             [limits.own]\nalgorithm = \"concurrency\"\n{limit}\n\
             [upstreams.u]\nservers = [{{ url = \"a:1\", max_requests = 4 }}]\n\
             [routes.r]\nupstream = \"u\"\nlimits = [\"own\"]\n"
        );
        let report = checked(&text, Format::Human, false).out;
        assert!(
            report.contains("4 places at the servers of upstream u: "),
            "{report}"
        );
        !report.contains("one client may have all places")
    };
    for limit in [
        "by = \"ip\"\nmax = 3",
        "by = [\"ip\", \"route\"]\nmax = 3",
        "by = \"header:x-api-key\"\nmissing = \"ip\"\nunknown = \"refuse\"\nmax = 3",
        "by = \"ip\"\nmax = 1\ntiers.g = { max = 3 }",
    ] {
        assert!(is_bounded(limit), "{limit}");
    }
    for limit in [
        "by = \"ip\"\nmax = 4",
        "by = \"ip\"\nmax = 1\ntiers.g = { max = 4 }",
        "by = \"ip\"\nmax = 3\nmode = \"shadow\"",
        "by = \"ip\"\nmax = 3\nexempt = { methods = [\"GET\"] }",
        "by = \"ip/32,128\"\nmax = 3",
        "by = \"header:x-a\"\nmissing = \"refuse\"\nmax = 3",
        "by = \"header:x-api-key\"\nmissing = \"skip\"\nunknown = \"refuse\"\nmax = 3",
        "by = [\"ip\", \"header:x-a\"]\nmissing = \"refuse\"\nmax = 3",
        "by = [\"ip\", \"host\"]\nmax = 3",
        "by = \"everyone\"\nmax = 3",
    ] {
        assert!(!is_bounded(limit), "{limit}");
    }
}

/// A client's shares of several routes of an upstream are added, and a limit over routes counts once.
#[test]
fn limits_of_several_routes_leave_nothing_to_others_together() {
    let noted = |per_route: [&str; 3]| {
        let limit = |name: &str, by: &str, max: u32| {
            format!("[limits.{name}]\nalgorithm = \"concurrency\"\nby = {by}\nmax = {max}\n")
        };
        let limits = [
            limit("each", "[\"ip\", \"route\"]", 2),
            limit("a", "\"ip\"", 3),
            limit("b", "\"ip\"", 2),
            limit("c", "\"ip\"", 1),
        ];
        let routes = per_route
            .iter()
            .enumerate()
            .filter(|(_, limits)| !limits.is_empty());
        let routes = routes.map(|(at, limits)| {
            format!("[routes.r{at}]\npath = \"/{at}\"\nupstream = \"u\"\nlimits = [{limits}]\n")
        });
        let text = format!(
            "{}[upstreams.u]\nservers = [{{ url = \"a:1\", max_requests = 4 }}]\n{}",
            limits.concat(),
            routes.collect::<String>()
        );
        checked(&text, Format::Human, false).out
    };
    for (limits, route) in [
        (["\"each\"", "\"each\"", ""], "r0 with 1 other"),
        (["\"a\"", "\"b\"", ""], "r0 with 1 other"),
        (["\"c\"", "\"c\"", "\"a\""], "r0 with 2 others"),
    ] {
        let (report, note) = (noted(limits), format!("of upstream u, by route {route}: "));
        assert!(report.contains(&note), "{limits:?}: {report}");
    }
    for limits in [
        ["\"each\"", "", ""],
        ["\"a\"", "\"a\"", "\"a\""],
        ["\"b\"", "\"c\"", "\"b\", \"c\""],
        ["\"each\", \"a\"", "\"each\", \"a\"", ""],
        ["\"each\"", "\"c\"", "\"c\""],
    ] {
        let report = noted(limits);
        assert!(
            !report.contains("may have all places"),
            "{limits:?}: {report}"
        );
    }
}
