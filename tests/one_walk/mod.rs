//! One walk in three programs: random files and requests for the gateway, `explain` and `simulate`.
//!
//! ```text
//! dice          chance from a seed
//! schema        the keys of the schema: drawn, or without influence
//! draw_file     a random file: listeners, trust, tokens, groups
//! draw_limits   its limits
//! draw_routes   its routes
//! draw_request  a random request for it
//! draw_faults   causes for an early answer, put into a request
//! world         servers, certificates and tokens around all cases
//! one_file      a file with its requests through one program
//! ask           one request: sent, explained, replayed
//! agree         do the three say the same?
//! named_faults  faults of the program of before: there it may differ
//! tally         what was found, and what it was about
//! ```
//!
//! The short form draws the same 500 cases each time; `WALK_CASES=20000 tests/run one_walk` draws others. `WALK_SEED=N`
//! repeats one file with its requests. `TOLLGATE_BEFORE=PATH` sends the same cases through another program, which may
//! differ only by the named faults.

mod agree;
mod ask;
mod dice;
mod draw_faults;
mod draw_file;
mod draw_limits;
mod draw_request;
mod draw_routes;
mod named_faults;
mod one_file;
mod schema;
mod tally;
mod world;

use ask::{Answered, Explained, Sight};
use named_faults::{Case, Voice};
use one_file::{Outcome, Round};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tally::Tally;
use tokio::task::JoinSet;
use world::World;

/// The number of requests for each file.
const REQUESTS: usize = 20;
/// The number of files at a time.
const AT_ONCE: usize = 4;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
    )
}

/// The program under test: that of the tests, or another one.
fn program() -> PathBuf {
    std::env::var_os("TOLLGATE_UNDER_TEST")
        .map_or(env!("CARGO_BIN_EXE_tollgate").into(), PathBuf::from)
}

/// All three report the same about every request, and the earlier program does too, except for its named faults.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_explain_and_simulate_take_one_walk() {
    let world = Arc::new(World::build().await);
    let many = number("WALK_CASES");
    let cases = many.unwrap_or(500);
    let only = number("WALK_SEED");
    let before = std::env::var_os("TOLLGATE_BEFORE").map(PathBuf::from);
    let before = before.filter(|path| !path.as_os_str().is_empty());
    // The short form draws the same cases each time, and the long form draws others.
    let first = only.unwrap_or_else(|| many.map_or(0, |_| fastrand::u64(..1 << 40)));
    let files = only.map_or(cases.div_ceil(REQUESTS as u64), |_| 1);
    let mut next = first..first + files;
    let mut rounds = JoinSet::new();
    let mut tally = Tally::default();
    loop {
        while rounds.len() < AT_ONCE
            && let Some(seed) = next.next()
        {
            let (world, before) = (Arc::clone(&world), before.clone());
            rounds.spawn(async move { round(&world, seed, before.as_deref()).await });
        }
        let Some(done) = rounds.join_next().await else {
            break;
        };
        tally.add(done.unwrap());
    }
    match &before {
        Some(path) => println!("compared with the program of before at {}", path.display()),
        None => println!("not compared with a program of before: TOLLGATE_BEFORE names none"),
    }
    tally.show();
    tally.verdict(only.is_none());
}

/// Draws one file with its requests, and compares all reports about them.
async fn round(world: &World, seed: u64, before: Option<&Path>) -> Tally {
    let program = program();
    let round = Round::draw(world, &program, seed, REQUESTS).await;
    let mut tally = Tally::of(&round);
    let outcome = round.run(world, &program).await;
    let decisions = round.simulate(&program, &outcome.answers).await;
    for (at, explained) in round.explain_connected(world, &program).await {
        told(
            &mut tally,
            &round,
            (&outcome, at),
            &explained,
            Sight::Connected,
        );
    }
    let mut decided = decisions.iter();
    let mut is_astray = false;
    for (at, answered) in outcome.answers.iter().enumerate() {
        let decision = answered.line.as_ref().and_then(|_| decided.next());
        look(&mut tally, &round, &outcome, at);
        if let Some(decision) = decision {
            replayed(&mut tally, &round, answered, (at, decision), &mut is_astray);
        }
    }
    if let Some(before) = before {
        let old = round.run(world, before).await;
        let old_decisions = round.simulate(before, &outcome.answers).await;
        tally.compare_programs(&round, (&outcome, &decisions), (&old, &old_decisions));
    }
    tally
}

/// Compares the gateway's answer to one request with the output of `explain`.
fn look(tally: &mut Tally, round: &Round, outcome: &Outcome, at: usize) {
    tally.count(&round.requests[at], &outcome.answers[at]);
    if let Some(explained) = &outcome.explained[at] {
        tally.explained(explained);
        told(tally, round, (outcome, at), explained, Sight::Alone);
    }
    if let Some(explained) = &outcome.live[at] {
        told(tally, round, (outcome, at), explained, Sight::Live);
    }
}

/// Compares the gateway's answer to one request with one explanation.
fn told(
    tally: &mut Tally,
    round: &Round,
    (outcome, at): (&Outcome, usize),
    explained: &Explained,
    sight: Sight,
) {
    let (file, request, answered) = (&round.file, &round.requests[at], &outcome.answers[at]);
    let found = agree::gateway_and_explain(file, request, answered, explained, sight);
    let said = explained
        .as_ref()
        .map_or_else(Clone::clone, ToString::to_string);
    let case = Case {
        file,
        request,
        answered,
        said: &said,
    };
    tally.disagreement(round, at, &case, Voice::Explain, found);
}

/// Compares the log line of one request with the decision of `simulate` about it.
fn replayed(
    tally: &mut Tally,
    round: &Round,
    answered: &Answered,
    (at, decision): (usize, &Value),
    is_astray: &mut bool,
) {
    let (file, request) = (&round.file, &round.requests[at]);
    let Some(line) = &answered.line else {
        return;
    };
    let found = agree::line_and_simulate(file, request, line, decision, is_astray);
    *is_astray |= !found.is_empty() && file.is_tight;
    let said = decision.to_string();
    let case = Case {
        file,
        request,
        answered,
        said: &said,
    };
    tally.disagreement(round, at, &case, Voice::Simulate, found);
}
