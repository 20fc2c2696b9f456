//! Keys whose values are times.

use super::{Fields, WITHOUT_QUOTES};
use crate::config::document::Setting;
use crate::config::report::{Code, Details as _};
use crate::config::value::{duration, quoted};
use std::cmp::Ordering;
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::Spanned;
use toml::de::DeValue;

/// The words by which other proxies state that a time has no bound.
const WORDS_FOR_OFF: [&str; 4] = ["off", "false", "none", "never"];

/// Whether a time can be zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config::document) enum Zero {
    /// A time can be zero.
    Allowed,
    /// A time of zero would make no sense.
    Refused,
}

impl Fields<'_> {
    /// A time.
    pub(in crate::config::document) fn time(
        &mut self,
        key: &'static str,
        zero: Zero,
    ) -> Setting<Duration> {
        let time = self.text(key, duration);
        time.and_then(|time, span| {
            if time.is_zero() && zero == Zero::Refused {
                self.wrong(key, Code::BadDuration, "leaves no time at all")
                    .at(span, "must be longer than nothing")
                    .help("leave it out for the default");
                return None;
            }
            Some(time)
        })
    }

    /// A time above zero, or `false` for no time.
    pub(in crate::config::document) fn time_or_off(
        &mut self,
        key: &'static str,
    ) -> Setting<Option<Duration>> {
        let value = self.value(key).map(Spanned::get_ref);
        if !value.is_some_and(DeValue::is_bool) {
            let text = value.and_then(DeValue::as_str);
            if text.is_some_and(|text| WORDS_FOR_OFF.contains(&text)) {
                return self.text(key, |text| Ok(text.to_owned())).and_then(|text, span| {
                    self.wrong(key, Code::BadDuration, &format!("is the text {}", quoted(&text)))
                        .at(span, "no time, and no `false`, which has no quotes")
                        .help(format!(
                            "write `{key} = false`{WITHOUT_QUOTES}, for no bound, or leave it out for the default"
                        ));
                    None
                });
            }
            let read = |text: &str| match text {
                "0" => Ok(Duration::ZERO),
                text => duration(text),
            };
            return self.text(key, read).and_then(|time, span| {
                if time.is_zero() {
                    self.wrong(key, Code::BadDuration, "leaves no time at all")
                        .at(span, "must be longer than nothing")
                        .help(format!(
                            "write `{key} = false` for no bound, or leave it out for the default"
                        ));
                    return None;
                }
                Some(Some(time))
            });
        }
        self.typed(key, DeValue::as_bool).and_then(|is_on, span| {
            if is_on {
                self.wrong(key, Code::BadChoice, "is `true`")
                    .at(span, "it is on by itself")
                    .help("leave it out for the default, or write a time");
                return None;
            }
            Some(None)
        })
    }

    /// A time from `least` to `most`, both as the file writes them; `why` follows the bound in the help.
    pub(in crate::config::document) fn time_within(
        &mut self,
        key: &'static str,
        bounds: RangeInclusive<&str>,
        why: &str,
    ) -> Setting<Duration> {
        let time = self.time(key, Zero::Refused);
        time.and_then(|time, span| {
            let is_beyond =
                |bound: &str, order| duration(bound).is_ok_and(|bound| time.cmp(&bound) == order);
            let (least, most) = (*bounds.start(), *bounds.end());
            let (bound, label) = if is_beyond(least, Ordering::Less) {
                (least, format!("must be at least {least}"))
            } else if is_beyond(most, Ordering::Greater) {
                (most, format!("must be {most} at most"))
            } else {
                return Some(time);
            };
            self.wrong(key, Code::BadDuration, "is out of range")
                .at(span, label)
                .help(format!("write `{key} = \"{bound}\"`; {why}"));
            None
        })
    }
}
