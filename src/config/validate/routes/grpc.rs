//! Routes for gRPC calls: their servers must use HTTP/2.

use crate::config::document::{Document, Route, Upstream};
use crate::config::input::At;
use crate::config::report::{Code, Details as _, Findings};
use crate::intake::grpc_call::is_type;
use crate::route::Condition;
use crate::upstream::{ServerProtocol, ServerUrl};

/// Notes routes that require the gRPC content type and lead to servers of HTTP/1.1, which cannot answer a call.
pub(in crate::config::validate) fn note_grpc(document: &Document, found: &mut Findings) {
    for route in &document.routes {
        let upstream = document.upstream_of(route);
        if let (Some(asked), Some(upstream)) = (asks_for_calls(route), upstream) {
            needs_http2(route, asked, upstream, found);
        }
    }
}

/// The condition of a route that only gRPC calls meet.
fn asks_for_calls(route: &Route) -> Option<&At<Condition>> {
    let mut all = route.conditions();
    all.find(|at| match &at.value {
        Condition::Field(name, Some(value)) => {
            *name == http::header::CONTENT_TYPE && is_type(value.as_bytes())
        }
        _ => false,
    })
}

fn needs_http2(route: &Route, asked: &At<Condition>, upstream: &Upstream, found: &mut Findings) {
    let protocol = upstream.http();
    let servers = upstream.servers.entries().iter();
    let mut urls = servers.filter_map(|entry| entry.value.url.at());
    let old = urls.find(|url| match url.value {
        ServerUrl::H2c { .. } => false,
        ServerUrl::Https { .. } => protocol == ServerProtocol::Http1,
        ServerUrl::Demo => true,
        ServerUrl::Http { .. } | ServerUrl::Unix(_) => protocol != ServerProtocol::Http2,
    });
    if let Some(old) = old {
        let message = format!("{route} is for gRPC, and {upstream} has a server of HTTP/1.1");
        found
            .warning(Code::H2Needed, message)
            .at(&old.span, "every call is answered UNAVAILABLE")
            .and(&asked.span, "the content type of gRPC")
            .help("write `h2c://` where the server speaks HTTP/2 without TLS, `https://` where it has TLS");
    }
}
