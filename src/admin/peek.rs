//! `POST /v1/peek`: the units left on counters that the request names. Nothing is charged. Keys are sent in the body,
//! since request targets end up in logs.

use super::answers::problem::Problem;
use super::call::{AdminResponse, Call, json};
use crate::snapshot::{NumbersName, Snapshot};
use crate::store::Store;
use arc_swap::ArcSwap;
use data_encoding::HEXLOWER_PERMISSIVE;
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// The path of the endpoint.
pub const PATH: &str = "/v1/peek";
/// Most counters of one request.
const MOST: usize = 64;
/// Longest time for the answer.
const WITHIN: Duration = Duration::from_secs(2);

/// Counters to peek at, and the channel for the answer.
#[derive(Debug)]
pub struct PeekRequest {
    counters: Vec<PeekedCounter>,
    answer: oneshot::Sender<Value>,
}

#[derive(Debug)]
struct PeekedCounter {
    limit: String,
    window: Option<String>,
    /// The group whose tier is read.
    group: Option<String>,
    /// The customer whose numbers are read, if they are others.
    customer: Option<String>,
    key: Vec<u8>,
    /// The cost of a request, if its wait is asked.
    cost: Option<u64>,
}

/// The channel that carries peeks to the worker that answers them from its store.
pub type PeekSender = mpsc::Sender<PeekRequest>;

/// A channel for peeks.
#[must_use]
pub fn peek_channel() -> (PeekSender, mpsc::Receiver<PeekRequest>) {
    mpsc::channel(4)
}

/// Answers peeks one by one from `store` under the current file.
pub async fn answer_peeks(
    store: Store,
    snapshots: Arc<ArcSwap<Snapshot>>,
    mut peeks: mpsc::Receiver<PeekRequest>,
) {
    while let Some(PeekRequest { counters, answer }) = peeks.recv().await {
        let snapshot = snapshots.load_full();
        let mut seen = Vec::with_capacity(counters.len());
        for counter in &counters {
            if answer.is_closed() {
                break;
            }
            seen.push(look(&store, &snapshot, counter).await);
        }
        // The client may have left.
        let _ = answer.send(json!({ "generation": snapshot.generation, "counters": seen }));
    }
}

async fn look(store: &Store, snapshot: &Snapshot, counter: &PeekedCounter) -> Value {
    let found = snapshot.find_limit(&NumbersName {
        limit: &counter.limit,
        window: counter.window.as_deref(),
        group: counter.group.as_deref(),
        customer: counter.customer.as_deref(),
    });
    let mut seen =
        json!({ "limit": counter.limit, "window": counter.window, "known": found.is_some() });
    let Some(limit) = found else {
        return seen;
    };
    match store.peek(limit, &counter.key).await {
        Ok(decided) => {
            let verdict = decided.decision.verdicts.first();
            seen["remaining"] = verdict.map(|verdict| verdict.remaining).into();
            seen["of"] = limit.quota.into();
            seen["reset_us"] = verdict.map(|verdict| verdict.reset).into();
            seen["blocked_us"] = decided.left_of_block(0).into();
            let remaining = verdict.map_or(0, |verdict| verdict.remaining);
            if let Some(cost) = counter.cost.filter(|cost| *cost > remaining)
                && let Ok(Some(wait)) = store.wait_for(cost, limit, &counter.key).await
            {
                seen["wait_us"] = wait.into();
            }
        }
        Err(error) => seen["error"] = error.to_string().into(),
    }
    seen
}

/// Answers one request.
pub(super) async fn answer(call: Call) -> Result<AdminResponse, Problem> {
    let unavailable =
        |detail: &'static str| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "starting", detail);
    let peeks = call.state.peeks.as_ref();
    let peeks = peeks.ok_or_else(|| unavailable("no worker answers peeks"))?;
    let counters = read_counters(&call.body)
        .map_err(|wrong| Problem::new(StatusCode::BAD_REQUEST, "bad_body", wrong))?;
    let (answer, answered) = oneshot::channel();
    let asked = async {
        let question = PeekRequest { counters, answer };
        peeks.send(question).await.ok()?;
        answered.await.ok()
    };
    match timeout(WITHIN, asked).await {
        Ok(Some(seen)) => json(&seen),
        _ => Err(unavailable("no answer in time")),
    }
}

/// Reads `{ "counters": [{ "limit": "per-ip", "window": null, "key": "3132" }] }`, the key's bytes in hexadecimal
/// digits.
fn read_counters(body: &[u8]) -> Result<Vec<PeekedCounter>, &'static str> {
    const SHAPE: &str =
        "write {\"counters\": [{\"limit\": NAME, \"window\": null, \"key\": HEXADECIMAL}]}";
    let body: Value = serde_json::from_slice(body).map_err(|_| "the body is no JSON")?;
    let counters = body["counters"].as_array().ok_or(SHAPE)?;
    if counters.len() > MOST {
        return Err("at most 64 counters at once");
    }
    let counter = |one: &Value| {
        let key = one["key"].as_str()?;
        Some(PeekedCounter {
            limit: one["limit"].as_str()?.to_owned(),
            window: one["window"].as_str().map(str::to_owned),
            group: one["group"].as_str().map(str::to_owned),
            customer: one["customer"].as_str().map(str::to_owned),
            key: HEXLOWER_PERMISSIVE.decode(key.as_bytes()).ok()?,
            cost: one["cost"].as_u64(),
        })
    };
    counters
        .iter()
        .map(counter)
        .collect::<Option<_>>()
        .ok_or(SHAPE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_whole_or_not() {
        let one = |key: &str| {
            let body = json!({ "counters": [{ "limit": "l", "key": key }] });
            read_counters(body.to_string().as_bytes()).map(|counters| counters[0].key.clone())
        };
        assert_eq!(one("31fF"), Ok(vec![0x31, 0xff]));
        assert_eq!(one(""), Ok(Vec::new()));
        assert!(one("3").is_err() && one("zz").is_err() && one("é").is_err());
        assert!(read_counters(b"{").is_err() && read_counters(b"{}").is_err());
        let many = json!({ "counters": vec![json!({ "limit": "l", "key": "" }); 65] });
        assert!(read_counters(many.to_string().as_bytes()).is_err());
    }
}
