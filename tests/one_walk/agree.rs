//! Compares the reports of the gateway, `explain` and `simulate` about one request, as far as each of them can know it.
//! Each disagreement is a sentence.

use super::ask::{Answered, Explained, Sight};
use super::draw_file::DrawnFile;
use super::draw_request::DrawnRequest;
use serde_json::Value;
use std::collections::BTreeMap;

/// The kind of an answer, in the words of the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) word: &'static str,
    pub(super) status: Option<u16>,
}

/// The words of `explain` for each kind of the gateway's own answers, by their beginnings.
const WORDS: [(&str, &str); 10] = [
    ("it is for the gateway itself", "ok"),
    ("the listener sends it on", "to_https"),
    ("the route redirects", "ok"),
    ("the route answers itself", "ok"),
    ("no route matches", "no_route"),
    (
        "the route asks for a client certificate",
        "certificate_required",
    ),
    ("the host belongs on", "misdirected"),
    ("the keys that would verify", "keys_unread"),
    ("the request's fields are too large", "too_large"),
    ("the certificate of the connection", "misdirected"),
];

/// Words that are at the end of a limit's refusal, or in its middle.
const REFUSALS: [(&str, &str); 5] = [
    (" refuses", "limit_refused"),
    (" needs ", "missing_key"),
    (" only if a group knows it", "unknown_key"),
    (" asks for ", "bad_token"),
    (" counts by ", "bad_request"),
];

/// The kind of the answer that `explain` expects.
pub(super) fn kind_of(told: &Value) -> Kind {
    let answer = &told["answer"];
    let status = answer["status"]
        .as_u64()
        .and_then(|status| u16::try_from(status).ok());
    let reason = answer["reason"].as_str().unwrap_or_default();
    let word = match answer["by"].as_str() {
        Some("gateway") => {
            let plain = WORDS.iter().find(|(words, _)| reason.starts_with(words));
            let refusal = || {
                let of_limit = reason.starts_with("the limit \"");
                REFUSALS
                    .iter()
                    .find(|(words, _)| of_limit && reason.contains(words))
            };
            plain
                .or_else(refusal)
                .map_or("bad_request", |(_, word)| word)
        }
        Some("upstream") => "upstream",
        Some("handshake") => "no handshake",
        _ => "unknown",
    };
    Kind { word, status }
}

/// The causes of the values that `explain` says it cannot know.
pub(super) fn unknowns(told: &Value) -> Vec<String> {
    let cause = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other["cause"]
            .as_str()
            .map_or_else(|| other.to_string(), str::to_owned),
    };
    let all = [&told["unknown"], &told["answer"]["unknown"]];
    let causes = all.into_iter().flat_map(|value| match value {
        Value::Null => Vec::new(),
        Value::Array(list) => list.iter().map(cause).collect(),
        one => vec![cause(one)],
    });
    causes.collect()
}

/// The keys of a log line, by limit.
pub(super) fn logged_keys(line: &Value) -> BTreeMap<String, String> {
    texts(&line["keys"])
}

fn texts(object: &Value) -> BTreeMap<String, String> {
    let members = object.as_object().into_iter().flatten();
    let members =
        members.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
    members.collect()
}

/// The limits of an explanation that count the request. A candidate has the name of its limit, and does not appear in
/// the log.
fn counted(told: &Value) -> impl Iterator<Item = &Value> {
    let limits = told["limits"].as_array().into_iter().flatten();
    let is_counting = |limit: &&Value| limit["applies"] == true && limit["key"].is_string();
    limits
        .filter(is_counting)
        .filter(|limit| limit["mode"] != "candidate")
}

/// Compares the gateway with `explain`.
pub(super) fn gateway_and_explain(
    file: &DrawnFile,
    request: &DrawnRequest,
    answered: &Answered,
    explained: &Explained,
    sight: Sight,
) -> Vec<String> {
    let told = match explained {
        Ok(told) => told,
        Err(said) => return vec![format!("explain ends with {said}")],
    };
    let mut found = Vec::new();
    // `explain` takes such a target for a request over TLS, if the file has a listener with TLS.
    if request.tls.is_none() && file.tls.is_some() && request.target.starts_with("https://") {
        return found;
    }
    let kind = kind_of(told);
    let unknowns = unknowns(told);
    let is_unread = unknowns.iter().any(|cause| cause == "keys_by_url");
    if is_unread && sight == Sight::Connected {
        found.push("explain has read the keys at URLs, and says that they are unknown".to_owned());
    }
    let Some(line) = &answered.line else {
        if kind.word != "no handshake" {
            found.push(format!(
                "the gateway gave no answer, explain expects {kind:?}"
            ));
        }
        return found;
    };
    if is_refused_head(line) {
        // `explain` gets a head that was already read, and never bytes.
        return found;
    }
    let reason = line["reason"].as_str().unwrap_or_default();
    if is_unread || kind.word == "unknown" {
        return client(line, told);
    }
    if reason == "acme_challenge" && unknowns.iter().any(|cause| cause == "challenge_text") {
        return found;
    }
    let is_live = sight == Sight::Live;
    let by_counters = ["limit_refused", "limit_delayed", "repeat"].contains(&reason) && !is_live;
    let is_early = told["answer"]["by"] == "gateway" && told["limits"].is_null();
    let agrees = match kind.word {
        _ if by_counters => !is_early && kind.word != "no handshake",
        "upstream" => {
            let passes = ["ok", "upgraded", "limit_delayed", "repeat"].contains(&reason);
            passes && answered.forwarded.is_some() == (request.method != "HEAD")
        }
        word => {
            (word == reason || (word == "ok" && reason == "limit_delayed"))
                && kind.status == answered.status
        }
    };
    if !agrees {
        found.push(format!(
            "answer: gateway {reason} {:?} {:?}, explain {kind:?} {}",
            answered.status, answered.detail, told["answer"]["reason"]
        ));
    }
    if kind.word == "bad_request" && reason == "bad_request" {
        let said = told["answer"]["reason"].as_str().unwrap_or_default();
        let detail = answered.detail.as_deref().unwrap_or_default();
        let is_of_limit = said.starts_with("the limit ");
        if !is_of_limit && !detail.is_empty() && sentence(said) != detail {
            found.push(format!("cause: gateway {detail:?}, explain {said:?}"));
        }
    }
    let (own, other) = (&line["route"], &told["route"]["name"]);
    // A limit that refuses before the token is verified refuses on the route for clients without a token.
    let before_token = told["limits_before_token"].as_array().into_iter().flatten();
    let is_before_token = reason == "limit_refused"
        && before_token
            .into_iter()
            .any(|limit| *limit == line["limit"]);
    if own != other && !is_before_token {
        found.push(format!("route: gateway {own}, explain {other}"));
    }
    found.extend(client(line, told));
    if agrees && !is_early {
        found.extend(limits(file, line, told));
        found.extend(forwarded(request, answered, told));
    }
    found
}

/// The client's address.
fn client(line: &Value, told: &Value) -> Vec<String> {
    let (own, other) = (&line["client"], &told["client"]["address"]);
    let is_other = own != other;
    is_other
        .then(|| format!("client: gateway {own}, explain {other}"))
        .into_iter()
        .collect()
}

/// The limits that count the request, with their keys, costs and groups.
fn limits(file: &DrawnFile, line: &Value, told: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let keys = logged_keys(line);
    let explained: BTreeMap<String, String> = counted(told)
        .map(|limit| {
            let text = |name: &str| limit[name].as_str().unwrap_or_default().to_owned();
            (text("name"), text("key"))
        })
        .collect();
    // Whether these limits count, and on which key, depends on a token that cannot be verified here.
    let is_known = |name: &str| {
        let limits = told["limits"].as_array().into_iter().flatten();
        let mut of_name = limits.filter(|limit| limit["name"] == *name);
        of_name.all(|limit| limit["keys_unread"].is_null())
    };
    let mut keys = keys;
    keys.retain(|name, _| is_known(name));
    // If limits refuse a request before its token is verified, the other limits are not asked.
    let is_part = line["reason"] == "limit_refused" && file.token_field.is_some();
    let is_same = match is_part {
        true => keys
            .iter()
            .all(|(limit, key)| explained.get(limit) == Some(key)),
        false => keys == explained,
    };
    if !is_same {
        found.push(format!("keys: gateway {keys:?}, explain {explained:?}"));
        return found;
    }
    for limit in counted(told) {
        let name = limit["name"].as_str().unwrap_or_default();
        // The response has another cost, or a limit has granted a smaller amount.
        let settled = file
            .limits
            .iter()
            .any(|one| one.name == name && (one.is_settled || one.is_partial));
        let is_repeat = line["costs"][name] == 0 && file.text.contains("dedupe");
        let cost = &line["costs"][name];
        if !settled && !is_repeat && !cost.is_null() && *cost != limit["cost"] {
            found.push(format!(
                "cost of {name}: gateway {cost}, explain {}",
                limit["cost"]
            ));
        }
        if keys.contains_key(name) && line["groups"][name] != limit["group"] {
            found.push(format!(
                "group of {name}: gateway {}, explain {}",
                line["groups"][name], limit["group"]
            ));
        }
    }
    found
}

/// The request that the server got.
fn forwarded(request: &DrawnRequest, answered: &Answered, told: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let Some(got) = &answered.forwarded else {
        return found;
    };
    let target = got["line"]
        .as_str()
        .and_then(|line| line.split(' ').nth(1))
        .unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default();
    if told["path"]["forwarded"] != path {
        found.push(format!(
            "forwarded: gateway {path:?}, explain {}",
            told["path"]["forwarded"]
        ));
    }
    for field in told["identity"].as_array().into_iter().flatten() {
        let name = field["field"].as_str().unwrap_or_default();
        let fields = got["fields"].as_array().into_iter().flatten();
        let own = fields
            .filter(|pair| pair[0] == name)
            .map(|pair| &pair[1])
            .next();
        if own.unwrap_or(&Value::Null) != &field["value"] {
            found.push(format!(
                "{name}: gateway {own:?}, explain {}",
                field["value"]
            ));
        }
    }
    for dropped in told["dropped"].as_array().into_iter().flatten() {
        let name = dropped["field"].as_str().unwrap_or_default();
        let told_again = told["identity"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|one| one["field"] == name);
        let mut fields = got["fields"].as_array().into_iter().flatten();
        // The route may set this field itself.
        let is_sent = |pair: &Value| {
            let mut sent = request.fields.iter();
            pair[0] == name
                && sent.any(|(one, value)| one.eq_ignore_ascii_case(name) && pair[1] == **value)
        };
        if !told_again && fields.any(is_sent) {
            found.push(format!("{name}: gateway forwards it, explain drops it"));
        }
    }
    found
}

/// A cause as a sentence in words.
fn sentence(text: &str) -> String {
    let mut sentence = text.to_owned();
    if let Some(first) = sentence.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    sentence + "."
}

/// The reasons of answers that are given before a route is looked for.
const EARLY: [&str; 5] = [
    "bad_request",
    "too_large",
    "misdirected",
    "to_https",
    "acme_challenge",
];

/// Was the request of this line answered before a route was found?
pub(super) fn is_early(line: &Value) -> bool {
    let reason = line["reason"].as_str().unwrap_or_default();
    let is_null = |name: &str| line[name].is_null();
    // A limit of `[defaults]` may answer a request without a route.
    let is_own = is_null("upstream") && is_null("route") && is_null("limit");
    is_own
        && (EARLY.contains(&reason)
            || (reason == "ok" && line["status"] == 204)
            || reason == "keys_unread")
}

/// Is this the line of a head that the HTTP library refused? Such a head was never a request.
pub(super) fn is_refused_head(line: &Value) -> bool {
    line["duration_ms"].as_f64() == Some(0.0)
}

/// The facts about a request that no log line contains, so that `simulate` may count more than the gateway did.
fn unsaid(file: &DrawnFile, request: &DrawnRequest, line: &Value) -> bool {
    let reason = line["reason"].as_str().unwrap_or_default();
    // `explain` says only of the first limit that counts nothing why it does so.
    let lacks = [
        "missing_key",
        "unknown_key",
        "bad_token",
        "bad_request",
        "keys_unread",
    ]
    .contains(&reason);
    // If limits refuse a request before its token is verified, the other limits are not asked.
    let is_part = reason == "limit_refused" && file.token_field.is_some();
    // No log line says how a shadow limit treats a token that is not trusted.
    let has_token = file.token_field.is_some_and(|field| request.has(field));
    let is_doubtful = has_token && file.text.contains("mode = \"shadow\"");
    lacks || is_part || is_doubtful || request.is_doubtful()
}

/// May the request have another scheme than its line says? A line has the connection's TLS, and not the scheme that a
/// trusted peer reports. Where no route took the request, a route for that scheme may then take the line.
fn scheme_is_unsaid(file: &DrawnFile, request: &DrawnRequest, line: &Value) -> bool {
    let asks_scheme = file.text.contains("\nscheme = ");
    let reports = request.has("x-forwarded-proto") || request.has("forwarded");
    line["route"].is_null() && asks_scheme && reports && file.trusts(request.from)
}

/// Compares a log line with the decision of `simulate` about it. `is_astray` is true if `simulate` has counted more
/// than the gateway for an earlier line, and so may refuse a request that the gateway admitted.
pub(super) fn line_and_simulate(
    file: &DrawnFile,
    request: &DrawnRequest,
    line: &Value,
    decision: &Value,
    is_astray: &mut bool,
) -> Vec<String> {
    let mut found = Vec::new();
    let verdicts = decision["verdicts"].as_array().into_iter().flatten();
    let shadows = decision["shadow"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // A shadow limit without a key would have refused the request for its missing key.
    let is_counting = |shadow: &&Value| shadow["mode"] == "shadow" && shadow["key"].is_string();
    let all = verdicts.chain(shadows.filter(is_counting));
    let keys: BTreeMap<String, String> = all
        .map(|verdict| (text(&verdict["limit"]), text(&verdict["key"])))
        .collect();
    let early = is_early(line) || line["reason"] == "certificate_required";
    if early {
        if !keys.is_empty() {
            found.push(format!(
                "an early answer ({}) counts {keys:?}",
                line["reason"]
            ));
        }
        return found;
    }
    let is_elsewhere = decision["route"] != line["route"];
    if is_elsewhere && scheme_is_unsaid(file, request, line) {
        *is_astray |= file.is_tight;
        return found;
    }
    let routes = || {
        format!(
            "route: line {}, simulate {}",
            line["route"], decision["route"]
        )
    };
    found.extend(is_elsewhere.then(routes));
    let own = logged_keys(line);
    let may_be_more = unsaid(file, request, line);
    let has_own = own.iter().all(|(limit, key)| keys.get(limit) == Some(key));
    if !has_own || (keys != own && !may_be_more) {
        found.push(format!("keys: line {own:?}, simulate {keys:?}"));
    }
    *is_astray |= keys != own && file.is_tight;
    let word = match line["reason"].as_str().unwrap_or_default() {
        "limit_delayed" => "delay",
        "limit_refused" | "missing_key" | "unknown_key" | "bad_token" => "refuse",
        "no_route" => "no_route",
        // The line contains neither the values of a part that came several times, nor keys by URL.
        "bad_request" | "keys_unread" => {
            *is_astray |= file.is_tight;
            return found;
        }
        _ => "admit",
    };
    if decision["decision"] != word && !*is_astray {
        found.push(format!(
            "decision: line {} by {}, simulate {} by {}",
            line["reason"], line["limit"], decision["decision"], decision["limit"]
        ));
    }
    found
}
