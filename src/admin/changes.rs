//! `POST /v1/reset` empties the counters of a limit and a key; `GET /v1/changes` lists what operators have changed.

use super::answers::problem::Problem;
use super::call::{AdminResponse, Call, ChangeDone, json};
use super::door::body::{AdminBody, members};
use super::door::{AdminCaller, RecordMembers};
use crate::changes::{Author, ChangeError, OperatorChanges, ResetReach, ResetRequest};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json as object};

/// The body of a reset.
#[derive(Debug, Deserialize)]
struct ResetBody {
    limit: String,
    key: String,
    group: Option<String>,
    window: Option<String>,
    id: Option<String>,
    note: Option<String>,
    #[serde(default = "yes")]
    wait: bool,
    #[serde(default, rename = "where")]
    reach: ResetPlace,
}

impl AdminBody for ResetBody {
    const MEMBERS: &'static [&'static str] = &[
        "limit", "key", "group", "window", "id", "note", "wait", "where",
    ];
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ResetPlace {
    #[default]
    All,
    Here,
}

fn yes() -> bool {
    true
}

impl From<ResetBody> for ResetRequest {
    fn from(body: ResetBody) -> Self {
        Self {
            limit: body.limit,
            key: body.key,
            group: body.group,
            window: body.window,
            id: body.id,
            note: body.note,
            leaves_at_once: !body.wait,
            reach: match body.reach {
                ResetPlace::All => ResetReach::All,
                ResetPlace::Here => ResetReach::Here,
            },
        }
    }
}

/// Empties the counters of a limit and a key.
pub(super) async fn reset(call: Call) -> Result<ChangeDone, Problem> {
    let request = ResetRequest::from(members::<ResetBody>(&call.body)?);
    let Some(changes) = &call.state.changes else {
        let detail = "nothing can be changed before the workers run";
        return Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "starting",
            detail,
        ));
    };
    let (limit, key) = (request.limit.clone(), request.key.clone());
    let author = author(call.author.as_ref());
    let change = changes.reset(request, author).await;
    let change = change.map_err(|error| problem(&error))?;
    let mut record = RecordMembers::from_iter([
        ("limit".to_owned(), limit.into()),
        ("key".to_owned(), key.into()),
    ]);
    let shown = serde_json::to_value(&change).unwrap_or_default();
    for name in ["id", "before", "version", "taken_by", "gateways", "note"] {
        record.insert(
            name.to_owned(),
            shown.get(name).cloned().unwrap_or_default(),
        );
    }
    Ok(ChangeDone {
        answer: json(&object!({ "changes": [change] }))?,
        record,
    })
}

/// The changes that this gateway knows.
pub(super) fn list(call: &Call) -> Result<AdminResponse, Problem> {
    let list = call.state.changes.as_deref().map(OperatorChanges::list);
    json(&serde_json::to_value(list).unwrap_or(Value::Null))
}

fn author(caller: Option<&AdminCaller>) -> Author {
    match caller {
        Some(caller) => Author {
            name: caller.name.to_string(),
            via: caller.via.as_str().to_owned(),
        },
        None => Author {
            name: "local".to_owned(),
            via: "local".to_owned(),
        },
    }
}

/// The answer to a change that was not made.
fn problem(error: &ChangeError) -> Problem {
    let status = StatusCode::from_u16(error.status());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Problem::new(status, error.code(), error.to_string())
}
