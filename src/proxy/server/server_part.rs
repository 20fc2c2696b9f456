//! The parts of a request that depend on its server and the time of sending: the server's own host, and the remaining
//! time of a gRPC call.

use crate::clock;
use crate::proxy::bodies::request_body::RequestBody;
use crate::proxy::grpc::GrpcCall;
use crate::upstream::connection::Connection;
use crate::upstream::failure::UpstreamError;
use crate::upstream::pool::Pool;
use http::{Request, header};

/// The parts of a request that depend on its server and the time of sending.
#[derive(Debug, Clone, Copy)]
pub struct ServerPart<'a> {
    /// The request names the host of its server, for each server.
    pub uses_server_host: bool,
    /// The request is a gRPC call.
    pub grpc: Option<&'a GrpcCall>,
}

impl ServerPart<'_> {
    /// Are there no such parts?
    #[inline]
    pub(in crate::proxy) fn is_nothing(&self) -> bool {
        !self.uses_server_host && self.grpc.is_none()
    }

    /// Writes the parts into `request`, which is sent on `connection` to the server of `pool`.
    #[cold]
    #[inline(never)]
    pub(in crate::proxy) fn write(
        &self,
        request: &mut Request<RequestBody>,
        connection: &Connection<RequestBody>,
        pool: &Pool<RequestBody>,
    ) -> Result<(), UpstreamError> {
        if let Some(host) = pool.host().filter(|_| self.uses_server_host) {
            request.headers_mut().insert(header::HOST, host.clone());
        }
        self.grpc.map_or(Ok(()), |call| {
            let fields = Some(request.headers_mut());
            call.goes_out(fields, connection.is_http2(), clock::now())
        })
    }
}
