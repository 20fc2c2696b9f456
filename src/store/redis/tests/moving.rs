//! A slot that moves to another master, and then to a new one, while many requests use its keys.

use super::clusters::{Servers, command_text, eventually, migrate, migrate_and_wait};
use super::masters::{admitted, key_on};
use super::support::{fixed_window, limit};
use crate::key::{IdField, RepeatId, Sameness};
use crate::limit::dedupe::Dedupe;
use crate::store::check::Check;
use crate::store::redis::slot_of;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The counter of a limit with ids has moved already, and the record of a new id is nowhere: neither master decides
/// until the slot has moved as a whole. That takes longer here than an ordinary reconfiguration, and less than
/// `timeout`.
pub(super) async fn new_ids_wait_for_the_end_of_a_move(servers: &Servers) {
    const MOVES: Duration = Duration::from_millis(1200);
    let store = servers.store().await;
    let once = limit("once", fixed_window(300, 3_600_000_000));
    let dedupe = Dedupe {
        field: IdField(http::HeaderName::from_static("id")),
        ttl: 60_000_000,
        repeats: 1,
        of: Sameness::Path,
    };
    let once = Arc::new(once.edited(|policy| policy.dedupe = Some(dedupe)));
    let key = key_on(servers, &once, 0);
    let slot = slot_of(&once, key.as_bytes());
    let check = |id: &str| Check {
        id: Some(RepeatId::of("POST", "/pay", 1, id.as_bytes())),
        ..Check::new(&once, key.as_bytes())
    };
    assert!(admitted(&store.decide(&[check("old")]).await.unwrap()));
    let ports = (servers.masters[0].port, servers.masters[1].port);
    let (moved, is_moved) = tokio::sync::oneshot::channel();
    let moving = std::thread::spawn(move || {
        let keys_are_there = || moved.send(()).unwrap();
        migrate_and_wait(slot, ports, keys_are_there, MOVES);
    });
    is_moved.await.unwrap();
    let begun = Instant::now();
    let decided = store.decide(&[check("new")]).await;
    let took = begun.elapsed();
    moving.join().unwrap();
    assert!(decided.is_ok_and(|decided| admitted(&decided)), "{took:?}");
    // And back, for the later tests.
    migrate(slot, (ports.1, ports.0), Duration::ZERO);
    store.settle().await;
}

/// A slot with many requests goes from one master to the next, and to a new one.
pub(super) async fn slots_move(servers: &Servers) {
    let stores = [servers.store().await, servers.store().await];
    let narrow = limit("narrow", fixed_window(300, 3_600_000_000));
    let pair = limit("pair", fixed_window(100_000, 3_600_000_000));
    let slot = slot_of(&narrow, b"n");
    let (from, to) = (servers.home(slot), (servers.home(slot) + 1) % 3);
    let new = servers.node();
    let first = format!("CLUSTER MEET 127.0.0.1 {}", servers.masters[0].port);
    new.client().say(&first);
    eventually("the new node knows the others", || {
        command_text(&new, "CLUSTER NODES").lines().count() == 4
            && command_text(&new, "CLUSTER INFO").contains("cluster_state:ok")
            && servers
                .masters
                .iter()
                .all(|node| command_text(node, "CLUSTER NODES").lines().count() == 4)
    });
    let ports = [
        servers.masters[from].port,
        servers.masters[to].port,
        new.port,
    ];
    let moving = std::thread::spawn(move || {
        let pause = Duration::from_millis(20);
        migrate(slot, (ports[0], ports[1]), pause);
        std::thread::sleep(pause * 5);
        migrate(slot, (ports[1], ports[2]), pause);
    });
    let (mut admitted_in_all, mut rounds) = (0, 0);
    let mut after = 0;
    while after < 20 {
        after += usize::from(moving.is_finished());
        // Keys that were counted before, new keys, and both at once.
        let fresh = limit(&format!("fresh-{rounds}"), fixed_window(1, 3_600_000_000));
        let tasks: Vec<_> = (0..4)
            .map(|number: usize| {
                let store = stores[number % 2].clone();
                let (narrow, pair, fresh) = (narrow.clone(), pair.clone(), fresh.clone());
                tokio::task::spawn_local(async move {
                    let narrow = Check::new(&narrow, b"n");
                    let checks = match number {
                        0 => vec![narrow],
                        1 => vec![Check::new(&fresh, b"n")],
                        2 => vec![narrow, Check::new(&pair, b"n")],
                        _ => vec![narrow, Check::new(&pair, b"m")],
                    };
                    let outcome = store.decide(&checks).await;
                    (
                        number,
                        outcome.unwrap_or_else(|error| panic!("{number}: {error}")),
                    )
                })
            })
            .collect();
        for task in tasks {
            let (number, decided) = task.await.unwrap();
            let taken = admitted(&decided);
            assert!(taken || number != 1, "new, and refused");
            admitted_in_all += usize::from(taken && number != 1);
        }
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    moving.join().unwrap();
    for store in &stores {
        store.settle().await;
        assert_eq!(store.stats().falls.get(), 0);
    }
    while admitted(
        &stores[0]
            .decide(&[Check::new(&narrow, b"n")])
            .await
            .unwrap(),
    ) {
        admitted_in_all += 1;
    }
    println!("{rounds} rounds while a slot moved twice");
    assert_eq!(admitted_in_all, 300);
    assert!(rounds > 20, "{rounds}");
    for redirect in ["MOVED", "ASK"] {
        let redirect = format!("errorstat_{redirect}:");
        let mut masters = servers.masters.iter();
        assert!(
            masters.any(|node| command_text(node, "INFO errorstats").contains(&redirect)),
            "{redirect}"
        );
    }
    let served = command_text(
        &new,
        "CLUSTER COUNTKEYSINSLOT {slot}"
            .replace("{slot}", &slot.to_string())
            .as_str(),
    );
    assert_ne!(served, "Int(0)");
}
