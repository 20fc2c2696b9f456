//! One credential has one counter, and credentials that look alike have different counters.

use crate::gateway::store_kind::{Place, on_both_stores};
use crate::support::{File, Gateway, Upstream, request, tollgate};

on_both_stores! {
    no_spelling_of_a_credential_makes_another_of_it
    values_are_counted_byte_for_byte
    what_an_upstream_may_find_is_not_skipped
}

/// RFC 9110, section 11.4: the scheme has no case, and any number of blanks follows it.
async fn no_spelling_of_a_credential_makes_another_of_it(place: Place) {
    let upstream = Upstream::echo().await;
    let by = |field: &str| format!("by = \"header:{field}\"\nmissing = \"refuse\"\nrate = \"1/h\"");
    let file = File::default()
        .upstream("main", &[&upstream])
        .with("[groups.gold]\nby = \"header:authorization\"\nmembers = [\"Bearer gold\"]")
        .limit(
            "one",
            &(by("authorization") + "\ntiers.gold = { rate = \"9/h\" }"),
        )
        .limit("proxy", &by("proxy-authorization"))
        .limit("other", &by("x-auth"))
        .route("one", "/one", "main", &["one"])
        .route("proxy", "/proxy", "main", &["proxy"])
        .route("other", "/other", "main", &["other"]);
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let spellings = (0..64_u8).map(|bits| {
        let letters = "bearer".chars().enumerate();
        letters
            .map(|(at, letter)| match bits >> at & 1 {
                0 => letter,
                _ => letter.to_ascii_uppercase(),
            })
            .collect::<String>()
    });
    let spellings: Vec<String> = spellings.collect();
    for (target, field) in [("/one", "Authorization"), ("/proxy", "Proxy-Authorization")] {
        let first = [(field, "Bearer aB.c")];
        client.ask(request("GET", target, &first)).await.expect(200);
        for scheme in &spellings {
            for blanks in [" ", "  ", "\t", " \t "] {
                let value = format!("{scheme}{blanks}aB.c");
                let answer = client.ask(request("GET", target, &[(field, &value)])).await;
                assert_eq!(answer.status, 429, "{target} {value:?}");
            }
        }
        // The text after the scheme is case-sensitive, and a single word is no scheme.
        for other in ["Bearer ab.c", "aB.c", "AB.C"] {
            let fields = [(field, other)];
            client
                .ask(request("GET", target, &fields))
                .await
                .expect(200);
        }
    }
    for (left, member) in [
        (8, "Bearer gold"),
        (7, "bearer gold"),
        (6, "BEARER \t gold"),
    ] {
        let fields = [("Authorization", member)];
        let answer = client
            .ask(request("GET", "/one", &fields))
            .await
            .expect(200);
        assert_eq!(answer.remaining("one"), left, "{member}");
    }
    // In other fields the gateway cannot know whether a word is a scheme.
    for value in ["Bearer k", "bearer k", "Bearer  k"] {
        let fields = [("X-Auth", value)];
        client
            .ask(request("GET", "/other", &fields))
            .await
            .expect(200);
    }
}

async fn values_are_counted_byte_for_byte(place: Place) {
    let upstream = Upstream::echo().await;
    let by = |what: &str| format!("by = \"{what}\"\nmissing = \"refuse\"\nrate = \"1/h\"");
    let file = File::default()
        .upstream("main", &[&upstream])
        .limit("query", &by("query:user"))
        .limit("cookie", &by("cookie:sid"))
        .route("query", "/query", "main", &["query"])
        .route("cookie", "/cookie", "main", &["cookie"]);
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for value in [
        "bob",
        "%20bob",
        "bob+",
        "bob%09",
        "%00bob",
        "%ff",
        "%fe",
        "%EF%BF%BD",
        "%20",
    ] {
        for status in [200, 429] {
            let target = format!("/query?user={value}");
            let answer = client.ask(request("GET", &target, &[])).await;
            assert_eq!(answer.status, status, "{target}");
            let cookie = format!("sid=\"c{value}\"");
            let fields = [("Cookie", &*cookie)];
            let answer = client.ask(request("GET", "/cookie", &fields)).await;
            assert_eq!(answer.status, status, "{cookie}");
        }
    }
}

/// Some upstreams split values at `;`, commas or blanks, or do not compare names byte for byte. A request that has a
/// key for such an upstream must not pass as one without a key.
async fn what_an_upstream_may_find_is_not_skipped(place: Place) {
    let upstream = Upstream::echo().await;
    let by = |what: &str| format!("by = \"{what}\"\nmissing = \"skip\"\nrate = \"1/h\"");
    let file = File::default()
        .upstream("main", &[&upstream])
        .limit("query", &by("query:k"))
        .limit("names", &by("query:my_key"))
        .limit("cookie", &by("cookie:sid"))
        .route("query", "/query", "main", &["query"])
        .route("names", "/names", "main", &["names"])
        .route("cookie", "/cookie", "main", &["cookie"]);
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for (path, queries) in [
        (
            "/query",
            &[
                "x;k=a",
                "x;k=b",
                "x=1;k=c",
                "K=d",
                "k=&x;%6b=e",
                "k[]=f",
                "k%5B0%5D=g",
                "k[x]=h",
                "%20k=i",
                "+k=j",
                "k%00=k",
                "k%00x=l",
            ][..],
        ),
        ("/names", &["my.key=a", "my%20key=b", "my+key=c"]),
    ] {
        for (nth, query) in queries.iter().enumerate() {
            let target = format!("{path}?{query}");
            let told = explained(&gateway, &target).await;
            assert!(!told.contains("does not apply"), "{target} {told}");
            let answer = client.ask(request("GET", &target, &[])).await;
            let status = if nth == 0 { 200 } else { 429 };
            assert_eq!(answer.status, status, "{target}");
        }
    }
    for (nth, cookie) in [
        "x=1, sid=a",
        "x=1,sid=b",
        "SID=c",
        "y=2; x=1, sid=d",
        "x=1 sid=e",
        "y=2; x=1\tsid=f",
    ]
    .iter()
    .enumerate()
    {
        let fields = [("Cookie", *cookie)];
        let answer = client.ask(request("GET", "/cookie", &fields)).await;
        let status = if nth == 0 { 200 } else { 429 };
        assert_eq!(answer.status, status, "{cookie}");
    }
    // A request that has a key for no upstream is skipped.
    for _ in 0..3 {
        client
            .ask(request("GET", "/query?x=k;y&k.x=1&x[k]=2", &[]))
            .await
            .expect(200);
        let fields = [("Cookie", "x=1, y=2 xsid=3")];
        client
            .ask(request("GET", "/cookie", &fields))
            .await
            .expect(200);
    }
}

/// The output of `explain` for a GET.
async fn explained(gateway: &Gateway, target: &str) -> String {
    let file = gateway.file().display().to_string();
    let words = ["explain", "GET", target, "--config", &file];
    let said = tollgate(gateway.folder(), &words).await;
    assert_eq!(said.code, Some(0), "{target} {}", said.stderr);
    said.stdout
}
