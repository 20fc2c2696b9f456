//! One limit as written → the limit that counts: defaults filled in, contradictions and numbers out of reach refused.

use super::diagnostic::{Code, Diagnostic};
use super::document::{Algorithm, Limit, Over};
use super::source::{At, Span};
use super::value::{quoted, show_rate, show_span};
use crate::key::{KeyTemplate, Missing, Part};
use crate::limit::fixed_window::FixedWindow;
use crate::limit::leaky_bucket::LeakyBucket;
use crate::limit::rate::{Cost, Rate};
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{self, Rule};
use std::num::NonZeroU32;
use std::sync::Arc;

/// How long a leaky bucket holds a request when the file does not say.
const MAX_WAIT: u64 = 5 * super::value::MICROS;

/// Compiles one limit; nothing when something about it is wrong, which then has been noted.
pub(super) fn compile(written: &Limit, found: &mut Vec<Diagnostic>) -> Option<Arc<limit::Limit>> {
    let by = template(written, found);
    if written.algorithm.is_bad() {
        return None;
    }
    let algorithm = written.algorithm.or(Algorithm::TokenBucket);
    let before = found.len();
    contradictions(written, algorithm, found);
    let rate = written.rate.at()?;
    let rule = match algorithm {
        Algorithm::TokenBucket => token_bucket(written, rate, found),
        Algorithm::LeakyBucket => leaky_bucket(written, rate, found),
        Algorithm::FixedWindow => Some(Rule::FixedWindow(FixedWindow::new(rate.value))),
    }?;
    if found.len() > before {
        return None;
    }
    let cost = Cost::new(written.cost.or(1));
    warn_of_cost(written, &rule, cost, found);
    Some(Arc::new(limit::Limit::new(
        written.name.value.as_str().into(),
        by?,
        rate.value,
        rule,
        cost,
    )))
}

/// By whom it counts.
fn template(written: &Limit, found: &mut Vec<Diagnostic>) -> Option<KeyTemplate> {
    let name = &written.name.value;
    let by = written.by.at()?;
    let before = found.len();
    let everyone = by.value.iter().find(|part| part.value.is_none());
    if let Some(everyone) = everyone.filter(|_| by.value.len() > 1) {
        found.push(
            Diagnostic::error(
                Code::Conflict,
                format!("limit `{name}` counts by `everyone` and by something else"),
            )
            .at(&everyone.span, "tells nobody apart")
            .help("leave `everyone` out"),
        );
    } else if let Some((first, second)) = repeated(&by.value) {
        found.push(
            Diagnostic::error(
                Code::Duplicate,
                format!("limit `{name}` counts by the same thing twice"),
            )
            .at(second, "the second time")
            .and(first, "the first time"),
        );
    }
    let parts: Vec<Part> = by
        .value
        .iter()
        .filter_map(|part| part.value.clone())
        .collect();
    let mut template = KeyTemplate {
        parts,
        missing: written.missing.or(Missing::Refuse),
    };
    let absent = template.can_be_absent();
    if !absent {
        template.missing = Missing::Shared;
    }
    match written.missing.at() {
        Some(missing) if !absent => found.push(
            Diagnostic::warning(
                Code::NeedlessMissing,
                format!("limit `{name}` says what to do without its key, which every request has"),
            )
            .at(&missing.span, "never comes to pass")
            .and(&by.span, "always there")
            .help("leave `missing` out"),
        ),
        None if absent && written.missing.is_absent() => {
            found.push(missing_choice(written, by, &template))
        }
        _ => {}
    }
    let errors = found[before..]
        .iter()
        .filter(|one| one.severity == super::Severity::Error);
    (errors.count() == 0).then_some(template)
}

fn repeated(parts: &[At<Option<Part>>]) -> Option<(&Span, &Span)> {
    let same = |a: &Part, b: &Part| match (a, b) {
        (Part::Ip(_), Part::Ip(_)) | (Part::Route, Part::Route) => true,
        (Part::Header { name: a, .. }, Part::Header { name: b, .. }) => a == b,
        _ => false,
    };
    parts.iter().enumerate().find_map(|(index, later)| {
        let earlier =
            parts[..index]
                .iter()
                .find(|earlier| match (&earlier.value, &later.value) {
                    (Some(a), Some(b)) => same(a, b),
                    _ => false,
                })?;
        Some((&earlier.span, &later.span))
    })
}

fn missing_choice(
    written: &Limit,
    by: &At<Vec<At<Option<Part>>>>,
    template: &KeyTemplate,
) -> Diagnostic {
    let header = template.parts.iter().find_map(|part| match part {
        Part::Header { name, .. } => Some(name.as_str()),
        _ => None,
    });
    let header = header.unwrap_or_default();
    Diagnostic::error(
        Code::MissingChoice,
        format!(
            "limit `{}` counts by header `{header}`, but does not say what to do without it",
            written.name.value
        ),
    )
    .at(&by.span, "a request may lack this")
    .help(
        "add one of\n\
         missing = \"refuse\"  to answer 401\n\
         missing = \"ip\"      to count by client address instead\n\
         missing = \"skip\"    not to limit such requests\n\
         missing = \"shared\"  to count all of them as one",
    )
}

/// Keys that make no sense beside each other.
fn contradictions(written: &Limit, algorithm: Algorithm, found: &mut Vec<Diagnostic>) {
    let name = &written.name.value;
    let leaky = algorithm == Algorithm::LeakyBucket;
    let queue = written.queue.at().map(|at| ("queue", &at.span));
    let max_wait = written.max_wait.at().map(|at| ("max_wait", &at.span));
    let over = written.over.at();
    if let (
        false,
        Some(At {
            value: Over::Delay,
            span,
        }),
    ) = (leaky, over)
    {
        let mut diagnostic = Diagnostic::error(
            Code::Conflict,
            format!(
                "limit `{name}` is to delay, which a {} cannot",
                algorithm.as_str()
            ),
        )
        .at(span, "only a leaky bucket delays")
        .help(leaky_instead(written));
        if let Some(algorithm) = written.algorithm.at() {
            diagnostic = diagnostic.and(&algorithm.span, "this one refuses");
        }
        found.push(diagnostic);
    } else {
        for (key, span) in [queue, max_wait].into_iter().flatten() {
            let refuses = over.filter(|at| at.value == Over::Refuse);
            match refuses {
                _ if !leaky => found.push(
                    Diagnostic::error(
                        Code::Conflict,
                        format!(
                            "limit `{name}` has `{key}`, but a {} holds nothing back",
                            algorithm.as_str()
                        ),
                    )
                    .at(span, "only a leaky bucket has this")
                    .help(leaky_instead(written)),
                ),
                Some(refuses) => found.push(
                    Diagnostic::error(
                        Code::Conflict,
                        format!("limit `{name}` refuses at once, so `{key}` means nothing"),
                    )
                    .at(span, "for a bucket that delays")
                    .and(&refuses.span, "a meter: nothing waits")
                    .help("leave out one of them"),
                ),
                None => {}
            }
        }
    }
    if let (Algorithm::FixedWindow, Some(burst)) = (algorithm, written.burst.at()) {
        found.push(
            Diagnostic::error(
                Code::Conflict,
                format!("limit `{name}` has a burst, but is a fixed window"),
            )
            .at(&burst.span, "a window takes all of its count at once")
            .help("leave `burst` out, or count with `algorithm = \"token-bucket\"`"),
        );
    }
    if let (true, Some(wait)) = (leaky, written.max_wait.at().filter(|at| at.value.is_zero())) {
        found.push(
            Diagnostic::error(
                Code::BadDuration,
                format!("limit `{name}` is to delay for no time at all"),
            )
            .at(&wait.span, "must be longer than nothing")
            .help("write `over = \"refuse\"` instead for a bucket that refuses at once"),
        );
    }
}

/// The leaky bucket that somebody who wants a delay should write.
fn leaky_instead(written: &Limit) -> String {
    let rate = written
        .rate
        .get()
        .map_or_else(|| "10/s".into(), |rate| show_rate(*rate));
    let queue = written
        .queue
        .get()
        .map(|queue| format!("\nqueue = {queue}"))
        .unwrap_or_default();
    let wait = written.max_wait.get().map_or(MAX_WAIT, |wait| {
        u64::try_from(wait.as_micros()).unwrap_or(MAX_WAIT)
    });
    format!(
        "write\nalgorithm = \"leaky-bucket\"\nrate = \"{rate}\"{queue}\nmax_wait = \"{}\"",
        show_span(wait)
    )
}

fn token_bucket(written: &Limit, rate: &At<Rate>, found: &mut Vec<Diagnostic>) -> Option<Rule> {
    let burst = match written.burst.at() {
        Some(at) => NonZeroU32::new(at.value)?,
        None => rate.value.count,
    };
    let place = written.burst.at().map_or(&rate.span, |at| &at.span);
    fits(u64::from(burst.get()), "burst", place, rate, written, found)?;
    Some(Rule::TokenBucket(TokenBucket::new(rate.value, burst)))
}

fn leaky_bucket(written: &Limit, rate: &At<Rate>, found: &mut Vec<Diagnostic>) -> Option<Rule> {
    let burst = NonZeroU32::new(written.burst.or(1))?;
    let place = written.burst.at().map_or(&rate.span, |at| &at.span);
    fits(u64::from(burst.get()), "burst", place, rate, written, found)?;
    if written.over.or(Over::Delay) == Over::Refuse {
        return Some(Rule::LeakyBucket(LeakyBucket::meter(rate.value, burst)));
    }
    let max_wait = match written.max_wait.get() {
        Some(wait) => u64::try_from(wait.as_micros()).ok()?,
        None => MAX_WAIT,
    };
    let (queue, place) = match written.queue.at() {
        Some(at) => (u64::from(at.value), &at.span),
        None => (
            default_queue(rate.value, max_wait),
            written.max_wait.at().map_or(&rate.span, |at| &at.span),
        ),
    };
    fits(
        queue + u64::from(burst.get()),
        "queue and burst",
        place,
        rate,
        written,
        found,
    )?;
    let Ok(small) = u32::try_from(queue) else {
        found.push(
            Diagnostic::error(
                Code::OutOfRange,
                format!(
                    "the queue of limit `{}` would have {queue} places",
                    written.name.value
                ),
            )
            .at(place, "what goes on within the longest wait")
            .help(format!(
                "write a `queue` of your own; the largest is {}",
                u32::MAX
            )),
        );
        return None;
    };
    Some(Rule::LeakyBucket(LeakyBucket::new(
        rate.value, burst, small, max_wait,
    )))
}

/// As many as go on within the longest wait, rounded up.
fn default_queue(rate: Rate, max_wait: u64) -> u64 {
    let places = (u128::from(rate.count.get()) * u128::from(max_wait))
        .div_ceil(u128::from(rate.period.get()));
    u64::try_from(places).unwrap_or(u64::MAX / 2)
}

/// Can `units` be computed with exactly at this rate?
fn fits(
    units: u64,
    what: &str,
    place: &Span,
    rate: &At<Rate>,
    written: &Limit,
    found: &mut Vec<Diagnostic>,
) -> Option<()> {
    let most = rate.value.most_units();
    if units <= most {
        return Some(());
    }
    let shown = quoted(&show_rate(rate.value));
    let mut diagnostic = Diagnostic::error(
        Code::OutOfRange,
        format!(
            "limit `{}` reaches too far to be computed exactly",
            written.name.value
        ),
    )
    .at(
        place,
        format!("{what} of {units} at {shown} take more than 142 years"),
    )
    .help(format!("the largest that fits is {most}"));
    if place != &rate.span {
        diagnostic = diagnostic.and(&rate.span, "");
    }
    found.push(diagnostic);
    None
}

/// A request that costs more than the whole limit never passes.
fn warn_of_cost(written: &Limit, rule: &Rule, cost: Cost, found: &mut Vec<Diagnostic>) {
    let whole = match rule {
        Rule::TokenBucket(rule) => u64::from(rule.burst.get()),
        Rule::LeakyBucket(rule) => u64::from(rule.burst.get()) + u64::from(rule.queue),
        Rule::FixedWindow(rule) => u64::from(rule.limit),
    };
    if u64::from(cost.units()) <= whole {
        return;
    }
    let name = &written.name.value;
    let mut diagnostic = Diagnostic::warning(
        Code::NeverAdmits,
        format!("limit `{name}` never lets a request pass"),
    );
    if let Some(at) = written.cost.at() {
        diagnostic = diagnostic.at(
            &at.span,
            format!(
                "costs {}, and the limit never holds more than {whole}",
                cost.units()
            ),
        );
    }
    found.push(diagnostic.help("lower `cost`, or raise what the limit holds"));
}
