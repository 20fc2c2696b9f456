//! The order in which connections are evicted, and the consistency of the rings.

use super::*;
use std::net::{IpAddr, Ipv4Addr};

/// A time long after the connections' waits have begun.
const LATER: Duration = Duration::from_secs(60);

/// A register, and the instant from which its times are counted.
fn register() -> (ConnectionRegister, Instant) {
    let from = Instant::now();
    let (_, drain) = crate::shutdown::drain();
    let board = EvictionBoard::new(from);
    (ConnectionRegister::new(board, drain), from)
}

fn client(last: u8) -> Client {
    Client::of(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)))
}

fn is_evicted(registration: &Registration) -> bool {
    registration
        .poll_evicted(&Context::from_waker(Waker::noop()))
        .is_ready()
}

#[test]
fn the_longest_idle_goes_first_then_the_silent_then_half_heads() {
    let (register, from) = register();
    let registrations: Vec<Registration> = (0..5).map(|_| register.enter(client(1))).collect();
    let [partial, silent, late, early, busy] = &registrations[..] else {
        unreachable!()
    };
    partial.set_waiting(ClientWait::HalfHead, from);
    silent.set_waiting(ClientWait::Silent, from);
    early.set_waiting(ClientWait::Idle, from);
    late.set_waiting(ClientWait::Idle, from + Duration::from_millis(1));
    busy.set_waiting(ClientWait::Idle, from);
    busy.set_busy();
    for (goes, waiting) in [
        (early, ClientWait::Idle),
        (late, ClientWait::Idle),
        (silent, ClientWait::Silent),
        (partial, ClientWait::HalfHead),
    ] {
        assert!(!is_evicted(goes));
        assert_eq!(register.evict_first(from + LATER), Some(waiting));
        assert!(is_evicted(goes));
    }
    assert_eq!(register.evict_first(from + LATER), None);
    assert!(!is_evicted(busy));
}

#[test]
fn a_fresh_connection_is_not_silent_yet() {
    let (register, from) = register();
    let (fresh, partial) = (register.enter(client(1)), register.enter(client(2)));
    partial.set_waiting(ClientWait::HalfHead, from);
    fresh.set_waiting(ClientWait::Silent, from);
    let almost = from + SILENT_AFTER - Duration::from_micros(1);
    let first = |now| register.0.board.first(now).map(|(_, waiting)| waiting);
    assert_eq!(first(from + SILENT_AFTER), Some(ClientWait::Silent));
    assert_eq!(register.evict_first(almost), Some(ClientWait::HalfHead));
    assert_eq!(register.evict_first(almost), Some(ClientWait::Silent));
}

#[test]
fn a_client_s_own_give_way_only_between_requests() {
    let (register, from) = register();
    let (same_client, partial, other) = (
        register.enter(client(1)),
        register.enter(client(1)),
        register.enter(client(2)),
    );
    other.set_waiting(ClientWait::Idle, from);
    partial.set_waiting(ClientWait::HalfHead, from);
    same_client.set_waiting(ClientWait::Idle, from);
    assert_eq!(register.evict_of_client(client(1)), Some(ClientWait::Idle));
    assert!(is_evicted(&same_client) && !is_evicted(&partial) && !is_evicted(&other));
    assert_eq!(register.evict_of_client(client(1)), None);
    assert_eq!(register.evict_of_client(client(3)), None);
}

#[test]
fn any_order_of_coming_and_going_keeps_the_rings_whole() {
    let (register, from) = register();
    let mut random = fastrand::Rng::with_seed(7);
    let mut registrations: Vec<(Registration, u8, u64)> = Vec::new();
    for step in 1..20_000_u64 {
        let now = from + Duration::from_micros(step);
        let pick = random.usize(..registrations.len().max(1));
        match random.u8(..5) {
            0 => {
                let of = random.u8(..9);
                registrations.push((register.enter(client(of)), of, 0));
            }
            1 if !registrations.is_empty() => drop(registrations.swap_remove(pick)),
            2 if !registrations.is_empty() => {
                registrations[pick].0.set_busy();
                registrations[pick].2 = 0;
            }
            3 if registrations
                .get(pick)
                .is_some_and(|registration| registration.2 == 0) =>
            {
                registrations[pick].0.set_waiting(ClientWait::Idle, now);
                registrations[pick].2 = step;
            }
            4 => {
                let of = random.u8(..9);
                let waiting = |registration: &&(Registration, u8, u64)| registration.2 > 0;
                let oldest = |same_client: bool| {
                    let all = registrations.iter().filter(waiting);
                    let all = all.filter(|registration| !same_client || registration.1 == of);
                    all.map(|registration| registration.2).min()
                };
                let same_client = random.bool();
                let expected = oldest(same_client);
                let went = if same_client {
                    register.evict_of_client(client(of))
                } else {
                    register.evict_first(from + LATER)
                };
                assert_eq!(went.is_some(), expected.is_some());
                let gone = registrations
                    .iter()
                    .position(|registration| is_evicted(&registration.0));
                assert_eq!(gone.map(|at| registrations[at].2), expected);
                if let Some(gone) = gone {
                    registrations.swap_remove(gone);
                }
            }
            _ => {}
        }
    }
    drop(registrations);
    assert!(register.0.board.first(from + LATER).is_none());
    assert!(register.0.table.borrow().clients.is_empty());
}

#[tokio::test]
async fn draining_wakes_every_connection() {
    let (switch, drain) = crate::shutdown::drain();
    let register = ConnectionRegister::new(EvictionBoard::new(Instant::now()), drain);
    let registration = register.enter(client(1));
    let waiting = std::future::poll_fn(|cx| {
        assert!(registration.poll_evicted(cx).is_pending());
        registration.poll_draining()
    });
    assert!(!registration.is_draining());
    tokio::join!(waiting, register.wake_for_drain(), async {
        tokio::task::yield_now().await;
        switch.pull(LATER);
    });
    assert!(registration.is_draining());
}
