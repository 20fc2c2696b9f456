//! Servers that evict counters when their memory is full: an evicted counter means a limit that starts anew.

use super::probe::{self, ServerFacts};
use crate::store::endpoint::RedisEndpoint;
use crate::store::error::StoreError;
use crate::store::redis::cluster::slot_map::SlotRange;
use crate::store::redis::link::transport::RedisDestination;
use crate::store::settings::RedisTarget;
use std::time::Duration;
use tokio::time::timeout;

/// The longest time for the commands of one attempt.
const WITHIN: Duration = Duration::from_secs(5);
/// The pause before an unavailable Redis is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// Logs one line for each server of `target` that evicts counters. An unavailable Redis is tried again until it
/// answers.
pub async fn warn_of_eviction(target: RedisTarget) {
    loop {
        match timeout(WITHIN, evicting(&target)).await {
            Ok(Ok(servers)) => {
                for (server, policy) in servers {
                    tracing::warn!(
                        "{server} forgets counters when its memory is full (maxmemory-policy {policy}), and a limit starts anew with each: set maxmemory-policy noeviction"
                    );
                }
                return;
            }
            // The workers log that it is unavailable.
            Ok(Err(_)) | Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// The servers that evict counters, and their policies.
async fn evicting(target: &RedisTarget) -> Result<Vec<(String, String)>, StoreError> {
    let RedisEndpoint::Cluster { seeds } = &target.place else {
        let mut connection = probe::open(RedisDestination::of(target)).await?;
        let policy = ServerFacts::ask(&mut connection).await.evicts();
        return Ok(policy
            .map(|policy| (target.to_string(), policy))
            .into_iter()
            .collect());
    };
    let mut trouble = StoreError::Down;
    for seed in seeds.iter() {
        match probe::masters(target, seed).await {
            Ok(ranges) => return of_masters(target, ranges).await,
            Err(error) => trouble = error,
        }
    }
    Err(trouble)
}

async fn of_masters(
    target: &RedisTarget,
    ranges: Vec<SlotRange>,
) -> Result<Vec<(String, String)>, StoreError> {
    let mut masters: Vec<_> = ranges.into_iter().map(|range| range.master).collect();
    masters.dedup();
    let mut all = Vec::new();
    for master in masters {
        let destination = RedisDestination {
            target,
            node: Some(&master),
        };
        let mut connection = probe::open(destination).await?;
        if let Some(policy) = ServerFacts::ask(&mut connection).await.evicts() {
            all.push((master.to_string(), policy));
        }
    }
    Ok(all)
}
