//! Paths with other upper and lower case, at an upstream that does not distinguish them.

use crate::support::{File, Gateway, Upstream};

#[tokio::test]
async fn another_case_is_no_way_past_a_limit() {
    let upstream = Upstream::echo().await;
    let strict = "by = \"ip\"\nrate = \"2/h\"";
    let file = |case: &str| {
        File::default()
            .upstream("main", &[&upstream])
            .limit("guesses", strict)
            .route("all", "/{*rest}", "main", &[])
            .route("login", "/Login/{id}/x", "main", &["guesses"])
            .with(case)
    };
    let spellings = ["/login/a/x", "/LOGIN/a/X", "/lOgin/a/x", "/%4cogin/A/x"];
    let statuses = async |gateway: &Gateway| {
        let mut statuses = Vec::new();
        for target in spellings {
            statuses.push(gateway.get(target).await.status);
        }
        statuses
    };
    let sensitive = Gateway::start(&file("path_case = \"sensitive\"")).await;
    assert_eq!(statuses(&sensitive).await, [200, 200, 200, 200]);
    let insensitive = Gateway::start(&file("path_case = \"insensitive\"")).await;
    assert_eq!(statuses(&insensitive).await, [200, 200, 429, 429]);
    let seen = upstream.requests();
    let last = &seen[seen.len() - 1].head;
    assert!(
        last.line.contains("/LOGIN/a/X"),
        "forwarded as it came: {last:?}"
    );
}
