//! The order in which connections give way, and that the rings stay whole.

use super::*;
use std::net::{IpAddr, Ipv4Addr};

/// And a time long before now.
fn register() -> (Register, Instant) {
    let from = Instant::now() - Duration::from_secs(60);
    (Register::new(Board::new(from)), from)
}

fn client(last: u8) -> Client {
    Client::of(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)))
}

fn asked(guest: &Guest) -> bool {
    guest
        .poll_asked(&Context::from_waker(Waker::noop()))
        .is_ready()
}

#[test]
fn the_longest_idle_goes_first_then_the_silent_then_half_heads() {
    let (register, from) = register();
    let guests: Vec<Guest> = (0..5).map(|_| register.enter(client(1))).collect();
    let [half, silent, late, early, busy] = &guests[..] else {
        unreachable!()
    };
    half.waits(Waiting::HalfHead, from);
    silent.waits(Waiting::Silent, from);
    early.waits(Waiting::Idle, from);
    late.waits(Waiting::Idle, from + Duration::from_millis(1));
    busy.waits(Waiting::Idle, from);
    busy.is_busy();
    for (goes, waiting) in [
        (early, Waiting::Idle),
        (late, Waiting::Idle),
        (silent, Waiting::Silent),
        (half, Waiting::HalfHead),
    ] {
        assert!(!asked(goes));
        assert_eq!(register.one_gives_way(), Some(waiting));
        assert!(asked(goes));
    }
    assert_eq!(register.one_gives_way(), None);
    assert!(!asked(busy));
}

#[test]
fn who_has_only_just_come_is_not_silent_yet() {
    let (register, from) = register();
    let (fresh, half) = (register.enter(client(1)), register.enter(client(2)));
    half.waits(Waiting::HalfHead, from);
    fresh.waits(Waiting::Silent, Instant::now() + Duration::from_secs(60));
    assert_eq!(register.one_gives_way(), Some(Waiting::HalfHead));
    assert_eq!(register.one_gives_way(), Some(Waiting::Silent));
}

#[test]
fn a_client_s_own_give_way_only_between_requests() {
    let (register, from) = register();
    let (own, half, other) = (
        register.enter(client(1)),
        register.enter(client(1)),
        register.enter(client(2)),
    );
    other.waits(Waiting::Idle, from);
    half.waits(Waiting::HalfHead, from);
    own.waits(Waiting::Idle, from);
    assert_eq!(register.own_gives_way(client(1)), Some(Waiting::Idle));
    assert!(asked(&own) && !asked(&half) && !asked(&other));
    assert_eq!(register.own_gives_way(client(1)), None);
    assert_eq!(register.own_gives_way(client(3)), None);
}

#[test]
fn any_order_of_coming_and_going_keeps_the_rings_whole() {
    let (register, from) = register();
    let mut random = fastrand::Rng::with_seed(7);
    let mut guests: Vec<(Guest, u8, u64)> = Vec::new();
    for step in 1..20_000_u64 {
        let now = from + Duration::from_micros(step);
        let pick = random.usize(..guests.len().max(1));
        match random.u8(..5) {
            0 => {
                let of = random.u8(..9);
                guests.push((register.enter(client(of)), of, 0));
            }
            1 if !guests.is_empty() => drop(guests.swap_remove(pick)),
            2 if !guests.is_empty() => {
                guests[pick].0.is_busy();
                guests[pick].2 = 0;
            }
            3 if guests.get(pick).is_some_and(|guest| guest.2 == 0) => {
                guests[pick].0.waits(Waiting::Idle, now);
                guests[pick].2 = step;
            }
            4 => {
                let of = random.u8(..9);
                let waiting = |guest: &&(Guest, u8, u64)| guest.2 > 0;
                let oldest = |own: bool| {
                    let all = guests.iter().filter(waiting);
                    let all = all.filter(|guest| !own || guest.1 == of);
                    all.map(|guest| guest.2).min()
                };
                let own = random.bool();
                let expected = oldest(own);
                let went = match own {
                    true => register.own_gives_way(client(of)),
                    false => register.one_gives_way(),
                };
                assert_eq!(went.is_some(), expected.is_some());
                let gone = guests.iter().position(|guest| asked(&guest.0));
                assert_eq!(gone.map(|at| guests[at].2), expected);
                if let Some(gone) = gone {
                    guests.swap_remove(gone);
                }
            }
            _ => {}
        }
    }
    drop(guests);
    assert!(register.0.board.first().is_none());
    assert!(register.0.book.borrow().clients.is_empty());
}
