//! The door: which clients may read and change, and how often. Metrics, health and readiness do not stand behind it.
//!
//! ```text
//! rules        names, tokens and roles, as the file says them
//! host_check   is the listener meant, and does no page of another site ask?
//! credentials  the token that a request shows
//! guesses      a bound on wrong tokens
//! pace         a bound on requests in a second
//! body         the type, size and members of a body
//! audit        the record of changes
//! ```

mod audit;
pub(super) mod body;
mod credentials;
mod guesses;
pub(super) mod host_check;
mod pace;
mod rules;

pub(super) use audit::RecordMembers;
pub use rules::{AccessRules, AccessToken, LEAST_TOKEN, ReadAccess, Role, TokenDigest};

use super::answers::problem::Problem;
use crate::clock;
use arc_swap::ArcSwap;
use audit::AuditLog;
use credentials::ShownToken;
use guesses::{GuessSource, Guesses};
use host_check::ListenerNames;
use http::StatusCode;
use http::request::Parts;
use pace::RequestPace;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;

/// Requests that read, in a second, and requests that change.
const READS: u64 = 50;
const CHANGES: u64 = 20;

/// The ways in which a client may show a token to read; a change takes the first alone.
const BOTH: [&str; 2] = [
    "Bearer realm=\"tollgate\"",
    "Basic realm=\"tollgate\", charset=\"UTF-8\"",
];

/// The door of the admin listener. All its addresses share one.
#[derive(Debug)]
pub struct Door {
    rules: ArcSwap<AccessRules>,
    guesses: Mutex<Guesses>,
    reads: Mutex<RequestPace>,
    changes: Mutex<RequestPace>,
    audit: AuditLog,
}

/// The other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct AdminPeer {
    /// Its address; `None` on a Unix socket.
    pub(super) address: Option<IpAddr>,
    /// Its user, on a Unix socket.
    pub(super) user: Option<u32>,
    /// The names of this end.
    pub(super) names: ListenerNames,
}

/// What an endpoint does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// It only reads.
    Read,
    /// It changes the gateway.
    Change,
}

/// The proof by which a caller is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    /// By a token.
    Token,
    /// By nothing but a connection to a loopback address or a Unix socket.
    Local,
}

impl Via {
    /// Its word in records.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Local => "local",
        }
    }
}

/// The caller of a request.
#[derive(Debug, Clone)]
pub(super) struct AdminCaller {
    /// The name of the token.
    pub(super) name: Arc<str>,
    pub(super) via: Via,
    /// The address, or `unix:` and the user.
    pub(super) peer: Box<str>,
}

impl AdminPeer {
    /// The client's address as records have it.
    pub(super) fn peer(&self) -> String {
        match (self.address, self.user) {
            (Some(address), _) => address.to_canonical().to_string(),
            (None, Some(user)) => format!("unix:{user}"),
            (None, None) => "unix".to_owned(),
        }
    }

    /// Did it connect to a loopback address or to a Unix socket?
    fn is_local(&self) -> bool {
        self.address.is_none() || self.names.address.is_loopback()
    }

    fn guess_source(&self) -> GuessSource {
        match self.address {
            Some(address) => GuessSource::of(address),
            None => GuessSource::User(self.user),
        }
    }
}

impl Door {
    /// A door with these rules.
    #[must_use]
    pub fn new(rules: Arc<AccessRules>) -> Arc<Self> {
        Arc::new(Self {
            rules: ArcSwap::new(rules),
            guesses: Mutex::default(),
            reads: Mutex::new(RequestPace::per_second(READS)),
            changes: Mutex::new(RequestPace::per_second(CHANGES)),
            audit: AuditLog::default(),
        })
    }

    /// Replaces the rules.
    pub fn install(&self, rules: Arc<AccessRules>) {
        self.rules.store(rules);
    }

    /// Admits a request.
    ///
    /// # Errors
    /// If it may not have an answer: the refusal.
    pub(super) fn admit(
        &self,
        need: Need,
        client: &AdminPeer,
        head: &Parts,
    ) -> Result<AdminCaller, Problem> {
        let rules = self.rules.load();
        client.names.check(head, &rules.hosts)?;
        let caller = match ShownToken::of(&head.headers) {
            ShownToken::Absent => anonymous(need, client, &rules)?,
            ShownToken::Basic(_) if need == Need::Change => {
                let detail = "a change is asked for with a token as Bearer: a browser sends Basic by itself, also for pages of other sites";
                return Err(Problem::new(StatusCode::FORBIDDEN, "bearer_needed", detail));
            }
            ShownToken::Bearer(digest) | ShownToken::Basic(digest) => match rules.token(&digest) {
                Some(token) => known(need, client, token)?,
                None => return Err(self.wrong(client)),
            },
            ShownToken::Unreadable => return Err(self.wrong(client)),
        };
        self.pace(need)?;
        Ok(caller)
    }

    /// The refusal of a wrong token.
    fn wrong(&self, client: &AdminPeer) -> Problem {
        let wait = self
            .guesses
            .lock()
            .wrong(client.guess_source(), clock::uptime());
        match wait {
            Some(wait) => {
                let detail =
                    "too many wrong tokens came from this address; a right one is still taken";
                Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_guesses", detail)
                    .retry_after(wait)
            }
            None => {
                let detail = "the token is none of this gateway";
                Problem::new(StatusCode::UNAUTHORIZED, "bad_token", detail).challenging(&BOTH)
            }
        }
    }

    fn pace(&self, need: Need) -> Result<(), Problem> {
        let (pace, most) = match need {
            Need::Read => (&self.reads, "50 requests a second"),
            Need::Change => (&self.changes, "20 changes a second"),
        };
        pace.lock().take(clock::uptime()).map_err(|wait| {
            let detail = format!("this gateway answers {most}");
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_fast", detail).retry_after(wait)
        })
    }

    /// Refuses a change that could not be recorded.
    pub(super) async fn is_recordable(&self) -> Result<(), Problem> {
        let rules = self.rules.load_full();
        self.audit.is_writable(rules.audit.as_deref()).await
    }

    /// Records a change that was done.
    pub(super) async fn record_done(
        &self,
        action: &str,
        by: &AdminCaller,
        more: RecordMembers,
    ) -> Result<(), Problem> {
        let rules = self.rules.load_full();
        self.audit
            .done(rules.audit.as_deref(), action, by, more)
            .await
    }

    /// Records a change that was refused.
    pub(super) async fn record_refused(
        &self,
        action: &str,
        by: Option<&AdminCaller>,
        client: &AdminPeer,
        why: &Problem,
    ) {
        let rules = self.rules.load_full();
        let place = rules.audit.as_deref();
        self.audit
            .refused(place, action, by, &client.peer(), why)
            .await;
    }
}

/// A caller without a token.
fn anonymous(need: Need, client: &AdminPeer, rules: &AccessRules) -> Result<AdminCaller, Problem> {
    let may_read = client.is_local() && rules.read == ReadAccess::Local;
    if need == Need::Read && may_read {
        return Ok(AdminCaller {
            name: "local".into(),
            via: Via::Local,
            peer: client.peer().into(),
        });
    }
    if rules.tokens.is_empty() {
        let detail = match need {
            Need::Change => {
                "nothing can be changed here, since the file of this gateway has no token"
            }
            Need::Read => {
                "only metrics and health are told here, since the file of this gateway has no token"
            }
        };
        return Err(Problem::new(StatusCode::FORBIDDEN, "no_tokens", detail)
            .help("write `token = { file = \"/run/secrets/tollgate-admin\" }` under [admin]"));
    }
    let challenges = if need == Need::Read {
        &BOTH[..]
    } else {
        &BOTH[..1]
    };
    let detail = "a token is needed: Authorization: Bearer TOKEN";
    Err(Problem::new(StatusCode::UNAUTHORIZED, "no_token", detail).challenging(challenges))
}

/// A caller with a token.
fn known(need: Need, client: &AdminPeer, token: &AccessToken) -> Result<AdminCaller, Problem> {
    if need == Need::Change && token.role < Role::Operate {
        let detail = format!("the token `{}` may read, and not change", token.name);
        return Err(Problem::new(StatusCode::FORBIDDEN, "role", detail)
            .help("a token with `role = \"operate\"` may change"));
    }
    Ok(AdminCaller {
        name: Arc::clone(&token.name),
        via: Via::Token,
        peer: client.peer().into(),
    })
}
