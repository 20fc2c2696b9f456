//! The scripts' answers: packed bytes, parsed strictly. An unexpected byte is an error, never a guess.

use super::rights;
use crate::clock::Timestamp;
use crate::limit::BlockPhase;
use crate::limit::rate::{Cost, Span};
use crate::limit::verdict::{GrantedUnits, Measurement, Repeat, Wait};
use crate::store::answers::{Answers, Measurements};
use crate::store::check::Check;
use crate::store::decider::Decider;
use crate::store::error::StoreError;
use std::sync::Arc;

/// A limit's outcome is the lower half of its first byte (`answer` in `lua/check.lua`).
const OUTCOME: u8 = 0x0f;
/// The bit of the lower half that makes numbers of four bytes doubles: one of them is above 2^32 - 1.
const LARGE: u8 = 8;
const ADMITTED: u8 = 0;
const REFUSED: u8 = 1;
const NEVER: u8 = 2;
const UNREADABLE: u8 = 3;
/// The value in place of the first limit's outcome if the request could not be decided.
const FAILED: u8 = 4;
/// Neither charged nor mended, of a counter that keeps other numbers: the wait and the time until it is empty follow.
const OTHERWISE: u8 = 5;
/// Refused since the key is blocked; the second number is 1 where the block begins.
const BLOCKED: u8 = 6;
/// The upper half of the byte: the meaning of an id, and the following fields.
const FIRST: u8 = 16;
const FREE: u8 = 32;
const GRANTED: u8 = 64;
const GIVEN_BACK: u8 = 128;

/// The answer to one request of a batch.
pub(crate) type ScriptReply = Result<(Timestamp, Measurements), ReplyError>;

/// Causes for which this one request could not be decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReplyError {
    /// The key of one of its limits holds a value that cannot be read.
    Limit {
        /// The position of the limit.
        index: usize,
        /// The server's words.
        reason: Arc<str>,
    },
    /// Trouble of the store as a whole.
    Store(StoreError),
}

/// Reads the answer to requests with this number of limits each, completely or not at all.
pub(crate) fn read_replies(
    bytes: &[u8],
    shape: impl ExactSizeIterator<Item = usize>,
) -> Result<Vec<ScriptReply>, StoreError> {
    let mut replies = Vec::with_capacity(shape.len());
    read_each(bytes, shape, |reply| replies.push(reply)).map(|()| replies)
}

/// Hands to `note_reply` the answer to each of the requests with so many limits each. After an error, none of them counts.
pub(crate) fn read_each(
    bytes: &[u8],
    shape: impl Iterator<Item = usize>,
    mut note_reply: impl FnMut(ScriptReply),
) -> Result<(), StoreError> {
    let mut rest = ReplyReader(bytes);
    let at = Timestamp::from_micros(rest.whole()?);
    for limits in shape {
        if let [FAILED, ..] = rest.0 {
            note_reply(Err(rest.wrong(limits)?));
            continue;
        }
        let mut measured = Measurements::new();
        for _ in 0..limits {
            measured.push(rest.measurement()?);
        }
        note_reply(Ok((at, measured)));
    }
    match rest.0 {
        [] => Ok(()),
        _ => Err(StoreError::Protocol("longer than the question")),
    }
}

/// Has every limit admitted the request?
pub(crate) fn admits(reply: &ScriptReply) -> bool {
    let is_free = |measured: &Measurement| measured.wait == Wait::Micros(0);
    reply
        .as_ref()
        .is_ok_and(|(_, measured)| measured.iter().all(is_free))
}

/// A lane's reply as the answers to `checks`.
pub(crate) fn answers(
    reply: &ScriptReply,
    checks: &[Check<'_>],
) -> Result<Box<Answers>, StoreError> {
    match reply {
        Ok((at, measured)) => {
            let mut answers = Answers::none(Decider::Redis, *at);
            answers.add_measured(checks, measured);
            Ok(answers)
        }
        Err(wrong) => Err(error(wrong, checks)),
    }
}

/// The store error for a lane's error about `checks`.
#[cold]
fn error(wrong: &ReplyError, checks: &[Check<'_>]) -> StoreError {
    match wrong {
        ReplyError::Store(error) => error.clone(),
        ReplyError::Limit { index, reason } => match checks.get(*index) {
            Some(check) if reason.starts_with("CLOCK") => StoreError::Clock {
                limit: check.limit.name.clone(),
            },
            _ if ends_service(reason) => StoreError::Refused(reason.clone()),
            Some(check) => StoreError::Answer {
                limit: check.limit.name.clone(),
                reason: reason.clone(),
            },
            None => StoreError::Protocol("an error of a limit not asked about"),
        },
    }
}

/// Does the fault concern the whole server, rather than one key? The next request would have the same error.
pub(crate) fn server_wide(reason: &str) -> bool {
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

/// Does the server refuse each decision of this kind: by its own fault, or because the user may not call a command?
pub(crate) fn ends_service(reason: &str) -> bool {
    server_wide(reason) || rights::is_refused(reason)
}

/// Does the error mean that the server is not a master, or no longer one?
pub(crate) fn is_read_only(reason: &str) -> bool {
    codes(reason).any(|word| word == "READONLY")
}

/// Words that may be an error's code. Redis 6 puts the script's name, its line and a dash before the code, and some
/// more if the script has not caught the error.
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

    /// A number in four bytes, or a large one.
    fn number(&mut self, is_large: bool) -> Result<u64, StoreError> {
        if is_large {
            return self.whole();
        }
        Ok(u64::from(u32::from_be_bytes(self.take()?)))
    }

    fn measurement(&mut self) -> Result<Measurement, StoreError> {
        let first = self.byte()?;
        let is_large = first & LARGE != 0;
        let span = Span {
            whole: self.whole()?,
            part: self.number(is_large)?,
        };
        let first = first & !LARGE;
        match (first & OUTCOME, first & !OUTCOME) {
            (ADMITTED, flags) => self.grant(flags, is_large, Measurement::admitted(span)),
            (REFUSED, 0) => match self.whole()? {
                0 => Err(StoreError::Protocol("a refusal without a wait")),
                wait => Ok(Measurement::refused(Wait::Micros(wait), span)),
            },
            (BLOCKED, 0) => {
                let block = match span.part {
                    0 => BlockPhase::Runs,
                    1 => BlockPhase::Begins,
                    _ => return Err(StoreError::Protocol("unknown phase of a block")),
                };
                let (left, wait) = (Span::micros(span.whole), self.whole()?);
                if wait < left.whole || wait == 0 {
                    return Err(StoreError::Protocol("a block that is over"));
                }
                let refused = Measurement::refused(Wait::Micros(wait), left);
                Ok(Measurement { block, ..refused })
            }
            (NEVER, 0) => Ok(Measurement::refused(Wait::Never, span)),
            (OTHERWISE, 0) => {
                let wait = self.double()?;
                let wait = match wait {
                    f64::INFINITY => Wait::Never,
                    wait => Wait::Micros(exact(wait)?),
                };
                Ok(Measurement {
                    drains: Some(self.whole()?),
                    ..Measurement::refused(wait, span)
                })
            }
            (UNREADABLE, 0) => Ok(Measurement::SPOILT),
            _ => Err(StoreError::Protocol("unknown outcome of a limit")),
        }
    }

    /// Adds the fields about a charge that the flags announce.
    fn grant(
        &mut self,
        flags: u8,
        is_large: bool,
        mut of: Measurement,
    ) -> Result<Measurement, StoreError> {
        of.repeat = match flags & (FIRST | FREE | GRANTED) {
            0 | GRANTED => Repeat::No,
            flags if flags == FIRST | GRANTED => Repeat::First,
            flags if flags == FREE | GRANTED => Repeat::Free,
            _ => return Err(StoreError::Protocol("an id without a grant")),
        };
        if flags & GRANTED != 0 {
            let units = Cost::new(self.number(is_large)?);
            let grant = GrantedUnits::of(units).ok_or(StoreError::Protocol("no cost"))?;
            of.granted = Some(grant);
        }
        if flags & GIVEN_BACK != 0 {
            of.back = self.whole()?;
        }
        Ok(of)
    }

    fn wrong(&mut self, limits: usize) -> Result<ReplyError, StoreError> {
        let [_, index] = self.take()?;
        let index = usize::from(index);
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

/// A whole number that a double represents exactly.
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
        let five = 5_f64.to_be_bytes();
        let of =
            |first: u8, more: &[u8]| packed(&[&at, &[first], &five, &7_u32.to_be_bytes(), more]);
        let good = of(ADMITTED, &[]);
        let replies = read_replies(&good, [1].into_iter()).unwrap();
        let (when, measured) = replies[0].as_ref().unwrap();
        assert_eq!(when.micros(), 1_700_000_000_000_000);
        let span = Span { whole: 5, part: 7 };
        assert_eq!(measured[0], Measurement::admitted(span));

        for cut in 0..good.len() {
            assert!(read_replies(&good[..cut], [1].into_iter()).is_err());
        }
        assert!(read_replies(&good, [2].into_iter()).is_err());
        assert!(read_replies(&good, [].into_iter()).is_err());
        let one = |first: u8, more: &[u8]| {
            let replies = read_replies(&of(first, more), [1].into_iter()).unwrap();
            replies[0].as_ref().unwrap().1[0]
        };
        let two = 2_u32.to_be_bytes();
        for (flag, repeat) in [
            (0, Repeat::No),
            (FIRST, Repeat::First),
            (FREE, Repeat::Free),
        ] {
            let measured = one(flag | GRANTED, &two);
            assert_eq!(
                (measured.granted, measured.repeat),
                (GrantedUnits::of(Cost::new(2)), repeat)
            );
            let measured = one(flag | GRANTED | GIVEN_BACK, &packed(&[&two, &five]));
            assert_eq!(
                (measured.granted, measured.back),
                (GrantedUnits::of(Cost::new(2)), 5)
            );
        }
        let measured = one(GIVEN_BACK, &five);
        assert_eq!((measured.granted, measured.back), (None, 5));
        assert_eq!(
            one(REFUSED, &five),
            Measurement::refused(Wait::Micros(5), span)
        );
        let blocked = |phase: u32| packed(&[&at, &[BLOCKED], &five, &phase.to_be_bytes(), &five]);
        for (phase, block) in [(0, BlockPhase::Runs), (1, BlockPhase::Begins)] {
            let replies = read_replies(&blocked(phase), [1].into_iter()).unwrap();
            let refused = Measurement::refused(Wait::Micros(5), Span::micros(5));
            let wanted = Measurement { block, ..refused };
            assert_eq!(replies[0].as_ref().unwrap().1[0], wanted);
        }
        assert!(read_replies(&blocked(2), [1].into_iter()).is_err());
        assert_eq!(one(NEVER, &[]), Measurement::refused(Wait::Never, span));
        assert_eq!(one(UNREADABLE, &[]), Measurement::SPOILT);
        for (first, more) in [
            (REFUSED, &0_f64.to_be_bytes()[..]),
            (REFUSED, &f64::NAN.to_be_bytes()),
            (REFUSED, &0.5_f64.to_be_bytes()),
            (REFUSED, &(-1_f64).to_be_bytes()),
            (REFUSED, &f64::INFINITY.to_be_bytes()),
            (REFUSED, &9_007_199_254_740_992_f64.to_be_bytes()),
            (REFUSED | GRANTED, &five),
            (NEVER | GIVEN_BACK, &[]),
            (FIRST, &[]),
            (FIRST | FREE | GRANTED, &two),
            (GRANTED, &0_u32.to_be_bytes()),
            (GIVEN_BACK, &0.5_f64.to_be_bytes()),
            (5, &[]),
        ] {
            assert!(
                read_replies(&of(first, more), [1].into_iter()).is_err(),
                "{first}"
            );
        }
    }

    #[test]
    fn numbers_above_four_bytes_are_doubles_beside_a_mark() {
        let doubles = |numbers: &[u64]| -> Vec<u8> {
            let numbers = numbers.iter().map(|number| *number as f64);
            numbers.flat_map(f64::to_be_bytes).collect()
        };
        let read = |first: u8, numbers: &[u64]| {
            let bytes = packed(&[&doubles(&[1]), &[first], &doubles(numbers)]);
            let replies = read_replies(&bytes, [1].into_iter())?;
            Ok::<_, StoreError>(replies[0].as_ref().unwrap().1[0])
        };
        let most = (1 << 53) - 1;
        for part in [7, 1 << 32, most] {
            let span = Span { whole: 5, part };
            let admitted = Measurement::admitted(span);
            assert_eq!(read(LARGE | ADMITTED, &[5, part]).unwrap(), admitted);
            let refused = Measurement::refused(Wait::Micros(9), span);
            assert_eq!(read(LARGE | REFUSED, &[5, part, 9]).unwrap(), refused);
            let never = Measurement::refused(Wait::Never, span);
            assert_eq!(read(LARGE | NEVER, &[5, part]).unwrap(), never);
            let granted = read(LARGE | GRANTED | GIVEN_BACK, &[5, part, most, 3]).unwrap();
            assert_eq!(granted.granted, GrantedUnits::of(Cost::new(most)));
            assert_eq!((granted.span, granted.back), (span, 3));
        }
        assert!(read(LARGE | ADMITTED, &[5, most + 1]).is_err());
        assert!(read(LARGE | GRANTED, &[5, 7, 0]).is_err());
        assert!(read(LARGE | FAILED, &[5, 7]).is_err());
    }

    #[test]
    fn an_error_is_of_one_request_and_names_its_limit() {
        let at = 1_f64.to_be_bytes();
        let bytes = packed(&[&at, &[FAILED, 2, 9], b"WRONGTYPE"]);
        let replies = read_replies(&bytes, [2].into_iter()).unwrap();
        let Err(ReplyError::Limit { index: 1, reason }) = &replies[0] else {
            panic!("{replies:?}");
        };
        assert_eq!(&**reason, "WRONGTYPE");
        assert!(read_replies(&bytes, [1].into_iter()).is_err());
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
