//! Upstreams in words and numbers: for `check` and for the changes of a reload.

use crate::config::presentation::outline::{ShownValue, UpstreamOutline, show, time_text};
use crate::key::KeyPart;
use crate::upstream::balance_rule::{BalanceRule, NoneLeft};
use crate::upstream::ejection::EjectionRule;
use crate::upstream::probe_rule::{ProbeQuestion, ProbeRule};
use crate::upstream::retry_rule::{RetryCause, RetryRule};
use crate::upstream::{Server, ServerHost, ServerTls, UpstreamRules, server_queue};

/// The way of choosing a server as the file writes it.
#[must_use]
pub fn choice(rule: BalanceRule, key: Option<&KeyPart>) -> String {
    match rule {
        BalanceRule::RoundRobin => "round-robin".into(),
        BalanceRule::LeastRequests => "least-requests".into(),
        BalanceRule::Random => "random".into(),
        BalanceRule::Hash { bounded } => {
            let key = key.map_or_else(String::new, ToString::to_string);
            let bound = bounded.map(|percent| format!(", at most {percent}% of the average"));
            format!("hash:{key}{}", bound.unwrap_or_default())
        }
    }
}

/// `GET /healthz each 5s, 2s at most; 3 fall, 2 rise`.
#[must_use]
pub fn probes(rule: &ProbeRule) -> String {
    let ask = match &rule.ask {
        ProbeQuestion::Http { path, status, .. } => {
            let ranges: Vec<String> = status
                .iter()
                .map(|range| match (range.start(), range.end()) {
                    (one, other) if one == other => one.to_string(),
                    (first, last) => format!("{first}-{last}"),
                })
                .collect();
            format!("GET {path} for {}", ranges.join("+"))
        }
        ProbeQuestion::Grpc { service } if service.is_empty() => {
            "the health service of gRPC".into()
        }
        ProbeQuestion::Grpc { service } => format!("the health service of gRPC for {service}"),
        ProbeQuestion::Connect => "a connection".into(),
    };
    let (interval, timeout) = (time_text(rule.interval), time_text(rule.timeout));
    let (fall, rise) = (rule.fall, rule.rise);
    format!("{ask} each {interval}, {timeout} at most; {fall} fall, {rise} rise")
}

/// `5 in a row, 10s, at most 50%`.
#[must_use]
pub fn ejection(rule: &EjectionRule) -> String {
    let (after, time, at_most) = (rule.after, time_text(rule.time), rule.at_most);
    format!("{after} in a row, {time}, at most {at_most}%")
}

/// `1 after connect+refused+reset, of 20%`.
#[must_use]
pub fn retries(rule: &RetryRule) -> String {
    let causes: Vec<&str> = rule.on.iter().map(RetryCause::as_str).collect();
    format!(
        "{} after {}, of {}%",
        rule.attempts,
        causes.join("+"),
        rule.budget
    )
}

/// `100, 1s`.
#[must_use]
pub fn queue(rules: &UpstreamRules) -> String {
    format!("{}, {}", rules.queue.max, time_text(rules.queue.wait))
}

/// The `Host` of requests to servers, as the file writes it.
#[must_use]
pub fn server_host(host: Option<&ServerHost>) -> String {
    match host {
        None => "client".into(),
        Some(ServerHost::Own) => "upstream".into(),
        Some(ServerHost::Text(text)) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
    }
}

/// TLS of connections to the servers, for a comparison: changed files count as a change.
#[must_use]
pub fn tls(tls: Option<&ServerTls>) -> Option<ShownValue> {
    let Some(tls) = tls else {
        return show("none");
    };
    let text = if tls.is_insecure() {
        "any certificate"
    } else {
        "verified"
    };
    Some(ShownValue {
        text: text.to_owned(),
        whole: Some(format!("{:?}", tls.client().digest())),
    })
}

/// An upstream as a sentence:
///
/// ```text
/// 3 servers, least-requests; a server leaves after 3 failed probes, at most 17s, or after 5 failures in a row
/// (3 of one client); one retry, of at most 20 % of requests; at most 100 in flight each, then 100 wait up to 1s
/// (50 of one client)
/// ```
#[must_use]
pub fn upstream(one: &UpstreamOutline) -> String {
    let (upstream, rules) = (&one.upstream, &one.upstream.rules);
    let servers = match upstream.servers.len() {
        1 => "1 server".to_owned(),
        many => format!(
            "{many} servers, {}",
            choice(rules.balance, one.hash.as_ref())
        ),
    };
    let clauses = [
        Some(servers),
        leaves(one),
        rules
            .retry
            .as_ref()
            .filter(|retry| retry.attempts > 0)
            .map(|retry| {
                let many = match retry.attempts {
                    1 => "one retry".to_owned(),
                    many => format!("{many} retries"),
                };
                format!("{many}, of at most {} % of requests", retry.budget)
            }),
        bounds(one),
        rules.ramp.map(|ramp| {
            format!(
                "a server that is back has its share again after {}",
                time_text(ramp)
            )
        }),
        upstream.host.as_ref().map(|host| match host {
            ServerHost::Own => "each is asked for its own host".into(),
            ServerHost::Text(_) => format!("asked for {}", server_host(Some(host))),
        }),
        (rules.none_left == NoneLeft::Refuse).then(|| "503 while none is available".into()),
    ];
    let clauses: Vec<String> = clauses.into_iter().flatten().collect();
    clauses.join("; ")
}

/// Is there one server, with only default rules?
#[must_use]
pub fn is_plain(one: &UpstreamOutline) -> bool {
    let usual = UpstreamRules {
        eject: Some(EjectionRule::default()),
        retry: Some(RetryRule::default()),
        ..UpstreamRules::default()
    };
    one.upstream.servers.len() == 1
        && one.upstream.rules == usual
        && one.upstream.host.is_none()
        && bounds(one).is_none()
}

/// The bounds of servers, and the wait for a server: `at most 100 in flight each, then 100 wait up to 1s (50 of one
/// client)`.
fn bounds(one: &UpstreamOutline) -> Option<String> {
    let servers = one.upstream.servers.iter();
    let bounds: Vec<Option<u32>> = servers
        .map(|server| {
            server
                .max_requests
                .or(server.max_connections)
                .map(u32::from)
        })
        .collect();
    let first = (*bounds.iter().flatten().next()?).to_string();
    let each = if bounds.iter().all(|bound| *bound == bounds[0]) {
        format!("at most {first} in flight each")
    } else {
        let all: Vec<String> = bounds
            .iter()
            .map(|bound| bound.map_or_else(|| "any number".into(), |bound| bound.to_string()))
            .collect();
        format!("at most {} in flight", all.join(", "))
    };
    if bounds.contains(&None) {
        return Some(each);
    }
    let queue = one.upstream.rules.queue;
    Some(match queue.max {
        0 => format!("{each}, then 503"),
        most => format!(
            "{each}, then {most} wait up to {} ({} of one client)",
            time_text(queue.wait),
            server_queue::share(most as usize)
        ),
    })
}

/// The number of requests that all servers together take at once, if each server has a bound.
#[must_use]
pub fn most_at_once(one: &UpstreamOutline) -> Option<u64> {
    let servers = one.upstream.servers.iter();
    let each: Option<Vec<u32>> = servers.map(Server::most_requests).collect();
    Some(each?.into_iter().map(u64::from).sum())
}

/// The conditions under which a server gets no more requests.
fn leaves(one: &UpstreamOutline) -> Option<String> {
    let rules = &one.upstream.rules;
    let probes = rules.health.as_ref().map(|probes| {
        let probed = match probes.fall {
            1 => "a failed probe".to_owned(),
            many => format!("{many} failed probes"),
        };
        format!("{probed}, at most {}", time_text(probes.leaves_within()))
    });
    let is_alone = one.upstream.servers.len() < 2;
    let failures = rules
        .eject
        .as_ref()
        .filter(|_| !is_alone)
        .map(|eject| match eject.after {
            1 => "a failure".to_owned(),
            many => format!(
                "{many} failures in a row ({} of one client)",
                many.div_ceil(2)
            ),
        });
    match (probes, failures) {
        (Some(probes), Some(failures)) => Some(format!(
            "a server leaves after {probes}, or after {failures}"
        )),
        (Some(one), None) | (None, Some(one)) => Some(format!("a server leaves after {one}")),
        (None, None) => None,
    }
}
