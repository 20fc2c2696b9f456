//! Three gateways in front of one Redis, each with its own connection, and requests whose end the test chooses.

use crate::support::{
    Answer, Connection, File, Gateway, PATIENCE, Redis, Relay, Upstream, eventually, request,
};
use std::ops::RangeInclusive;
use std::time::Instant;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The most requests in flight at once.
const SLOTS: usize = 6;
/// The charge until the upstream has given the cost.
const ESTIMATE: u64 = 2;
/// The burst of the limit that is in use all the time.
pub(super) const BURST: f64 = 5.0;
pub(super) const PER_SECOND: f64 = 100.0;

pub(super) struct Three {
    pub(super) redis: Redis,
    pub(super) relays: Vec<Relay>,
    pub(super) gateways: Vec<Gateway>,
    upstream: Upstream,
    _law: Upstream,
    /// The number of the last request that the upstream may answer.
    gate: watch::Sender<usize>,
    /// The number of requests sent.
    sent: usize,
    /// The cost of the requests that were answered.
    told: u64,
    /// The most that may have been charged for the requests that got an error.
    unheard: u64,
}

/// Answers each request when the gate is open for it, with the cost that the request asked for.
async fn serve(mut connection: Connection, mut gate: watch::Receiver<usize>) {
    while let Ok(head) = connection.request().await {
        let number = |name| head.fields.get(name).and_then(|text| text.parse().ok());
        let (nth, units) = (number("x-nth"), number("x-units").unwrap_or(0));
        if gate.wait_for(|open| nth <= Some(*open)).await.is_err() {
            return;
        }
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-units: {units}\r\n\r\n");
        if connection.wire.try_send(answer).await.is_err() {
            return;
        }
    }
}

/// The final cost of a request: more than the estimate, or less.
fn units(nth: usize) -> u64 {
    [50, 0, 7, 1][nth % 4]
}

pub(super) async fn gated() -> (Upstream, watch::Sender<usize>) {
    let (gate, watched) = watch::channel(0);
    let upstream =
        Upstream::playing(move |connection: Connection| serve(connection, watched.clone())).await;
    (upstream, gate)
}

pub(super) fn file(upstream: &Upstream, law: &Upstream, url: &str) -> File {
    File::default()
        .server("workers = 1")
        .store(&format!(
            "url = \"{url}\"\ntimeout = \"500ms\"\non_down = \"closed\""
        ))
        .upstream("slow", &[upstream])
        .upstream("law", &[law])
        .limit(
            "slots",
            &format!("by = \"everyone\"\nalgorithm = \"concurrency\"\nmax = {SLOTS}\nslot_ttl = \"1min\""),
        )
        .limit(
            "units",
            &format!("by = \"everyone\"\nrate = \"100000/h\"\nalgorithm = \"fixed-window\"\ncost = {{ response_header = \"x-units\", estimate = {ESTIMATE}, max = 100 }}"),
        )
        .limit(
            "law",
            &format!("by = \"everyone\"\nrate = \"{PER_SECOND}/s\"\nburst = {BURST}"),
        )
        .route("slow", "/slow", "slow", &["slots", "units"])
        .route("law", "/", "law", &["law"])
}

impl Three {
    /// Starts the gateways, and a Redis that writes each update to disk before it answers.
    pub(super) async fn start() -> Self {
        let redis = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
        let mut relays = Vec::new();
        for _ in 0..3 {
            relays.push(Relay::to(redis.port()).await);
        }
        let urls: Vec<String> = relays.iter().map(Relay::url).collect();
        Self::of(redis, relays, &urls).await
    }

    pub(super) async fn of(redis: Redis, relays: Vec<Relay>, urls: &[String]) -> Self {
        let ((upstream, gate), law) = (gated().await, Upstream::echo().await);
        let mut gateways = Vec::new();
        for url in urls {
            gateways.push(Gateway::start(&file(&upstream, &law, url)).await);
        }
        let three = Self {
            redis,
            relays,
            gateways,
            upstream,
            _law: law,
            gate,
            sent: 0,
            told: 0,
            unheard: 0,
        };
        three.are("up").await;
        three
    }

    /// Sends as many requests as may be in flight, spread over the gateways. Returns when each has reached the
    /// upstream.
    pub(super) async fn fill(&mut self) -> Vec<JoinHandle<Answer>> {
        let (mut waiting, mut unheard, begun) = (Vec::new(), false, Instant::now());
        while waiting.len() < SLOTS {
            self.sent += 1;
            let nth = self.sent;
            let fields = [
                ("x-nth", nth.to_string()),
                ("x-units", units(nth).to_string()),
            ];
            let fields = fields.each_ref().map(|(name, value)| (*name, &**value));
            let mut client = self.gateways[nth % self.gateways.len()].connect().await;
            let asked = request("GET", "/slow", &fields);
            let asking = tokio::spawn(async move { client.ask(asked).await });
            eventually(PATIENCE, "it goes on, or not", async || {
                asking.is_finished() || self.has_seen(nth)
            })
            .await;
            match asking.is_finished() {
                false => waiting.push(asking),
                true => {
                    let status = asking.await.unwrap().status;
                    // On a machine that stands still, a gateway may take Redis for away. Its call may have taken a
                    // slot, which is soon given back. All other taken slots belong to requests in flight.
                    assert!(status == 503 || (status == 429 && unheard), "{status}");
                    assert!(begun.elapsed() < PATIENCE, "slots are given back");
                    if status == 503 {
                        self.unheard += ESTIMATE;
                        unheard = true;
                    }
                }
            }
        }
        waiting
    }

    fn has_seen(&self, nth: usize) -> bool {
        let nth = nth.to_string();
        let seen = self.upstream.requests();
        seen.iter()
            .any(|seen| seen.head.fields.get("x-nth") == Some(&nth))
    }

    /// Lets the upstream answer `many` of the requests in flight.
    pub(super) fn answer(&self, many: usize) {
        self.gate.send_replace(self.sent - SLOTS + many);
    }

    /// Checks that all requests were answered as if no fault had occurred.
    pub(super) async fn finish(&mut self, waiting: Vec<JoinHandle<Answer>>) {
        for one in waiting {
            let answer = one.await.unwrap().expect(200);
            self.told += answer.number("x-units");
        }
    }

    /// Waits until every gateway reports this state of Redis.
    pub(super) async fn are(&self, word: &str) {
        for gateway in &self.gateways {
            eventually(PATIENCE, &format!("Redis is {word}"), async || {
                let said = gateway.admin_get("/readyz").await.text();
                said.contains(&format!("store: {word}"))
            })
            .await;
        }
    }

    /// Waits until no slot is taken, and every cost has been settled exactly once.
    pub(super) async fn owe_nothing(&self) {
        settled(&self.redis, self.told..=self.told + self.unheard).await;
    }

    /// Checks that no gateway has dropped an update for Redis.
    pub(super) async fn have_lost_nothing(&self) {
        for gateway in &self.gateways {
            let metrics = gateway.metrics().await;
            let lost = metrics.lines().filter(|line| {
                line.starts_with("tollgate_store_operations_total")
                    && line.contains("outcome=\"lost\"")
                    && !line.ends_with(" 0")
            });
            assert_eq!(lost.count(), 0, "{metrics}");
        }
    }
}

/// Waits until no slot is taken in `redis`, and the number of charged units is in this range.
pub(super) async fn settled(redis: &Redis, units: RangeInclusive<u64>) {
    let held = async || {
        let keys = redis.keys().await;
        // The key of the counter, and no key of a charge's record.
        let is = |key: &str, name: &str| key.contains(name) && key.ends_with('}');
        let key = |name: &str| keys.iter().find(|key| is(key, name)).cloned();
        let slots: usize = match key(":slots:") {
            Some(key) => redis.command(&["ZCARD", &key]).await,
            None => 0,
        };
        let state: Vec<u8> = match key(":units:") {
            Some(key) => redis.command(&["GET", &key]).await,
            None => Vec::new(),
        };
        // The start of the window, and its count.
        let count = state.get(8..12).map(|count| count.try_into().unwrap());
        (slots, count.map_or(0, u32::from_be_bytes))
    };
    let mut last = None;
    let what = format!("no slot is taken, and {units:?} units");
    eventually(PATIENCE, &what, async || {
        let (slots, count) = held().await;
        if last.replace((slots, count)) != Some((slots, count)) {
            println!("{slots} slots are taken, and {count} units");
        }
        slots == 0 && units.contains(&u64::from(count))
    })
    .await;
}
