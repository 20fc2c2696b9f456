//! Removes counters that are no longer needed: a replay has its own prefix, whose keys are removed at its end.

use super::RedisStore;
use super::node::Node;
use crate::store::error::StoreError;
use bb8_redis::redis::{Cmd, Pipeline, from_redis_value};

/// Keys visited in one step: Redis does nothing else meanwhile.
const STEP: usize = 1_000;

const NO_PAGE: StoreError = StoreError::Protocol("not a page of keys");

impl RedisStore {
    /// Waits for a connection, for a cluster to every master, to check that Redis can be reached.
    ///
    /// # Errors
    /// If there is no connection, with the cause.
    pub async fn reach(&self) -> Result<(), StoreError> {
        for handle in self.masters().await? {
            handle.node.connections.take().await?;
        }
        Ok(())
    }

    /// Removes every key under this store's prefix, and returns their number. The scan passes all keys of Redis, in
    /// steps, so that it is not for a prefix that gateways use.
    ///
    /// # Errors
    /// If Redis did not remove the keys, or not all of them.
    pub async fn clear(&self) -> Result<u64, StoreError> {
        let mut removed = 0;
        for handle in self.masters().await? {
            removed += handle.node.clear().await?;
        }
        Ok(removed)
    }
}

impl Node {
    async fn clear(&self) -> Result<u64, StoreError> {
        let mut connection = self.connections.take().await?;
        let pattern = format!("{}:*", self.context.prefix);
        let (mut cursor, mut removed) = (b"0".to_vec(), 0);
        loop {
            let mut scan = Cmd::new();
            scan.arg("SCAN").arg(&cursor);
            scan.arg("MATCH").arg(&pattern).arg("COUNT").arg(STEP);
            let page = connection.send(&scan).await?;
            let page: (Vec<u8>, Vec<Vec<u8>>) = from_redis_value(page).map_err(|_| NO_PAGE)?;
            let (next, keys) = page;
            if !keys.is_empty() {
                removed += keys.len() as u64;
                // Keys are removed one by one, since in a cluster the keys of one command must share a slot.
                let mut unlink = Pipeline::with_capacity(keys.len());
                for key in keys {
                    unlink.cmd("UNLINK").arg(key);
                }
                for done in connection.many(&unlink).await? {
                    done?;
                }
            }
            if next == b"0" {
                return Ok(removed);
            }
            cursor = next;
        }
    }
}
