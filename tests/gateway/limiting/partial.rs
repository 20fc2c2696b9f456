//! A limit that grants the units that are left, as clients and upstreams see it.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{File, Upstream, request};

on_both_stores! {
    what_is_left_is_granted_and_the_upstream_is_told
    the_others_are_charged_in_full_or_nothing_is
}

const UNITS: &str = "by = \"ip\"\nalgorithm = \"sliding-log\"\nrate = \"10/h\"\npartial = true\ncost = { header = \"x-cost\", max = 50, min = 0 }";

async fn what_is_left_is_granted_and_the_upstream_is_told(place: Place) {
    let upstream = Upstream::echo().await;
    for (nth, algorithm) in ["sliding-log", "token-bucket", "fixed-window"]
        .iter()
        .enumerate()
    {
        let name = format!("units-{nth}");
        let rule = UNITS.replace("sliding-log", algorithm);
        let file = File::to(&upstream, &[&name]).limit(&name, &rule);
        let gateway = place.gateway(file).await;
        let mut client = gateway.connect().await;
        for (asked, granted) in [("4", "4"), ("50", "6")] {
            let fields = [("x-cost", asked), ("tollgate-granted", "99")];
            let answer = client.ask(request("GET", "/", &fields)).await.expect(200);
            assert_eq!(answer.echoed().fields.all("tollgate-granted"), [granted]);
            let costs = serde_json::json!({ &name: granted.parse::<u64>().unwrap() });
            assert_eq!(gateway.line_of(&answer).await["costs"], costs);
        }
        // Nothing is left. A peek grants nothing, and the wait is that for one unit, although 50 units never fit.
        let peek = [("x-cost", "0"), ("Tollgate-Granted", "1")];
        let peek = client.ask(request("GET", "/", &peek)).await.expect(200);
        assert!(!peek.echoed().fields.has("tollgate-granted"), "{peek:?}");
        let refused = client.ask(request("GET", "/", &[("x-cost", "50")])).await;
        let wait = refused.expect(429).number("retry-after-ms");
        let most = if nth == 1 { 360_000 } else { 3_600_000 };
        assert!(wait > most / 2 && wait <= most, "{algorithm}: {wait}");
    }
}

async fn the_others_are_charged_in_full_or_nothing_is(place: Place) {
    let upstream = Upstream::echo().await;
    let other = "by = \"ip\"\nrate = \"12/h\"\ncost = { header = \"x-cost\", max = 50, min = 0 }";
    let file = File::to(&upstream, &["units", "other"])
        .limit("units", UNITS)
        .limit("other", other);
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for (asked, status, left) in [("13", 429, (10, 12)), ("12", 200, (0, 0))] {
        let answer = client
            .ask(request("GET", "/", &[("x-cost", asked)]))
            .await
            .expect(status);
        let seen = (answer.remaining("units"), answer.remaining("other"));
        assert_eq!(seen, left, "{asked}");
    }
}
