//! A file for each list that the schema has.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// A list, and files in which it is long.
pub(super) struct List {
    /// The list's path in the schema, or the name of a case that the schema lacks.
    pub(super) name: &'static str,
    /// Is such a file valid? A list that can have only a few different entries repeats them, which is a mistake.
    pub(super) is_good: bool,
    text: fn(usize) -> String,
}

impl List {
    /// A file with this number of entries.
    pub(super) fn file(&self, many: usize) -> String {
        (self.text)(many)
    }
}

/// The name under which a path of the schema is tested: a key may take one entry in place of a list of entries.
pub(super) fn one_name(path: &str) -> String {
    let path = path
        .replace("include[].", "include.")
        .replace("listen[].", "listen.");
    path.replace(".client[]", ".client.ca[]")
}

/// Writes the files that the tested files name.
pub(super) fn put_files(folder: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    for (from, to) in [
        ("tls/api.pem", "c.pem"),
        ("tls/api.key", "k.pem"),
        ("tls/clients.pem", "ca.pem"),
        ("tls/list.pem", "crl.pem"),
        ("jwt/hs.secret", "hs.secret"),
    ] {
        fs::copy(root.join(from), folder.join(to)).unwrap();
    }
    fs::create_dir(folder.join("inc")).unwrap();
    fs::write(folder.join("inc/a.toml"), "").unwrap();
    fs::write(folder.join("keys"), "a-key\n").unwrap();
}

fn each(many: usize, one: impl Fn(usize) -> String) -> String {
    (0..many).map(one).collect()
}

/// `["a", "b"]`
fn array(many: usize, one: impl Fn(usize) -> String) -> String {
    let mut text = "[".to_owned();
    for n in 0..many {
        let _ = write!(text, "\"{}\", ", one(n));
    }
    text.push(']');
    text
}

const UPSTREAM: &str = "[upstreams.u]\nservers = \"127.0.0.1:3000\"\n";
const ROUTE: &str = "[upstreams.u]\nservers = \"127.0.0.1:3000\"\n[routes.r]\nupstream = \"u\"\n";
const LIMITED: &str =
    "[upstreams.u]\nservers = \"127.0.0.1:3000\"\n[routes.r]\nupstream = \"u\"\nlimits = [\"l\"]\n";
const LIMIT: &str = "[limits.l]\nby = \"ip\"\nrate = \"1/s\"\n";
const MEASURED: &str = "cost.estimate = 1\ncost.max = 9\n";
const LISTEN: &str = "[server]\nlisten = [\":80\", { address = \":443\", tls = true }]\n";
const PAIR: &str = "cert = \"c.pem\"\nkey = \"k.pem\"\n";
const AUTHORITY: &str = "directory = \"https://acme.example/d\"\ncontact = \"a@b.example\"\nagree = true\nstorage = \"st\"\n";
const SUBJECT: &str = "[limits.l]\nby = \"jwt:sub\"\nmissing = \"ip\"\nrate = \"1/s\"\n";

fn address(n: usize) -> String {
    format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255)
}

fn limits(many: usize) -> String {
    each(many, |n| {
        format!("[limits.l{n}]\nby = \"ip\"\nrate = \"1/s\"\n")
    })
}

/// A table with a cost for each name. Longer tables than a file may have are mistakes.
fn costs(many: usize) -> String {
    let costs = each(many, |n| format!("m{n} = 1, "));
    format!("{{ {costs} }}")
}

fn limit_names(many: usize) -> String {
    array(many, |n| format!("l{n}"))
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

fn jwt(algorithms: &str, issuer: &str, audience: &str, keys: &str) -> String {
    format!(
        "[jwt]\nalgorithms = {algorithms}\nissuer = {issuer}\naudience = {audience}\n{keys}\n{SUBJECT}{LIMITED}"
    )
}

fn identities(many: usize) -> String {
    each(many, |n| {
        format!("[tls.t{n}]\n{PAIR}hosts = [\"h{n}.example\"]\n")
    })
}

/// An identity with these lines.
fn identity(lines: &str) -> String {
    format!("{LISTEN}[tls.t]\n{PAIR}default = true\n{lines}\n{ROUTE}")
}

/// An entry of `include` with this key.
fn granted(key: &str, values: &str, rest: &str) -> String {
    format!("include = {{ files = \"inc/a.toml\", {key} = {values} }}\n{rest}")
}

const GOOD: bool = true;
const BAD: bool = false;

/// The name of a list, whether its files are valid, and a function that makes a file with a given number of entries.
type Row = (&'static str, bool, fn(usize) -> String);

/// Every list.
pub(super) fn all_lists() -> Vec<List> {
    let all: &[Row] = &[
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
            format!(
                "{}{LIMIT}tiers.g0.cost.status = {}\n{LIMITED}",
                groups(1),
                costs(n)
            )
        }),
        (".limits.*.tiers.*.cost.response_json[]", BAD, |n| {
            let members = array(n, |n| format!("m{n}"));
            format!(
                "{}{LIMIT}tiers.g0.cost = {{ response_json = {members}, estimate = 1, max = 9 }}\n{LIMITED}",
                groups(1)
            )
        }),
        (".limits.*.tiers.*.cost.response_json.*", BAD, |n| {
            let members = costs(n);
            format!(
                "{}{LIMIT}tiers.g0.cost = {{ response_json = {members}, estimate = 1, max = 9 }}\n{LIMITED}",
                groups(1)
            )
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
        (".groups.*.file[]", BAD, |n| {
            let files = array(n, |_| "keys".to_owned());
            format!(
                "[groups.g]\nby = \"header:x-api-key\"\nfile = {files}\n{ROUTE}groups = [\"g\"]\n"
            )
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
        (".server.listen[]", GOOD, |n| {
            let listen = array(n, |n| format!("{}:80", address(n)));
            format!("[server]\nlisten = {listen}\n{ROUTE}")
        }),
        (".server.listen.tls[]", GOOD, |n| {
            let names = array(n, |n| format!("t{n}"));
            format!(
                "[server]\nlisten = {{ address = \":443\", tls = {names} }}\n{}{ROUTE}",
                identities(n)
            )
        }),
        (".server.listen.proxy_protocol[]", GOOD, |n| {
            let peers = array(n, address);
            format!("[server]\nlisten = {{ address = \":80\", proxy_protocol = {peers} }}\n{ROUTE}")
        }),
        (".server.nat64[]", GOOD, |n| {
            let networks = array(n, |n| format!("2001:db8:{n:x}::/96"));
            format!("[server]\nnat64 = {networks}\n{ROUTE}")
        }),
        (".server.trust[]", GOOD, |n| {
            format!("[server]\ntrust = {}\n{ROUTE}", array(n, address))
        }),
        (".jwt.algorithms[]", GOOD, |n| {
            let algorithms = array(n, |_| "HS256".to_owned());
            jwt(&algorithms, "\"i\"", "\"a\"", "keys = \"hs.secret\"")
        }),
        (".jwt.audience[]", GOOD, |n| {
            let audience = array(n, |n| format!("a{n}"));
            jwt("\"HS256\"", "\"i\"", &audience, "keys = \"hs.secret\"")
        }),
        (".jwt.issuer[]", GOOD, |n| {
            let issuer = array(n, |n| format!("i{n}"));
            jwt("\"HS256\"", &issuer, "\"a\"", "keys = \"hs.secret\"")
        }),
        (".jwt.jwks[]", BAD, |n| {
            let jwks = array(n, |n| format!("https://id{n}/jwks"));
            jwt("\"RS256\"", "\"i\"", "\"a\"", &format!("jwks = {jwks}"))
        }),
        (".jwt.keys[]", BAD, |n| {
            let keys = each(n, |n| {
                format!("{{ file = \"hs.secret\", kid = \"k{n}\" }}, ")
            });
            jwt("\"HS256\"", "\"i\"", "\"a\"", &format!("keys = [{keys}]"))
        }),
        (".upstreams.*", GOOD, |n| {
            each(n, |n| {
                format!(
                    "[upstreams.u{n}]\nservers = \"127.0.0.1:3000\"\n[routes.r{n}]\npath = \"/p{n}\"\nupstream = \"u{n}\"\n"
                )
            })
        }),
        (".upstreams.*.servers[]", GOOD, |n| {
            let servers = array(n, |n| format!("{}:80", address(n)));
            format!("[upstreams.u]\nservers = {servers}\n[routes.r]\nupstream = \"u\"\n")
        }),
        ("servers beside listeners", GOOD, |n| {
            let places = array(n, |n| format!("{}:80", address(n)));
            let servers = array(n, |n| format!("11.{}:80", &address(n)[3..]));
            format!(
                "[server]\nlisten = {places}\n[upstreams.u]\nservers = {servers}\n[routes.r]\nupstream = \"u\"\n"
            )
        }),
        (".upstreams.*.health.status[]", BAD, |n| {
            let status = (0..n).map(|n| format!("{}", 200 + n % 300));
            let status = status.collect::<Vec<_>>().join(", ");
            format!(
                "{UPSTREAM}health = {{ path = \"/h\", status = [{status}] }}\n[routes.r]\nupstream = \"u\"\n"
            )
        }),
        (".upstreams.*.retry.on[]", BAD, |n| {
            let on = array(n, |_| "connect".to_owned());
            format!("{UPSTREAM}retry = {{ on = {on} }}\n[routes.r]\nupstream = \"u\"\n")
        }),
        (".tls.*", GOOD, |n| {
            format!("{LISTEN}{}{ROUTE}", identities(n))
        }),
        (".tls.*.hosts[]", GOOD, |n| {
            identity(&format!(
                "hosts = {}",
                array(n, |n| format!("h{n}.example"))
            ))
        }),
        (".tls.*.alpn[]", BAD, |n| {
            identity(&format!("alpn = {}", array(n, |_| "h2".to_owned())))
        }),
        (".tls.*.client.ca[]", BAD, |n| {
            identity(&format!(
                "client = {{ ca = {} }}",
                array(n, |_| "ca.pem".to_owned())
            ))
        }),
        (".tls.*.client.crl[]", BAD, |n| {
            let lists = array(n, |_| "crl.pem".to_owned());
            identity(&format!("client = {{ ca = \"ca.pem\", crl = {lists} }}"))
        }),
        (".acme.*", GOOD, |n| {
            let all = each(n, |n| {
                format!(
                    "[acme.a{n}]\n{AUTHORITY}[tls.t{n}]\nacme = \"a{n}\"\nhosts = [\"h{n}.example\"]\n"
                )
            });
            format!("{LISTEN}{all}{ROUTE}")
        }),
        (".acme.*.challenge[]", BAD, |n| {
            let kinds = array(n, |_| "http-01".to_owned());
            format!(
                "{LISTEN}[acme.a]\n{AUTHORITY}challenge = {kinds}\n[tls.t]\nacme = \"a\"\nhosts = [\"h.example\"]\n{ROUTE}"
            )
        }),
        (".include[]", BAD, |n| {
            let entries = each(n, |n| format!("{{ files = \"f{n}.toml\" }}, "));
            format!("include = [{entries}]\n{ROUTE}")
        }),
        (".include.files[]", BAD, |n| {
            let files = array(n, |n| format!("f{n}.toml"));
            format!("include = {{ files = {files} }}\n{ROUTE}")
        }),
        (".include.hosts[]", GOOD, |n| {
            granted("hosts", &array(n, |n| format!("h{n}.example")), ROUTE)
        }),
        (".include.paths[]", GOOD, |n| {
            granted("paths", &array(n, |n| format!("/p{n}")), ROUTE)
        }),
        (".include.secrets[]", GOOD, |n| {
            granted("secrets", &array(n, |n| format!("s/{n}")), ROUTE)
        }),
        (".include.variables[]", GOOD, |n| {
            granted("variables", &array(n, |n| format!("V{n}")), ROUTE)
        }),
        (".include.drops[]", GOOD, |n| {
            let rest = format!(
                "{}[defaults]\nlimits = {}\n{ROUTE}",
                limits(n),
                limit_names(n)
            );
            granted("drops", &limit_names(n), &rest)
        }),
        (".include.upstreams[]", GOOD, |n| {
            let rest = each(n, |n| {
                format!(
                    "[upstreams.u{n}]\nservers = \"127.0.0.1:1\"\n[routes.r{n}]\npath = \"/r{n}\"\nupstream = \"u{n}\"\n"
                )
            });
            granted("upstreams", &array(n, |n| format!("u{n}")), &rest)
        }),
    ];
    let all = all.iter().map(|(name, is_good, text)| List {
        name,
        is_good: *is_good,
        text: *text,
    });
    all.collect()
}

/// Tables with a limit that causes a warning and ignores the warning. Each limit has every key that is compared with
/// other tables.
pub(super) fn ignored_warning(n: usize) -> String {
    format!(
        "[limits.l{n}]\nby = \"ip\"\nrate = \"${{NOT_SET:-{n}}}1/min\"\nburst = 5\nalgorithm = \"leaky-bucket\"\nmax_wait = \"1min\"\n\
         public_name = \"n{n}\"\ncandidate = {{ rate = \"9/min\" }}\nexempt = {{ methods = [\"OPTIONS\"] }}\n\
         ignore_warnings = [\"waits-longer\"]\n\
         [upstreams.u{n}]\nservers = \"a:1\"\n\
         [routes.r{n}]\npath = \"/r{n}\"\nupstream = \"u{n}\"\nlimits = [\"l{n}\"]\n"
    )
}
