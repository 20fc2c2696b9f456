//! Compiles the rates of a limit into the rules that count.

use crate::config::document::{Algorithm, AnchorWord, Limit, RateEntry};
use crate::config::input::{At, Span};
use crate::config::report::{Code, Details as _, Diagnostic, Findings};
use crate::config::value::{MICROS, quoted, show_quota, show_rate, show_span};
use crate::limit::calendar::Calendar;
use crate::limit::clock_window::ClockWindow;
use crate::limit::concurrency::Concurrency;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::leaky_bucket::LeakyBucket;
use crate::limit::rate::{MOST_OF_FOUR_BYTES, MOST_UNITS, Rate};
use crate::limit::sliding_log::{self, SlidingLog};
use crate::limit::sliding_window::{self, SlidingWindow};
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{LONGEST_OF_LARGE, Rule, Unit};
use std::fmt::Display;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

const DAY: u64 = 86_400 * MICROS;

/// A rule, its rate, and the rate as the file writes it.
pub(super) struct RatedRule {
    pub(super) rate: Rate,
    pub(super) rule: Rule,
    pub(super) shown: String,
}

/// A limit and the diagnostics about it.
struct RuleReader<'a> {
    limit: &'a Limit,
    found: &'a mut Findings,
}

/// The rules of all rates. `None` if the numbers of a rate contradict each other, which has been noted.
pub(super) fn all_rules(limit: &Limit, found: &mut Findings) -> Option<Vec<RatedRule>> {
    let algorithm = limit.algorithm();
    if algorithm == Algorithm::Concurrency {
        return concurrency(limit).map(|rule| vec![rule]);
    }
    let entries = limit.rate.entries();
    let mut reader = RuleReader { limit, found };
    let rules = entries.iter().filter_map(|entry| {
        let quota = entry.value.quota.value;
        Some(RatedRule {
            rate: quota.rate,
            rule: reader.rule(algorithm, entry)?,
            shown: show_quota(quota),
        })
    });
    // Collecting the rules notes every mistake, not only the first.
    let rules: Vec<RatedRule> = rules.collect();
    (rules.len() == entries.len()).then_some(rules)
}

/// The rule of a limit on requests in flight; its rate is the number of slots per lifetime of a slot.
fn concurrency(limit: &Limit) -> Option<RatedRule> {
    let max = NonZeroU32::new(*limit.max.get()?)?;
    let ttl = u64::try_from(limit.slot_ttl().as_micros()).ok()?;
    let rate = Rate {
        count: max.into(),
        period: NonZeroU64::new(ttl)?,
    };
    Some(RatedRule {
        rate,
        rule: Rule::Concurrency(Concurrency { max, ttl }),
        shown: String::new(),
    })
}

impl RuleReader<'_> {
    fn rule(&mut self, algorithm: Algorithm, entry: &At<RateEntry>) -> Option<Rule> {
        let quota = &entry.value.quota;
        let anchor = self.limit.anchor();
        let by_clock = algorithm == Algorithm::FixedWindow && anchor == AnchorWord::Clock;
        if quota.value.is_monthly() && !by_clock {
            self.months(algorithm, entry);
            return None;
        }
        let rate = At::new(quota.value.rate, quota.span.clone());
        let burst = entry.value.burst.at().or(self.limit.burst.at());
        match algorithm {
            Algorithm::TokenBucket => self.token_bucket(&rate, burst),
            Algorithm::LeakyBucket => self.leaky_bucket(&rate, burst),
            Algorithm::FixedWindow if by_clock => self.clock_window(entry),
            Algorithm::FixedWindow => Some(Rule::FixedWindow(FixedWindow::new(rate.value))),
            Algorithm::SlidingWindow => self.sliding_window(&rate),
            Algorithm::SlidingLog => self.sliding_log(&rate),
            Algorithm::Concurrency => None,
        }
    }

    /// Notes numbers that are too large for exact computation.
    fn out_of_range(&mut self, what: impl Display) -> &mut Diagnostic {
        let name = &self.limit.name.value;
        self.found
            .error(Code::OutOfRange, format!("limit `{name}` {what}"))
    }

    fn months(&mut self, algorithm: Algorithm, entry: &At<RateEntry>) {
        let quota = &entry.value.quota;
        let Rate { count, period } = quota.value.rate;
        let days = period.get() / DAY;
        let clock = match algorithm {
            Algorithm::FixedWindow => "add `anchor = \"clock\"`",
            _ => "write `algorithm = \"fixed-window\"` and `anchor = \"clock\"`",
        };
        let days = format!("count over days: `\"{count}/{days}d\"`");
        let name = &self.limit.name.value;
        let message =
            format!("limit `{name}` counts over months, which only windows by the clock can do");
        self.found
            .error(Code::BadRate, message)
            .at(&quota.span, "months differ in length")
            .help(format!("{clock} to count by the calendar, or {days}"));
    }

    fn token_bucket(&mut self, rate: &At<Rate>, burst: Option<&At<u64>>) -> Option<Rule> {
        let place = burst.map_or(&rate.span, |at| &at.span);
        let burst = match burst {
            Some(at) => NonZeroU64::new(at.value)?,
            None => rate.value.count,
        };
        self.fits(burst.get(), "burst", place, rate)?;
        Some(Rule::TokenBucket(TokenBucket::new(rate.value, burst)))
    }

    fn leaky_bucket(&mut self, rate: &At<Rate>, burst: Option<&At<u64>>) -> Option<Rule> {
        let limit = self.limit;
        let place = burst.map_or(&rate.span, |at| &at.span);
        let burst = NonZeroU64::new(burst.map_or(1, |at| at.value))?;
        self.fits(burst.get(), "burst", place, rate)?;
        if !limit.delays() {
            return Some(Rule::LeakyBucket(LeakyBucket::meter(rate.value, burst)));
        }
        let max_wait = u64::try_from(limit.max_wait().as_micros()).ok()?;
        let (queue, place) = match limit.queue.at() {
            Some(at) => (u64::from(at.value), &at.span),
            None => (
                default_queue(rate.value, max_wait),
                limit.max_wait.span().unwrap_or(&rate.span),
            ),
        };
        let all = queue.saturating_add(burst.get());
        self.fits(all, "queue and burst", place, rate)?;
        let Ok(places) = u32::try_from(queue) else {
            let most = u32::MAX;
            self.out_of_range(format!("would have a queue of {queue} places"))
                .at(place, "the requests that go on within the longest wait")
                .help(format!(
                    "write a `queue` of your own; the largest is {most}"
                ));
            return None;
        };
        let bucket = LeakyBucket::new(rate.value, burst, places, max_wait);
        Some(Rule::LeakyBucket(bucket))
    }

    /// Can the limit compute exactly with `units` at this rate?
    fn fits(&mut self, units: u64, what: &str, place: &Span, rate: &At<Rate>) -> Option<()> {
        if !rate.value.is_exact() {
            self.out_of_range("reaches too far to be computed exactly")
                .at(&rate.span, "no bucket counts over 285 years or more")
                .help("the longest time that fits is `104249d`");
            return None;
        }
        if !rate.value.has_small_count() {
            let (count, _) = rate.value.lowest_terms();
            let label =
                format!("{count} in lowest terms, and a bucket has fractions of 4294967295 parts");
            let closest = rate.value.closest_small_count();
            self.out_of_range("has a rate that no bucket counts exactly")
                .at(&rate.span, label)
                .help(format!("the closest count that fits is {closest}"));
            return None;
        }
        let (_, period) = rate.value.lowest_terms();
        let most = rate.value.most_units().min(if period < LONGEST_OF_LARGE {
            MOST_UNITS
        } else {
            MOST_OF_FOUR_BYTES
        });
        if units <= most {
            return Some(());
        }
        let shown = quoted(&show_rate(rate.value));
        let label = if units > rate.value.most_units() {
            format!("{what} of {units} at {shown} take more than 142 years")
        } else {
            format!("{what} of {units} at {shown} is more than its states have room for")
        };
        let other = (place != &rate.span).then_some(&rate.span);
        self.out_of_range("reaches too far to be computed exactly")
            .at(place, label)
            .help(format!("the largest that fits is {most}"))
            .and_if(other, "");
        None
    }

    /// A window that starts by the clock or the calendar.
    fn clock_window(&mut self, entry: &At<RateEntry>) -> Option<Rule> {
        let limit = self.limit;
        let quota = entry.value.quota.value;
        let calendar = match (quota.calendar, limit.timezone.at()) {
            (Some((Unit::Day | Unit::Week, _)), None) | (None, _) => None,
            (calendar, _) => calendar,
        };
        if let (None, Some(zone)) = (calendar, limit.timezone.span()) {
            let name = &limit.name.value;
            let message =
                format!("limit `{name}` has a time zone, but counts no days, weeks or months");
            self.found
                .conflict(message)
                .at(zone, "means something for `d`, `w` and `month` only")
                .and(&entry.value.quota.span, "one length in every zone")
                .help("leave `timezone` out");
            return None;
        }
        // The shortest window of the calendar. A day can be an hour shorter when clocks change.
        let shortest = match calendar {
            Some((Unit::Month, many)) => 28 * DAY * u64::from(many),
            _ => quota.rate.period.get(),
        };
        let offset = self.offset(shortest, entry, calendar.is_none())?;
        let Some((unit, many)) = calendar else {
            return Some(Rule::ClockWindow(ClockWindow::by_clock(quota.rate, offset)));
        };
        let zone = limit.timezone();
        let calendar = Calendar {
            unit,
            many,
            zone_name: zone.iana_name().unwrap_or("UTC").into(),
            zone,
            offset,
        };
        let window = ClockWindow::by_calendar(quota.rate.count.get(), Arc::new(calendar));
        Some(Rule::ClockWindow(window))
    }

    /// The offset, which is less than the `shortest` window.
    fn offset(&mut self, shortest: u64, entry: &At<RateEntry>, is_regular: bool) -> Option<u64> {
        let Some(at) = self.limit.offset.at() else {
            return Some(0);
        };
        let offset = u64::try_from(at.value.as_micros()).ok()?;
        if offset < shortest {
            return Some(offset);
        }
        let name = &self.limit.name.value;
        let message = format!("the offset of limit `{name}` is as long as its window");
        let rest = offset % shortest;
        let equal = (rest > 0 && is_regular)
            .then(|| format!("an equal offset is `offset = \"{}\"`", show_span(rest)));
        let label = format!("must be less than {}", show_span(shortest));
        self.found
            .error(Code::OutOfRange, message)
            .at(&at.span, label)
            .and(&entry.value.quota.span, "")
            .help_if(equal);
        None
    }

    fn sliding_window(&mut self, rate: &At<Rate>) -> Option<Rule> {
        let parts = NonZeroU32::new(self.limit.buckets())?;
        let period = rate.value.period.get();
        let is_whole = |parts: u64| parts > 0 && period.is_multiple_of(parts * 1000);
        let written = u64::from(parts.get());
        if !is_whole(written) {
            let closest = (1..=written)
                .flat_map(|distance| [written.checked_sub(distance), written.checked_add(distance)])
                .flatten()
                .find(|parts| is_whole(*parts) && *parts <= u64::from(sliding_window::MAX_PARTS));
            let name = &self.limit.name.value;
            let message = format!("the parts of limit `{name}` are not whole milliseconds");
            let wrong = self
                .found
                .error(Code::OutOfRange, message)
                .help(match closest {
                    Some(1) => "leave `buckets` out".to_owned(),
                    Some(closest) => {
                        format!("the nearest that divides it is `buckets = {closest}`")
                    }
                    None => "count over whole milliseconds".to_owned(),
                });
            let shown = show_span(period);
            match self.limit.buckets.span() {
                Some(span) => wrong
                    .at(span, format!("{written} parts"))
                    .and(&rate.span, format!("of {shown}")),
                None => wrong.at(&rate.span, format!("one part of {shown}")),
            };
            return None;
        }
        let most = SlidingWindow::most(period / 1000 / written);
        if rate.value.count.get() > most {
            let label = "more than this window can count exactly";
            self.out_of_range("reaches too far to be computed exactly")
                .at(&rate.span, label)
                .help(format!("the largest count that fits is {most}"));
            return None;
        }
        let strict = self.limit.strict();
        let window = SlidingWindow::new(rate.value, parts, strict);
        Some(Rule::SlidingWindow(window))
    }

    fn sliding_log(&mut self, rate: &At<Rate>) -> Option<Rule> {
        let (count, most) = (rate.value.count.get(), sliding_log::MOST);
        if count <= most {
            return Some(Rule::SlidingLog(SlidingLog::new(rate.value)));
        }
        let help =
            "write `algorithm = \"sliding-window\"` and `strict = true`: as strict, and small";
        self.out_of_range(format!("would remember {count} instants for each key"))
            .at(&rate.span, format!("a log holds {most} at most"))
            .help(help);
        None
    }
}

/// As many places as requests that leave the queue within the longest wait, rounded up.
fn default_queue(rate: Rate, max_wait: u64) -> u64 {
    let places = (u128::from(rate.count.get()) * u128::from(max_wait))
        .div_ceil(u128::from(rate.period.get()));
    u64::try_from(places).unwrap_or(u64::MAX / 2)
}
