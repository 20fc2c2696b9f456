//! The three gateways, their Redis, an upstream that sees every request, and the clients.

use super::limits::{Meant, Plan};
use crate::law::numbers::SECOND;
use crate::support::{Connection, File, Gateway, Redis, Upstream, request};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;

/// One request. The store decided it between `from` and `to`, by a clock that differs from this machine's as little as
/// possible.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shot {
    /// The instant at which the request was sent, in microseconds since the epoch.
    pub(super) from: u64,
    /// The instant at which its answer had arrived; for a held request, the instant of its arrival at the upstream.
    pub(super) to: u64,
    pub(super) status: u16,
    /// The units that the request asked for, or the units that it was granted.
    pub(super) units: u64,
}

impl Shot {
    pub(super) fn admitted(&self) -> bool {
        self.status == 200
    }
}

/// Wall time that advances like the monotonic clock.
#[derive(Debug, Clone, Copy)]
struct Watch(Instant, u64);

impl Watch {
    fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self(Instant::now(), u64::try_from(since.as_micros()).unwrap())
    }

    fn now(&self) -> u64 {
        self.1 + u64::try_from(self.0.elapsed().as_micros()).unwrap()
    }
}

/// For each trial, the number of requests at the upstream, and the highest number so far.
type Crowd = Arc<Mutex<Vec<(usize, usize)>>>;

pub(super) struct World {
    watch: Watch,
    gateways: Vec<Gateway>,
    crowd: Crowd,
    _upstream: Upstream,
    _redis: Redis,
}

impl World {
    /// One route for each limit, named after its number.
    pub(super) async fn of(limits: &[Meant]) -> Self {
        let watch = Watch::start();
        let crowd: Crowd = Arc::new(Mutex::new(vec![(0, 0); limits.len()]));
        let seen = Arc::clone(&crowd);
        let upstream =
            Upstream::playing(move |connection| serve(connection, watch, Arc::clone(&seen))).await;
        let redis = Redis::start().await;
        let mut file = File::default()
            .redis(&redis, "timeout = \"5s\"\non_down = \"closed\"")
            .server("workers = 1")
            .upstream("main", &[&upstream]);
        for (number, meant) in limits.iter().enumerate() {
            let (name, path) = (format!("t{number}"), format!("/{number}"));
            let lines = format!("by = \"everyone\"\n{}", meant.lines);
            file = file
                .limit(&name, &lines)
                .route(&name, &path, "main", &[&name]);
        }
        let mut gateways = Vec::new();
        for _ in 0..3 {
            gateways.push(Gateway::start(&file).await);
        }
        Self {
            watch,
            gateways,
            crowd,
            _upstream: upstream,
            _redis: redis,
        }
    }

    /// Runs the clients of a plan. Each client sends requests for as long as its time lasts.
    pub(super) async fn run(&self, number: usize, plan: Plan) -> Vec<Shot> {
        let mut clients = JoinSet::new();
        let over = Instant::now() + plan.time;
        for (gateway, seed) in plan.clients {
            let mut wire = self.gateways[gateway].connect().await;
            let mut random = fastrand::Rng::with_seed(seed);
            let (watch, dearest, slowest) = (self.watch, plan.dearest, plan.slowest);
            clients.spawn(async move {
                let mut shots = Vec::new();
                while Instant::now() < over {
                    let cost = random.u64(1..=dearest);
                    let stay = random.u64(..slowest).to_string();
                    let fields = [("x-cost", &*cost.to_string()), ("x-stay", &*stay)];
                    let from = watch.now();
                    let answer = wire
                        .ask(request("GET", &format!("/{number}"), &fields))
                        .await;
                    let to = watch.now();
                    // These numbers come from the upstream.
                    let told = |name| answer.fields.get(name)?.parse().ok();
                    shots.push(Shot {
                        from,
                        to: told("x-seen").unwrap_or(to),
                        status: answer.status,
                        units: told("x-granted").unwrap_or(cost),
                    });
                    rest(random.u64(..slowest * 1000)).await;
                }
                shots
            });
        }
        clients.join_all().await.into_iter().flatten().collect()
    }

    /// The most requests of one trial that were at the upstream at once.
    pub(super) fn peak(&self, number: usize) -> usize {
        self.crowd.lock().unwrap()[number].1
    }
}

/// The real time is part of the trial.
async fn rest(micros: u64) {
    tokio::time::sleep(Duration::from_micros(micros)).await;
}

/// Keeps each request as long as the request asks. The answer contains the instant of its arrival and its granted
/// units.
async fn serve(mut connection: Connection, watch: Watch, crowd: Crowd) {
    while let Ok(head) = connection.request().await {
        let seen = watch.now();
        let number: usize = head.target().trim_start_matches('/').parse().unwrap();
        {
            let (present, peak) = &mut crowd.lock().unwrap()[number];
            *present += 1;
            *peak = (*peak).max(*present);
        }
        let stay: u64 = head.fields.get("x-stay").unwrap().parse().unwrap();
        rest(stay * SECOND / 1000).await;
        let granted = head
            .fields
            .get("tollgate-granted")
            .map(|granted| format!("x-granted: {granted}\r\n"));
        let granted = granted.unwrap_or_default();
        crowd.lock().unwrap()[number].0 -= 1;
        let answer =
            format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-seen: {seen}\r\n{granted}\r\n");
        if connection.wire.try_send(answer).await.is_err() {
            return;
        }
    }
}
