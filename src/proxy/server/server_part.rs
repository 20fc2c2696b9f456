//! What is written into a request when it is known to which server it goes, and when: the server's own host, and the time that
//! a call of gRPC has left.

use crate::clock;
use crate::proxy::bodies::request_body::RequestBody;
use crate::proxy::request::grpc::GrpcCall;
use crate::upstream::connection::Connection;
use crate::upstream::failure::UpstreamError;
use crate::upstream::pool::Pool;
use http::{Request, header};

/// What is written into a request when it is known to which server it goes, and when.
#[derive(Debug, Clone, Copy)]
pub struct ServerPart<'a> {
    /// The request is for the host of the server, whichever that is.
    pub uses_server_host: bool,
    /// The request is a call of gRPC.
    pub grpc: Option<&'a GrpcCall>,
}

impl ServerPart<'_> {
    /// Is nothing written?
    #[inline]
    pub(in crate::proxy) fn is_nothing(&self) -> bool {
        !self.uses_server_host && self.grpc.is_none()
    }

    /// Writes it into `request`, which goes out on `connection` to the server of `pool`.
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
