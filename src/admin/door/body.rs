//! The body of a request: JSON of at most 64 KiB within three seconds, with the members that the endpoint knows.

use crate::admin::answers::problem::{FaultyMember, Problem};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::error::Error;
use std::time::Duration;
use tokio::time::timeout;

/// The longest body, in bytes.
const MOST_BYTES: usize = 64 * 1024;
/// The longest time for a body.
const WITHIN: Duration = Duration::from_secs(3);

/// The body of an endpoint, with the names of its members.
pub(in crate::admin) trait AdminBody: DeserializeOwned {
    /// All members.
    const MEMBERS: &'static [&'static str];
}

/// Refuses a request whose body is not announced as JSON, once. A page of another site cannot announce it so without
/// asking first.
pub(in crate::admin) fn check_type(fields: &HeaderMap) -> Result<(), Problem> {
    let mut kinds = fields.get_all(CONTENT_TYPE).iter();
    let (kind, more) = (kinds.next(), kinds.next());
    let media = kind.and_then(|kind| kind.as_bytes().split(|byte| *byte == b';').next());
    let is_json =
        media.is_some_and(|media| media.trim_ascii().eq_ignore_ascii_case(b"application/json"));
    if is_json && more.is_none() {
        return Ok(());
    }
    let detail = "the body is announced as application/json, once";
    Err(
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type", detail)
            .help("send the field content-type: application/json"),
    )
}

/// Reads a body.
pub(in crate::admin) async fn collect<B>(body: B) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let too_large = || {
        let detail = "a body has at most 64 KiB";
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
    };
    if body.size_hint().lower() > MOST_BYTES as u64 {
        return Err(too_large());
    }
    let collected = timeout(WITHIN, Limited::new(body, MOST_BYTES).collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => {
            let detail = "the body has ended before its end";
            Err(Problem::new(StatusCode::BAD_REQUEST, "bad_body", detail))
        }
        Err(_) => {
            let detail = "the body has not come within 3 s";
            Err(Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "body_late",
                detail,
            ))
        }
    }
}

/// The members of a body. An empty body has none.
pub(in crate::admin) fn members<T: AdminBody>(body: &[u8]) -> Result<T, Problem> {
    let bad = |detail: String| Problem::new(StatusCode::BAD_REQUEST, "bad_body", detail);
    let body: &[u8] = if body.is_empty() { b"{}" } else { body };
    let read: Value = serde_json::from_slice(body)
        .map_err(|error| bad(format!("the body is no JSON: {error}")))?;
    let Some(object) = read.as_object() else {
        return Err(bad("the body is a JSON object".to_owned()));
    };
    let unknown = object
        .keys()
        .filter(|name| !T::MEMBERS.contains(&name.as_str()));
    let faults: Vec<FaultyMember> = unknown
        .map(|name| unknown_member(name, T::MEMBERS))
        .collect();
    if !faults.is_empty() {
        let detail = "the body has members that this call does not know";
        let problem = Problem::new(StatusCode::BAD_REQUEST, "unknown_member", detail);
        return Err(problem.with_faults(faults));
    }
    serde_json::from_value(read).map_err(|error| bad(format!("the body cannot be read: {error}")))
}

/// A member, or a parameter, that does not exist.
pub(in crate::admin) fn unknown_member(name: &str, known: &[&str]) -> FaultyMember {
    let closest = known
        .iter()
        .map(|one| (strsim::damerau_levenshtein(name, one), one))
        .min()
        .filter(|(distance, one)| *distance <= 1 + one.len() / 4);
    let detail = match closest {
        Some((_, one)) => format!("did you mean `{one}`?"),
        None if known.is_empty() => "this call has no members".to_owned(),
        None => format!("the members are {}", known.join(", ")),
    };
    FaultyMember {
        pointer: format!("/{}", name.replace('~', "~0").replace('/', "~1")),
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use http_body_util::Full;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct SampleBody {
        limit: Option<String>,
        rate: Option<u32>,
    }

    impl AdminBody for SampleBody {
        const MEMBERS: &'static [&'static str] = &["limit", "rate"];
    }

    #[test]
    fn members_are_known_or_named() {
        let read = members::<SampleBody>(br#"{"limit":"a"}"#).unwrap();
        assert_eq!(read.limit.as_deref(), Some("a"));
        assert!(members::<SampleBody>(b"").unwrap().limit.is_none());
        let wrong = members::<SampleBody>(br#"{"limt":"a","x":1}"#).unwrap_err();
        assert_eq!(wrong.code, "unknown_member");
        assert_eq!(wrong.faults[0].detail, "did you mean `limit`?");
        assert_eq!(wrong.faults[1].detail, "the members are limit, rate");
        for bad in ["[]", "{", "1", r#"{"rate":"x"}"#] {
            let wrong = members::<SampleBody>(bad.as_bytes()).unwrap_err();
            assert_eq!(wrong.code, "bad_body", "{bad}");
        }
    }

    #[test]
    fn one_type_and_that_is_json() {
        let check = |kinds: &[&'static str]| {
            let mut fields = HeaderMap::new();
            for kind in kinds {
                fields.append(CONTENT_TYPE, HeaderValue::from_static(kind));
            }
            check_type(&fields).is_ok()
        };
        assert!(check(&["application/json"]) && check(&["Application/JSON ; charset=utf-8"]));
        assert!(!check(&[]) && !check(&["text/plain"]) && !check(&["application/jsonp"]));
        assert!(!check(&["application/json", "application/json"]));
        assert!(!check(&["application/json", "text/plain"]));
    }

    #[tokio::test]
    async fn a_body_has_a_bound() {
        let body = |size: usize| collect(Full::new(Bytes::from(vec![b' '; size])));
        assert_eq!(body(MOST_BYTES).await.unwrap().len(), MOST_BYTES);
        let refused = body(MOST_BYTES + 1).await.unwrap_err();
        assert_eq!(refused.code, "body_too_large");
    }
}
