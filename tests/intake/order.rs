//! The order of a request's steps: each pair of neighbours is exchanged, and a request shows that somebody would
//! notice. The requests here meet two obstacles at once, or an obstacle beside something that leaves a trace.

use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Version};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use tokio::time::Instant;
use tollgate::admission::Plan;
use tollgate::client::Scheme;
use tollgate::config::{self, Compiled};
use tollgate::intake::grpc_call::CallDeadline;
use tollgate::intake::head::Target;
use tollgate::intake::peer::ConnectionPeer;
use tollgate::intake::stripped_fields::StripCause;
use tollgate::intake::{ConnectionFacts, HeadFacts, ORDER, Recorder, RequestWalk, Step, Stop};
use tollgate::key::token::TokenReading;
use tollgate::key::{Content, ShownCertificate};
use tollgate::listen::FramingFault;

const FILE: &str = r#"
[jwt]
keys = "hs.secret"
algorithms = "HS256"

[upstreams.u]
servers = "127.0.0.1:1"

[groups.paying]
by = "jwt:plan"
members = ["gold"]

[limits.each]
by = "ip"
rate = "100/h"
dedupe = { header = "idempotency-key" }

[limits.address]
by = "ip"
rate = "100/h"

[limits.person]
by = "jwt:sub"
missing = "skip"
rate = "100/h"

[routes.first]
path = "/other"
upstream = "u"

[routes.paying]
path = "/members"
groups = "paying"
upstream = "u"
limits = "address"

[routes.members]
path = "/members"
upstream = "u"
limits = "address"

[routes.partner]
path = "/partner"
client_cert = "required"
upstream = "u"
forward_identity = { x-person = "{jwt:sub}" }

[routes.person]
path = "/person"
upstream = "u"
limits = ["each", "person"]
forward_identity = { x-person = "{jwt:sub}" }
"#;

/// A connection whose properties the test sets.
#[derive(Debug, Clone, Copy, Default)]
struct Connection {
    redirects: bool,
    is_of_another_host: bool,
    has_texts: bool,
}

impl ConnectionFacts for Connection {
    fn peer(&self) -> ConnectionPeer {
        ConnectionPeer {
            address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            scheme: Scheme::Http,
            is_unnamed: false,
        }
    }

    fn redirects(&self) -> bool {
        self.redirects
    }

    fn may_serve<'h>(&self, _host: impl FnOnce() -> Cow<'h, str>) -> bool {
        !self.is_of_another_host
    }

    fn certificate(&self) -> Option<ShownCertificate<'_>> {
        None
    }

    fn may_have_texts(&self) -> bool {
        self.has_texts
    }
}

/// Everything that a walk leaves behind, in words.
#[derive(Debug, Default)]
struct Trace {
    events: Vec<String>,
    plan: Plan,
}

impl Recorder for Trace {
    fn plan(&mut self) -> &mut Plan {
        &mut self.plan
    }

    fn call_deadline(&mut self, deadline: Option<CallDeadline>) {
        self.events.push(format!("deadline {}", deadline.is_some()));
    }

    fn dropped(&mut self, name: &HeaderName, _why: StripCause) {
        self.events.push(format!("dropped {name}"));
    }

    fn routed(&mut self, service: usize) {
        self.events.push(format!("routed {service}"));
    }

    fn token(&mut self, _reading: TokenReading) {
        self.events.push("token".to_owned());
    }
}

/// A request with its connection.
struct Case {
    head: fn() -> Request<()>,
    connection: Connection,
    framing: Option<FramingFault>,
    is_call: bool,
}

const CASES: [Case; 14] = [
    // A fault of the framing, and a missing host.
    Case {
        framing: Some(FramingFault::Fragment),
        ..case(|| get("/").body(()).unwrap())
    },
    // A missing host, and an invalid `grpc-timeout`.
    Case {
        is_call: true,
        ..case(|| get("/").header("grpc-timeout", "1x").body(()).unwrap())
    },
    // An invalid `grpc-timeout`, and too many names in `Connection`.
    Case {
        is_call: true,
        ..case(|| many_names(at_host("/").header("grpc-timeout", "1x")))
    },
    // Too many names in `Connection`, in a request to the gateway itself.
    case(|| many_names(at_host("*").method("OPTIONS"))),
    // A gRPC call to the gateway itself.
    Case {
        is_call: true,
        ..case(|| {
            at_host("*")
                .method("OPTIONS")
                .header("grpc-timeout", "1S")
                .body(())
                .unwrap()
        })
    },
    // An authority's look at a listener that redirects.
    Case {
        connection: Connection {
            has_texts: true,
            redirects: true,
            ..PLAIN
        },
        ..case(|| at_host("/.well-known/acme-challenge/x").body(()).unwrap())
    },
    // A listener that redirects, and a connection of another host.
    Case {
        connection: Connection {
            redirects: true,
            is_of_another_host: true,
            ..PLAIN
        },
        ..case(|| at_host("/").body(()).unwrap())
    },
    // A connection of another host, and a token that decides on the route.
    Case {
        connection: Connection {
            is_of_another_host: true,
            ..PLAIN
        },
        ..case(|| with_token(at_host("/members")).body(()).unwrap())
    },
    // A token that decides on the route.
    case(|| with_token(at_host("/members")).body(()).unwrap()),
    // A route that demands a certificate, and drops a field.
    case(|| {
        at_host("/partner")
            .header("x-person", "anna")
            .body(())
            .unwrap()
    }),
    // A route that drops a field, with a token, with a body that is part of a repeat, and with limits.
    case(|| {
        let request = with_token(at_host("/person")).header("x-person", "anna");
        request.header("idempotency-key", "7").body(()).unwrap()
    }),
    // The same without a token.
    case(|| {
        at_host("/person")
            .header("x-person", "anna")
            .body(())
            .unwrap()
    }),
    // A path without a route.
    case(|| at_host("/nowhere").body(()).unwrap()),
    // An invalid path.
    case(|| at_host("/a/%00").body(()).unwrap()),
];

const PLAIN: Connection = Connection {
    redirects: false,
    is_of_another_host: false,
    has_texts: false,
};

const fn case(head: fn() -> Request<()>) -> Case {
    Case {
        head,
        connection: PLAIN,
        framing: None,
        is_call: false,
    }
}

fn get(path: &str) -> http::request::Builder {
    Request::builder().uri(path).version(Version::HTTP_11)
}

fn at_host(path: &str) -> http::request::Builder {
    get(path).header("host", "a.test")
}

/// A token in valid form that no key has signed.
fn with_token(request: http::request::Builder) -> http::request::Builder {
    let token = "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm5hIn0.c2lnbmF0dXJl";
    request.header("authorization", token)
}

fn many_names(request: http::request::Builder) -> Request<()> {
    let names: Vec<String> = (0..101).map(|at| format!("x-{at}")).collect();
    let names = HeaderValue::from_str(&names.join(", ")).unwrap();
    request.header("connection", names).body(()).unwrap()
}

fn compiled() -> Compiled {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, FILE).unwrap();
    std::fs::write(folder.path().join("hs.secret"), "k".repeat(48)).unwrap();
    config::load(&file).unwrap_or_else(|report| panic!("{report:?}"))
}

/// The trace that a walk of `case` in this order leaves behind.
fn trace(compiled: &Compiled, case: &Case, order: Option<&[Step]>) -> Vec<String> {
    let (mut parts, ()) = (case.head)().into_parts();
    if let Some(fault) = case.framing {
        parts.extensions.insert(fault);
    }
    let mut trace = Trace::default();
    let end = walk(compiled, case, order, &mut parts, &mut trace);
    trace.events.push(end);
    trace.events
}

fn walk(
    compiled: &Compiled,
    case: &Case,
    order: Option<&[Step]>,
    parts: &mut Parts,
    trace: &mut Trace,
) -> String {
    let mut head = HeadFacts {
        parts,
        connection: case.connection,
        target: Target::default(),
        client: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        content: Content::Unread,
        call_began: case.is_call.then(Instant::now),
    };
    let mut walk = RequestWalk::of_head();
    loop {
        let planned = |trace: &Trace| trace.plan.positions().collect::<Vec<_>>();
        let stop = match order {
            Some(order) => walk.go_on_in(order, &compiled.snapshot, &mut head, trace),
            None => walk.go_on(&compiled.snapshot, &mut head, trace),
        };
        match stop {
            Ok(Stop::Planned) => {
                let cause = trace.plan.lack().map(ToString::to_string);
                return format!("planned {:?} {cause:?}", planned(trace));
            }
            Ok(Stop::Answer(answer)) => return format!("{answer:?}"),
            Ok(stop) => {
                let planned = planned(trace);
                trace.events.push(format!("{stop:?} {planned:?}"));
            }
            Err(error) => return error.to_string(),
        }
    }
}

/// The pairs whose order makes no difference, and the reason.
const UNSEEN: [(Step, Step); 1] = [
    // One step is for OPTIONS and TRACE, the other for GET and HEAD.
    (Step::EndsHere, Step::ChallengeText),
];

#[test]
fn two_steps_that_are_exchanged_are_noticed() {
    let compiled = compiled();
    let usual: Vec<_> = CASES
        .iter()
        .map(|case| trace(&compiled, case, None))
        .collect();
    let listed = CASES
        .iter()
        .map(|case| trace(&compiled, case, Some(&ORDER)));
    assert!(listed.eq(usual.iter().cloned()));
    for at in 1..ORDER.len() {
        let mut order = ORDER;
        order.swap(at - 1, at);
        let pair = (ORDER[at - 1], ORDER[at]);
        let others = CASES
            .iter()
            .map(|case| trace(&compiled, case, Some(&order)));
        let is_seen = others.zip(&usual).any(|(other, usual)| other != *usual);
        assert_eq!(is_seen, !UNSEEN.contains(&pair), "{pair:?}");
    }
}

/// The answer names the first obstacle on the way of the request.
#[test]
fn the_first_obstacle_is_told() {
    let compiled = compiled();
    let ends = CASES.map(|case| trace(&compiled, &case, None).pop().unwrap());
    let expected = [
        "the target has a fragment",
        "the request names no host",
        "grpc-timeout is not one number of at most eight digits with a unit",
        "Connection names more than 100 fields",
        "Here",
        "Redirect(\"https://a.test/.well-known/acme-challenge/x\")",
        "Redirect(\"https://a.test/\")",
        "the host belongs on a connection of its own",
        "planned [0] None",
        "the route asks for a client certificate",
        r#"planned [0] Some("the limit \"person\" asks for jwt:sub, and the request's token is not signed by a key that is trusted")"#,
        "planned [0] None",
        "no route matches",
        "the path has an escaped NUL",
    ];
    assert_eq!(ends, expected);
}
