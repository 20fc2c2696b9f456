//! The answers of routes without an upstream: a redirect, or a text.

use crate::snapshot::StaticReply;
use bytes::Bytes;
use http::{HeaderValue, Method, Response, Uri, header};

/// The answer of `own` to a request for `uri`, whose path is in forwarded form.
#[must_use]
pub fn answer(reply: &StaticReply, method: &Method, uri: &Uri) -> Response<Bytes> {
    match reply {
        StaticReply::Redirect { to, status } => {
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = *status;
            let mut there = String::with_capacity(uri.path().len() + to.written().len());
            to.fill(uri.path(), &mut there);
            if let Some(query) = uri.query() {
                there.push('?');
                there.push_str(query);
            }
            // A parsed URI has no byte that is forbidden in a field.
            if let Ok(there) = HeaderValue::from_maybe_shared(Bytes::from(there)) {
                response.headers_mut().insert(header::LOCATION, there);
            }
            response
        }
        StaticReply::Respond {
            status,
            body,
            content_type,
        } => {
            // HEAD gets the fields of GET, including the length (RFC 9110 section 9.3.2).
            let sent = match *method {
                Method::HEAD => Bytes::new(),
                _ => body.clone(),
            };
            let mut response = Response::new(sent);
            *response.status_mut() = *status;
            let fields = response.headers_mut();
            if let Some(kind) = content_type {
                fields.insert(header::CONTENT_TYPE, kind.clone());
            }
            if *method == Method::HEAD && !body.is_empty() {
                fields.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
            }
            response
        }
    }
}
