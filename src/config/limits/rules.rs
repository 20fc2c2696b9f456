//! One rate of a limit → the rule that counts by it.

use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::document::{Algorithm, Anchor, Limit, Over, RateEntry};
use crate::config::source::{At, Span};
use crate::config::value::{MICROS, quoted, show_rate, show_span};
use crate::limit::calendar::Calendar;
use crate::limit::clock_window::ClockWindow;
use crate::limit::concurrency::Concurrency;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::leaky_bucket::LeakyBucket;
use crate::limit::rate::Rate;
use crate::limit::sliding_log::{self, SlidingLog};
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Rule, Unit};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

const DAY: u64 = 86_400 * MICROS;

/// Nothing when the numbers do not fit each other, which then has been noted.
pub(super) fn compile(
    written: &Limit,
    algorithm: Algorithm,
    entry: &At<RateEntry>,
    found: &mut Vec<Diagnostic>,
) -> Option<Rule> {
    let quota = &entry.value.quota;
    let by_clock = algorithm == Algorithm::FixedWindow && written.anchor() == Anchor::Clock;
    if quota.value.is_monthly() && !by_clock {
        months_elsewhere(written, algorithm, entry, found);
        return None;
    }
    let rate = At::new(quota.value.rate, quota.span.clone());
    let burst = entry.value.burst.at().or(written.burst.at());
    match algorithm {
        Algorithm::TokenBucket => token_bucket(written, (&rate, burst), found),
        Algorithm::LeakyBucket => leaky_bucket(written, (&rate, burst), found),
        Algorithm::FixedWindow if by_clock => clock_window(written, entry, found),
        Algorithm::FixedWindow => Some(Rule::FixedWindow(FixedWindow::new(rate.value))),
        Algorithm::SlidingWindow => sliding_window(written, &rate, found),
        Algorithm::SlidingLog => sliding_log(written, &rate, found),
        Algorithm::Concurrency => None,
    }
}

/// The rule of a limit on what is in flight, and how many per life of a lease that is at least.
pub(super) fn concurrency(written: &Limit) -> Option<(Rate, Rule)> {
    let max = NonZeroU32::new(*written.max.get()?)?;
    let ttl = u64::try_from(written.slot_ttl().as_micros()).ok()?;
    let rate = Rate {
        count: max,
        period: NonZeroU64::new(ttl)?,
    };
    Some((rate, Rule::Concurrency(Concurrency { max, ttl })))
}

fn months_elsewhere(
    written: &Limit,
    algorithm: Algorithm,
    entry: &At<RateEntry>,
    found: &mut Vec<Diagnostic>,
) {
    let quota = &entry.value.quota;
    let Rate { count, period } = quota.value.rate;
    let days = period.get() / DAY;
    let clock = match algorithm {
        Algorithm::FixedWindow => "add `anchor = \"clock\"` to count by the calendar",
        _ => {
            "write `algorithm = \"fixed-window\"` and `anchor = \"clock\"` to count by the calendar"
        }
    };
    found.push(
        Diagnostic::error(
            Code::BadRate,
            format!(
                "limit `{}` is over months, which only windows by the clock can be",
                written.name.value
            ),
        )
        .at(&quota.span, "months differ in length")
        .help(format!(
            "{clock}, or count over days: `\"{count}/{days}d\"`"
        )),
    );
}

fn token_bucket(
    written: &Limit,
    (rate, burst): (&At<Rate>, Option<&At<u32>>),
    found: &mut Vec<Diagnostic>,
) -> Option<Rule> {
    let place = burst.map_or(&rate.span, |at| &at.span);
    let burst = match burst {
        Some(at) => NonZeroU32::new(at.value)?,
        None => rate.value.count,
    };
    fits(u64::from(burst.get()), "burst", place, rate, written, found)?;
    Some(Rule::TokenBucket(TokenBucket::new(rate.value, burst)))
}

fn leaky_bucket(
    written: &Limit,
    (rate, burst): (&At<Rate>, Option<&At<u32>>),
    found: &mut Vec<Diagnostic>,
) -> Option<Rule> {
    let place = burst.map_or(&rate.span, |at| &at.span);
    let burst = NonZeroU32::new(burst.map_or(1, |at| at.value))?;
    fits(u64::from(burst.get()), "burst", place, rate, written, found)?;
    if written.over.or(Over::Delay) == Over::Refuse {
        return Some(Rule::LeakyBucket(LeakyBucket::meter(rate.value, burst)));
    }
    let max_wait = u64::try_from(written.max_wait().as_micros()).ok()?;
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

/// A window that starts where the clock or the calendar says.
fn clock_window(
    written: &Limit,
    entry: &At<RateEntry>,
    found: &mut Vec<Diagnostic>,
) -> Option<Rule> {
    let quota = entry.value.quota.value;
    let calendar = match (quota.calendar, written.timezone.at()) {
        (Some((Unit::Day, _)), None) | (None, _) => None,
        (calendar, _) => calendar,
    };
    if let (None, Some(zone)) = (calendar, written.timezone.at()) {
        found.push(
            Diagnostic::error(
                Code::Conflict,
                format!(
                    "limit `{}` has a time zone, but counts neither days nor months",
                    written.name.value
                ),
            )
            .at(&zone.span, "means something for `d` and `month` only")
            .and(&entry.value.quota.span, "the same everywhere")
            .help("leave `timezone` out"),
        );
        return None;
    }
    let offset = u64::try_from(written.offset().as_micros()).ok()?;
    // The shortest that a window of the calendar can be. An hour less than its days where clocks change.
    let shortest = match calendar {
        Some((Unit::Month, many)) => 28 * DAY * u64::from(many),
        _ => quota.rate.period.get(),
    };
    if let Some(at) = written.offset.at().filter(|_| offset >= shortest) {
        found.push(
            Diagnostic::error(
                Code::OutOfRange,
                format!(
                    "the offset of limit `{}` is as long as its window",
                    written.name.value
                ),
            )
            .at(
                &at.span,
                format!("must be less than {}", show_span(shortest)),
            )
            .and(&entry.value.quota.span, "")
            .help_if((offset % shortest > 0 && calendar.is_none()).then(|| {
                format!(
                    "the same is `offset = \"{}\"`",
                    show_span(offset % shortest)
                )
            })),
        );
        return None;
    }
    let limit = quota.rate.count.get();
    Some(Rule::ClockWindow(match calendar {
        None => ClockWindow::by_clock(quota.rate, offset),
        Some((unit, many)) => {
            let zone = written.timezone();
            let zone_name = zone.iana_name().unwrap_or("UTC").into();
            let calendar = Calendar {
                unit,
                many,
                zone,
                zone_name,
                offset,
            };
            ClockWindow::by_calendar(limit, Arc::new(calendar))
        }
    }))
}

fn sliding_window(written: &Limit, rate: &At<Rate>, found: &mut Vec<Diagnostic>) -> Option<Rule> {
    let parts = NonZeroU32::new(written.buckets())?;
    let period = rate.value.period.get();
    let whole = |parts: u64| parts > 0 && period.is_multiple_of(parts * 1000);
    let asked = u64::from(parts.get());
    if !whole(asked) {
        let near = (1..=asked)
            .flat_map(|far| [asked.checked_sub(far), asked.checked_add(far)])
            .flatten()
            .find(|parts| whole(*parts) && *parts <= u64::from(sliding_window_most()));
        let mut diagnostic = Diagnostic::error(
            Code::OutOfRange,
            format!(
                "the parts of limit `{}` are not whole milliseconds",
                written.name.value
            ),
        );
        diagnostic = match written.buckets.at() {
            Some(at) => diagnostic
                .at(&at.span, format!("{asked} parts"))
                .and(&rate.span, format!("of {}", show_span(period))),
            None => diagnostic.at(&rate.span, format!("one part of {}", show_span(period))),
        };
        found.push(diagnostic.help(match near {
            Some(1) => "leave `buckets` out".to_owned(),
            Some(near) => format!("the nearest that divides it is `buckets = {near}`"),
            None => "count over whole milliseconds".to_owned(),
        }));
        return None;
    }
    let most = SlidingWindow::most(period / 1000 / asked);
    if u64::from(rate.value.count.get()) > most {
        found.push(
            Diagnostic::error(
                Code::OutOfRange,
                format!(
                    "limit `{}` reaches too far to be computed exactly",
                    written.name.value
                ),
            )
            .at(
                &rate.span,
                "more than weights of whole milliseconds can count",
            )
            .help(format!("the largest count that fits is {most}")),
        );
        return None;
    }
    let strict = written.strict();
    Some(Rule::SlidingWindow(SlidingWindow::new(
        rate.value, parts, strict,
    )))
}

const fn sliding_window_most() -> u32 {
    crate::limit::sliding_window::MAX_PARTS
}

fn sliding_log(written: &Limit, rate: &At<Rate>, found: &mut Vec<Diagnostic>) -> Option<Rule> {
    let (count, most) = (rate.value.count.get(), sliding_log::MOST);
    if count <= most {
        return Some(Rule::SlidingLog(SlidingLog::new(rate.value)));
    }
    found.push(
        Diagnostic::error(
            Code::OutOfRange,
            format!(
                "limit `{}` would remember {count} instants for each key",
                written.name.value
            ),
        )
        .at(&rate.span, format!("a log holds {most} at most"))
        .help("write `algorithm = \"sliding-window\"` and `strict = true`: as strict, and small"),
    );
    None
}
