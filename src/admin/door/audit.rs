//! The record of changes, done or refused: one line of JSON each, written before the answer. Without it nothing is
//! changed.

use super::AdminCaller;
use super::pace::RequestPace;
use crate::admin::answers::instant;
use crate::admin::answers::problem::Problem;
use crate::clock;
use crate::telemetry::log;
use http::StatusCode;
use parking_lot::Mutex as StateLock;
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// The longest time for one record.
const WITHIN: Duration = Duration::from_secs(1);
/// Refused changes that are recorded in a second; more are counted.
const REFUSED: u64 = 10;

/// The members of a record that only the change itself knows.
pub(in crate::admin) type RecordMembers = Map<String, Value>;

/// Writes records.
#[derive(Debug)]
pub(super) struct AuditLog {
    /// One writer at a time: where the reader of the log has stopped, one thread waits and not many.
    turn: Arc<Mutex<()>>,
    /// The longest time for one record.
    within: Duration,
    refused: StateLock<RefusedRecords>,
}

#[derive(Debug)]
struct RefusedRecords {
    pace: RequestPace,
    /// Refused changes without a record since the last one.
    left_out: u64,
}

impl Default for AuditLog {
    fn default() -> Self {
        Self {
            turn: Arc::default(),
            within: WITHIN,
            refused: StateLock::new(RefusedRecords {
                pace: RequestPace::per_second(REFUSED),
                left_out: 0,
            }),
        }
    }
}

impl AuditLog {
    /// Can a record be written now?
    ///
    /// # Errors
    /// If not: the answer to the change.
    pub(super) async fn is_writable(&self, place: Option<&Path>) -> Result<(), Problem> {
        self.write(place, None).await
    }

    /// Records a change that was done.
    ///
    /// # Errors
    /// If the record cannot be written: the answer, though the change was made.
    pub(super) async fn done(
        &self,
        place: Option<&Path>,
        action: &str,
        by: &AdminCaller,
        more: RecordMembers,
    ) -> Result<(), Problem> {
        let mut record = record(action, Some(by), &by.peer);
        record["result"] = "done".into();
        for (name, value) in more {
            record[&name] = value;
        }
        let written = self.write(place, Some(line(&record))).await;
        written.map_err(|problem| problem.detail("the change was made, and could not be recorded"))
    }

    /// Records a change that was refused. A refusal stays one whether or not it can be recorded.
    pub(super) async fn refused(
        &self,
        place: Option<&Path>,
        action: &str,
        by: Option<&AdminCaller>,
        peer: &str,
        why: &Problem,
    ) {
        let left_out = {
            let mut refused = self.refused.lock();
            if refused.pace.take(clock::uptime()).is_err() {
                refused.left_out += 1;
                return;
            }
            std::mem::take(&mut refused.left_out)
        };
        let mut record = record(action, by, peer);
        record["result"] = "refused".into();
        record["code"] = why.code.into();
        if left_out > 0 {
            record["more_refused"] = left_out.into();
        }
        // The client gets the refusal itself.
        let _ = self.write(place, Some(line(&record))).await;
    }

    async fn write(&self, place: Option<&Path>, line: Option<String>) -> Result<(), Problem> {
        let written = timeout(self.within, async {
            let turn = Arc::clone(&self.turn).lock_owned().await;
            let place = place.map(PathBuf::from);
            let writing = tokio::task::spawn_blocking(move || {
                let outcome = append(place.as_deref(), line.as_deref());
                drop(turn);
                outcome
            });
            writing.await.map_err(io::Error::other)?
        });
        let why = match written.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it took longer than 1 s".to_owned(),
        };
        tracing::error!("the record of changes cannot be written: {why}");
        let detail = format!(
            "the record of changes cannot be written ({why}), and without it nothing is changed"
        );
        Err(
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "audit_unwritable", detail)
                .help("make `audit` of [admin] writable for the gateway"),
        )
    }
}

fn record(action: &str, by: Option<&AdminCaller>, peer: &str) -> Value {
    json!({
        "ts": instant(clock::wall()),
        "event": "admin_change",
        "by": by.map(|by| &*by.name),
        "via": by.map(|by| by.via.as_str()),
        "peer": peer,
        "action": action,
    })
}

fn line(record: &Value) -> String {
    format!("{record}\n")
}

/// Appends a line to the file, or to the gateway's own log. The file is opened each time, so that a file that was
/// renamed is left alone.
fn append(place: Option<&Path>, line: Option<&str>) -> io::Result<()> {
    let Some(place) = place else {
        return line.map_or(Ok(()), |line| log::write_record("admin_change", line));
    };
    let mut file = opened(place)?;
    match line {
        Some(line) => file.write_all(line.as_bytes()),
        None => Ok(()),
    }
}

fn opened(place: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(place)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", place.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::door::Via;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[tokio::test]
    async fn a_change_is_one_line_of_a_file_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit.json");
        // A loaded machine may take its time.
        let audit = AuditLog {
            within: Duration::from_secs(30),
            ..AuditLog::default()
        };
        let by = AdminCaller {
            name: "anna".into(),
            via: Via::Token,
            peer: "10.0.0.9".into(),
        };
        audit.is_writable(Some(&file)).await.unwrap();
        let more = RecordMembers::from_iter([("generation".to_owned(), 2.into())]);
        audit.done(Some(&file), "reload", &by, more).await.unwrap();
        let why = Problem::new(StatusCode::FORBIDDEN, "role", "no");
        for _ in 0..50 {
            audit
                .refused(Some(&file), "reload", None, "unix", &why)
                .await;
        }
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0]["by"], "anna");
        assert_eq!(lines[0]["result"], "done");
        assert_eq!(lines[0]["generation"], 2);
        assert_eq!(lines[1]["code"], "role");
        assert!(lines.len() <= 22, "{}", lines.len());
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // A folder that does not exist.
        let nowhere = folder.path().join("none/audit.json");
        let refused = audit.is_writable(Some(&nowhere)).await.unwrap_err();
        assert_eq!(refused.code, "audit_unwritable");
    }
}
