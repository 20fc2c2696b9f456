//! The output of a process, line by line. A test can wait for a line that has not been written yet.

use super::PATIENCE;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::sync::watch;
use tokio::time::timeout;

/// The lines of one output of a process so far.
#[derive(Debug, Clone)]
pub(crate) struct Transcript {
    lines: Arc<Mutex<Vec<String>>>,
    grown: watch::Receiver<bool>,
}

impl Transcript {
    /// Follows `output` to its end.
    pub(crate) fn of(output: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (growing, grown) = watch::channel(false);
        let writing = Arc::clone(&lines);
        tokio::spawn(async move {
            let mut reader = BufReader::new(output).lines();
            while let Ok(Some(line)) = reader.next_line().await {
                writing.lock().unwrap().push(line);
                growing.send_replace(false);
            }
            growing.send_replace(true);
        });
        Self { lines, grown }
    }

    /// All lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// All lines so far, as one text.
    pub(crate) fn text(&self) -> String {
        self.lines().join("\n")
    }

    /// The first line from number `start` on that `fits`, as soon as it is written. `None` if the output ends without
    /// such a line.
    pub(crate) async fn find(&self, start: usize, fits: impl Fn(&str) -> bool) -> Option<String> {
        let mut grown = self.grown.clone();
        loop {
            let over = *grown.borrow_and_update();
            if let Some(line) = self.lines().iter().skip(start).find(|line| fits(line)) {
                return Some(line.clone());
            }
            if over || grown.changed().await.is_err() {
                return None;
            }
        }
    }

    /// The first line from number `start` on that `fits`. The line must come.
    pub(crate) async fn line(
        &self,
        start: usize,
        what: &str,
        fits: impl Fn(&str) -> bool,
    ) -> String {
        match timeout(PATIENCE, self.find(start, fits)).await {
            Ok(Some(line)) => line,
            Ok(None) => panic!("the output ended without {what}:\n{}", self.text()),
            Err(_) => panic!("no {what} within {PATIENCE:?}:\n{}", self.text()),
        }
    }

    /// Waits for the output to end.
    pub(crate) async fn end(&self) {
        timeout(PATIENCE, self.find(usize::MAX, |_| false))
            .await
            .expect("the output ends");
    }
}
