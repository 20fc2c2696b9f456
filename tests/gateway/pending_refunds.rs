//! Three gateways whose Redis, or whose connection to it, breaks while requests end. No slot stays taken, each cost is
//! settled once, and Redis' decisions keep the limit.

mod fault;
mod replaced;
mod three;
mod well;

use crate::support::load::{Load, Shot, statuses};
use fault::Fault;
use std::time::{Duration, Instant};
use three::{BURST, PER_SECOND, Three};

/// Runs the fault twice. Requests are in flight when the fault begins; some end before a gateway notices the fault, the
/// others after that.
async fn through(fault: Fault) {
    let mut three = Three::start().await;
    let gateways: Vec<_> = three.gateways.iter().collect();
    let load = Load::on(&gateways, 6, Duration::from_millis(10)).await;
    for _ in 0..2 {
        let waiting = three.fill().await;
        three.break_by(fault).await;
        three.answer(waiting.len() / 2);
        three.are("away").await;
        three.answer(waiting.len());
        three.finish(waiting).await;
        three.mend(fault).await;
        three.are("up").await;
        three.owe_nothing().await;
    }
    let shots = load.stop().await;
    let counts = statuses(&shots);
    println!("{fault:?}: {counts:?}");
    assert!(
        counts.keys().all(|status| [200, 429, 503].contains(status)),
        "{counts:?}"
    );
    keeps_the_law(&shots);
    three.have_lost_nothing().await;
    for gateway in &mut three.gateways {
        gateway.stop().await;
    }
    // Nothing was settled a second time afterwards.
    three.owe_nothing().await;
}

/// Checks the limit's bound: of the requests that were sent after one instant and answered before another, at most
/// burst + rate x T were admitted, where T is the time between the two.
fn keeps_the_law(shots: &[Shot]) {
    let admitted: Vec<&Shot> = shots.iter().filter(|shot| shot.status == 200).collect();
    assert!(!admitted.is_empty());
    for (nth, first) in admitted.iter().enumerate() {
        let ends = admitted[nth..].iter().map(|shot| shot.at + shot.took);
        let mut ends: Vec<Instant> = ends.collect();
        ends.sort();
        for (before, end) in ends.into_iter().enumerate() {
            let time = (end - first.at).as_secs_f64();
            let (most, many) = (BURST + PER_SECOND * time, before as f64 + 1.0);
            assert!(many <= most, "{many} of {most} in {time} s");
        }
    }
}

#[tokio::test]
async fn a_redis_that_stands_still_locks_no_slot_and_settles_once() {
    through(Fault::Stopped).await;
}

#[tokio::test]
async fn a_redis_that_is_killed_and_comes_back_locks_no_slot_and_settles_once() {
    through(Fault::Killed).await;
}

#[tokio::test]
async fn connections_that_are_reset_lock_no_slot_and_settle_once() {
    through(Fault::Reset).await;
}

#[tokio::test]
async fn connections_that_are_refused_lock_no_slot_and_settle_once() {
    through(Fault::Refused).await;
}

#[tokio::test]
async fn answers_that_are_lost_lock_no_slot_and_settle_once() {
    through(Fault::Unheard).await;
}

#[tokio::test]
async fn bytes_that_drip_lock_no_slot_and_settle_once() {
    through(Fault::Dripping).await;
}
