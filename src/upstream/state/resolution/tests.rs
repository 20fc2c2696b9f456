//! Names that resolve, resolve late, resolve to nothing, and change.

use super::*;
use crate::telemetry::metrics::TextFormat;
use crate::upstream::{Registry, Server, ServerProtocol, ServerUrl};
use std::sync::Mutex;
use tokio::sync::Notify;

/// A name server whose answers a test sets.
#[derive(Default)]
struct NameServer {
    answers: Mutex<Option<io::Result<Vec<IpAddr>>>>,
    asked: Notify,
    /// Ends the wait of the lookups without an answer.
    release: Notify,
}

impl NameServer {
    /// Sets the next answers; `None` means no answer at all.
    fn set(&self, answer: Option<io::Result<&[&str]>>) {
        let read = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        *self.answers.lock().unwrap() = answer.map(|answer| answer.map(read));
    }

    fn lookup(self: &Arc<Self>) -> AddressLookup {
        let server = Arc::clone(self);
        Arc::new(move |_| {
            let server = Arc::clone(&server);
            Box::pin(async move {
                server.asked.notify_one();
                let answer = match &*server.answers.lock().unwrap() {
                    None => None,
                    Some(Ok(addresses)) => Some(Ok(addresses.clone())),
                    Some(Err(error)) => Some(Err(io::Error::from(error.kind()))),
                };
                match answer {
                    Some(answer) => answer,
                    None => {
                        server.release.notified().await;
                        Err(io::ErrorKind::TimedOut.into())
                    }
                }
            })
        })
    }
}

/// The time between two lookups.
const EVERY: Duration = Duration::from_millis(30);

fn upstream() -> Arc<Upstream> {
    let servers = vec![Server::plain(ServerUrl::Http {
        host: "orders".into(),
        port: 80,
    })];
    Arc::new(Upstream {
        forward_client_cert: false,
        host: None,
        rules: crate::upstream::UpstreamRules::default(),
        name: "orders".into(),
        state: Arc::new(UpstreamState::new(&servers)),
        servers,
        connect_timeout: Duration::from_secs(2),
        tls: None,
        protocol: ServerProtocol::Auto,
        resolve: EVERY,
        max_age: None,
    })
}

fn addresses(upstream: &Upstream) -> Vec<String> {
    let members = upstream.state.members();
    let ips = members.iter().filter_map(|member| member.address);
    ips.map(|address| address.ip().to_string()).collect()
}

#[tokio::test]
async fn only_a_good_answer_changes_the_addresses() {
    let server = Arc::new(NameServer::default());
    let metrics = Metrics::new();
    let mut resolutions = Resolutions::new(server.lookup(), Arc::clone(&metrics));
    let (mut registry, mut upstreams) = (Registry::default(), vec![upstream()]);

    // Without an answer the gateway continues.
    server.set(Some(Err(io::ErrorKind::NotFound.into())));
    let names = registry.unresolved(&upstreams);
    assert_eq!(names, [Arc::<str>::from("orders")]);
    let found = resolutions.first(names).await;
    registry.adopt(&mut upstreams, &found);
    assert_eq!(addresses(&upstreams[0]), Vec::<String>::new());

    server.set(Some(Ok(&["192.0.2.1", "192.0.2.2"])));
    resolutions.follow(&upstreams);
    until(|| addresses(&upstreams[0]) == ["192.0.2.1", "192.0.2.2"]).await;

    let count = |result: &str| {
        let text = metrics.render(TextFormat::Prometheus);
        let name = format!("tollgate_upstream_resolutions_total{{result=\"{result}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap().parse::<u64>().unwrap()
    };
    let bad = [
        ("empty", Some(Ok(&[][..]))),
        ("failed", Some(Err(io::ErrorKind::NotFound.into()))),
        ("late", None),
    ];
    for (result, answer) in bad {
        let before = count(result);
        server.set(answer);
        until(|| count(result) > before).await;
        assert_eq!(addresses(&upstreams[0]), ["192.0.2.1", "192.0.2.2"]);
    }
    server.set(Some(Ok(&["192.0.2.3"])));
    server.release.notify_waiters();
    until(|| addresses(&upstreams[0]) == ["192.0.2.3"]).await;
    // A reload keeps the known addresses.
    let mut reloaded = vec![upstream()];
    assert!(registry.unresolved(&reloaded).is_empty());
    registry.adopt(&mut reloaded, &Addresses::new());
    assert_eq!(addresses(&reloaded[0]), ["192.0.2.3"]);
}

async fn until(reached: impl Fn() -> bool) {
    let reaching = async {
        while !reached() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(10), reaching).await.unwrap();
}

#[tokio::test]
async fn a_name_that_left_the_file_is_asked_for_no_more() {
    let server = Arc::new(NameServer::default());
    server.set(Some(Ok(&["192.0.2.1"])));
    let mut resolutions = Resolutions::new(server.lookup(), Metrics::new());
    resolutions.follow(&[upstream()]);
    resolutions.follow(&[upstream()]);
    assert_eq!(resolutions.running.len(), 1, "a reload does not begin anew");
    server.asked.notified().await;
    resolutions.follow(&[]);
    // A running lookup may still be noted.
    let _ = timeout(EVERY, server.asked.notified()).await;
    let asked = timeout(EVERY * 5, server.asked.notified()).await;
    assert!(asked.is_err());
}

#[test]
fn the_system_knows_this_machine() {
    let found = ask_system("localhost").unwrap();
    assert!(found.iter().all(IpAddr::is_loopback));
    assert!(!found.is_empty());
}
