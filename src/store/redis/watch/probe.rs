//! A probe of a Redis before it is used for counting: its answer, its kind, and whether it accepts the scripts.

use super::trial;
use crate::clock;
use crate::store::endpoint::{Address, RedisEndpoint};
use crate::store::error::StoreError;
use crate::store::redis::cluster;
use crate::store::redis::cluster::slot_map::SlotRange;
use crate::store::redis::link::connection::{CONNECT_WITHIN, RedisConnection, first_word, within};
use crate::store::redis::link::login::{self, LoginPeer, connect};
use crate::store::redis::link::pool::Manager;
use crate::store::redis::link::rights;
use crate::store::redis::link::transport::RedisDestination;
use crate::store::redis::wire::slot::SLOTS;
use crate::store::settings::RedisTarget;
use bb8_redis::redis::{Cmd, Value, cmd};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The properties of a Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisReport {
    /// Its address, if sentinels named it.
    pub master: Option<Address>,
    /// Its name and version: `redis 7.0.15`.
    pub version: String,
    /// The time of one command.
    pub took: Duration,
    /// The eviction policy when its memory is full, if its memory has a bound.
    pub evicts: Option<String>,
    /// The cause for which gateways cannot be counted, with its remedy.
    pub uncounted: Option<String>,
    /// May every client on another machine that reaches the Redis change its data, without a password?
    pub open: bool,
}

impl fmt::Display for RedisReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = self.took.as_secs_f64() * 1_000.0;
        if let Some(master) = &self.master {
            write!(f, "master at {master}, ")?;
        }
        write!(f, "{}, accepts the scripts, {took:.1} ms", self.version)?;
        if let Some(policy) = &self.evicts {
            write!(
                f,
                "; when its memory is full it forgets counters ({policy}): set maxmemory-policy noeviction"
            )?;
        }
        if let Some(why) = &self.uncounted {
            write!(
                f,
                "; the gateways are not counted, and each takes the whole limit while Redis is away: {why}"
            )?;
        }
        if self.open {
            f.write_str("; open to every client that reaches it")
        } else {
            Ok(())
        }
    }
}

/// Connects to `target`, loads the scripts, tries everything that the limits need, and reads its properties. In a
/// cluster, the first seed to answer names every master, and each has a separate outcome. The caller bounds the time.
///
/// # Errors
/// If Redis cannot be reached, or refuses the login or the scripts.
pub async fn probe(target: &RedisTarget, prefix: &str) -> Result<Vec<ProbeOutcome>, StoreError> {
    let RedisEndpoint::Cluster { seeds } = &target.place else {
        let found = look(RedisDestination::of(target), prefix, None).await?;
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

/// A master of a cluster, and its properties.
pub type ProbeOutcome = (Option<Address>, Result<RedisReport, StoreError>);

pub(crate) async fn open(destination: RedisDestination<'_>) -> Result<RedisConnection, StoreError> {
    let RedisDestination { target, node } = destination;
    let manager = Manager::new(target.clone(), node.cloned(), Arc::default());
    within(CONNECT_WITHIN, manager.open()).await
}

pub(crate) async fn masters(
    target: &RedisTarget,
    seed: &Address,
) -> Result<Vec<SlotRange>, StoreError> {
    let mut ranges = cluster::map_of(target.clone(), seed.clone()).await?;
    ranges.sort_by(|a, b| a.master.cmp(&b.master));
    Ok(ranges)
}

/// Every master once, by a key that it serves; and the number of slots that no master serves.
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
        let destination = RedisDestination {
            target,
            node: Some(&range.master),
        };
        let found = look(destination, prefix, Some(&tag)).await;
        all.push((Some(range.master), found));
    }
    if let Some(unserved @ 1..) = SLOTS.checked_sub(served) {
        let why = format!(
            "{unserved} of {SLOTS} slots are served by no master: counters there cannot be kept"
        );
        all.push((None, Err(StoreError::Refused(why.into()))));
    }
    all
}

async fn look(
    destination: RedisDestination<'_>,
    prefix: &str,
    tag: Option<&[u8]>,
) -> Result<RedisReport, StoreError> {
    let RedisDestination { target, node } = destination;
    let mut connection = open(destination).await?;
    // The individual commands come first: the error about a script's call may repeat bytes that no client can read.
    let uses = target.trials.wanted();
    let tried = match trial::run_trials(&mut connection, target, prefix, tag, uses).await {
        Ok(()) => trial::decide(&mut connection, prefix, tag).await,
        Err(error) => Err(error),
    };
    tried.map_err(|error| match node {
        None => login::of_cluster(target, &error).unwrap_or(error),
        Some(_) => error,
    })?;
    let uncounted = uncounted(&mut connection, target).await;
    let begun = clock::now();
    let facts = ServerFacts::ask(&mut connection).await;
    let took = clock::now() - begun;
    let version = match (facts.get("valkey_version"), facts.get("redis_version")) {
        (Some(version), _) => format!("valkey {version}"),
        (None, Some(version)) => format!("redis {version}"),
        (None, None) => "it does not report its version".to_owned(),
    };
    let at = connection.master.as_ref().or(destination.address());
    let open = match at {
        Some(at) => is_remote(at).await && is_open_to_all(target, at, prefix).await,
        None => false,
    };
    Ok(RedisReport {
        master: connection.master.clone(),
        version,
        took,
        evicts: facts.evicts(),
        uncounted,
        open,
    })
}

/// The cause for which the gateway count, whose script is sent whole, is refused.
async fn uncounted(connection: &mut RedisConnection, target: &RedisTarget) -> Option<String> {
    let asked = connection.send(cmd("EVAL").arg("return 1").arg(0)).await;
    match asked {
        Err(StoreError::Refused(reason)) => rights::remedy(&reason, target),
        _ => None,
    }
}

/// The server's `INFO`.
pub(super) struct ServerFacts(String);

impl ServerFacts {
    /// Reads `INFO`. A user that may call scripts but not send INFO is sufficient: nothing is known then.
    pub(crate) async fn ask(connection: &mut RedisConnection) -> Self {
        let mut info = Cmd::new();
        info.arg("INFO");
        Self(match connection.send(&info).await {
            Ok(Value::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Ok(Value::VerbatimString { text, .. }) => text,
            _ => String::new(),
        })
    }

    /// The fact of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    }

    /// The policy by which the server evicts keys with an expiry, as all counters are; `None` if its memory has no
    /// bound, or it evicts none.
    pub(super) fn evicts(&self) -> Option<String> {
        let is_bounded = self.get("maxmemory").is_some_and(|bytes| bytes != "0");
        let policy = self.get("maxmemory_policy")?;
        (is_bounded && policy != "noeviction").then(|| policy.to_owned())
    }
}

/// Can a Redis at this address be reached from other machines? A connection to an unspecified address leads to this
/// machine.
pub(crate) async fn is_remote(at: &Address) -> bool {
    let is_remote = |ip: IpAddr| !ip.is_loopback() && !ip.is_unspecified();
    let found = tokio::net::lookup_host((&*at.host, at.port)).await;
    found.is_ok_and(|mut all| all.any(|address| is_remote(address.ip().to_canonical())))
}

/// May a client without a login do more than read?
pub(crate) async fn is_open_to_all(target: &RedisTarget, at: &Address, prefix: &str) -> bool {
    let unauthenticated = RedisTarget {
        database: 0,
        username: None,
        password: None,
        ..target.clone()
    };
    let destination = RedisDestination {
        target: &unauthenticated,
        node: Some(at),
    };
    let asking = async {
        let opened = connect(destination, LoginPeer::Redis, &Arc::default()).await;
        let mut connection = opened.ok()?;
        Some(may_change(&mut connection, prefix).await)
    };
    let asked = timeout(CONNECT_WITHIN, asking).await;
    asked.ok().flatten().unwrap_or_default()
}

/// Does the server allow any of the commands that can be tried without a change? The trial replaces reading the user's
/// permissions if the user may not read them, as with `+@all -acl`. The commands: a key that no client has is deleted,
/// a setting that no server has is set, a script does nothing.
async fn may_change(connection: &mut RedisConnection, prefix: &str) -> bool {
    let absent = format!("{prefix}:{{nobody}}");
    let tries: [&[&str]; 5] = [
        &["ACL", "GETUSER", "default"],
        &["EVAL", "return 1", "0"],
        &["DEL", &absent],
        &["UNLINK", &absent],
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
            // The connection has ended.
            Err(_) => return false,
        };
        if is_let {
            return true;
        }
    }
    false
}

/// Does only a user with the permission for the command get this answer?
fn is_behind_permission(reason: &str) -> bool {
    const BEHIND: [&str; 6] = ["READONLY", "MOVED", "ASK", "CLUSTERDOWN", "MISCONF", "OOM"];
    let words = reason.to_ascii_lowercase();
    BEHIND.contains(&first_word(reason))
        || words.contains("unknown option")
        || words.contains("unsupported config parameter")
}

/// Does the description of a user by `ACL GETUSER` name commands that change something, or groups of such commands?
fn says_more_than_reading(user: &Value) -> bool {
    const GROUPS: &str = "all write dangerous admin scripting keyspace";
    const COMMANDS: &str = "acl config debug del eval evalsha fcall flushall flushdb function module replicaof script \
         set shutdown slaveof";
    let is_in = |names: &str, name: &str| names.split_ascii_whitespace().any(|other| other == name);
    let mut all = Vec::new();
    texts(user, &mut all);
    let (on, nopass) = ["on", "nopass"]
        .map(|flag| all.iter().any(|text| text == flag))
        .into();
    let risks = |rule: &str| match rule.strip_prefix('+') {
        Some(rule) => match rule.strip_prefix('@') {
            Some(group) => is_in(GROUPS, group),
            None => is_in(COMMANDS, rule),
        },
        None => false,
    };
    on && nopass && all.iter().flat_map(|text| text.split(' ')).any(risks)
}

/// All texts of an answer, at any depth.
fn texts(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Array(all) | Value::Set(all) => all.iter().for_each(|one| texts(one, out)),
        Value::Map(all) => all.iter().for_each(|(_, one)| texts(one, out)),
        other => out.extend(login::reply_text(other)),
    }
}
