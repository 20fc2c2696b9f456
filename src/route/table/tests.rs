//! The lookup, against a model that tries every rule.

use super::*;
use crate::route::path::normalize;
use crate::route::{Condition, PathPattern};
use http::HeaderMap;
use proptest::prelude::*;
use proptest::sample::subsequence;
use std::cmp::Ordering;

fn pattern(text: &str) -> PathPattern {
    let segment = |text: &str| match text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'))
    {
        None => Segment::Literal(text.into()),
        Some(name) => match name.strip_prefix('*') {
            Some(name) => Segment::Rest(name.into()),
            None => Segment::Parameter(name.into()),
        },
    };
    let parts = text.split('/').filter(|part| !part.is_empty());
    PathPattern {
        segments: parts.map(segment).collect(),
    }
}

/// A request with fields alone, for conditions.
struct Fields(HeaderMap);

impl Fields {
    /// `a=1,b=2`.
    fn of(text: &str) -> Self {
        let pairs = text.split(',').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, "x"));
                    (name.parse().unwrap(), value.parse().unwrap())
                })
                .collect(),
        )
    }
}

impl RequestView for Fields {
    fn fields(&self) -> &HeaderMap {
        &self.0
    }

    fn query(&self) -> Option<&str> {
        None
    }

    fn is_https(&self) -> bool {
        false
    }
}

/// `GET,POST *.example.com /v1/{id} a=1,b`, with `*` for any method or host; conditions on fields may follow.
fn rule(text: &str) -> Rule {
    let mut words = text.split(' ');
    let mut list = || {
        let word = words.next().unwrap();
        word.split(',')
            .filter(|word| *word != "*")
            .collect::<Vec<_>>()
    };
    let methods = list()
        .iter()
        .map(|method| method.parse().unwrap())
        .collect();
    let host = |host: &&str| match host.strip_prefix('*') {
        Some(suffix) => HostPattern::Suffix(suffix.into()),
        None => HostPattern::Exact((*host).into()),
    };
    let hosts = list().iter().map(host).collect();
    let path = pattern(words.next().unwrap());
    let condition = |text: &str| match text.split_once('=') {
        Some((name, value)) => Condition::Field(name.parse().unwrap(), value.parse().ok()),
        None => Condition::Field(text.parse().unwrap(), None),
    };
    let conditions = words.next().unwrap_or_default().split(',');
    Rule {
        name: text.into(),
        hosts,
        path,
        methods,
        conditions: conditions
            .filter(|text| !text.is_empty())
            .map(condition)
            .collect(),
    }
}

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| rule(text)).collect()
}

/// The text of the rule that matches `GET host path a=1,b=2`.
fn found<'a>(texts: &[&'a str], request: &str) -> Option<&'a str> {
    let table = Table::build(&rules(texts)).unwrap();
    let mut words = request.split(' ');
    let method = words.next().unwrap().parse().unwrap();
    let host = host_key(words.next().unwrap());
    let path = normalize(words.next().unwrap()).unwrap();
    let fields = Fields::of(words.next().unwrap_or_default());
    let route = table.find(&host, path.to_match(), &method, &fields)?;
    Some(texts[route])
}

#[test]
fn the_most_specific_host_wins() {
    let texts = [
        "* * /{*rest}",
        "* *.com /{*rest}",
        "* *.example.com /{*rest}",
        "* api.example.com /{*rest}",
    ];
    for (host, rule) in [
        ("api.example.com", 3),
        ("API.example.com.:8080", 3),
        ("www.example.com", 2),
        ("a.b.example.com", 2),
        ("example.com", 1),
        (".example.com", 1),
        ("example.org", 0),
        ("com", 0),
        ("[::1]:80", 0),
        (":80", 0),
    ] {
        assert_eq!(
            found(&texts, &format!("GET {host} /x")),
            Some(texts[rule]),
            "{host}"
        );
    }
}

#[test]
fn the_path_is_ranked_from_the_left() {
    let texts = [
        "* * /{*rest}",
        "* * /v1/{*rest}",
        "* * /v1/{kind}/list",
        "* * /v1/orders/{what}",
        "* * /v1/{kind}",
    ];
    for (path, rule) in [
        ("/", 0),
        ("/v2", 0),
        ("/v1", 1),
        ("/v1/", 1),
        ("/v1/orders", 4),
        ("/v1/orders/list", 3),
        ("/v1/users/list", 2),
        ("/v1/users/list/all", 1),
        ("/v1/orders/list/all", 1),
        ("/v1x", 0),
    ] {
        assert_eq!(
            found(&texts, &format!("GET h {path}")),
            Some(texts[rule]),
            "{path}"
        );
    }
}

#[test]
fn what_fails_later_leads_to_the_next() {
    let texts = [
        "POST api.example.com /v1/orders",
        "* api.example.com /v1/{kind}",
        "DELETE *.example.com /v2",
        "* * /v2",
        "GET * /v3/{x}/end",
    ];
    assert_eq!(
        found(&texts, "POST api.example.com /v1/orders"),
        Some(texts[0])
    );
    assert_eq!(
        found(&texts, "GET api.example.com /v1/orders"),
        Some(texts[1])
    );
    assert_eq!(found(&texts, "DELETE api.example.com /v2"), Some(texts[2]));
    assert_eq!(found(&texts, "GET api.example.com /v2"), Some(texts[3]));
    assert_eq!(found(&texts, "POST api.example.com /v3/a/end"), None);
    assert_eq!(found(&texts, "GET api.example.com /v3/a"), None);
}

#[test]
fn get_stands_for_head_unless_head_is_named() {
    let texts = ["GET * /a", "* * /a", "GET * /b", "HEAD * /b", "GET * /c"];
    assert_eq!(found(&texts, "HEAD h /a"), Some(texts[0]));
    assert_eq!(found(&texts, "POST h /a"), Some(texts[1]));
    assert_eq!(found(&texts, "HEAD h /b"), Some(texts[3]));
    assert_eq!(found(&texts, "HEAD h /c"), Some(texts[4]));
    assert_eq!(found(&texts, "POST h /c"), None);
}

#[test]
fn a_literal_matches_in_every_spelling() {
    let texts = ["* * /café/@me"];
    for path in ["/café/@me", "/caf%c3%a9/%40me", "/x/../caf%C3%A9//@me/"] {
        assert_eq!(found(&texts, &format!("GET h {path}")), Some(texts[0]));
    }
}

#[test]
fn routes_of_equal_rank_are_refused_with_an_example() {
    for (texts, example) in [
        (["* * /v1/{a}", "* * /v1/{b}"], "GET /v1/x"),
        (
            ["* api.example.com /{*a}", "* b.com,API.example.com /{*b}"],
            "GET api.example.com/x",
        ),
        (
            ["GET,POST *.b.com /v1/", "POST,PUT *.b.com /v1"],
            "POST x.b.com/v1",
        ),
        (["* * /", "* * /"], "GET /"),
    ] {
        let overlaps = Table::build(&rules(&texts)).unwrap_err();
        let expected = Overlap {
            first: 0,
            second: 1,
            example: example.into(),
        };
        assert_eq!(overlaps, [expected]);
    }
}

#[test]
fn routes_of_different_rank_are_not() {
    for texts in [
        ["* * /v1/{kind}/list", "* * /v1/orders/{what}"],
        ["* * /{*rest}", "* * /{one}"],
        ["* * /{*rest}", "* * /"],
        ["GET * /a", "* * /a"],
        ["GET * /a", "POST * /a"],
        ["GET * /a", "HEAD * /a"],
        ["* a.b /a", "* *.b /a"],
        ["* a.b,a.b /a", "* c.b /a"],
        ["* * /a v=1", "* * /a"],
        ["* * /a v=1", "* * /a v=2"],
        ["* * /a v=1,w", "* * /a w,v=2"],
        ["* * /a v=1,w", "* * /a w"],
    ] {
        assert!(Table::build(&rules(&texts)).is_ok(), "{texts:?}");
    }
}

#[test]
fn more_conditions_beat_fewer_and_what_fails_lets_the_next_try() {
    let texts = [
        "* * /a v=2",
        "* * /a v=2,debug",
        "GET * /a",
        "* * /a",
        "* * /{x} v=3",
        "HEAD * /a v=2",
    ];
    for (request, rule) in [
        ("POST h /a v=2", 0),
        ("POST h /a v=2,debug=1", 1),
        ("POST h /a v=1", 3),
        ("POST h /a", 3),
        // Methods are compared before conditions.
        ("GET h /a v=2,debug=1", 2),
        ("HEAD h /a", 2),
        ("HEAD h /a v=2", 5),
        // Paths are compared before both.
        ("POST h /a v=3", 3),
        ("POST h /b v=3", 4),
    ] {
        assert_eq!(found(&texts, request), Some(texts[rule]), "{request}");
    }
    assert_eq!(found(&texts, "POST h /b v=4"), None);
}

#[test]
fn every_pair_is_reported_once() {
    let texts = ["* a,b /x", "* b,a /x", "* b /x"];
    let overlaps = Table::build(&rules(&texts)).unwrap_err();
    let pairs: Vec<_> = overlaps
        .iter()
        .map(|pair| (pair.first, pair.second))
        .collect();
    assert_eq!(pairs, [(0, 1), (0, 2), (1, 2)]);
}

/// How well a rule fits a request: greater is more specific; `None` if it does not match.
fn fit(
    rule: &Rule,
    host: &str,
    path: &str,
    method: &Method,
    fields: &Fields,
) -> Option<(usize, Vec<u8>, u8, usize)> {
    let host = match rule.hosts.is_empty() {
        true => 0,
        false => rule
            .hosts
            .iter()
            .filter_map(|pattern| fit_host(pattern, host))
            .max()?,
    };
    let method = match &rule.methods[..] {
        [] => 0,
        methods if methods.contains(method) => 2,
        methods if *method == Method::HEAD && methods.contains(&Method::GET) => 1,
        _ => return None,
    };
    let is_met = |one: &Condition| match one {
        Condition::Field(name, value) => {
            let found = fields.0.get(name);
            found.is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
        }
        _ => false,
    };
    let conditions = rule.conditions.len();
    let path = fit_path(&rule.path.segments, path)?;
    rule.conditions
        .iter()
        .all(is_met)
        .then_some((host, path, method, conditions))
}

fn fit_host(pattern: &HostPattern, host: &str) -> Option<usize> {
    match pattern {
        HostPattern::Exact(exact) => (**exact == *host).then_some(usize::MAX),
        HostPattern::Suffix(suffix) => {
            (host.len() > suffix.len() && host.ends_with(&**suffix)).then_some(suffix.len())
        }
    }
}

fn fit_path(pattern: &[Segment], path: &str) -> Option<Vec<u8>> {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let mut ranks = Vec::new();
    for expected in pattern {
        match (expected, segments.next()) {
            (Segment::Rest(_), _) => {
                ranks.push(0);
                return Some(ranks);
            }
            (Segment::Literal(text), Some(segment)) if **text == *segment => ranks.push(3),
            (Segment::Parameter(_), Some(_)) => ranks.push(2),
            _ => return None,
        }
    }
    // The end of a path is more specific than an empty rest.
    ranks.push(1);
    segments.next().is_none().then_some(ranks)
}

fn some_rule() -> impl Strategy<Value = Rule> {
    let segment = prop_oneof!["[ab]", Just("{p}".to_owned())];
    let path = (proptest::collection::vec(segment, 0..4), any::<bool>());
    let hosts = subsequence(vec!["a.b.c", "b.c", "*.c", "*.b.c"], 0..3);
    let methods = subsequence(vec!["GET", "HEAD", "POST"], 0..3);
    let conditions = subsequence(vec!["v", "w=1", "w=2", "z"], 0..3)
        .prop_filter("a name twice", |all| !all.ends_with(&["w=1", "w=2"]));
    (methods, hosts, path, conditions).prop_map(|(methods, hosts, (segments, rest), conditions)| {
        let any = |words: Vec<&str>| match words.is_empty() {
            true => "*".to_owned(),
            false => words.join(","),
        };
        let rest = if rest { "/{*r}" } else { "" };
        rule(&format!(
            "{} {} /{}{rest} {}",
            any(methods),
            any(hosts),
            segments.join("/"),
            conditions.join(",")
        ))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn finding_agrees_with_trying_every_rule(
        all in proptest::collection::vec(some_rule(), 1..24),
        requests in proptest::collection::vec(
            ("(a\\.|x\\.)?(b\\.)?c", "(/[abx]){0,5}", "GET|HEAD|POST|PUT", "(v=1,)?(w=[123],)?(z=2)?"), 16)
    ) {
        // A rule is kept if it does not overlap with the rules before it.
        let mut kept: Vec<Rule> = Vec::new();
        for rule in all {
            kept.push(rule);
            if let Err(overlaps) = Table::build(&kept) {
                for overlap in overlaps {
                    let (method, rest) = overlap.example.split_once(' ').unwrap();
                    let (rest, with) = rest.split_once(" with ").unwrap_or((rest, ""));
                    let fields = Fields::of(&with.replace(": ", "=").replace(", ", ","));
                    let (host, path) = rest.split_at(rest.find('/').unwrap());
                    let method = method.parse().unwrap();
                    prop_assert!(fit(&kept[overlap.first], host, path, &method, &fields).is_some());
                    prop_assert!(fit(&kept[overlap.second], host, path, &method, &fields).is_some());
                }
                kept.pop();
            }
        }
        let table = Table::build(&kept).unwrap();
        for (host, path, method, fields) in requests {
            let (method, sent) = (method.parse().unwrap(), Fields::of(&fields));
            let found = table.find(&host, &path, &method, &sent);
            let fits = |route: usize| fit(&kept[route], &host, &path, &method, &sent);
            let best = (0..kept.len()).filter(|route| fits(*route).is_some()).max_by(|a, b| {
                let order = fits(*a).cmp(&fits(*b));
                assert_ne!(order, Ordering::Equal, "equal rank that build() let pass");
                order
            });
            prop_assert_eq!(found, best, "{} {} {} {}", method, host, path, fields);
        }
    }
}

#[test]
fn ten_thousand_routes_are_found_like_ten() {
    let texts: Vec<String> = (0..10_000)
        .map(|n| format!("* * /v1/kind-{n}/{{id}}"))
        .collect();
    let rules: Vec<Rule> = texts.iter().map(|text| rule(text)).collect();
    let table = Table::build(&rules).unwrap();
    let none = Fields::of("");
    for n in [0, 17, 9_999] {
        let path = format!("/v1/kind-{n}/7");
        assert_eq!(table.find("h", &path, &Method::GET, &none), Some(n));
    }
}
