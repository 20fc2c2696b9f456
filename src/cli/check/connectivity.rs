//! `check --connect`: are Redis and the servers there that the file names? Each is asked once, and waited for no longer than
//! a few seconds.

use super::{CheckOutput, Format};
use crate::cli::UNREACHABLE;
use crate::config::Compiled;
use crate::store::redis::{RedisReport, probe};
use crate::store::{Backend, RedisTarget, StoreSettings};
use crate::upstream::Server;
use serde_json::json;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Longest that Redis may take to answer everything it is asked.
const REDIS_WITHIN: Duration = Duration::from_secs(3);
/// Servers asked at once.
const AT_ONCE: usize = 64;

/// What came of asking one of them.
pub(super) struct Probe {
    what: &'static str,
    name: String,
    pub(super) place: String,
    /// What it said of itself, or why it could not be asked.
    outcome: Result<String, String>,
    /// Does it let anybody in who reaches it?
    pub(super) open: bool,
}

impl Probe {
    /// A Redis.
    pub(super) fn of_redis(place: String, open: bool, outcome: Result<String, String>) -> Self {
        Self {
            what: "redis",
            name: String::new(),
            place,
            outcome,
            open,
        }
    }

    /// The same without secrets of the file.
    fn starred(self, compiled: &Compiled) -> Self {
        let hide = |text: String| compiled.hide(&text);
        Self {
            place: hide(self.place),
            outcome: self.outcome.map(hide).map_err(hide),
            ..self
        }
    }
}

/// Asks everybody.
///
/// # Errors
/// When there is no way to ask anybody.
pub(super) fn ask(compiled: &Compiled) -> Result<Vec<Probe>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let asked = runtime.block_on(everybody(compiled)).into_iter();
    Ok(asked.map(|one| one.starred(compiled)).collect())
}

/// Adds what they said.
pub(super) fn tell(asked: &Result<Vec<Probe>, String>, format: Format, answer: &mut CheckOutput) {
    let asked = match asked {
        Ok(asked) => asked,
        Err(error) => {
            let _ = writeln!(answer.err, "error: cannot ask anybody: {error}");
            answer.code = UNREACHABLE;
            return;
        }
    };
    for one in asked {
        told(one, format, &mut answer.out);
    }
    if asked.iter().any(|one| one.outcome.is_err()) {
        answer.code = UNREACHABLE;
    }
}

async fn everybody(compiled: &Compiled) -> Vec<Probe> {
    let mut asked = Vec::new();
    if let Backend::Redis(target) = &compiled.boot.store.source {
        asked.extend(redis(target, &compiled.boot.store).await);
    }
    let upstreams = compiled.outline.upstreams.iter();
    let mut servers: Vec<(String, Server, Duration)> = upstreams
        .flat_map(|upstream| {
            let one = |server: &Server| {
                let name = upstream.name.to_string();
                (name, server.clone(), upstream.connect_timeout)
            };
            upstream.servers.iter().map(one).collect::<Vec<_>>()
        })
        .rev()
        .collect();
    let mut under_way = JoinSet::new();
    let mut number = 0;
    let mut answers = Vec::new();
    loop {
        while under_way.len() < AT_ONCE
            && let Some((name, server, within)) = servers.pop()
        {
            let mine = number;
            number += 1;
            under_way.spawn(async move { (mine, upstream(name, server, within).await) });
        }
        match under_way.join_next().await {
            Some(Ok(answer)) => answers.push(answer),
            Some(Err(_)) => {}
            None => break,
        }
    }
    answers.sort_by_key(|(number, _)| *number);
    asked.extend(answers.into_iter().map(|(_, asked)| asked));
    asked
}

async fn redis(target: &RedisTarget, store: &StoreSettings) -> Vec<Probe> {
    let asked = Probe::of_redis;
    let why = match timeout(REDIS_WITHIN, probe(target, &store.prefix)).await {
        Ok(Ok(found)) => {
            let each = found.into_iter().map(|(node, found)| {
                let place = node.map_or_else(|| target.to_string(), |node| node.to_string());
                let open = found.as_ref().is_ok_and(|found| found.open);
                let outcome =
                    found.map(|found| format!("{found}{}", too_far(&found, store.timeout)));
                asked(place, open, outcome.map_err(|error| error.to_string()))
            });
            return each.collect();
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", REDIS_WITHIN.as_secs()),
    };
    vec![asked(target.to_string(), false, Err(why))]
}

/// What there is to say where hardly any time is left for a decision to wait, or for a network to be slower than now.
fn too_far(found: &RedisReport, timeout: Duration) -> String {
    if found.took * 2 <= timeout {
        return String::new();
    }
    format!(
        "; warning: that is more than half of `timeout` ({}), which bounds waiting and call together: write at least {} ms",
        milliseconds(timeout),
        found.took.as_millis() * 5 / 2 + 1
    )
}

async fn upstream(name: String, server: Server, within: Duration) -> Probe {
    let place = server.to_string();
    let outcome = match server {
        Server::Demo => Ok("answers inside the gateway".to_owned()),
        Server::Http { host, port } => {
            let begun = Instant::now();
            match timeout(within, TcpStream::connect((&*host, port))).await {
                Ok(Ok(_)) => Ok(format!("connected in {}", milliseconds(begun.elapsed()))),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("no connection within {}", milliseconds(within))),
            }
        }
    };
    Probe {
        what: "upstream",
        name,
        place,
        outcome,
        open: false,
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

fn told(one: &Probe, format: Format, out: &mut String) {
    let said = match &one.outcome {
        Ok(said) | Err(said) => said,
    };
    let good = one.outcome.is_ok();
    // Writing into a string cannot fail.
    let _ = match format {
        Format::Json => writeln!(
            out,
            "{}",
            json!({
                "asked": one.what, "name": one.name, "place": one.place, "reachable": good, "says": said,
            })
        ),
        _ => {
            let name = if one.name.is_empty() {
                String::new()
            } else {
                format!("{}  ", one.name)
            };
            let mark = if good { "" } else { "NOT REACHABLE: " };
            writeln!(out, "  {}  {name}{}  {mark}{said}", one.what, one.place)
        }
    };
}
