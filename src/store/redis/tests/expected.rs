//! The expected answers of a server after each step of the twins' histories, and their comparison with the real ones.

use crate::clock::Timestamp;
use crate::store::answers::Measurements;
use crate::store::redis::link::reply;
use bb8_redis::redis::Value;

/// Milliseconds of life that an injected clock adds, and the part of them that a slow test may use up.
const SLACK: u64 = 3_600_000;
const PATIENCE: u64 = 1_800_000;

/// The expected answer to a command.
pub(super) enum Expected {
    StoreDecision(Timestamp, Vec<Measurements>),
    Refunded(Vec<u8>),
    Stored(Vec<u8>, Option<(Vec<u8>, u64)>),
    Life(Option<u64>),
    Anything,
}

/// The fault of an answer, if there is one.
pub(super) fn compare(expected: Expected, value: Value) -> Result<(), String> {
    match (expected, value) {
        (Expected::Anything, _) => Ok(()),
        (Expected::StoreDecision(now, wanted), Value::BulkString(bytes)) => {
            let replies = reply::read_replies(&bytes, wanted.iter().map(|m| m.len()))
                .map_err(|error| error.to_string())?;
            for (replies, wanted) in replies.into_iter().zip(wanted) {
                if replies != Ok((now, wanted.clone())) {
                    return Err(format!("{replies:?}, wanted {wanted:?} at {now}"));
                }
            }
            Ok(())
        }
        (Expected::Refunded(wanted), Value::BulkString(bytes)) if bytes == wanted => Ok(()),
        (Expected::Stored(_, None), Value::Nil) => Ok(()),
        (Expected::Stored(key, wanted), Value::Array(list)) => {
            let one = |one: &Value| match one {
                Value::BulkString(bytes) => bytes.clone(),
                // A score, by the newer protocol.
                Value::Double(score) => score.to_be_bytes().to_vec(),
                other => format!("{other:?}").into_bytes(),
            };
            let is_set = [
                &b"t:1:flight:"[..],
                b"t:1:less-flight:",
                b"t:1:beside-flight:",
            ]
            .iter()
            .any(|name| key.starts_with(name));
            let scores = list.iter().enumerate().map(|(index, value)| match value {
                Value::BulkString(text) if is_set && index % 2 == 1 => {
                    let score: f64 = String::from_utf8_lossy(text).parse().unwrap();
                    score.to_be_bytes().to_vec()
                }
                value => one(value),
            });
            let held: Vec<u8> = scores.flatten().collect();
            match wanted.map_or(Vec::new(), |(wanted, _)| wanted) {
                wanted if wanted == held => Ok(()),
                wanted => Err(format!(
                    "{} holds {held:?}, wanted {wanted:?}",
                    key.escape_ascii()
                )),
            }
        }
        (Expected::Stored(_, Some((wanted, _))), Value::BulkString(b)) if b == wanted => Ok(()),
        (Expected::Life(None), Value::Int(-2)) => Ok(()),
        (Expected::Life(Some(u64::MAX)), Value::Int(-1)) => Ok(()),
        (Expected::Life(Some(life)), Value::Int(left)) => {
            let (most, left) = (life.saturating_add(SLACK), left as u64);
            if left <= most && left >= most - PATIENCE {
                Ok(())
            } else {
                Err(format!("lives {left} ms, wanted {most}"))
            }
        }
        (Expected::Refunded(wanted), value) => Err(format!("{value:?}, wanted {wanted:?}")),
        (Expected::Stored(key, wanted), value) => Err(format!(
            "{} holds {value:?}, wanted {wanted:?}",
            key.escape_ascii()
        )),
        (_, value) => Err(format!("{value:?}")),
    }
}
