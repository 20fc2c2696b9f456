//! Keys of an upstream that decide when a server gets no requests (probes and ejection), and which requests are
//! retried.

use super::balance::is_table;
use crate::config::document::{
    Fields, Form, Items, Section, Setting, ValueShape, Zero, any, count, custom, empty_list,
    filled_texts, flag, inner_table, number, table, text_form, time, word_list, words,
};
use crate::config::input::At;
use crate::config::report::{Code, Details as _};
use crate::config::value::{probe_host, probe_path, share, statuses};
use crate::upstream::ejection::EjectionRule;
use crate::upstream::probe_rule::{ProbeQuestion, ProbeRule};
use crate::upstream::retry_rule::{RetryCause, RetryCauses, RetryRule};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use toml::de::DeValue;

table! {
    /// Probes of an upstream's servers: each gateway asks each server in turn, and one that fails gets no requests.
    HealthTable = HEALTH, "upstreams", "the probes", takes Some("a path, or a table as `{ path = \"/healthz\", interval = \"5s\" }`");

    /// The path that is asked for with GET.
    path: Arc<str> = text_form(probe_path), Words("needed, unless `grpc` or `connect` is written"), "\"/healthz\"";

    /// The service that is asked about by `grpc.health.v1`; an empty text is the server as a whole. SERVING alone is good.
    grpc: String = text_form(any), Words("HTTP is asked"), "\"shop.Orders\"";

    /// Whether a connection alone counts as a good probe.
    connect: bool = flag(), Words("`false`"), "true";

    /// The time between two probes of a server, give or take a tenth.
    interval: Duration = time(Zero::Refused), Value("\"5s\""), "\"1s\"";

    /// The longest time of a probe.
    timeout: Duration = time(Zero::Refused), Value("\"2s\""), "\"500ms\"";

    /// Failed probes in a row after which a server gets no requests.
    fall: u32 = count(), Value("3"), "2";

    /// Good probes in a row after which a server gets requests again. The same number ends an ejection early.
    rise: u32 = count(), Value("2"), "1";

    /// The statuses that are good: numbers, and ranges of them.
    status: Items<RangeInclusive<u16>> = filled_texts(statuses, empty_list("leave it out for `\"200-399\"`")), Value("\"200-399\""), "\"200\"";

    /// The `Host` of the probes.
    host: Arc<str> = text_form(probe_host), Words("the server's own"), "\"orders.internal\"";
}

table! {
    /// Ejection: a server that fails requests in a row gets no requests for a while. Failures are: no connection, a
    /// connection that ends before the head of an answer, an answer that is not HTTP, no answer in time, 502, 503, 504
    /// and the `grpc-status` 14. 500 and 4xx are not failures.
    EjectTable = EJECT, "upstreams", "ejection", takes Some("`false`, or a table as `{ after = 5, for = \"10s\", at_most = \"50%\" }`");

    /// Failures in a row that eject a server, counted over all requests of this gateway. One client counts for at most
    /// half of them, while others use the upstream as well.
    after: u32 = count(), Value("5"), "3";

    /// The time of the first ejection. The second ejection in a row takes twice as long, and so on, up to five minutes.
    r#for: Duration = time(Zero::Refused), Value("\"10s\""), "\"30s\"";

    /// The part of the servers that may be ejected at once. One server may always be ejected, but never the last that
    /// serves.
    at_most: u32 = text_form(|text| share(text, 0..=100)), Value("\"50%\""), "\"30%\"";
}

table! {
    /// Requests that are sent once more after a failure, to another server where there is one. A body that has been begun
    /// is sent again only after `refused`, once, as long as no more than 16 KiB of it have come. Nothing is sent again after a
    /// byte of the answer went on to the client.
    RetryTable = RETRY, "upstreams", "retries", takes Some("`false`, or a table as `{ attempts = 1, on = [\"connect\", \"reset\"], budget = \"20%\" }`");

    /// How many times a request is sent again at most.
    attempts: u32 = number(0, 10), Value("1"), "2";

    /// The failures after which a request is sent again. `connect`: nothing was sent, any method. `refused`: the server
    /// has not begun, any method. `reset`: the connection ended before any byte of an answer; GET, HEAD, OPTIONS,
    /// TRACE, PUT and DELETE without a body. `502`, `503`, `504`: such an answer, for the same methods.
    on: Items<RetryOn> = word_list(), Value("[\"connect\", \"refused\", \"reset\"]"), "[\"connect\", \"reset\", \"503\"]";

    /// How many of the upstream's requests in the last ten seconds may be sent again; one a second is always allowed.
    budget: u32 = text_form(|text| share(text, 0..=100)), Value("\"20%\""), "\"10%\"";
}

/// A failure after which a request is retried, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::config) enum RetryOn {
    Connect,
    Refused,
    Reset,
    BadGateway,
    Unavailable,
    Timeout,
}

words! { RetryOn: Connect "connect", Refused "refused", Reset "reset", BadGateway "502", Unavailable "503", Timeout "504" }

impl RetryOn {
    fn cause(self) -> RetryCause {
        match self {
            Self::Connect => RetryCause::Connect,
            Self::Refused => RetryCause::Refused,
            Self::Reset => RetryCause::Reset,
            Self::BadGateway => RetryCause::Status(502),
            Self::Unavailable => RetryCause::Status(503),
            Self::Timeout => RetryCause::Status(504),
        }
    }
}

/// A path, or a table.
pub(in crate::config::document) fn health_form() -> impl Form<ProbeRule> {
    custom(ValueShape::TextOrInner(&HEALTH), |key, fields| {
        if is_table(key, fields) {
            return inner_table(probes).read(key, fields);
        }
        let path = fields.text(key, probe_path);
        path.map(|path| {
            HealthTable::default().rule(ProbeQuestion::Http {
                path,
                host: None,
                status: vec![200..=399],
            })
        })
    })
}

impl HealthTable {
    fn rule(&self, ask: ProbeQuestion) -> ProbeRule {
        ProbeRule {
            ask,
            interval: self.interval(),
            timeout: self.timeout(),
            fall: self.fall(),
            rise: self.rise(),
        }
    }

    /// The kind of probe, if exactly one kind is written.
    fn question(&self) -> Option<ProbeQuestion> {
        let connects = self.connect.get().copied().unwrap_or(false);
        match (self.path.get(), self.grpc.get(), connects) {
            (Some(path), None, false) => Some(ProbeQuestion::Http {
                path: Arc::clone(path),
                host: self.host.get().cloned(),
                status: self.status().iter().map(|at| at.value.clone()).collect(),
            }),
            (None, Some(service), false) => Some(ProbeQuestion::Grpc {
                service: service.as_str().into(),
            }),
            (None, None, true) => Some(ProbeQuestion::Connect),
            _ => None,
        }
    }
}

fn probes(table: HealthTable, fields: &mut Fields<'_>) -> Option<ProbeRule> {
    if table.is_bad() {
        return None;
    }
    let Some(ask) = table.question() else {
        let place = fields.place();
        let title = fields.title().to_owned();
        fields
            .error(Code::Conflict, format!("`{title}` must ask one thing"))
            .at(&place, "one of `path`, `grpc` and `connect = true`")
            .help("write `health = \"/healthz\"` to ask by HTTP");
        return None;
    };
    if !matches!(ask, ProbeQuestion::Http { .. }) {
        let only = [("status", table.status.span()), ("host", table.host.span())];
        for (key, span) in only {
            if let Some(span) = span {
                fields
                    .wrong(key, Code::Conflict, "is for probes by `path`")
                    .at(span, "has no effect")
                    .help("leave it out");
                return None;
            }
        }
    }
    Some(table.rule(ask))
}

/// `false`, or a table.
fn off_or<R: Section, T>(
    key: &'static str,
    fields: &mut Fields<'_>,
    finish: fn(R, &mut Fields<'_>) -> Option<Option<T>>,
) -> Setting<Option<T>> {
    if is_table(key, fields) {
        return inner_table(finish).read(key, fields);
    }
    let flag = fields.typed(key, DeValue::as_bool);
    flag.and_then(|is_on, span| {
        if is_on {
            fields
                .wrong(key, Code::BadChoice, "is `true`")
                .at(span, "it is on by itself")
                .help("leave it out, or write a table to change its numbers");
            return None;
        }
        Some(None)
    })
}

/// Ejection, or `false`.
pub(in crate::config::document) fn eject_form() -> impl Form<Option<EjectionRule>> {
    custom(ValueShape::OffOrInner(&EJECT), |key, fields| {
        off_or(key, fields, |table: EjectTable, _| {
            (!table.is_bad()).then(|| {
                Some(EjectionRule {
                    after: table.after(),
                    time: table.r#for(),
                    at_most: table.at_most(),
                })
            })
        })
    })
}

/// Retries, or `false`.
pub(in crate::config::document) fn retry_form() -> impl Form<Option<RetryRule>> {
    custom(ValueShape::OffOrInner(&RETRY), |key, fields| {
        off_or(key, fields, |table: RetryTable, _| {
            (!table.is_bad()).then(|| {
                let on: Items<RetryOn> = table.on();
                let on = on.iter().map(|at: &At<RetryOn>| at.value.cause());
                Some(RetryRule {
                    attempts: table.attempts(),
                    on: on.fold(RetryCauses::NONE, RetryCauses::with),
                    budget: table.budget(),
                })
            })
        })
    })
}
