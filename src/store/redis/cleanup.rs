//! Counters that nobody needs any more: those of a replay, which has a prefix of its own, go with it.

use super::node::Node;
use super::{RedisStore, Topology};
use crate::store::error::StoreError;
use bb8_redis::redis::{Cmd, Pipeline, Value};

/// Keys looked at in one step: Redis does nothing else meanwhile.
const STEP: usize = 1_000;

impl RedisStore {
    /// Waits for a connection, to every master of a cluster: says whether Redis can be reached, and if not, why.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn reach(&self) -> Result<(), StoreError> {
        for node in self.nodes().await? {
            node.shared.connections.take().await?;
        }
        Ok(())
    }

    /// Removes every key under this store's prefix and says how many there were. Walks through all keys there are, in
    /// steps, so it is not for a prefix that gateways count under.
    ///
    /// # Errors
    /// When Redis did not do it, or not all of it.
    pub async fn clear(&self) -> Result<u64, StoreError> {
        let mut removed = 0;
        for node in self.nodes().await? {
            removed += node.clear().await?;
        }
        Ok(removed)
    }

    async fn nodes(&self) -> Result<Vec<Node>, StoreError> {
        match &self.way {
            Topology::One(node) => Ok(vec![node.clone()]),
            Topology::Many(cluster) => cluster.masters().await,
        }
    }
}

impl Node {
    async fn clear(&self) -> Result<u64, StoreError> {
        let mut connection = self.shared.connections.take().await?;
        let pattern = format!("{}:*", self.shared.prefix);
        let (mut cursor, mut removed) = (b"0".to_vec(), 0);
        loop {
            let mut scan = Cmd::new();
            scan.arg("SCAN").arg(&cursor);
            scan.arg("MATCH").arg(&pattern).arg("COUNT").arg(STEP);
            let (next, keys) = page(connection.send(&scan).await?)?;
            if !keys.is_empty() {
                removed += keys.len() as u64;
                // One by one, for in a cluster those of one command are of one slot.
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

/// One step's answer: where to go on, and what was found.
fn page(answer: Value) -> Result<(Vec<u8>, Vec<Vec<u8>>), StoreError> {
    const ODD: StoreError = StoreError::Protocol("not a page of keys");
    let Value::Array(parts) = answer else {
        return Err(ODD);
    };
    let Ok([Value::BulkString(next), Value::Array(keys)]) = <[Value; 2]>::try_from(parts) else {
        return Err(ODD);
    };
    let keys = keys.into_iter().map(|key| match key {
        Value::BulkString(key) => Ok(key),
        _ => Err(ODD),
    });
    Ok((next, keys.collect::<Result<_, _>>()?))
}
