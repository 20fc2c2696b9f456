//! Counters that a script could neither read nor write. The script does not return the cause: a key that holds another
//! value concerns only that limit, and a refused command the whole store.

use std::cell::RefCell;
use tokio::sync::Notify;

/// Such a counter of one node, until the node has been tried.
#[derive(Debug, Default)]
pub(crate) struct Suspicion {
    /// The line for the log if the node refuses nothing.
    line: RefCell<Option<String>>,
    raised: Notify,
}

impl Suspicion {
    /// Notes a counter that could be neither read nor written. `line` is the log line about its key.
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
