//! The log names what the gateway removes from a request: the names of fields, and offers of upgrades.

use crate::support::{File, Gateway, Upstream, request};

#[tokio::test]
async fn fields_with_odd_names_are_counted_and_told_once() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    for _ in 0..3 {
        let fields = [("api_key", "secret"), ("X_B", "1"), ("X-C", "1")];
        let echoed = gateway.get_with("/", &fields).await.expect(200).echoed();
        assert!(!echoed.fields.has("api_key") && echoed.fields.has("x-c"));
    }
    for number in 0..30 {
        let name = format!("junk_{number}");
        gateway.get_with("/", &[(&name, "1")]).await.expect(200);
    }
    let counted = gateway.metrics().await;
    let counted = counted
        .lines()
        .find(|line| line.starts_with("tollgate_http_fields_dropped_total "));
    assert_eq!(counted, Some("tollgate_http_fields_dropped_total 36"));
    let lines = gateway.said.lines();
    let told = |name: &str| lines.iter().filter(|line| line.contains(name)).count();
    assert_eq!((told("`api_key`"), told("`x_b`")), (1, 1), "{lines:?}");
    assert_eq!(told("`junk_"), 18, "twenty names in all");
    assert_eq!(told("secret"), 0);
}

#[tokio::test]
async fn offers_of_upgrades_that_are_taken_away_are_told() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    for _ in 0..3 {
        let offer = [
            ("Connection", "Upgrade"),
            ("Upgrade", "SPDY/3.1"),
            ("Content-Length", "0"),
        ];
        let mut client = gateway.connect().await;
        let echoed = client
            .ask(request("POST", "/exec", &offer))
            .await
            .expect(200)
            .echoed();
        assert!(!echoed.fields.has("upgrade"));
        let offer = [
            ("Connection", "Upgrade, HTTP2-Settings"),
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "AAMAAABkAAQ"),
        ];
        gateway.get_with("/", &offer).await.expect(200);
    }
    for offer in ["`SPDY/3.1`", "`h2c`"] {
        gateway
            .said
            .line(0, offer, |line| line.contains(offer))
            .await;
        let lines = gateway.said.lines();
        assert_eq!(lines.iter().filter(|line| line.contains(offer)).count(), 1);
    }
}
