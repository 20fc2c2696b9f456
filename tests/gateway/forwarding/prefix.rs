//! Servers learn the beginning of a path that a route takes away.

use crate::support::{File, Gateway, Upstream, request};

#[tokio::test]
async fn servers_are_told_the_prefix_that_was_taken() {
    let upstream = Upstream::echo().await;
    let address = upstream.url();
    let route = |name: &str, lines: &str| {
        format!(
            "[routes.{name}]\npath = \"/{name}/{{*rest}}\"\nupstream = \"{name}\"\n{lines}\n[upstreams.{name}]\nservers = [\"{address}\"]\n"
        )
    };
    let text = [
        route("app", "strip_prefix = \"/app\""),
        route("whole", ""),
        route(
            "set",
            "strip_prefix = \"/set\"\nrequest_headers = { set = { x-forwarded-prefix = \"/other\", x-forwarded-port = \"8443\" } }",
        ),
        route(
            "gone",
            "strip_prefix = \"/gone\"\nrequest_headers = { remove = [\"x-forwarded-prefix\"] }",
        ),
    ]
    .concat();
    let named = ("X-Forwarded-Prefix", "/outer/");
    for (trust, outer) in [("", ""), ("trust = [\"127.0.0.1\"]", "/outer")] {
        let file = File::to(&upstream, &[]).server(trust).with(&text);
        let gateway = Gateway::start(&file).await;
        let (mut client, modern) = (gateway.connect().await, gateway.h2().await);
        let expected = |own: &str| Some(format!("{outer}{own}")).filter(|whole| !whole.is_empty());
        for (path, fields, prefix) in [
            ("/app/x", &[][..], Some("/app".to_owned())),
            ("/app", &[], Some("/app".to_owned())),
            ("/app/x", &[named], expected("/app")),
            ("/whole/x", &[], None),
            ("/set/x", &[named], Some("/other".to_owned())),
            ("/gone/x", &[named], None),
        ] {
            let echoed = client
                .ask(request("GET", path, fields))
                .await
                .expect(200)
                .echoed();
            let told = echoed.fields.all("x-forwarded-prefix");
            assert_eq!(
                told,
                prefix.iter().collect::<Vec<_>>(),
                "{path} {fields:?} {trust}"
            );
            let port = (path == "/set/x").then_some("8443");
            assert_eq!(echoed.fields.get("x-forwarded-port"), port);
        }
        let echoed = modern.get("/app/x").await.expect(200).echoed();
        assert_eq!(echoed.fields.get("x-forwarded-prefix"), Some("/app"));
        assert_eq!(echoed.line, "GET /x HTTP/1.1");
    }
}
