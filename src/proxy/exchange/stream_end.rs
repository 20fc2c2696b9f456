//! The cause of the end of a WebSocket, or of an incomplete answer: the client, its server, silence, slowness, the
//! gateway's stop.

use crate::listen::minimum_rate::Lateness;
use crate::proxy::bodies::body_failure::UploadFailure;
use crate::proxy::exchange::{Exchange, ExchangeEnd};
use crate::telemetry::access_log::Reason;
use crate::telemetry::metrics::{AnswerSource, EndedBy, Failure, Flow};

impl Exchange {
    /// Notes the end of the tunnel.
    pub fn tunnel_ended(&mut self, by: Option<EndedBy>) {
        self.outcome.tunnel_end = by;
    }

    /// Counts the end of a WebSocket, or of an incomplete answer.
    #[inline]
    pub(super) fn count_end(&self) {
        if let Some((kind, by)) = self.early_end() {
            self.worker.metrics.ended(kind, by);
        }
    }

    /// The cause of that end, where there is one.
    #[inline]
    pub(super) fn ended_by(&self) -> Option<EndedBy> {
        if self.outcome.reason == Reason::ClientTimeout {
            // For a body, 408 alone means only that it was late.
            return self.call.upload.is_some().then(|| self.end_by_upload());
        }
        self.early_end().map(|(_, by)| by)
    }

    #[inline]
    fn early_end(&self) -> Option<(Flow, EndedBy)> {
        if self.outcome.ending == ExchangeEnd::Complete && self.outcome.reason != Reason::Upgraded {
            return None;
        }
        self.end_of_flow()
    }

    #[cold]
    #[inline(never)]
    fn end_of_flow(&self) -> Option<(Flow, EndedBy)> {
        if self.outcome.reason == Reason::Upgraded {
            let by = self
                .outcome
                .tunnel_end
                .unwrap_or_else(|| self.end_by_client());
            return Some((Flow::Tunnel, by));
        }
        if self.outcome.source != AnswerSource::Upstream {
            // No server has answered: the reason is enough.
            return None;
        }
        let by = match self.outcome.ending {
            ExchangeEnd::Complete => return None,
            ExchangeEnd::ClientGone => self.end_by_client(),
            ExchangeEnd::ClientStalled(how) => end_of_late(how),
            ExchangeEnd::Upstream(Failure::Reset) => self.end_by_upload(),
            ExchangeEnd::Upstream(Failure::Timeout) => EndedBy::Idle,
            ExchangeEnd::Upstream(_) => EndedBy::Server,
        };
        Some((Flow::Stream, by))
    }

    /// The client's connection has ended, or was ended.
    fn end_by_client(&self) -> EndedBy {
        match self.outcome.stalled.get() {
            _ if self.worker.drain.is_over() => EndedBy::Drain,
            _ if self.arrived.tls.as_ref().is_some_and(|tls| tls.is_lost()) => EndedBy::Certificate,
            Some(how) => end_of_late(how),
            None => EndedBy::Client,
        }
    }

    /// The server's connection has ended: by the server, or because the client's upload broke.
    fn end_by_upload(&self) -> EndedBy {
        let upload = self.call.upload.as_ref();
        match upload.and_then(|upload| upload.broken.get()) {
            None => EndedBy::Server,
            Some(UploadFailure::TooSlow) => EndedBy::MinRate,
            Some(UploadFailure::Stopped) => EndedBy::Idle,
            Some(UploadFailure::ClientGone | UploadFailure::Malformed) => EndedBy::Client,
        }
    }
}

/// The cause for a client that was late.
fn end_of_late(how: Lateness) -> EndedBy {
    match how {
        Lateness::Silent => EndedBy::Idle,
        Lateness::Slow => EndedBy::MinRate,
    }
}
