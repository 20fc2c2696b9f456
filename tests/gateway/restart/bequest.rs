//! The data that a gateway gives its successor beside sockets. Each of the two also works with a version that does not
//! know these data.

use super::{Installed, gone, script, upstream};
use crate::support::{File, Gateway, PATIENCE, Redis, Upstream, eventually, process};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Waits until a gateway counts itself as one of `many`, with or without Redis.
async fn counts_as_one_of(gateway: &Gateway, many: u32) {
    let line = format!("\ntollgate_gateways {many}\n");
    let what = format!("one of {many} gateways");
    eventually(PATIENCE, &what, async || {
        gateway.metrics().await.contains(&line)
    })
    .await;
}

/// Asks all gateways without a pause for this time. Returns the number of admitted requests, and the exact time.
async fn admitted(gateways: &[Gateway], within: Duration) -> (u32, f64) {
    let start = Instant::now();
    let mut admitted = 0;
    while start.elapsed() < within {
        for gateway in gateways {
            admitted += u32::from(gateway.get("/").await.status == 200);
        }
    }
    (admitted, start.elapsed().as_secs_f64())
}

#[tokio::test]
async fn successors_in_an_outage_count_as_one_of_as_many_gateways_as_before() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let file = File::to(&upstream, &["l"])
        .redis(&redis, "on_down = \"local\"")
        .server("drain = \"1s\"")
        .limit("l", "by = \"everyone\"\nrate = \"30/s\"\nburst = 12");
    let mut gateways = Vec::new();
    for _ in 0..3 {
        gateways.push(Gateway::start(&file).await);
    }
    for gateway in &gateways {
        counts_as_one_of(gateway, 3).await;
    }
    redis.kill().await;
    for gateway in &mut gateways {
        eventually(PATIENCE, "Redis is known to be away", async || {
            gateway.get("/").await;
            gateway.metrics().await.contains("\ntollgate_store_up 0\n")
        })
        .await;
        for _ in 0..2 {
            let before = gateway.hand_over().await;
            gone(before).await;
            counts_as_one_of(gateway, 3).await;
        }
    }
    let (admitted, seconds) = admitted(&gateways, Duration::from_secs(3)).await;
    // Each successor begins with its full share of the burst: together they have one burst.
    let most = 12.0 + 30.0 * seconds;
    assert!(
        f64::from(admitted) <= most,
        "{admitted} admitted, of {most} at most"
    );
    redis.come().await;
    for gateway in &gateways {
        counts_as_one_of(gateway, 3).await;
    }
}

#[tokio::test]
async fn a_predecessor_that_hands_over_sockets_alone_is_asked_for_nothing_else() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = std::thread::spawn(move || {
        let mut lines = BufReader::new(&ours).lines();
        let ready = lines.next().unwrap().unwrap();
        (&ours).write_all(b"serve\n").unwrap();
        (ready, lines.next().unwrap().unwrap())
    });
    let upstream = upstream().await;
    let file = File::to(&upstream, &[]);
    let folder = tempfile::tempdir().unwrap();
    let sockets = vec![("tollgate/predecessor", theirs.into())];
    let gateway = Gateway::with_sockets(folder, &file, sockets).await;
    gateway.get("/").await.expect(200);
    let heard = heard.join().unwrap();
    assert_eq!(heard, ("ready".to_owned(), "serving".to_owned()));
}

/// Two sockets belong to the admin listener and the server, and the channel comes after them.
const AS_BEFORE: &str = "printf 'ready\\n' >&5\nread word <&5\nprintf 'serving\\n' >&5\n\
echo \"$word $LISTEN_FDS\" > heard.new\nmv heard.new heard\nexec sleep 600";

#[tokio::test]
async fn a_successor_that_asks_for_nothing_hears_the_word_to_serve_alone() {
    let file = File::to(&upstream().await, &[]).server("drain = \"1s\"");
    let (mut gateway, program) = Installed::new(&file.text()).start().await;
    script(&program, AS_BEFORE);
    let before = gateway.hand_over().await;
    assert!(process::runs(gateway.pid()));
    gone(before).await;
    let heard = gateway.folder().join("heard");
    eventually(PATIENCE, "the successor has heard", async || heard.exists()).await;
    assert_eq!(std::fs::read_to_string(heard).unwrap(), "serve 3\n");
}

#[tokio::test]
async fn a_successor_gets_what_it_asks_for_once() {
    let file = File::to(&upstream().await, &[]).server("drain = \"1s\"");
    let (mut gateway, program) = Installed::new(&file.text()).start().await;
    let asks = "printf 'inherit\\n' >&5\nread -r told <&5\necho \"$told\" > told\n";
    script(&program, &format!("{asks}{AS_BEFORE}"));
    let before = gateway.hand_over().await;
    gone(before).await;
    let told = std::fs::read_to_string(gateway.folder().join("told")).unwrap();
    assert_eq!(told, "{\"certificates\":[]}\n");
}
