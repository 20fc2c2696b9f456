//! Names that answer, answer late, answer nothing, and change.

use super::*;
use crate::telemetry::metrics::TextFormat;
use crate::upstream::{Protocol, Registry, Server, ServerUrl};
use std::sync::Mutex;
use tokio::sync::Notify;

/// A name server whose answers a test sets.
#[derive(Default)]
struct NameServer {
    answers: Mutex<Option<io::Result<Vec<IpAddr>>>>,
    asked: Notify,
}

impl NameServer {
    /// The next answers: none at all where it is `None`.
    fn set(&self, answer: Option<io::Result<&[&str]>>) {
        let read = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        *self.answers.lock().unwrap() = answer.map(|answer| answer.map(read));
    }

    fn lookup(self: &Arc<Self>) -> Lookup {
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
                    None => std::future::pending().await,
                }
            })
        })
    }
}

fn upstream() -> Arc<Upstream> {
    let servers = vec![Server::plain(ServerUrl::Http {
        host: "orders".into(),
        port: 80,
    })];
    Arc::new(Upstream {
        name: "orders".into(),
        state: Arc::new(UpstreamState::new(&servers)),
        servers,
        connect_timeout: Duration::from_secs(2),
        tls: None,
        protocol: Protocol::Auto,
        resolve: Duration::from_secs(30),
        max_age: None,
    })
}

fn addresses(upstream: &Upstream) -> Vec<String> {
    let members = upstream.state.members();
    let ips = members.iter().filter_map(|member| member.address);
    ips.map(|address| address.ip().to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn only_a_good_answer_changes_the_addresses() {
    let server = Arc::new(NameServer::default());
    let metrics = Metrics::new();
    let mut resolutions = Resolutions::new(server.lookup(), Arc::clone(&metrics));
    let (mut registry, mut upstreams) = (Registry::default(), vec![upstream()]);

    // Nothing answers: the gateway goes on without.
    let names = registry.unresolved(&upstreams);
    assert_eq!(names, ["orders".into()]);
    let found = resolutions.first(names).await;
    registry.adopt(&mut upstreams, &found);
    assert_eq!(addresses(&upstreams[0]), Vec::<String>::new());

    server.set(Some(Ok(&["192.0.2.1", "192.0.2.2"])));
    resolutions.follow(&upstreams);
    let step = async |seconds| sleep(Duration::from_secs(seconds)).await;
    step(2).await;
    assert_eq!(addresses(&upstreams[0]), ["192.0.2.1", "192.0.2.2"]);

    for bad in [
        Some(Ok(&[][..])),
        Some(Err(io::ErrorKind::NotFound.into())),
        None,
    ] {
        server.set(bad);
        step(31).await;
        assert_eq!(addresses(&upstreams[0]), ["192.0.2.1", "192.0.2.2"]);
    }
    server.set(Some(Ok(&["192.0.2.3"])));
    step(120).await;
    assert_eq!(addresses(&upstreams[0]), ["192.0.2.3"]);
    let text = metrics.render(TextFormat::Prometheus);
    for (result, least) in [("ok", 2), ("empty", 1), ("failed", 1), ("late", 2)] {
        let name = format!("tollgate_upstream_resolutions_total{{result=\"{result}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        let count: u64 = line.unwrap().parse().unwrap();
        assert!(count >= least, "{result}: {count}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_left_the_file_is_asked_for_no_more() {
    let server = Arc::new(NameServer::default());
    server.set(Some(Ok(&["192.0.2.1"])));
    let mut resolutions = Resolutions::new(server.lookup(), Metrics::new());
    resolutions.follow(&[upstream()]);
    resolutions.follow(&[upstream()]);
    assert_eq!(resolutions.running.len(), 1, "a reload does not begin anew");
    sleep(Duration::from_secs(31)).await;
    server.asked.notified().await;
    resolutions.follow(&[]);
    let asked = timeout(Duration::from_secs(300), server.asked.notified()).await;
    assert!(asked.is_err());
}

#[test]
fn the_system_knows_this_machine() {
    let found = ask_system("localhost").unwrap();
    assert!(found.iter().all(IpAddr::is_loopback));
    assert!(!found.is_empty());
}
