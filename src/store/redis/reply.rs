//! What the scripts answer: packed bytes, read strictly. Anything unexpected is an error, never a guess.

use crate::clock::Timestamp;
use crate::limit::rate::{Cost, Span};
use crate::limit::verdict::{Measurement, Repeat, Wait};
use crate::store::answers::Measurements;
use crate::store::error::StoreError;
use std::sync::Arc;

/// The wait that says that a counter cannot be read which decides nothing.
const SPOILT: f64 = -0.5;

/// What one request of a batch was told.
pub(super) type ScriptReply = Result<(Timestamp, Measurements), ReplyError>;

/// Why this one request could not be decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplyError {
    /// Something is the matter with the key of one of its limits.
    Limit {
        /// Which.
        index: usize,
        /// In the server's words.
        reason: Arc<str>,
    },
    /// The store as a whole.
    Store(StoreError),
}

/// Reads the answer to requests with so many limits each, all of it or nothing.
pub(super) fn read(
    bytes: &[u8],
    shape: impl ExactSizeIterator<Item = usize>,
) -> Result<Vec<ScriptReply>, StoreError> {
    let mut rest = ReplyReader(bytes);
    let at = Timestamp::from_micros(rest.whole()?);
    let mut told = Vec::with_capacity(shape.len());
    for limits in shape {
        told.push(match rest.byte()? {
            0 => Ok((at, rest.measurements(limits)?)),
            1 => Err(rest.wrong(limits)?),
            _ => return Err(StoreError::Protocol("unknown status of a request")),
        });
    }
    match rest.0 {
        [] => Ok(told),
        _ => Err(StoreError::Protocol("longer than the question")),
    }
}

/// Is this trouble of the whole server and not of one key? It looks the same to the next request.
pub(super) fn server_wide(reason: &str) -> bool {
    codes(reason).any(|word| {
        matches!(
            word,
            "OOM"
                | "READONLY"
                | "MISCONF"
                | "NOREPLICAS"
                | "LOADING"
                | "MASTERDOWN"
                | "CLUSTERDOWN"
        )
    })
}

/// Is it because the server is no master, or no longer?
pub(super) fn is_read_only(reason: &str) -> bool {
    codes(reason).any(|word| word == "READONLY")
}

/// Words that may be an error's code: Redis 6 puts the script's name and line in front, and a dash; where the script has
/// not caught it, some more.
fn codes(reason: &str) -> impl Iterator<Item = &str> {
    let many = if reason.starts_with("ERR Error running script ") {
        12
    } else {
        4
    };
    let words = reason.split_whitespace().take(many);
    words.map(|word| word.trim_start_matches('-'))
}

struct ReplyReader<'a>(&'a [u8]);

impl ReplyReader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        let (head, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(StoreError::Protocol("shorter than the question"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn byte(&mut self) -> Result<u8, StoreError> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn double(&mut self) -> Result<f64, StoreError> {
        self.take().map(f64::from_be_bytes)
    }

    fn whole(&mut self) -> Result<u64, StoreError> {
        exact(self.double()?)
    }

    fn measurements(&mut self, limits: usize) -> Result<Measurements, StoreError> {
        (0..limits)
            .map(|_| {
                let told = self.double()?;
                let (mut trailed, mut repeat, mut given) = (false, Repeat::No, None);
                let wait = match told {
                    SPOILT | -1.0 => Wait::Never,
                    less if less < -1.0 => {
                        (given, repeat, trailed) = granted(-1.0 - less)?;
                        Wait::Micros(0)
                    }
                    wait => Wait::Micros(exact(wait)?),
                };
                let whole = self.whole()?;
                let part = u32::from_be_bytes(self.take()?);
                let span = Span { whole, part };
                let back = if trailed { self.whole()? } else { 0 };
                Ok(Measurement {
                    wait,
                    span,
                    granted: given,
                    repeat,
                    back,
                    overflow: false,
                    spoilt: told == SPOILT,
                })
            })
            .collect()
    }

    fn wrong(&mut self, limits: usize) -> Result<ReplyError, StoreError> {
        let index = usize::from(self.byte()?);
        if index == 0 || index > limits {
            return Err(StoreError::Protocol("an error of a limit not asked about"));
        }
        let length = usize::from(self.byte()?);
        let (reason, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(StoreError::Protocol("shorter than the question"))?;
        self.0 = rest;
        Ok(ReplyError::Limit {
            index: index - 1,
            reason: String::from_utf8_lossy(reason).trim_end().into(),
        })
    }
}

/// Units that were granted, and behind the point what an id meant and whether more is said. Where only that is said, all
/// of the cost was charged.
fn granted(number: f64) -> Result<(Option<Cost>, Repeat, bool), StoreError> {
    let (repeat, trailed) = match number.fract() {
        0.125 => (Repeat::No, true),
        0.25 => (Repeat::First, false),
        0.375 => (Repeat::First, true),
        0.5 => (Repeat::Free, false),
        _ => (Repeat::No, false),
    };
    let whole = match (repeat, trailed) {
        (Repeat::No, false) => number,
        _ => number.trunc(),
    };
    let units = u32::try_from(exact(whole)?).ok().filter(|units| *units > 0);
    let units = units.ok_or(StoreError::Protocol("no cost"))?;
    let is_told = !trailed || repeat != Repeat::No;
    Ok((is_told.then(|| Cost::new(units)), repeat, trailed))
}

/// A whole number that a double counts exactly.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "only what is whole, not negative and below 2^53 is cast"
)]
fn exact(value: f64) -> Result<u64, StoreError> {
    if (0.0..9_007_199_254_740_992.0).contains(&value) && value.fract() == 0.0 {
        Ok(value as u64)
    } else {
        Err(StoreError::Protocol("not a whole number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    #[test]
    fn only_the_expected_length_and_whole_numbers_are_read() {
        let at = 1_700_000_000_000_000_f64.to_be_bytes();
        let (zero, five) = (0_f64.to_be_bytes(), 5_f64.to_be_bytes());
        let good = packed(&[&at, &[0], &zero, &five, &7_u32.to_be_bytes()]);
        let told = read(&good, [1].into_iter()).unwrap();
        let (when, measured) = told[0].as_ref().unwrap();
        assert_eq!(when.micros(), 1_700_000_000_000_000);
        assert_eq!(
            measured[0],
            Measurement::admitted(Span { whole: 5, part: 7 })
        );

        for cut in 0..good.len() {
            assert!(read(&good[..cut], [1].into_iter()).is_err());
        }
        assert!(read(&good, [2].into_iter()).is_err());
        assert!(read(&good, [].into_iter()).is_err());
        let less = packed(&[&at, &[0], &(-3_f64).to_be_bytes(), &five, &[0; 4]]);
        let told = read(&less, [1].into_iter()).unwrap();
        let (_, measured) = told[0].as_ref().unwrap();
        assert_eq!(measured[0].granted, Some(Cost::new(2)));
        for (wait, repeat) in [(-3.25_f64, Repeat::First), (-3.5, Repeat::Free)] {
            let bytes = packed(&[&at, &[0], &wait.to_be_bytes(), &five, &[0; 4]]);
            let told = read(&bytes, [1].into_iter()).unwrap();
            let (_, measured) = told[0].as_ref().unwrap();
            assert_eq!(measured[0].granted, Some(Cost::new(2)));
            assert_eq!(measured[0].repeat, repeat);
        }
        let seven = 7_f64.to_be_bytes();
        for (wait, granted) in [(-3.125_f64, None), (-3.375, Some(Cost::new(2)))] {
            let bytes = packed(&[&at, &[0], &wait.to_be_bytes(), &five, &[0; 4], &seven]);
            let told = read(&bytes, [1].into_iter()).unwrap();
            let (_, measured) = told[0].as_ref().unwrap();
            assert_eq!((measured[0].granted, measured[0].back), (granted, 7));
        }
        for bad in [
            f64::NAN,
            -1.125,
            -1.375,
            -1.5,
            -1.25,
            -2.75,
            -1e12,
            0.5,
            f64::INFINITY,
            9_007_199_254_740_992.0,
        ] {
            let bad = bad.to_be_bytes();
            let bytes = packed(&[&at, &[0], &bad, &five, &[0; 4]]);
            assert!(read(&bytes, [1].into_iter()).is_err());
        }
    }

    #[test]
    fn an_error_is_of_one_request_and_names_its_limit() {
        let at = 1_f64.to_be_bytes();
        let bytes = packed(&[&at, &[1, 2, 9], b"WRONGTYPE"]);
        let told = read(&bytes, [2].into_iter()).unwrap();
        let Err(ReplyError::Limit { index: 1, reason }) = &told[0] else {
            panic!("{told:?}");
        };
        assert_eq!(&**reason, "WRONGTYPE");
        assert!(read(&bytes, [1].into_iter()).is_err());
    }

    #[test]
    fn trouble_of_the_whole_server_is_told_from_a_foreign_key() {
        assert!(server_wide("OOM command not allowed"));
        assert!(server_wide(
            "@user_script: 33: -READONLY You can't write against a read only replica."
        ));
        assert!(is_read_only(
            "ERR Error running script (call to f_c1fe20d7): @user_script:24: @user_script: 24: -READONLY You can't write against a read only replica."
        ));
        assert!(!server_wide(
            "ERR Error running script (call to f_c1fe20d7): @user_script:24: @user_script: 24: WRONGTYPE Operation against a key"
        ));
        assert!(!server_wide(
            "WRONGTYPE Operation against a key holding the wrong kind of value"
        ));
    }
}
