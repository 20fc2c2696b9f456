//! A look at a Redis before anything is counted there: does it answer, what is it, does it take the scripts?

use super::cluster::{self, SlotRange};
use super::health;
use super::login::{self, Peer};
use super::pool::{CONNECT_WITHIN, Connection, Manager, first_word};
use super::signals::Signals;
use crate::store::endpoint::{Address, RedisEndpoint};
use crate::store::error::StoreError;
use crate::store::settings::RedisTarget;
use bb8_redis::redis::{Cmd, Value};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// What a Redis is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisReport {
    /// Where it is, if sentinels had to be asked.
    pub master: Option<Address>,
    /// Its name and version: `redis 7.0.15`.
    pub version: String,
    /// How long one question took.
    pub took: Duration,
    /// What it does when its memory is full, if it has a bound.
    pub evicts: Option<String>,
    /// May anybody on another machine who reaches it change what is there, without a password?
    pub open: bool,
}

impl fmt::Display for RedisReport {
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
        if self.open {
            f.write_str("; open to whoever reaches it")
        } else {
            Ok(())
        }
    }
}

/// Connects to `target`, loads the scripts, asks what it is: of a cluster every master that the first of its nodes to
/// answer tells of, each with its own outcome. Whoever waits bounds the time.
///
/// # Errors
/// When it cannot be reached, or refuses the login or the scripts.
pub async fn probe(target: &RedisTarget, prefix: &str) -> Result<Vec<ProbeOutcome>, StoreError> {
    let RedisEndpoint::Cluster { seeds } = &target.place else {
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
pub type ProbeOutcome = (Option<Address>, Result<RedisReport, StoreError>);

async fn open(target: &RedisTarget, node: Option<&Address>) -> Result<Connection, StoreError> {
    let manager = Manager::new(target.clone(), node.cloned(), Arc::<Signals>::default());
    let opened = timeout(CONNECT_WITHIN, manager.open()).await;
    opened.unwrap_or(Err(StoreError::Timeout {
        after: CONNECT_WITHIN,
    }))
}

async fn masters(target: &RedisTarget, seed: &Address) -> Result<Vec<SlotRange>, StoreError> {
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
async fn each(target: &RedisTarget, prefix: &str, ranges: Vec<SlotRange>) -> Vec<ProbeOutcome> {
    let served: usize = ranges.iter().map(SlotRange::len).sum();
    let mut all: Vec<ProbeOutcome> = Vec::new();
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
) -> Result<RedisReport, StoreError> {
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
        (Some(at), ..) | (None, Some(at), _) | (None, None, RedisEndpoint::Tcp(at)) => Some(at),
        _ => None,
    };
    let open = match at {
        Some(at) => is_far(at).await && lets_anybody_in(target, at, prefix).await,
        None => false,
    };
    Ok(RedisReport {
        master: connection.master.clone(),
        version,
        took,
        evicts,
        open,
    })
}

/// Can it be reached from other machines there? Who connects to no address in particular connects to their own machine.
pub(super) async fn is_far(at: &Address) -> bool {
    let is_far = |ip: IpAddr| !ip.is_loopback() && !ip.is_unspecified();
    let found = tokio::net::lookup_host((&*at.host, at.port)).await;
    found.is_ok_and(|mut all| all.any(|address| is_far(address.ip().to_canonical())))
}

/// May one who has not logged in do more there than read?
pub(super) async fn lets_anybody_in(target: &RedisTarget, at: &Address, prefix: &str) -> bool {
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
        let opened = manager.connect((&stranger, Some(at)), Peer::Redis).await;
        let mut connection = opened.ok()?;
        Some(may_change(&mut connection, prefix).await)
    };
    let asked = timeout(CONNECT_WITHIN, asking).await;
    asked.ok().flatten().unwrap_or_default()
}

/// Is any of what can be tried without changing anything let through? Nobody may ask what a user may do where that is taken
/// from them, as in `+@all -acl`, so it is tried: a key that nobody has is deleted, a setting that no server has is set, a
/// script does nothing.
async fn may_change(connection: &mut Connection, prefix: &str) -> bool {
    let nobody = format!("{prefix}:{{nobody}}");
    let tries: [&[&str]; 5] = [
        &["ACL", "GETUSER", "default"],
        &["EVAL", "return 1", "0"],
        &["DEL", &nobody],
        &["UNLINK", &nobody],
        &["CONFIG", "SET", "tollgate-has-no-such-setting", "1"],
    ];
    for words in tries {
        let mut command = Cmd::new();
        for word in words {
            command.arg(*word);
        }
        let is_let = match connection.send(&command).await {
            Ok(user) if words[0] == "ACL" => says_more_than_reading(&user),
            Ok(_) => true,
            Err(StoreError::Refused(reason)) => is_behind_permission(&reason),
            // It is gone, and so is whoever asks.
            Err(_) => return false,
        };
        if is_let {
            return true;
        }
    }
    false
}

/// Is it what only somebody hears who may send the command?
fn is_behind_permission(reason: &str) -> bool {
    const BEHIND: [&str; 6] = ["READONLY", "MOVED", "ASK", "CLUSTERDOWN", "MISCONF", "OOM"];
    let words = reason.to_ascii_lowercase();
    BEHIND.contains(&first_word(reason))
        || words.contains("unknown option")
        || words.contains("unsupported config parameter")
}

/// Does what `ACL GETUSER` says of a user name commands that change something, or groups of such?
fn says_more_than_reading(user: &Value) -> bool {
    const GROUPS: [&str; 6] = [
        "all",
        "write",
        "dangerous",
        "admin",
        "scripting",
        "keyspace",
    ];
    const COMMANDS: [&str; 16] = [
        "acl",
        "config",
        "debug",
        "del",
        "eval",
        "evalsha",
        "fcall",
        "flushall",
        "flushdb",
        "function",
        "module",
        "replicaof",
        "script",
        "set",
        "shutdown",
        "slaveof",
    ];
    let mut all = Vec::new();
    texts(user, &mut all);
    let (on, nopass) = ["on", "nopass"]
        .map(|flag| all.iter().any(|text| text == flag))
        .into();
    let risks = |rule: &str| match rule.strip_prefix('+') {
        Some(rule) => match rule.strip_prefix('@') {
            Some(group) => GROUPS.contains(&group),
            None => COMMANDS.contains(&rule),
        },
        None => false,
    };
    on && nopass && all.iter().flat_map(|text| text.split(' ')).any(risks)
}

/// All texts of an answer, however deep.
fn texts(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Array(all) | Value::Set(all) => all.iter().for_each(|one| texts(one, out)),
        Value::Map(all) => all.iter().for_each(|(_, one)| texts(one, out)),
        other => out.extend(login::text(other)),
    }
}
