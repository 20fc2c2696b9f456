//! The heads of servers have one bound over both versions. The bound counts bytes as HTTP/2 does, and does not count
//! fields.

use crate::support::{Connection, File, Gateway, Manner, ModernServer, Upstream, get};

/// A server of HTTP/1.1 whose answer has the number and length of fields that the path names.
async fn old_server() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            let (count, length) = asked(head.target());
            let mut answer = String::from("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n");
            for number in 0..count {
                answer += &format!("x-{number}: {}\r\n", "v".repeat(length));
            }
            connection.wire.send(answer + "\r\nok").await;
        }
    })
    .await
}

/// The number and the length in `/fields/COUNT/LENGTH`.
fn asked(target: &str) -> (usize, usize) {
    let mut numbers = target.rsplit('/').map(|part| part.parse().unwrap_or(0));
    let length = numbers.next().unwrap_or(0);
    (numbers.next().unwrap_or(0), length)
}

#[tokio::test]
async fn the_bound_is_the_same_over_both_versions() {
    let (old, new) = (
        old_server().await,
        ModernServer::start(Manner::default()).await,
    );
    let text = format!(
        "[upstreams.new]\nservers = [\"h2c://{}\"]\n[routes.new]\npath = \"/new/{{*rest}}\"\nstrip_prefix = \"/new\"\nupstream = \"new\"\n",
        new.address
    );
    let gateway = Gateway::start(&File::to(&old, &[]).with(&text)).await;
    for (count, length, status) in [
        (99, 10, 200),
        (130, 10, 200),
        (1_000, 10, 200),
        (90, 4_000, 200),
        (5_000, 40, 200),
        (120, 4_000, 502),
        (9_000, 40, 502),
    ] {
        for place in ["", "/new"] {
            let mut client = gateway.connect().await;
            let answer = client
                .ask(get(&format!("{place}/fields/{count}/{length}")))
                .await;
            assert_eq!(answer.status, status, "{place} {count} {length}");
            if status == 200 {
                let own = answer.fields.names().into_iter();
                let own = own.filter(|name| {
                    name.strip_prefix("x-")
                        .is_some_and(|rest| rest.parse::<u32>().is_ok())
                });
                assert_eq!(own.count(), count, "{place}");
            }
        }
    }
}
