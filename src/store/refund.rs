//! What has become of a charge that was to be refunded.

use super::error::StoreError;
use tokio::sync::oneshot;

/// What has become of a charge that was to be refunded.
#[derive(Debug)]
pub enum RefundOutcome {
    /// It has been refunded, whole or in part.
    Refunded,
    /// Nothing was refunded: another charge counts on it, or it has passed. It can be tried again.
    Declined,
    /// The store did not answer, or it can never be refunded.
    Lost,
    /// The store has not answered yet.
    Pending(PendingRefund),
}

/// A store's answer that is to come.
#[derive(Debug)]
pub struct PendingRefund(pub(super) oneshot::Receiver<Result<u8, StoreError>>);

impl PendingRefund {
    /// Waits for it: as long as the store's calls may take.
    pub async fn outcome(self) -> RefundOutcome {
        match self.0.await {
            Ok(Ok(0)) => RefundOutcome::Declined,
            Ok(Ok(1 | 2)) => RefundOutcome::Refunded,
            // What may have been done is not tried again.
            Ok(Ok(_) | Err(_)) | Err(_) => RefundOutcome::Lost,
        }
    }
}
