//! Lists of what surrounds decisions: listeners, tokens, servers, certificates, and included files.

use super::{BAD, GOOD, LIMITED, ROUTE, Row, UPSTREAM, address, array, each, limit_names, limits};

const LISTEN: &str = "[server]\nlisten = [\":80\", { address = \":443\", tls = true }]\n";
const PAIR: &str = "cert = \"c.pem\"\nkey = \"k.pem\"\n";
const AUTHORITY: &str = "directory = \"https://acme.example/d\"\ncontact = \"a@b.example\"\nagree = true\nstorage = \"st\"\n";
const SUBJECT: &str = "[limits.l]\nby = \"jwt:sub\"\nmissing = \"ip\"\nrate = \"1/s\"\n";

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

/// The lists of all other tables.
pub(super) const SURROUNDINGS: &[Row] = &[
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
    (".admin.listen[]", GOOD, |n| {
        let listen = array(n, |n| format!("127{}:9090", &address(n)[2..]));
        format!("[admin]\nlisten = {listen}\n{ROUTE}")
    }),
    (".admin.hosts[]", GOOD, |n| {
        let hosts = array(n, |n| format!("h{n}.example"));
        format!("[admin]\nhosts = {hosts}\n{ROUTE}")
    }),
    (".admin.tokens.*", GOOD, |n| {
        let tokens = each(n, |n| format!("[admin.tokens.t{n}]\ntoken = \"{n:032}\"\n"));
        format!("{tokens}{ROUTE}")
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
