//! The gateways that count together: each sends Redis a heartbeat every few seconds, and reads the number of gateways.
//!
//! While Redis is unavailable, the last number that it returned divides each limit. A number that has just decreased is
//! not used at once: after an outage gateways return one by one.

use super::error::StoreError;
use super::redis::{Presence, RedisStore};
use crate::clock::{Clock, Timestamp};
use crate::telemetry::log::Throttle;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// A gateway without a heartbeat for this time, by Redis' clock, counts as gone.
pub(super) const LIFE: Duration = Duration::from_secs(10);
/// Least time between two heartbeats of one gateway. Every [`MANY`] gateways add the same time again, up to [`RARE`].
const BEAT: Duration = Duration::from_secs(2);
const MANY: u32 = 250;
const RARE: Duration = Duration::from_secs(4);
/// The interval at which a worker checks whether a heartbeat is due.
const LOOK: Duration = Duration::from_millis(250);

/// Throttles warnings that gateways are not counted: the user lacks the permission, or the key holds another value.
static UNCOUNTED: Throttle = Throttle::every(Duration::from_secs(300));

/// This process' knowledge of the other gateways. Its workers share it, and no worker waits for another.
#[derive(Debug)]
pub struct Fleet {
    /// This gateway's name among them: a random number, new with every start.
    me: u64,
    clock: Clock,
    begun: Timestamp,
    /// The highest number of gateways in this span of [`LIFE`], and in the span before.
    now: AtomicU32,
    before: AtomicU32,
    /// The number of the present span.
    span: AtomicU64,
    /// The time of the next heartbeat, in milliseconds since `begun`.
    due: AtomicU64,
    left: AtomicBool,
}

impl Default for Fleet {
    fn default() -> Self {
        Self::new(Clock::system())
    }
}

impl Fleet {
    /// A gateway without an answer from Redis yet, by this clock.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            me: fastrand::u64(..),
            begun: clock.now(),
            clock,
            now: AtomicU32::new(0),
            before: AtomicU32::new(0),
            span: AtomicU64::new(0),
            due: AtomicU64::new(0),
            left: AtomicBool::new(false),
        }
    }

    /// This gateway's name among them: a random number, new with every start.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.me
    }

    /// The same for a successor of a gateway that knew this number, which is used as long as Redis returns no other.
    #[must_use]
    pub fn knowing(clock: Clock, gateways: Option<NonZeroU32>) -> Self {
        let known = gateways.map_or(0, NonZeroU32::get);
        Self {
            now: AtomicU32::new(known),
            ..Self::new(clock)
        }
    }

    /// This gateway's name among them.
    #[must_use]
    pub fn me(&self) -> u64 {
        self.me
    }

    /// The number of gateways by the last answers of Redis, this one included, if Redis has returned any.
    #[must_use]
    pub fn known(&self) -> Option<NonZeroU32> {
        let heard = self.now.load(Ordering::Relaxed);
        NonZeroU32::new(heard.max(self.before.load(Ordering::Relaxed)))
    }

    /// The number of gateways by the last answers of Redis, this one included. A gateway that has received no answer
    /// counts as the only one.
    #[must_use]
    pub fn gateways(&self) -> NonZeroU32 {
        self.known().unwrap_or(NonZeroU32::MIN)
    }

    /// Sends due heartbeats, until the gateway leaves. One of its workers sends each heartbeat.
    pub async fn keep(self: Arc<Self>, store: RedisStore) {
        while !self.left.load(Ordering::Relaxed) {
            if store.serves_everyone() && self.is_my_turn() {
                match store.beat(self.me, Presence::There, LIFE).await {
                    Ok(gateways) => self.heard(gateways),
                    // The next heartbeat may be refused, too.
                    Err(StoreError::Refused(why)) => tell_uncounted(&why),
                    Err(error) => {
                        tracing::debug!("the gateways were not counted: {error}");
                        self.due.store(self.millis(), Ordering::Relaxed);
                    }
                }
            }
            sleep(LOOK).await;
        }
    }

    /// Reports once that this gateway leaves.
    pub async fn leave(&self, store: &RedisStore) {
        if !self.left.swap(true, Ordering::Relaxed) && store.serves_everyone() {
            // Without this report the other gateways notice after `LIFE`.
            let _ = store.beat(self.me, Presence::Goes, LIFE).await;
        }
    }

    fn millis(&self) -> u64 {
        self.clock.now().since(self.begun) / 1000
    }

    /// Is a heartbeat due that no other worker sends? If so, the due time is advanced.
    fn is_my_turn(&self) -> bool {
        let (now, due) = (self.millis(), self.due.load(Ordering::Relaxed));
        if now < due {
            return false;
        }
        let groups = self.gateways().get() / MANY;
        let pause = (BEAT * (groups + 1)).min(RARE);
        // The pause is shortened at random, by up to a quarter, so that gateways that were started together do not send
        // simultaneously.
        let pause = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        let next = now + pause - fastrand::u64(..=pause / 4);
        let taken = self
            .due
            .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Takes over a number of gateways that Redis has just returned.
    fn heard(&self, gateways: u32) {
        let span = self.millis() / 1000 / LIFE.as_secs();
        let last = self.span.swap(span, Ordering::Relaxed);
        match span - last.min(span) {
            0 => {
                self.now.fetch_max(gateways, Ordering::Relaxed);
            }
            1 => {
                let before = self.now.swap(gateways, Ordering::Relaxed);
                self.before.store(before, Ordering::Relaxed);
            }
            // Redis returned no number for a whole span: the older number may still be true.
            _ => {
                let most = self.gateways().get();
                self.before.store(most, Ordering::Relaxed);
                self.now.store(gateways, Ordering::Relaxed);
            }
        }
    }
}

/// Warns that the gateways are not counted, in a case that an operator can fix.
fn tell_uncounted(why: &str) {
    let remedy = match why {
        why if why.contains("NOPERM") => "let its user call EVAL on PREFIX:1:gateways:*",
        why if why.contains("WRONGTYPE") => "delete that key in Redis",
        _ => return tracing::debug!("the gateways were not counted: {why}"),
    };
    if let Some(more) = UNCOUNTED.pass() {
        tracing::warn!(
            "the gateways cannot be counted: {why}; without Redis each would count as if it were alone; {remedy}{more}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway, and a function that sets its clock to this number of seconds after the start.
    fn fleet() -> (Fleet, impl Fn(u64)) {
        let begun = Timestamp::from_micros(1_790_000_000_000_000);
        let clock = Clock::manual(begun);
        let fleet = Fleet::new(clock.clone());
        (fleet, move |millis| clock.set(begun.plus(millis * 1000)))
    }

    #[test]
    fn a_number_that_has_fallen_is_believed_after_a_while() {
        let (fleet, set) = fleet();
        assert_eq!(fleet.gateways().get(), 1);
        let mut seen = Vec::new();
        for (second, heard) in [
            (0, 1),
            (2, 3),
            (4, 2),
            (11, 2),
            (13, 2),
            (21, 2),
            (60, 1),
            (71, 1),
            (82, 1),
        ] {
            set(second * 1000);
            fleet.heard(heard);
            seen.push(fleet.gateways().get());
        }
        assert_eq!(seen, [1, 3, 3, 3, 3, 2, 2, 1, 1]);
    }

    #[test]
    fn a_successor_believes_what_its_predecessor_knew_until_redis_has_answered_for_a_while() {
        let begun = Timestamp::from_micros(1_790_000_000_000_000);
        let clock = Clock::manual(begun);
        let known = NonZeroU32::new(3);
        let fleet = Fleet::knowing(clock.clone(), known);
        assert_eq!((fleet.known(), fleet.gateways().get()), (known, 3));
        assert_eq!(Fleet::knowing(clock.clone(), None).known(), None);
        let mut seen = Vec::new();
        // Redis returns after a minute, and other gateways after it.
        for second in [60, 65, 71, 82] {
            clock.set(begun.plus(second * 1_000_000));
            fleet.heard(1);
            seen.push(fleet.gateways().get());
        }
        assert_eq!(seen, [3, 3, 1, 1]);
    }

    #[test]
    fn one_worker_beats_at_a_time() {
        let (fleet, set) = fleet();
        let mut beats = 0;
        for milli in 0..60_000 {
            set(milli);
            beats += u32::from(fleet.is_my_turn());
            assert!(!fleet.is_my_turn(), "twice at {milli} ms");
        }
        // Every 1.5 to 2 seconds.
        assert!((30..=40).contains(&beats), "{beats}");
    }

    #[test]
    fn many_gateways_beat_less_often() {
        let (fleet, set) = fleet();
        fleet.heard(1000);
        let mut beats = 0;
        for milli in 0..60_000 {
            set(milli);
            fleet.heard(1000);
            beats += u32::from(fleet.is_my_turn());
        }
        // Every 3 to 4 seconds.
        assert!((15..=20).contains(&beats), "{beats}");
    }
}
