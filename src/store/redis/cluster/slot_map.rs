//! The node of each slot, by `CLUSTER SLOTS` (available in every version) and by corrections from nodes.

use crate::clock;
use crate::store::endpoint::Address;
use crate::store::error::StoreError;
use crate::store::redis::link::connection::RedisConnection;
use crate::store::redis::node::NodeHandle;
use crate::store::redis::wire::slot::{self, SLOTS, Slot};
use bb8_redis::redis::{Cmd, Value, from_redis_value_ref};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The time for which a node that is master of no slot is kept after its last use: a slot may be on its way there.
const KEPT: Duration = Duration::from_secs(5);

/// The value for a slot that no node serves.
const NO_NODE: u16 = u16::MAX;

/// The known nodes, and the slots that each serves.
pub(crate) struct SlotMap {
    homes: Vec<MappedNode>,
    /// Positions among the nodes.
    slots: Box<[u16]>,
}

struct MappedNode {
    node: NodeHandle,
    /// The number of slots that the node serves.
    serves: usize,
    /// The instant of the node's last use.
    needed: Instant,
}

impl Default for SlotMap {
    fn default() -> Self {
        Self {
            homes: Vec::new(),
            slots: vec![NO_NODE; SLOTS].into(),
        }
    }
}

impl SlotMap {
    /// The node that serves a slot.
    pub(crate) fn at(&self, slot: Slot) -> Option<&NodeHandle> {
        let position = *self.slots.get(usize::from(slot))?;
        Some(&self.homes.get(usize::from(position))?.node)
    }

    /// Every node.
    pub(crate) fn all(&self) -> impl Iterator<Item = &NodeHandle> {
        self.homes.iter().map(|home| &home.node)
    }

    /// The nodes that serve a slot.
    pub(crate) fn masters(&self) -> impl Iterator<Item = &NodeHandle> {
        let masters = self.homes.iter().filter(|home| home.serves > 0);
        masters.map(|home| &home.node)
    }

    /// The node at an address, created if unknown.
    pub(crate) fn node(
        &mut self,
        address: &Address,
        make: impl FnOnce() -> NodeHandle,
    ) -> NodeHandle {
        let position = self.position(address, make);
        let home = &mut self.homes[position];
        home.needed = clock::now();
        home.node.clone()
    }

    fn position(&mut self, address: &Address, make: impl FnOnce() -> NodeHandle) -> usize {
        let is_there = |home: &MappedNode| home.node.node.address.as_ref() == Some(address);
        let known = self.homes.iter().position(is_there);
        known.unwrap_or_else(|| {
            self.homes.push(MappedNode {
                node: make(),
                serves: 0,
                needed: clock::now(),
            });
            self.homes.len() - 1
        })
    }

    /// Gives all slots to the node of a lone Redis.
    pub(super) fn set_lone(&mut self, node: NodeHandle) {
        self.homes.push(MappedNode {
            node,
            serves: SLOTS,
            needed: clock::now(),
        });
        self.slots.fill(0);
    }

    /// Gives one slot to the node at that address.
    pub(crate) fn moved(
        &mut self,
        slot: Slot,
        address: &Address,
        make: impl FnOnce() -> NodeHandle,
    ) -> NodeHandle {
        let position = self.position(address, make);
        self.homes[position].serves += 1;
        if let Some(at) = self.slots.get_mut(usize::from(slot)) {
            let before = std::mem::replace(at, u16::try_from(position).unwrap_or(NO_NODE));
            if let Some(home) = self.homes.get_mut(usize::from(before)) {
                home.serves = home.serves.saturating_sub(1);
            }
        }
        self.homes[position].node.clone()
    }

    /// Gives all slots to the nodes in `ranges`. Nodes that serve nothing any more and are not needed are dropped.
    pub(super) fn adopt(&mut self, ranges: &[SlotRange], make: impl Fn(&Address) -> NodeHandle) {
        self.slots.fill(NO_NODE);
        for home in &mut self.homes {
            home.serves = 0;
        }
        for SlotRange {
            first,
            last,
            master,
        } in ranges
        {
            let position = self.position(master, || make(master));
            let slots = usize::from(*first)..=usize::from(*last);
            let home = &mut self.homes[position];
            home.serves += slots.clone().count();
            home.needed = clock::now();
            if let Some(slots) = self.slots.get_mut(slots) {
                slots.fill(u16::try_from(position).unwrap_or(NO_NODE));
            }
        }
        let mut kept = Vec::with_capacity(self.homes.len());
        let mut positions = Vec::with_capacity(self.homes.len());
        for home in std::mem::take(&mut self.homes) {
            let goes = home.serves == 0 && clock::now() - home.needed >= KEPT;
            positions.push(u16::try_from(kept.len()).unwrap_or(NO_NODE));
            if goes {
                home.node.node.health.leaves()
            } else {
                kept.push(home)
            }
        }
        self.homes = kept;
        for at in &mut self.slots {
            *at = positions.get(usize::from(*at)).copied().unwrap_or(NO_NODE);
        }
    }

    /// The number of slots that no node serves.
    pub(crate) fn unserved(&self) -> usize {
        self.slots.iter().filter(|at| **at == NO_NODE).count()
    }

    /// Is there a node that serves no slots?
    pub(super) fn has_idle(&self) -> bool {
        self.homes.iter().any(|home| home.serves == 0)
    }

    /// The addresses of the available nodes.
    pub(crate) fn up(&self) -> Vec<Address> {
        let up = self.all().filter(|handle| handle.is_up());
        up.filter_map(|handle| handle.node.address.clone())
            .collect()
    }
}

/// A master and some of its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) first: Slot,
    pub(crate) last: Slot,
    pub(crate) master: Address,
}

impl SlotRange {
    /// The number of slots in the range.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.last.saturating_sub(self.first)) + 1
    }

    /// A tag whose slot is in the range.
    pub(crate) fn tag(&self) -> Option<Vec<u8>> {
        slot::tag_of(|slot| (self.first..=self.last).contains(&slot))
    }
}

/// Reads the map from the node at `asked`.
pub(crate) async fn ask(
    connection: &mut RedisConnection,
    asked: &Address,
) -> Result<Vec<SlotRange>, StoreError> {
    let mut command = Cmd::new();
    command.arg("CLUSTER").arg("SLOTS");
    let answer = connection
        .send(&command)
        .await
        .map_err(|error| match &error {
            StoreError::Refused(reason) if reason.contains("cluster support disabled") => {
                let why =
                    format!("{asked} is no node of a cluster: leave `+cluster` out of the address ({reason})");
                StoreError::Refused(why.into())
            }
            _ => error,
        })?;
    let ranges = read_ranges(answer, asked)?;
    if ranges.is_empty() {
        Err(StoreError::Refused(
            "it serves no slot, and knows of no node that does".into(),
        ))
    } else {
        Ok(ranges)
    }
}

const ODD: StoreError = StoreError::Protocol("not the slots of a cluster");

/// Parses the answer of the node at `asked`. An empty host means that node's own. A range whose master has no known
/// address is left out: no node serves its slots.
fn read_ranges(answer: Value, asked: &Address) -> Result<Vec<SlotRange>, StoreError> {
    let Value::Array(ranges) = answer else {
        return Err(ODD);
    };
    let ranges = ranges.iter().map(|range| one(range, asked));
    ranges.filter_map(Result::transpose).collect()
}

fn one(range: &Value, asked: &Address) -> Result<Option<SlotRange>, StoreError> {
    let Value::Array(parts) = range else {
        return Err(ODD);
    };
    let [first, last, Value::Array(master), ..] = &parts[..] else {
        return Err(ODD);
    };
    let [host, port, ..] = &master[..] else {
        return Err(ODD);
    };
    // The crate's own conversion to u16 wraps around.
    let number = |value| {
        let number = from_redis_value_ref::<i64>(value).ok();
        let number = number.and_then(|number| u16::try_from(number).ok());
        number.ok_or(ODD)
    };
    let (first, last, port) = (number(first)?, number(last)?, number(port)?);
    if first > last || usize::from(last) >= SLOTS {
        return Err(ODD);
    }
    let host: Option<String> = from_redis_value_ref(host).map_err(|_| ODD)?;
    let host = match host.as_deref() {
        None | Some("") => Arc::clone(&asked.host),
        Some("?") => return Ok(None),
        Some(host) => Arc::from(host),
    };
    let master = Address { host, port };
    Ok((port != 0).then_some(SlotRange {
        first,
        last,
        master,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: i64) -> Value {
        let id = Value::BulkString(b"07c37df".to_vec());
        let host = Value::BulkString(host.as_bytes().to_vec());
        Value::Array(vec![host, Value::Int(port), id])
    }

    fn range(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        let mut parts = vec![Value::Int(first), Value::Int(last)];
        parts.extend(nodes);
        Value::Array(parts)
    }

    fn asked() -> Address {
        Address::new("seed", 1)
    }

    #[test]
    fn masters_are_read_and_replicas_are_not() {
        let answer = Value::Array(vec![
            range(
                0,
                5460,
                vec![node("10.0.0.1", 7000), node("10.0.0.4", 7003)],
            ),
            range(5461, 10_922, vec![node("", 7001)]),
            range(10_923, 16_383, vec![node("?", 7002)]),
        ]);
        let ranges = read_ranges(answer, &asked()).unwrap();
        let shown: Vec<String> = ranges
            .iter()
            .map(|range| format!("{}-{} {}", range.first, range.last, range.master))
            .collect();
        assert_eq!(shown, ["0-5460 10.0.0.1:7000", "5461-10922 seed:7001"]);
    }

    #[test]
    fn what_is_no_map_is_an_error() {
        let bad = [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 16_384, vec![node("a", 1)])]),
            Value::Array(vec![range(-1, 5, vec![node("a", 1)])]),
            Value::Array(vec![range(9, 5, vec![node("a", 1)])]),
            Value::Array(vec![range(0, 5, vec![node("a", 70_000)])]),
            Value::Array(vec![range(0, 5, vec![])]),
        ];
        for answer in bad {
            assert!(read_ranges(answer.clone(), &asked()).is_err(), "{answer:?}");
        }
    }
}
