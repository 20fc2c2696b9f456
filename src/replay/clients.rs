//! How often each client was refused, for any number of clients in bounded memory. The counts are exact up to some
//! hundred thousand clients. Beyond that, the numbers of clients are estimates, and the table keeps the clients that
//! were refused most.

use super::sketch::Sketch;
use hashbrown::HashTable;
use std::cmp::Reverse;

/// The most clients that the table keeps.
const MOST: usize = 1 << 17;

/// The most files that one replay compares.
pub(super) const SIDES: usize = 2;

/// All clients of a trace.
#[derive(Debug)]
pub(super) struct Clients {
    table: HashTable<ClientRow>,
    /// Counts of refused clients, separate from the table: most clients are never refused, and the table, which is read
    /// for every request, stays small.
    refusals: Vec<RefusalCounts>,
    most: usize,
    /// Was a client dropped from the table? From then on the numbers of clients come from the sketches.
    dropped: bool,
    seen: Sketch,
    /// Clients that were refused, for each file.
    refused: [Sketch; SIDES],
    /// Clients that were refused under either file.
    either: Sketch,
}

/// A client, in as few bytes as possible: fetching the row from memory is most of the cost of counting a request.
#[derive(Debug)]
struct ClientRow {
    hash: u64,
    /// The number of the client's requests in the upper bits. The lower [`PLACE`] bits are the client's position in
    /// `Clients::refusals`, or [`NEVER_REFUSED`].
    counted: u64,
}

/// A client before its request is counted. The position is valid until the next client is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientPosition {
    hash: u64,
    /// The client's place in the table, if it has one.
    at: Option<usize>,
}

/// Bits of a position in `Clients::refusals`, which has [`MOST`] entries and one for [`NEVER_REFUSED`].
const PLACE: u32 = 18;

impl ClientRow {
    fn requests(&self) -> u64 {
        self.counted >> PLACE
    }

    fn count(&mut self) {
        // An overflow needs 2^46 requests, and no trace is that long.
        self.counted = self.counted.wrapping_add(1 << PLACE);
    }

    fn refusals(&self) -> usize {
        usize::try_from(self.counted & ((1 << PLACE) - 1)).unwrap_or(NEVER_REFUSED)
    }

    fn refused_at(&mut self, place: usize) {
        self.counted = (self.counted >> PLACE << PLACE) | place as u64;
    }
}

#[derive(Debug, Default)]
struct RefusalCounts {
    name: Box<str>,
    /// Refused requests under each file.
    count: [u64; SIDES],
}

/// A client that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardestClient {
    /// The client's address, or the key under which it counts.
    pub client: Box<str>,
    /// Requests that the client made.
    pub requests: u64,
    /// Requests of the client that were refused, under each file.
    pub refused: [u64; SIDES],
}

/// The position of clients that were never refused.
const NEVER_REFUSED: usize = 0;

/// The numbers of clients, in all and refused: exact, or estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientTotals {
    /// Different clients.
    pub all: u64,
    /// Clients that were refused at least once, for each file.
    pub refused: [u64; SIDES],
    /// Clients that were refused under the second file and never under the first.
    pub first_time: u64,
    /// Are the numbers estimates, since the trace has more clients than the table keeps?
    pub about: bool,
}

impl Clients {
    /// A table without clients.
    pub(super) fn new() -> Self {
        Self::with_room(MOST)
    }

    fn with_room(most: usize) -> Self {
        Self {
            table: HashTable::new(),
            refusals: vec![RefusalCounts::default()],
            most,
            dropped: false,
            seen: Sketch::new(),
            refused: std::array::from_fn(|_| Sketch::new()),
            either: Sketch::new(),
        }
    }

    /// The place of the client with this `hash`. The lookup comes before the decision of the request, so that the
    /// processor fetches the row meanwhile.
    pub(super) fn seek(&self, hash: u64) -> ClientPosition {
        let at = self
            .table
            .find_bucket_index(hash, |client| client.hash == hash);
        ClientPosition { hash, at }
    }

    /// Counts a request of `client`, the result of the last [`seek`](Self::seek). `refused` has an entry for each file,
    /// and `name` makes the client's name.
    pub(super) fn count(
        &mut self,
        client: ClientPosition,
        refused: [bool; SIDES],
        name: impl FnOnce() -> Box<str>,
    ) {
        let ClientPosition { hash, at } = client;
        let client = match at.and_then(|at| self.table.get_bucket_mut(at)) {
            Some(client) => client,
            None => {
                if self.table.len() >= self.most {
                    self.drop_some();
                }
                self.seen.add(hash);
                let new = ClientRow { hash, counted: 0 };
                self.table
                    .insert_unique(hash, new, |client| client.hash)
                    .into_mut()
            }
        };
        client.count();
        if refused == [false; SIDES] {
            return;
        }
        if client.refusals() == NEVER_REFUSED {
            self.either.add(hash);
            client.refused_at(self.refusals.len());
            self.refusals.push(RefusalCounts {
                name: name(),
                ..RefusalCounts::default()
            });
        }
        let count = &mut self.refusals[client.refusals()].count;
        for (side, count) in count.iter_mut().enumerate() {
            if refused[side] && *count == 0 {
                self.refused[side].add(hash);
            }
            *count += u64::from(refused[side]);
        }
    }

    /// The clients that were refused most under file `side`, in falling order; equals are in the order of their names.
    pub(super) fn hardest(&self, side: usize, many: usize) -> Vec<HardestClient> {
        let rows = self.table.iter();
        let rows = rows.map(|row| (row, &self.refusals[row.refusals()]));
        let mut worst: Vec<_> = rows.filter(|(_, by)| by.count[side] > 0).collect();
        worst.sort_unstable_by_key(|(_, by)| (Reverse(by.count[side]), &by.name));
        let worst = worst.into_iter().take(many);
        let worst = worst.map(|(row, by)| HardestClient {
            client: by.name.clone(),
            requests: row.requests(),
            refused: by.count,
        });
        worst.collect()
    }

    /// The numbers of clients.
    pub(super) fn client_totals(&self) -> ClientTotals {
        if self.dropped {
            let refused = [0, 1].map(|side: usize| self.refused[side].estimate());
            return ClientTotals {
                all: self.seen.estimate(),
                refused,
                first_time: self.either.estimate().saturating_sub(refused[0]),
                about: true,
            };
        }
        let count = |is: &dyn Fn([u64; SIDES]) -> bool| {
            let refusals = self.refusals.iter();
            refusals.filter(|refusals| is(refusals.count)).count() as u64
        };
        ClientTotals {
            all: self.table.len() as u64,
            refused: [0, 1].map(|side: usize| count(&|count| count[side] > 0)),
            first_time: count(&|count| count[0] == 0 && count[1] > 0),
            about: false,
        }
    }

    /// Makes room: clients that were never refused go first, then the clients that were refused least.
    #[cold]
    fn drop_some(&mut self) {
        self.dropped = true;
        let mut least = 1;
        while self.table.len() > self.most / 2 {
            let most = |seen: &ClientRow| self.refusals[seen.refusals()].count.into_iter().max();
            self.table.retain(|seen| most(seen) >= Some(least));
            least *= 2;
        }
        let mut kept = vec![RefusalCounts::default()];
        for seen in &mut self.table {
            let refusals = std::mem::take(&mut self.refusals[seen.refusals()]);
            seen.refused_at(kept.len());
            kept.push(refusals);
        }
        self.refusals = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldhash::quality::FixedState;
    use std::hash::BuildHasher;

    fn hash(client: u64) -> u64 {
        FixedState::with_seed(1).hash_one(client)
    }

    #[test]
    fn few_are_counted_exactly() {
        let mut clients = Clients::new();
        for client in 0..1_000_u64 {
            for _ in 0..10 {
                let refused = [client % 10 == 0, client % 5 == 0];
                clients.count(clients.seek(hash(client)), refused, || {
                    client.to_string().into()
                });
            }
        }
        for _ in 0..5 {
            clients.count(clients.seek(hash(7)), [true, false], || "seven".into());
        }
        let client_totals = clients.client_totals();
        assert_eq!(
            (
                client_totals.all,
                client_totals.refused,
                client_totals.about
            ),
            (1_000, [101, 200], false)
        );
        assert_eq!(client_totals.first_time, 100);
        let worst = clients.hardest(1, 3);
        assert_eq!(worst.len(), 3);
        assert_eq!(&*worst[0].client, "0", "of equals the first by name");
        assert_eq!(clients.hardest(0, 1_000).last().unwrap().refused[0], 5);
    }

    #[test]
    fn many_take_no_more_room() {
        let mut clients = Clients::with_room(4_096);
        for client in 0..400_000_u64 {
            clients.count(clients.seek(hash(client)), [false, client % 4 == 0], || {
                "x".into()
            });
            clients.count(clients.seek(hash(3)), [true, true], || "worst".into());
            assert!(clients.table.len() <= 4_096);
        }
        let client_totals = clients.client_totals();
        let is_close = |shown: u64, exact: u64| shown.abs_diff(exact) < exact / 20;
        assert!(
            client_totals.about
                && is_close(client_totals.all, 400_000)
                && is_close(client_totals.refused[1], 100_000),
            "{client_totals:?}"
        );
        assert!(
            is_close(client_totals.first_time, 100_000),
            "{client_totals:?}"
        );
        let worst = clients.hardest(1, 1);
        assert_eq!((&*worst[0].client, worst[0].refused[1]), ("worst", 400_000));
    }
}
