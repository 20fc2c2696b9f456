//! A gateway that stood still while it held requests.

use super::super::store_kind::{Place, on_both_stores};
use super::{assert_at_the_rate, delays, held, smooth};
use crate::support::{Lag, Upstream, get, request};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

on_both_stores! {
    a_gateway_that_stood_still_lets_the_held_go_at_the_rate
    a_gateway_that_stood_still_too_long_refuses_the_held
}

async fn a_gateway_that_stood_still_lets_the_held_go_at_the_rate(place: Place) {
    const COUNT: u32 = 40;
    const APART: Duration = Duration::from_millis(50);
    let upstream = Upstream::echo().await;
    let lines = "rate = \"20/s\"\nqueue = 100\nmax_wait = \"30s\"";
    let gateway = place
        .gateway(smooth(&upstream, lines).server("workers = 2"))
        .await;
    let (mut clients, mut newcomer) = (Vec::new(), gateway.connect().await);
    for _ in 0..COUNT {
        clients.push(gateway.connect().await);
    }
    let (mut asking, lag) = (JoinSet::new(), Lag::watch());
    for mut client in clients {
        asking.spawn(async move { client.ask(get("/")).await });
    }
    upstream.sees(2).await;
    gateway.signal("STOP");
    // Meanwhile all turns pass. For a request that comes now the store answers that it need not wait.
    newcomer.send(get("/newcomer")).await;
    tokio::time::sleep(APART * COUNT + Duration::from_millis(100)).await;
    gateway.signal("CONT");
    // The new request goes on behind the late ones, however many requests a busy machine let go before it was stopped.
    let newcomer = newcomer.answer().await.expect(200);
    assert!(held(&newcomer).is_some_and(|wait| wait > 100.0));
    let (mut put_off, mut waited) = (0, 1);
    while let Some(answer) = asking.join_next().await {
        let answer = answer.unwrap().expect(200);
        waited += usize::from(held(&answer).is_some());
        // The last turn comes this long after the first.
        let longest = (APART * (COUNT - 1)).as_secs_f64() * 1000.0;
        put_off += usize::from(held(&answer).is_some_and(|wait| wait > longest + 10.0));
    }
    assert!(put_off > 0, "nobody was late");
    assert_eq!(delays(&gateway).await.0, waited as f64, "each is counted");
    let mut seen: Vec<Instant> = upstream.requests().iter().map(|seen| seen.at).collect();
    seen.sort();
    assert_eq!(seen.len(), COUNT as usize + 1);
    // About forty requests were due at once.
    assert_at_the_rate(&seen, APART, &lag);
}

async fn a_gateway_that_stood_still_too_long_refuses_the_held(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place
        .gateway(smooth(
            &upstream,
            "rate = \"1/2s\"\nqueue = 1\nmax_wait = \"2s\"",
        ))
        .await;
    gateway.get("/").await.expect(200);
    let mut waiting = gateway.connect().await;
    waiting
        .send(request("POST", "/held", &[("Content-Length", "4")]) + "body")
        .await;
    gateway.holds(1).await;
    gateway.signal("STOP");
    tokio::time::sleep(Duration::from_millis(2_200)).await;
    gateway.signal("CONT");
    let refused = waiting.ask("").await.expect(429);
    assert!(refused.number("retry-after") >= 1 && refused.number("retry-after-ms") <= 2_000);
    let said = refused.json()["violated-policies"].clone();
    assert_eq!(said, serde_json::json!(["smooth"]));
    let line = gateway.line_of(&refused).await;
    assert_eq!(
        (&line["reason"], &line["limit"]),
        (&"limit_refused".into(), &"smooth".into())
    );
    assert!(line["delay_ms"].as_f64().unwrap() > 2_000.0, "{line}");
    // The refused request has not used up a turn.
    assert_eq!(held(&gateway.get("/").await.expect(200)), None);
    assert_eq!(upstream.seen(), 2);
}
