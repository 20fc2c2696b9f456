//! The changes of this process, without Redis: the twin of `lua/changes.lua`, byte for byte.

use super::entry::{self, instant};
use super::{ChangeRequest, EXACT, FORMAT, HEARD};
use crate::clock::{Timestamp, micros};
use crate::limit::wire::double;
use std::collections::HashSet;
use std::time::Duration;

/// Most entries at once.
const MOST: usize = 255;
/// Most bytes of all entries, and of one with its length.
const MOST_BYTES: usize = 65_536;
const MOST_ENTRY: usize = 1_022;
/// The byte of resets, which stand beside each other.
const RESET: u8 = 1;

/// The three values of the store. An empty one stands for a missing one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeBook {
    /// The version, and until when rows are looked at.
    pub version: Vec<u8>,
    /// The entries.
    pub changes: Vec<u8>,
    /// Which gateway has which version.
    pub heard: Vec<u8>,
}

/// A value of another form stands at one of the keys: its number, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedValue(pub u8);

impl ChangeBook {
    /// The number of the last change, and the bytes of the instant until which rows are looked at.
    fn version(&self) -> Result<(u64, [u8; 8]), DamagedValue> {
        let Ok(value) = <[u8; 16]>::try_from(&*self.version) else {
            let is_missing = self.version.is_empty();
            return if is_missing {
                Ok((0, double(0)))
            } else {
                Err(DamagedValue(1))
            };
        };
        let (version, looked) = (read_double(&value, 0), read_double(&value, 8));
        let version = instant(version).ok_or(DamagedValue(1))?;
        Ok((version.micros(), looked))
    }

    fn entries(&self) -> Result<Vec<&[u8]>, DamagedValue> {
        entry::split(&self.changes).ok_or(DamagedValue(2))
    }

    /// Gateway `me` has the version `mine`, since just now if `is_new`. Returns the bytes that the script answers.
    ///
    /// # Errors
    /// If a value has another form.
    pub fn poll(
        &mut self,
        now: Timestamp,
        me: u64,
        mine: u64,
        is_new: bool,
    ) -> Result<Vec<u8>, DamagedValue> {
        let (version, looked) = self.version()?;
        if version != mine {
            self.entries()?;
            let head = [double(version), double(now.micros())].concat();
            return Ok([&head[..], &self.changes, b"."].concat());
        }
        if is_new {
            let me = me.to_be_bytes();
            let heard = std::mem::take(&mut self.heard);
            let stays = |word: &&[u8; 24]| {
                let at = f64::from_be_bytes(read_double(&word[..], 16));
                let now = now.micros() as f64;
                word[..8] != me && at > now - HEARD as f64 && at <= now
            };
            for word in heard.as_chunks().0.iter().filter(stays) {
                self.heard.extend_from_slice(word);
            }
            self.heard.extend_from_slice(&me);
            self.heard.extend_from_slice(&double(version));
            self.heard.extend_from_slice(&double(now.micros()));
        }
        if self.version.is_empty() {
            return Ok([double(0), double(0)].concat());
        }
        Ok([double(version), looked].concat())
    }

    /// Adds an entry, unless something speaks against it. Returns the bytes that the script answers.
    ///
    /// # Errors
    /// If a value has another form.
    pub fn change(
        &mut self,
        now: Timestamp,
        request: &ChangeRequest,
    ) -> Result<Vec<u8>, DamagedValue> {
        let (version, looked) = self.version()?;
        let place = [&[request.kind.byte()][..], &request.target.0].concat();
        let (mut kept, mut many, mut replaced) = (vec![1], 0, Vec::new());
        for entry in self.entries()? {
            let (born, ends) = (read_double(entry, 35), read_double(entry, 43));
            let ends = f64::from_be_bytes(ends);
            if !(ends > now.micros() as f64 && ends < EXACT) {
                continue;
            }
            if entry[2..18] == request.id.0 {
                return Ok([&answer(1, version, born)[..], entry].concat());
            }
            if request.kind.byte() != RESET && entry[18..35] == place {
                replaced = entry.to_vec();
            } else {
                kept.extend_from_slice(entry);
                many += 1;
            }
        }
        if request.if_version.is_some_and(|wanted| wanted != version) {
            return Ok(answer(3, version, double(0)));
        }
        if request.life > Duration::ZERO {
            let ends = now.plus(micros(request.life));
            let mut entry = [&request.id.0[..], &place].concat();
            entry.extend_from_slice(&double(now.micros()));
            entry.extend_from_slice(&double(ends.micros()));
            entry.push(FORMAT);
            entry.extend_from_slice(&request.payload);
            let length = u16::try_from(entry.len()).unwrap_or(u16::MAX);
            if entry.len() > MOST_ENTRY {
                return Ok(answer(4, version, double(0)));
            }
            kept.extend_from_slice(&length.to_be_bytes());
            kept.extend_from_slice(&entry);
            many += 1;
        }
        if many > MOST || kept.len() > MOST_BYTES {
            return Ok(answer(2, version, double(0)));
        }
        let version = now.micros().max(version + 1);
        self.version = [double(version), looked].concat();
        self.changes = kept;
        let done = answer(0, version, double(now.micros()));
        Ok([&done[..], &replaced].concat())
    }

    /// How many of `gateways`, the value of the heartbeats, have at least the version `least` since the instant
    /// `since`, and how many there are. Returns the bytes that the script answers.
    #[must_use]
    pub fn look(
        &self,
        now: Timestamp,
        gateways: &[u8],
        least: u64,
        since: Timestamp,
        life: Duration,
    ) -> Vec<u8> {
        let (now, life) = (now.micros() as f64, micros(life) as f64);
        let reports = gateways.as_chunks::<16>().0.iter().filter(|report| {
            let at = f64::from_be_bytes(read_double(&report[..], 8));
            at > now - life && at < now + life
        });
        let names: Vec<&[u8]> = reports.map(|report| &report[..8]).collect();
        let there: HashSet<&[u8]> = names.iter().copied().collect();
        let heard = self.heard.as_chunks::<24>().0.iter().filter(|word| {
            let version = f64::from_be_bytes(read_double(&word[..], 8));
            let at = f64::from_be_bytes(read_double(&word[..], 16));
            version >= least as f64 && at >= since.micros() as f64 && there.contains(&word[..8])
        });
        let numbers = [heard.count(), names.len()];
        let numbers = numbers.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        numbers.map(u32::to_be_bytes).concat()
    }
}

/// The eight bytes at this position; zero where there are none.
fn read_double(bytes: &[u8], at: usize) -> [u8; 8] {
    let rest = bytes.get(at..).and_then(|rest| rest.first_chunk());
    rest.copied().unwrap_or_default()
}

/// An outcome, the version, and an instant.
fn answer(outcome: u8, version: u64, born: [u8; 8]) -> Vec<u8> {
    [&[outcome][..], &double(version), &born].concat()
}
