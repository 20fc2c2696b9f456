//! Lists of what decides about a request: limits, groups of clients, and routes.

use super::{BAD, GOOD, LIMITED, ROUTE, Row, UPSTREAM, address, array, each, limit_names, limits};

const LIMIT: &str = "[limits.l]\nby = \"ip\"\nrate = \"1/s\"\n";
const MEASURED: &str = "cost.estimate = 1\ncost.max = 9\n";

/// A table with a cost for each name. Longer tables than a file may have are mistakes.
fn costs(many: usize) -> String {
    let costs = each(many, |n| format!("m{n} = 1, "));
    format!("{{ {costs} }}")
}

/// A limit whose tier has a cost with these keys.
fn tiered_cost(keys: &str) -> String {
    format!(
        "{}{LIMIT}tiers.g0.cost = {{ {keys} }}\n{LIMITED}",
        groups(1)
    )
}

fn groups(many: usize) -> String {
    each(many, |n| {
        format!("[groups.g{n}]\nby = \"header:x-api-key\"\nmembers = [\"key-{n}\"]\n")
    })
}

fn rates(many: usize) -> String {
    array(many, |n| format!("{}/{}s", n + 1, n + 1))
}

fn routes(many: usize, one: impl Fn(usize) -> String) -> String {
    let routes = each(many, |n| {
        format!("[routes.r{n}]\nupstream = \"u\"\n{}\n", one(n))
    });
    format!("{UPSTREAM}{routes}")
}

/// Lines of a table of the route.
fn in_route(table: &str, many: usize, value: &str) -> String {
    let lines = each(many, |n| format!("x-{n} = \"{value}\"\n"));
    format!("{}{ROUTE}[routes.r.{table}]\n{lines}", groups(1))
}

/// The lists of limits, groups and routes.
pub(super) const DECISIONS: &[Row] = &[
    (".limits.*", GOOD, |n| {
        format!("{}{ROUTE}limits = {}\n", limits(n), limit_names(n))
    }),
    (".limits.*.by[]", GOOD, |n| {
        let by = array(n, |n| format!("header:x-{n}"));
        format!("[limits.l]\nmissing = \"ip\"\nrate = \"1/s\"\nby = {by}\n{LIMITED}")
    }),
    (".limits.*.rate[]", GOOD, |n| {
        format!("[limits.l]\nby = \"ip\"\nrate = {}\n{LIMITED}", rates(n))
    }),
    (".limits.*.candidate.rate[]", GOOD, |n| {
        format!("{LIMIT}candidate.rate = {}\n{LIMITED}", rates(n))
    }),
    (".limits.*.exempt.groups[]", GOOD, |n| {
        let names = array(n, |n| format!("g{n}"));
        format!("{}{LIMIT}exempt.groups = {names}\n{LIMITED}", groups(n))
    }),
    (".limits.*.exempt.ip[]", GOOD, |n| {
        format!("{LIMIT}exempt.ip = {}\n{LIMITED}", array(n, address))
    }),
    (".limits.*.exempt.methods[]", GOOD, |n| {
        let methods = array(n, |n| format!("M{n}"));
        format!("{LIMIT}exempt.methods = {methods}\n{LIMITED}")
    }),
    (".limits.*.exempt.paths[]", GOOD, |n| {
        let paths = array(n, |n| format!("/p{n}"));
        format!("{LIMIT}exempt.paths = {paths}\n{LIMITED}")
    }),
    (".limits.*.refund[]", BAD, |n| {
        format!(
            "{LIMIT}refund = {}\n{LIMITED}",
            array(n, |_| "5xx".to_owned())
        )
    }),
    (".limits.*.cost.status.*", BAD, |n| {
        format!("{LIMIT}cost.status = {}\n{LIMITED}", costs(n))
    }),
    (".limits.*.cost.response_json[]", BAD, |n| {
        format!(
            "{LIMIT}{MEASURED}cost.response_json = {}\n{LIMITED}",
            array(n, |n| format!("m{n}"))
        )
    }),
    (".limits.*.cost.response_json.*", BAD, |n| {
        format!(
            "{LIMIT}{MEASURED}cost.response_json = {}\n{LIMITED}",
            costs(n)
        )
    }),
    (".limits.*.tiers.*.cost.status.*", BAD, |n| {
        tiered_cost(&format!("status = {}", costs(n)))
    }),
    (".limits.*.tiers.*.cost.response_json[]", BAD, |n| {
        let members = array(n, |n| format!("m{n}"));
        tiered_cost(&format!("response_json = {members}, estimate = 1, max = 9"))
    }),
    (".limits.*.tiers.*.cost.response_json.*", BAD, |n| {
        let members = costs(n);
        tiered_cost(&format!("response_json = {members}, estimate = 1, max = 9"))
    }),
    (".limits.*.tiers.*", GOOD, |n| {
        let tiers = each(n, |n| format!("tiers.g{n} = {{ rate = \"2/s\" }}\n"));
        format!("{}{LIMIT}{tiers}{LIMITED}", groups(n))
    }),
    (".limits.*.tiers.*.rate[]", GOOD, |n| {
        let rates = rates(n);
        format!(
            "{}[limits.l]\nby = \"ip\"\nrate = {rates}\ntiers.g0 = {{ rate = {rates} }}\n{LIMITED}",
            groups(1)
        )
    }),
    (".groups.*", GOOD, |n| {
        format!(
            "{}{ROUTE}groups = {}\n",
            groups(n),
            array(n, |n| format!("g{n}"))
        )
    }),
    (".routes.*.groups[]", GOOD, |n| {
        format!(
            "{}{ROUTE}groups = {}\n",
            groups(n),
            array(n, |n| format!("g{n}"))
        )
    }),
    (".groups.*.members[]", GOOD, |n| {
        let members = array(n, |n| format!("key-{n}"));
        format!(
            "[groups.g]\nby = \"header:x-api-key\"\nmembers = {members}\n{ROUTE}groups = [\"g\"]\n"
        )
    }),
    (".groups.*.customers[]", BAD, |n| {
        let files = array(n, |_| "customers".to_owned());
        format!(
            "[groups.g]\nby = \"header:x-api-key\"\ncustomers = {files}\n{ROUTE}groups = [\"g\"]\n"
        )
    }),
    (".groups.*.customers.*", GOOD, |n| {
        let customers = each(n, |n| format!("customers.c{n} = \"key-{n}\"\n"));
        format!("[groups.g]\nby = \"header:x-api-key\"\n{customers}{ROUTE}groups = [\"g\"]\n")
    }),
    (".groups.*.customers.*[]", GOOD, |n| {
        let keys = array(n, |n| format!("key-{n}"));
        format!(
            "[groups.g]\nby = \"header:x-api-key\"\ncustomers.c = {keys}\n{ROUTE}groups = [\"g\"]\n"
        )
    }),
    (".groups.*.file[]", BAD, |n| {
        let files = array(n, |_| "keys".to_owned());
        format!("[groups.g]\nby = \"header:x-api-key\"\nfile = {files}\n{ROUTE}groups = [\"g\"]\n")
    }),
    (".defaults.limits[]", GOOD, |n| {
        format!(
            "{}[defaults]\nlimits = {}\n{ROUTE}",
            limits(n),
            limit_names(n)
        )
    }),
    (".upstreams.*.limits[]", GOOD, |n| {
        format!(
            "{}{UPSTREAM}limits = {}\n[routes.r]\nupstream = \"u\"\n",
            limits(n),
            limit_names(n)
        )
    }),
    (".routes.*.limits[]", GOOD, |n| {
        format!(
            "{}[defaults]\nlimits = {}\n{ROUTE}limits = {}\n[routes.s]\npath = \"/s\"\nupstream = \"u\"\n",
            limits(n),
            limit_names(n),
            array(n, |n| format!("!l{n}"))
        )
    }),
    (".routes.*", GOOD, |n| {
        routes(n, |n| format!("path = \"/p{n}\""))
    }),
    ("routes that differ by a field", GOOD, |n| {
        routes(n, |n| format!("headers = {{ x-v = \"{n}\" }}"))
    }),
    (
        "routes that differ by a parameter and name another",
        GOOD,
        |n| routes(n, |n| format!("query = {{ v{n} = \"1\", v = \"{n}\" }}")),
    ),
    (
        "routes of two kinds that differ by one value between the kinds",
        GOOD,
        |n| {
            routes(n, |n| {
                let (kind, name) = (n % 2, if n % 2 == 0 { "a" } else { "b" });
                format!("headers = {{ x-kind = \"{kind}\", {name} = \"{n}\" }}")
            })
        },
    ),
    ("routes that differ by host", GOOD, |n| {
        routes(n, |n| format!("host = \"h{n}.example\""))
    }),
    ("routes that differ by method", GOOD, |n| {
        routes(n, |n| format!("methods = [\"M{n}\"]"))
    }),
    ("routes with more and more conditions", GOOD, |n| {
        routes(n, |n| {
            let more = ["", ", b = true", ", b = true, c = true"][n % 3];
            format!("headers = {{ a = \"{n}\"{more} }}")
        })
    }),
    ("routes with a limit each", GOOD, |n| {
        format!(
            "{}{}",
            limits(n),
            routes(n, |n| format!("path = \"/p{n}\"\nlimits = [\"l{n}\"]"))
        )
    }),
    ("routes beside one for the rest", GOOD, |n| {
        let routes = routes(n, |n| format!("path = \"/p{n}\"\nlimits = [\"l\"]"));
        format!("{LIMIT}{routes}[routes.rest]\nupstream = \"u\"\n")
    }),
    ("routes with a group each", GOOD, |n| {
        format!(
            "{}{}",
            groups(n),
            routes(n, |n| format!("path = \"/p{n}\"\ngroups = [\"g{n}\"]"))
        )
    }),
    ("routes that tell of clients by a field each", GOOD, |n| {
        let routes = routes(n, |n| {
            format!(
                "path = \"/p{n}\"\nlimits = [\"l{n}\"]\nforward_identity = {{ x-{n} = \"{{group}}\" }}"
            )
        });
        format!("{}{}{routes}", groups(1), limits(n))
    }),
    (".routes.*.forward_identity.*", GOOD, |n| {
        in_route("forward_identity", n, "{group}")
    }),
    (".routes.*.headers.*", GOOD, |n| in_route("headers", n, "1")),
    (".routes.*.query.*", GOOD, |n| in_route("query", n, "1")),
    (".routes.*.request_headers.set.*", GOOD, |n| {
        in_route("request_headers.set", n, "1")
    }),
    (".routes.*.request_headers.add.*", GOOD, |n| {
        in_route("request_headers.add", n, "1")
    }),
    (".routes.*.response_headers.set.*", GOOD, |n| {
        in_route("response_headers.set", n, "1")
    }),
    (".routes.*.response_headers.add.*", GOOD, |n| {
        in_route("response_headers.add", n, "1")
    }),
    (".routes.*.request_headers.remove[]", GOOD, |n| {
        format!(
            "{ROUTE}request_headers.remove = {}\n",
            array(n, |n| format!("x-{n}"))
        )
    }),
    (".routes.*.response_headers.remove[]", GOOD, |n| {
        format!(
            "{ROUTE}response_headers.remove = {}\n",
            array(n, |n| format!("x-{n}"))
        )
    }),
    (
        "fields that are set beside others that are removed",
        GOOD,
        |n| {
            let set = each(n, |n| format!("y-{n} = \"1\"\n"));
            format!(
                "{ROUTE}[routes.r.request_headers]\nremove = {}\n[routes.r.request_headers.set]\n{set}",
                array(n, |n| format!("x-{n}"))
            )
        },
    ),
    (".routes.*.host[]", GOOD, |n| {
        format!("{ROUTE}host = {}\n", array(n, |n| format!("h{n}.example")))
    }),
    ("wildcards of a route", GOOD, |n| {
        format!(
            "{ROUTE}host = {}\n",
            array(n, |n| format!("*.h{n}.example"))
        )
    }),
    ("hosts of two routes", GOOD, |n| {
        let hosts = array(n, |n| format!("h{n}.example"));
        format!(
            "{ROUTE}host = {hosts}\n[routes.s]\nupstream = \"u\"\nmethods = \"POST\"\nhost = {hosts}\n"
        )
    }),
    (".routes.*.methods[]", GOOD, |n| {
        format!("{ROUTE}methods = {}\n", array(n, |n| format!("M{n}")))
    }),
];
