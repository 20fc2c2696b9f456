//! A random request for a file: its listener, its peer, and its fields.

use super::dice::Dice;
use super::draw_faults;
use super::draw_file::DrawnFile;
use super::world::World;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// The version of requests that are sent over HTTP/2.
pub(super) const HTTP2: &str = "HTTP/2";

/// A request as it is sent.
#[derive(Debug, Clone)]
pub(super) struct DrawnRequest {
    /// The handshake, if the request comes over TLS.
    pub(super) tls: Option<DrawnHandshake>,
    pub(super) from: Ipv4Addr,
    pub(super) method: String,
    pub(super) target: String,
    pub(super) version: &'static str,
    /// All fields in their order, including `Host` and the fields of the framing.
    pub(super) fields: Vec<(String, String)>,
    /// The body with its framing.
    pub(super) body: String,
    /// The causes for an early answer that were put into the request.
    pub(super) early: Vec<&'static str>,
    /// The property of the request that `explain` cannot be given, if there is one.
    pub(super) untellable: Option<&'static str>,
}

/// The client's side of a handshake.
#[derive(Debug, Clone, Copy)]
pub(super) struct DrawnHandshake {
    /// The host that the client names.
    pub(super) sni: &'static str,
    /// Does the client show its certificate?
    pub(super) shows: bool,
}

/// The addresses that requests come from: one of a proxy that may be trusted, one in a group, and one that may be
/// exempt.
const PEERS: [Ipv4Addr; 5] = [
    Ipv4Addr::new(127, 0, 0, 1),
    Ipv4Addr::new(127, 0, 0, 2),
    Ipv4Addr::new(127, 0, 0, 3),
    Ipv4Addr::new(127, 0, 0, 4),
    Ipv4Addr::new(127, 0, 0, 5),
];

/// Users with passwords: `a:b`, `anna:pw`, `ANNA:pw`, `anna:no`, `ä:b` in Latin-1, and no user.
const BASIC: [&str; 7] = [
    "Basic YTpi",
    "bAsIc   YTpi",
    "Basic YW5uYTpwdw==",
    "Basic QU5OQTpwdw==",
    "Basic YW5uYTpubw==",
    "Basic 5Dpi",
    "Basic Onh5",
];

/// Credentials that some servers may read.
const MALFORMED: [&str; 6] = [
    "Basic",
    "Basic YTpi=",
    "Basic YW5uYTpwdw",
    "BasicYTpi",
    "Digest realm=r, Basic YTpi",
    "Basic YWJj",
];

impl DrawnRequest {
    pub(super) fn draw(dice: &mut Dice, file: &DrawnFile, world: &World) -> Self {
        let by_tls = file.tls.is_some() && dice.percent(60);
        let tls = by_tls.then(|| DrawnHandshake {
            sni: dice.pick(&["a.test", "a.test", "b.test", "www.a.test", "c.test"]),
            shows: dice.percent(40),
        });
        let from = PEERS[dice.weighed(&[8, 4, 2, 2, 1])];
        let (host, method, target) = destination(dice, file, tls);
        let mut request = Self {
            tls,
            from,
            method: method.to_owned(),
            target,
            version: "HTTP/1.1",
            fields: vec![("Host".to_owned(), host)],
            body: String::new(),
            early: Vec::new(),
            untellable: None,
        };
        request.client_fields(dice, file, world);
        request.proxy_fields(dice);
        request.other_fields(dice);
        if request.method == "OPTIONS" && dice.percent(60) {
            request.add("Origin", "https://page.test");
            request.add("Access-Control-Request-Method", "PUT");
        }
        if ["POST", "PUT"].contains(&&*request.method) && dice.percent(60) {
            request.body(dice);
        }
        for _ in 0..dice.weighed(&[60, 27, 13]) {
            draw_faults::put(dice, &mut request);
        }
        let can_be_http2 =
            |cause: &&str| ["bad path", "last hop", "bad deadline of a call"].contains(cause);
        if request.early.iter().all(can_be_http2) && dice.percent(18) {
            request.over_http2(dice);
        }
        request
    }

    /// Turns the request into one of HTTP/2, which has no fields of connections.
    fn over_http2(&mut self, dice: &mut Dice) {
        self.version = HTTP2;
        let of_connection = ["Connection", "Transfer-Encoding", "Content-Length"];
        self.fields
            .retain(|(name, _)| !of_connection.contains(&&**name));
        if !self.body.is_empty() {
            self.body = "hello".to_owned();
        }
        if self.has("content-type")
            && self
                .fields
                .iter()
                .any(|(_, value)| value == "application/grpc")
        {
            self.untellable = Some("a call of gRPC");
        }
        if dice.percent(8) {
            self.early.push("hosts disagree");
            self.untellable = Some("an :authority beside a Host");
        }
    }

    pub(super) fn add(&mut self, name: &str, value: &str) {
        self.fields.push((name.to_owned(), value.to_owned()));
    }

    pub(super) fn has(&self, name: &str) -> bool {
        let mut names = self.fields.iter().map(|(name, _)| name);
        names.any(|own| own.eq_ignore_ascii_case(name))
    }

    /// Is a part of the request in doubt: does any field, cookie or parameter occur several times, or is a Basic
    /// credential malformed?
    pub(super) fn is_doubtful(&self) -> bool {
        let many = |name: &str| {
            self.fields
                .iter()
                .filter(|(own, _)| own.eq_ignore_ascii_case(name))
                .count()
                > 1
        };
        self.fields.iter().any(|(name, value)| {
            let is_malformed = MALFORMED.contains(&value.as_str());
            many(name) || is_malformed || value.matches("sid=").count() > 1
        }) || self.target.matches("k=").count() > 1
    }

    /// The bytes of the request on the connection.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{} {} {}\r\n", self.method, self.target, self.version);
        for (name, value) in &self.fields {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text + "\r\n" + &self.body
    }

    fn client_fields(&mut self, dice: &mut Dice, file: &DrawnFile, world: &World) {
        match dice.weighed(&[5, 4, 3, 1, 1]) {
            0 => {}
            1 => self.add("X-Api-Key", "k-gold"),
            2 => self.add("X-Api-Key", dice.pick(&["k-none", "k-both", "k-other"])),
            3 => {
                self.add("X-Api-Key", "k-gold");
                self.add("X-Api-Key", dice.pick(&["k-gold", "k-none"]));
            }
            _ => self.add("X_Api_Key", "k-gold"),
        }
        if dice.percent(30) {
            self.add("X-Tenant", dice.pick(&["t1", "t2", ""]));
        }
        if dice.percent(30) {
            self.add(
                "Cookie",
                dice.pick(&[
                    "sid=s-crew",
                    "sid=\"s-crew\"; lang=de",
                    "sid=a; sid=b",
                    "lang=fr",
                    "x=1, sid=a",
                ]),
            );
        }
        if let Some(field) = file.token_field
            && dice.percent(60)
        {
            let token = world.token(dice, file);
            self.add(field, &token);
        } else if dice.percent(if file.reads_basic() { 60 } else { 10 }) {
            self.add("Authorization", dice.pick(&BASIC));
        }
        if file.reads_basic() && dice.percent(12) {
            self.add("Authorization", dice.pick(&MALFORMED));
        } else if file.reads_basic() && dice.percent(5) {
            self.add("Authorization", dice.pick(&BASIC));
        }
    }

    fn proxy_fields(&mut self, dice: &mut Dice) {
        if dice.percent(25) {
            self.add(
                "X-Forwarded-For",
                dice.pick(&[
                    "203.0.113.7",
                    "198.51.100.4, 10.0.0.5",
                    "_hidden, 10.0.0.7",
                    "no address",
                    "2001:db8:64::cb00:7107",
                ]),
            );
        }
        if dice.percent(12) {
            self.add(
                "Forwarded",
                dice.pick(&[
                    "for=203.0.113.9;proto=https",
                    "for=198.51.100.7;host=b.test",
                    "for=\"broken",
                ]),
            );
        }
        if dice.percent(20) {
            self.add(
                "X-Forwarded-Proto",
                dice.pick(&["https", "http", "http, https"]),
            );
        }
        if dice.percent(10) {
            self.add("X-Forwarded-Host", dice.pick(&["b.test", "www.a.test"]));
        }
    }

    fn other_fields(&mut self, dice: &mut Dice) {
        for (name, values, share) in [
            ("X-Version", &["2", "1"][..], 30),
            ("X-Cost", &["2", "0", "7", "many"][..], 25),
            ("Idempotency-Key", &["i1", "i2"][..], 15),
            ("X-Answer-Units", &["4", "40"][..], 20),
            ("X-Consumer", &["mallory"][..], 12),
            ("X_Plan", &["gold"][..], 8),
            ("X-Group", &["gold"][..], 8),
            (
                "Content-Type",
                &["application/json", "application/grpc"][..],
                10,
            ),
            ("Grpc-Timeout", &["1S", "soon"][..], 5),
            ("Max-Forwards", &["0", "1", "x"][..], 8),
        ] {
            if dice.percent(share) {
                self.add(name, dice.pick(values));
            }
        }
        if dice.percent(10) {
            let names = dice.pick(&[
                "close, X-Api-Key",
                "X-Tenant",
                "close",
                "keep-alive, x-version",
            ]);
            self.add("Connection", names);
        }
        if dice.percent(4) {
            self.add("Via", "1.1 other");
        }
    }

    fn body(&mut self, dice: &mut Dice) {
        if dice.percent(50) {
            self.add("Content-Length", "5");
            self.body = "hello".to_owned();
        } else {
            self.add("Transfer-Encoding", "chunked");
            self.body = "5\r\nhello\r\n0\r\n\r\n".to_owned();
        }
    }
}

/// Draws host, method and target, so that most requests find a route.
fn destination(
    dice: &mut Dice,
    file: &DrawnFile,
    tls: Option<DrawnHandshake>,
) -> (String, &'static str, String) {
    let route = &file.routes[dice.below(file.routes.len())];
    let mut host = match route.host {
        _ if tls.is_some() && dice.percent(60) => tls.map_or("a.test", |tls| tls.sni),
        Some("*.a.test") => dice.pick(&["www.a.test", "x.y.a.test", "A.a.TEST"]),
        Some(host) if dice.percent(85) => host,
        _ => dice.pick(&[
            "a.test",
            "b.test",
            "www.a.test",
            "c.test",
            "A.TEST",
            "a.test.",
            "[::1]",
        ]),
    }
    .to_owned();
    // `explain` can tell only by the port that a request comes to a listener that redirects.
    if tls.is_none() && file.redirects {
        let _ = write!(host, ":{}", file.plain);
    } else if dice.percent(8) {
        host += dice.pick(&[":", ":8443"]);
    }
    let mut methods = vec![
        "GET", "GET", "GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "TRACE", "BREW",
    ];
    methods.extend(&route.methods);
    methods.extend(&route.methods);
    (host, dice.pick(&methods), target(dice, route.path))
}

fn target(dice: &mut Dice, pattern: &str) -> String {
    let id = dice.pick(&["42", "7", "a%2Fb", "%41", "free", "x%20y", "~u"]);
    let rest = dice.pick(&["", "more", "more/er", "items", "free/x"]);
    let mut path = pattern.replace("{id}", id).replace("{*rest}", rest);
    if dice.percent(20) {
        path = match dice.below(9) {
            0 => path.to_ascii_uppercase(),
            1 => path + "/",
            2 => path.replacen('/', "//", 1),
            3 => format!("/x/..{path}"),
            4 => format!("/.{path}"),
            5 => path.replacen("/o", "/%6F", 1),
            6 => "/nowhere/at/all".to_owned(),
            7 => format!("{path};v=1"),
            _ => "/.well-known/acme-challenge/some-token".to_owned(),
        };
    }
    match dice.weighed(&[10, 2, 2, 1, 1, 1, 1, 1]) {
        0 => path,
        1 => path + "?k=q-beta",
        2 => path + "?v=2&k=one",
        3 => path + "?debug",
        4 => path + "?k=one&k=two",
        5 => path + "?api_key=s3cret&v=2",
        6 => path + "?k=a%20b&debug=1",
        _ => path + "?",
    }
}
