//! A look at a Redis before anything is counted there: does it answer, what is it, does it take the scripts?

use super::cluster::{self, Range};
use super::health;
use super::login::{self, Whose};
use super::pool::{CONNECT_WITHIN, Connection, Manager};
use super::signals::Signals;
use crate::store::error::StoreError;
use crate::store::place::{Address, Place};
use crate::store::settings::RedisTarget;
use bb8_redis::redis::{Cmd, Value};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// What a Redis is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where it is, if sentinels had to be asked.
    pub master: Option<Address>,
    /// Its name and version: `redis 7.0.15`.
    pub version: String,
    /// How long one question took.
    pub took: Duration,
    /// What it does when its memory is full, if it has a bound.
    pub evicts: Option<String>,
    /// May anybody on another machine who reaches it do everything there, without a password?
    pub open: bool,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = self.took.as_secs_f64() * 1_000.0;
        if let Some(master) = &self.master {
            write!(f, "master at {master}, ")?;
        }
        write!(f, "{}, takes the scripts, {took:.1} ms", self.version)?;
        if let Some(policy) = &self.evicts {
            write!(
                f,
                "; when its memory is full it forgets counters ({policy}): set maxmemory-policy noeviction"
            )?;
        }
        match self.open {
            true => f.write_str(
                "; warning: whoever reaches it may do everything there, since its user `default` needs no password: switch it off (`user default off`, docs/redis.md)",
            ),
            false => Ok(()),
        }
    }
}

/// Connects to `target`, loads the scripts, asks what it is: of a cluster every master that the first of its nodes to
/// answer tells of, each with its own outcome. Whoever waits bounds the time.
///
/// # Errors
/// When it cannot be reached, or refuses the login or the scripts.
pub async fn probe(target: &RedisTarget, prefix: &str) -> Result<Vec<Probed>, StoreError> {
    let Place::Cluster { seeds } = &target.place else {
        let found = look(target, None, (prefix, None)).await?;
        return Ok(vec![(None, Ok(found))]);
    };
    let mut trouble = StoreError::Down;
    for seed in seeds.iter() {
        match masters(target, seed).await {
            Ok(ranges) => return Ok(each(target, prefix, ranges).await),
            Err(error) => trouble = error,
        }
    }
    Err(trouble)
}

/// Which master of a cluster, and what it is like.
pub type Probed = (Option<Address>, Result<Found, StoreError>);

async fn open(target: &RedisTarget, node: Option<&Address>) -> Result<Connection, StoreError> {
    let manager = Manager::new(target.clone(), node.cloned(), Arc::<Signals>::default());
    let opened = timeout(CONNECT_WITHIN, manager.open()).await;
    opened.unwrap_or(Err(StoreError::Timeout {
        after: CONNECT_WITHIN,
    }))
}

async fn masters(target: &RedisTarget, seed: &Address) -> Result<Vec<Range>, StoreError> {
    let manager = Manager::new(
        target.clone(),
        Some(seed.clone()),
        Arc::<Signals>::default(),
    );
    let asked = manager.open_for(async |connection| cluster::slots_of(connection, seed).await);
    let asked = timeout(CONNECT_WITHIN, asked).await;
    let (_, mut ranges) = asked.unwrap_or(Err(StoreError::Timeout {
        after: CONNECT_WITHIN,
    }))?;
    ranges.sort_by(|a, b| a.master.cmp(&b.master));
    Ok(ranges)
}

/// Every master once, by a key that it serves; and what nobody serves.
async fn each(target: &RedisTarget, prefix: &str, ranges: Vec<Range>) -> Vec<Probed> {
    let served: usize = ranges.iter().map(Range::len).sum();
    let mut all: Vec<Probed> = Vec::new();
    for range in ranges {
        if all
            .last()
            .is_some_and(|(last, _)| last.as_ref() == Some(&range.master))
        {
            continue;
        }
        let tag = range.tag().unwrap_or_default();
        let found = look(target, Some(&range.master), (prefix, Some(&tag))).await;
        all.push((Some(range.master), found));
    }
    let all_slots = cluster::SLOTS;
    if let Some(unserved @ 1..) = all_slots.checked_sub(served) {
        let why = format!(
            "{unserved} of {all_slots} slots are served by nobody: counters there cannot be kept"
        );
        all.push((None, Err(StoreError::Refused(why.into()))));
    }
    all
}

async fn look(
    target: &RedisTarget,
    node: Option<&Address>,
    (prefix, tag): (&str, Option<&[u8]>),
) -> Result<Found, StoreError> {
    let mut connection = open(target, node).await?;
    let tried = health::tries(&mut connection, prefix, tag).await;
    tried.map_err(|error| match node {
        None => login::of_cluster(target, &error).unwrap_or(error),
        Some(_) => error,
    })?;
    let mut info = Cmd::new();
    info.arg("INFO");
    let begun = Instant::now();
    let answer = connection.send(&info).await;
    let took = begun.elapsed();
    // A user who may call scripts and not ask for this is good enough.
    let text = match answer {
        Ok(Value::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        Ok(Value::VerbatimString { text, .. }) => text,
        _ => String::new(),
    };
    let fact = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    let version = match (fact("valkey_version"), fact("redis_version")) {
        (Some(version), _) => format!("valkey {version}"),
        (None, Some(version)) => format!("redis {version}"),
        (None, None) => "it does not tell its version".to_owned(),
    };
    let bounded = fact("maxmemory").is_some_and(|bytes| bytes != "0");
    let policy = fact("maxmemory_policy").filter(|policy| *policy != "noeviction" && bounded);
    let evicts = policy.map(str::to_owned);
    let at = match (node, &connection.master, &target.place) {
        (Some(at), ..) | (None, Some(at), _) | (None, None, Place::Tcp(at)) => Some(at),
        _ => None,
    };
    let open = match at {
        Some(at) => is_far(at).await && lets_anybody_in(target, at).await,
        None => false,
    };
    Ok(Found {
        master: connection.master.clone(),
        version,
        took,
        evicts,
        open,
    })
}

/// Can it be reached from other machines there?
pub(super) async fn is_far(at: &Address) -> bool {
    let found = tokio::net::lookup_host((&*at.host, at.port)).await;
    found.is_ok_and(|mut all| all.any(|address| !address.ip().to_canonical().is_loopback()))
}

/// May one who has not logged in do everything there? Who may ask what a user may do may do the rest: a server that has no
/// users has no such question, and one that wants a password answers none.
pub(super) async fn lets_anybody_in(target: &RedisTarget, at: &Address) -> bool {
    let stranger = RedisTarget {
        database: 0,
        username: None,
        password: None,
        ..target.clone()
    };
    let manager = Manager::new(
        stranger.clone(),
        Some(at.clone()),
        Arc::<Signals>::default(),
    );
    let asking = async {
        let opened = manager.connect((&stranger, Some(at)), Whose::Redis).await;
        let mut connection = opened.ok()?;
        let mut user = Cmd::new();
        user.arg("ACL").arg("GETUSER").arg("default");
        Some(connection.send(&user).await)
    };
    match timeout(CONNECT_WITHIN, asking).await {
        Ok(Some(Ok(user))) => {
            let user = format!("{user:?}");
            user.contains("nopass") && user.contains("+@all")
        }
        Ok(Some(Err(error))) => error.to_string().contains("unknown command"),
        _ => false,
    }
}
