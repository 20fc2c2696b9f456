//! Limits that hold for every request, with any route or none.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{File, Upstream};

on_both_stores! {
    defaults_hold_everywhere_but_where_they_are_dropped
}

async fn defaults_hold_everywhere_but_where_they_are_dropped(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .with("[defaults]\nlimits = [\"all\"]")
        .limit("all", "by = \"everyone\"\nrate = \"3/h\"")
        .limit("own", "by = \"everyone\"\nrate = \"1/h\"")
        .upstream("main", &[&upstream])
        .route("one", "/one", "main", &["own"])
        .route("two", "/two", "main", &[])
        .route("free", "/free", "main", &["!all"]);
    let gateway = place.gateway(file).await;
    let one = gateway.get("/one").await.expect(200);
    assert_eq!(
        one.field("ratelimit-policy"),
        "\"own\";q=1;w=3600, \"all\";q=3;w=3600"
    );
    // The route's own limit refuses, and the default limit was not charged.
    gateway.get("/one").await.expect(429);
    let two = gateway.get("/two").await.expect(200);
    assert_eq!(two.field("ratelimit"), "\"all\";r=1;t=2400");
    let nowhere = gateway.get("/nowhere").await.expect(404);
    assert_eq!(nowhere.field("x-ratelimit-remaining"), "0");
    let line = gateway.line_of(&nowhere).await;
    assert_eq!(line["reason"], "no_route");
    assert_eq!(line["route"], serde_json::Value::Null);
    assert_eq!(line["costs"], serde_json::json!({"all": 1}));
    for target in ["/nowhere", "/two"] {
        let refused = gateway.get(target).await.expect(429);
        assert_eq!(gateway.line_of(&refused).await["limit"], "all");
    }
    for _ in 0..5 {
        let free = gateway.get("/free").await.expect(200);
        assert!(!free.fields.has("ratelimit"), "{free:?}");
    }
}
