//! Counters that a script could neither read nor write. The script does not say why: a key that holds another value is
//! that limit's own trouble, and a command that is refused is the store's.

use std::cell::RefCell;
use tokio::sync::Notify;

/// Such a counter of one node, until the node has been tried.
#[derive(Debug, Default)]
pub(crate) struct Suspicion {
    /// The line for the log, where the node refuses nothing.
    line: RefCell<Option<String>>,
    raised: Notify,
}

impl Suspicion {
    /// A counter could be neither read nor written. `line` tells of its key.
    pub(crate) fn raise(&self, line: impl FnOnce() -> String) {
        self.line.borrow_mut().get_or_insert_with(line);
        self.raised.notify_one();
    }

    /// Waits for a counter, and returns the line about it.
    pub(crate) async fn wait(&self) -> String {
        loop {
            self.raised.notified().await;
            if let Some(line) = self.line.take() {
                return line;
            }
        }
    }
}
