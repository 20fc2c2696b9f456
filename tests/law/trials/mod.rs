//! Three gateways, one Redis, and a hundred random limits with random clients: only admissible requests are admitted.
//!
//! A test cannot see the instant of a decision. It can see two instants around it: the sending of the request, and the
//! arrival of its answer (or the arrival of a held request at the upstream). Admitted requests are judged in every
//! stretch of time that begins and ends with one of them. The requests that lie entirely within a stretch may be no
//! more than the limit allows in that time, at whatever instants they were decided. A refusal is judged by all requests
//! that could have been counted before it: together they must have left no room.

mod admissible;
mod limits;
mod world;

use admissible::judge;
use limits::{Meant, random_limit};
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::task::JoinSet;
use world::World;

const TRIALS: usize = 100;
/// The number of trials at a time. Clients of several trials disturb each other's timing, which is intended.
const AT_ONCE: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_and_one_redis_admit_what_is_admissible() {
    let seed = match std::env::var("TRIAL_SEED") {
        Ok(text) => text.parse().expect("TRIAL_SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let limits: Vec<Meant> = (0..TRIALS).map(|_| random_limit(&mut random)).collect();
    let world = Arc::new(World::of(&limits).await);
    let (mut admitted, mut refused, mut telling) = (0, 0, 0);
    let mut wrong = String::new();
    let mut trials = JoinSet::new();
    let mut next = 0..TRIALS;
    loop {
        while trials.len() < AT_ONCE
            && let Some(number) = next.next()
        {
            let plan = limits[number].plan(&mut random);
            let world = Arc::clone(&world);
            trials.spawn(async move { (number, world.run(number, plan).await) });
        }
        let Some(done) = trials.join_next().await else {
            break;
        };
        let (number, shots) = done.unwrap();
        let meant = &limits[number];
        let passed = shots.iter().filter(|shot| shot.admitted()).count();
        admitted += passed;
        refused += shots.len() - passed;
        telling += usize::from(passed > 0 && passed < shots.len());
        if let Err(why) = judge(meant, &shots, world.peak(number)) {
            let _ = writeln!(
                wrong,
                "trial {number}, {}: {why}",
                meant.lines.replace('\n', ", ")
            );
        }
    }
    println!("seed {seed}: {admitted} admitted, {refused} refused, {telling} trials with both");
    assert!(wrong.is_empty(), "TRIAL_SEED={seed}\n{wrong}");
    // Trials in which no request is refused, or none is admitted, prove little.
    assert!(telling > TRIALS / 4, "{telling} with both");
}
