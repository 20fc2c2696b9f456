//! Valid and invalid heads.

use super::*;
use crate::route::path::normalize;

fn fields(lines: &[(&str, &str)]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for (name, value) in lines {
        let name: HeaderName = name.parse().unwrap();
        fields.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    fields
}

fn read_head(
    request: &str,
    version: Version,
    lines: &[(&str, &str)],
) -> Result<(String, bool), BadRequest> {
    let (method, uri) = request.split_once(' ').unwrap();
    let method = method.parse().unwrap();
    let target = Target::read(
        &method,
        &uri.parse().unwrap(),
        version,
        Scheme::Http,
        &fields(lines),
    )?;
    Ok((target.host().to_owned(), target.is_asterisk()))
}

fn host_of(lines: &[(&str, &str)]) -> Result<String, BadRequest> {
    read_head("GET /", Version::HTTP_11, lines).map(|(host, _)| host)
}

#[test]
fn exactly_one_valid_host() {
    for host in [
        "a",
        "api.example.com",
        "api.example.com.",
        "API.example.com:8080",
        "my_service:80",
        "127.0.0.1:1",
        "[::1]",
        "[2001:db8::1]:443",
    ] {
        assert_eq!(host_of(&[("host", host)]).as_deref(), Ok(host));
    }
    for host in [
        "",
        " ",
        "a b",
        "a/b",
        "a@b",
        "a?b",
        "a#b",
        "a,b",
        "a, a",
        "a:b",
        "a:1:2",
        "a:-1",
        "a:+1",
        "a:65536",
        "a:99999999999999999999999",
        ":80",
        ".",
        "..",
        ".a",
        "a..b",
        "[::1",
        "::1",
        "[::1]x",
        "[a]",
        "[fe80::1%eth0]",
        "[]",
        "a%62",
        "a\\b",
        "a\"",
        "a;b",
        "é",
        "http://a",
    ] {
        assert_eq!(
            host_of(&[("host", host)]),
            Err(BadRequest::BadHost),
            "{host:?}"
        );
    }
    let long = "a".repeat(300);
    assert_eq!(host_of(&[("host", &long)]), Err(BadRequest::BadHost));
    assert_eq!(host_of(&[]), Err(BadRequest::MissingHost));
    assert_eq!(
        host_of(&[("host", "a"), ("host", "a")]),
        Err(BadRequest::ManyHosts)
    );
}

#[test]
fn http_1_0_may_name_no_host() {
    let old = |lines: &[_]| read_head("GET /", Version::HTTP_10, lines);
    assert_eq!(old(&[]), Ok((String::new(), false)));
    assert_eq!(old(&[("host", "a")]), Ok(("a".into(), false)));
    assert_eq!(old(&[("host", "a/b")]), Err(BadRequest::BadHost));
}

#[test]
fn the_authority_of_a_target_outranks_host() {
    let absolute = |request: &str| read_head(request, Version::HTTP_11, &[("host", "b")]);
    assert_eq!(absolute("GET http://a:81/x"), Ok(("a:81".into(), false)));
    assert_eq!(absolute("GET HTTP://a"), Ok(("a".into(), false)));
    assert_eq!(absolute("GET https://a/"), Err(BadRequest::ForeignScheme));
    assert_eq!(absolute("GET ftp://a/"), Err(BadRequest::ForeignScheme));
    assert_eq!(absolute("GET http://u@a/"), Err(BadRequest::UserInfo));
    assert_eq!(absolute("GET http://u:p@a/"), Err(BadRequest::UserInfo));
    assert_eq!(absolute("GET http://a!b/"), Err(BadRequest::BadHost));
    assert_eq!(
        read_head("GET http://a/", Version::HTTP_11, &[]),
        Err(BadRequest::MissingHost)
    );
    assert_eq!(
        read_head("GET http://a/", Version::HTTP_10, &[]),
        Ok(("a".into(), false))
    );
}

#[test]
fn targets_of_other_forms() {
    let host = [("host", "a")];
    let one = |request: &str| read_head(request, Version::HTTP_11, &host);
    assert_eq!(one("OPTIONS *"), Ok(("a".into(), true)));
    assert_eq!(one("GET *"), Err(BadRequest::Asterisk));
    assert_eq!(one("GET a:80"), Err(BadRequest::AuthorityForm));
    assert_eq!(one("GET x"), Err(BadRequest::AuthorityForm));
    assert_eq!(one("CONNECT a:80"), Err(BadRequest::Connect));
    assert_eq!(one("OPTIONS /*"), Ok(("a".into(), false)));
}

#[test]
fn http_2_takes_authority_or_host_and_no_quarrel() {
    let two = |uri: &str, lines: &[_]| {
        read_head(&format!("GET {uri}"), Version::HTTP_2, lines).map(|(host, _)| host)
    };
    assert_eq!(two("http://a/", &[]).as_deref(), Ok("a"));
    assert_eq!(two("http://a/", &[("host", "A")]).as_deref(), Ok("a"));
    assert_eq!(two("http://a/", &[("host", "a:80")]).as_deref(), Ok("a"));
    assert_eq!(two("/", &[("host", "a")]).as_deref(), Ok("a"));
    assert_eq!(two("/", &[]), Err(BadRequest::MissingHost));
    assert_eq!(
        two("http://a/", &[("host", "b")]),
        Err(BadRequest::HostsDisagree)
    );
    assert_eq!(
        two("http://a/", &[("host", "a:81")]),
        Err(BadRequest::HostsDisagree)
    );
    let twice = [("host", "a"), ("host", "a")];
    assert_eq!(two("http://a/", &twice), Err(BadRequest::ManyHosts));
    assert_eq!(two("http://u@a/", &[]), Err(BadRequest::UserInfo));
    // A proxy in front of the gateway terminates TLS and passes `https` on.
    assert_eq!(two("https://a/", &[]).as_deref(), Ok("a"));
    assert_eq!(two("gopher://a/", &[]), Err(BadRequest::ForeignScheme));
    for name in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    ] {
        let lines = [(name, "chunked")];
        assert_eq!(
            two("http://a/", &lines),
            Err(BadRequest::ConnectionField),
            "{name}"
        );
    }
    assert!(two("http://a/", &[("te", "trailers")]).is_ok());
    assert_eq!(
        two("http://a/", &[("te", "gzip")]),
        Err(BadRequest::ConnectionField)
    );
    let asterisk = Uri::builder()
        .scheme("http")
        .authority("a")
        .path_and_query("*");
    let target = Target::read(
        &Method::OPTIONS,
        &asterisk.build().unwrap(),
        Version::HTTP_2,
        Scheme::Http,
        &HeaderMap::new(),
    );
    assert!(target.unwrap().is_asterisk());
}

#[test]
fn a_long_uri_is_refused() {
    let uri = |length: usize| format!("GET /{}", "a".repeat(length - 1));
    let host = [("host", "a")];
    assert!(read_head(&uri(LONGEST_URI), Version::HTTP_11, &host).is_ok());
    let refused = read_head(&uri(LONGEST_URI + 1), Version::HTTP_11, &host);
    assert_eq!(refused.unwrap_err(), BadRequest::UriTooLong);
}

#[test]
fn chunked_once_is_the_only_coding() {
    let coded = |version, lines: &[&str]| {
        let mut all = vec![("host", "a")];
        all.extend(lines.iter().map(|line| ("transfer-encoding", *line)));
        read_head("POST /", version, &all).map(|_| ())
    };
    let one = |lines: &[&str]| coded(Version::HTTP_11, lines);
    assert_eq!(one(&["chunked"]), Ok(()));
    assert_eq!(one(&["Chunked"]), Ok(()));
    for lines in [&["gzip, chunked"][..], &["x", "chunked"], &["cow, chunked"]] {
        assert_eq!(one(lines), Err(BadRequest::UnknownCoding), "{lines:?}");
    }
    for lines in [
        &["chunked, chunked"][..],
        &["chunked", "chunked"],
        &[", chunked"],
        &["chunked,"],
        &[""],
        &["xchunked"],
        &["chunked;q=1"],
        &["\"chunked\""],
        &["identity"],
        &["chunked, gzip"],
    ] {
        assert_eq!(one(lines), Err(BadRequest::BadCoding), "{lines:?}");
    }
    let old = coded(Version::HTTP_10, &["chunked"]);
    assert_eq!(old, Err(BadRequest::BadCoding));
}

#[test]
fn lengths_agree_and_stand_alone() {
    let with = |lines: &[(&'static str, &'static str)]| {
        let all = [&[("host", "a")][..], lines].concat();
        read_head("POST /", Version::HTTP_11, &all).map(|_| ())
    };
    let length = |value| ("content-length", value);
    assert_eq!(with(&[length("5")]), Ok(()));
    assert_eq!(with(&[length("5"), length("5")]), Ok(()));
    for lines in [
        &[length("5"), length("6")][..],
        &[length("5, 5")],
        &[length("+5")],
        &[length("-5")],
        &[length("")],
        &[length("5x")],
        &[length("18446744073709551621")],
    ] {
        assert_eq!(with(lines), Err(BadRequest::BadLength), "{lines:?}");
    }
    let both = [length("5"), ("transfer-encoding", "chunked")];
    assert_eq!(with(&both), Err(BadRequest::LengthAndCoding));
}

#[test]
fn the_normal_path_goes_on_with_its_query() {
    for (sent, forwarded) in [
        ("/a/b?x=/../", "/a/b?x=/../"),
        ("/a/../b?x=1", "/b?x=1"),
        ("/a//b/", "/a/b/"),
        ("http://h/a?", "/a?"),
        ("http://h?x", "/?x"),
        ("http://h", "/"),
        ("/é/./?q", "/é/?q"),
        ("/%7e", "/~"),
    ] {
        let uri: Uri = sent.parse().unwrap();
        let path = normalize(uri.path()).unwrap();
        assert_eq!(
            forward_target(&uri, &path).unwrap().as_str(),
            forwarded,
            "{sent}"
        );
    }
}

/// The remembered host changes no result: neither for a prefix of a host, nor for an empty one.
#[test]
fn a_host_is_judged_alike_whatever_came_before_it() {
    let long = "a".repeat(REMEMBERED + 1);
    let hosts = [
        "", "a", "a.b", "a.b:80", "a..b", "a/b", "a.", ".", "[::1]", "[::1", &long,
    ];
    for before in hosts {
        for host in hosts {
            for _ in 0..2 {
                is_known_or_host(before.as_bytes());
                assert_eq!(
                    is_known_or_host(host.as_bytes()),
                    is_host(host.as_bytes()),
                    "{host:?} behind {before:?}"
                );
            }
        }
    }
}
