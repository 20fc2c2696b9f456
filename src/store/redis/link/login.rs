//! The login, which is sent first on a connection: user, database, name. Its errors advise an operator, and repeat the
//! server's words only if these cannot hold a secret.

use super::connection::{LONGEST_WORDS, RedisConnection, first_word, shortened};
use super::rights::{self, is_unknown_command};
use super::signals::ConnectionSignals;
use super::transport::{ADVICE, RedisDestination, dial};
use crate::store::endpoint::{Address, RedisEndpoint};
use crate::store::error::StoreError;
use crate::store::secret::Secret;
use crate::store::settings::RedisTarget;
use crate::tls;
use bb8_redis::redis::{Cmd, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, Value, cmd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

/// A server with credentials of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoginPeer {
    /// Redis itself.
    Redis,
    /// A sentinel.
    Sentinels,
}

impl LoginPeer {
    /// The peer in a message about a refused login, with the place of its credentials.
    fn named(self) -> (&'static str, &'static str) {
        match self {
            Self::Redis => ("Redis", "`[store]`"),
            Self::Sentinels => ("the sentinel", "`sentinel` of `[store]`"),
        }
    }
}

/// The name of connections in `CLIENT LIST`, if the server supports names.
const NAME: [(&str, &str); 2] = [
    ("LIB-NAME", "tollgate"),
    ("LIB-VER", env!("CARGO_PKG_VERSION")),
];

/// The crate's own first command: a name, and no part of the login, whose answer the crate would not expose. Some
/// command has to be sent, since otherwise a server that ends a connection at once would appear as a broken pipe.
fn greeting() -> RedisConnectionInfo {
    let [(_, name), (_, version)] = NAME;
    RedisConnectionInfo::default().set_lib_name(name, version)
}

/// A connection to a destination, on which only the login with the credentials of `peer` is sent.
pub(crate) async fn connect(
    destination: RedisDestination<'_>,
    peer: LoginPeer,
    signals: &Arc<ConnectionSignals>,
) -> Result<RedisConnection, StoreError> {
    let target = destination.target;
    let age = signals.age.load(Ordering::Relaxed);
    let stream = dial(destination).await?;
    let opened = RedisConnection::open(stream, &greeting(), target.functions, age, signals).await;
    let mut connection = match opened {
        Ok(connection) => connection,
        Err(error) => {
            let why = words_at_connect(destination).await;
            return Err(why.unwrap_or_else(|| broken(&error, target)));
        }
    };
    let greeted = connection.greet(target, peer).await;
    signals.hear();
    match greeted {
        Ok(()) => Ok(connection),
        Err(error) => Err(connection.explain(error, destination).await),
    }
}

/// The login command, if there are credentials. A user without a password is logged in with an arbitrary one.
pub(super) fn auth(target: &RedisTarget) -> Option<Cmd> {
    if target.password.is_none() && target.username.is_none() {
        return None;
    }
    let mut auth = cmd("AUTH");
    if let Some(name) = &target.username {
        auth.arg(&**name);
    }
    auth.arg(target.password.as_ref().map_or("", Secret::expose));
    Some(auth)
}

impl RedisConnection {
    /// Logs in, in one write, if there are credentials.
    async fn greet(&mut self, target: &RedisTarget, peer: LoginPeer) -> Result<(), StoreError> {
        let (mut words, mut matter) = (Pipeline::new(), Vec::new());
        let login = auth(target);
        let logs_in = login.is_some();
        if let Some(auth) = login {
            words.add_command(auth);
            matter.push(LoginStep::Login);
        }
        if target.database != 0 {
            words.cmd("SELECT").arg(target.database);
            matter.push(LoginStep::Database);
        }
        if matter.is_empty() {
            return Ok(());
        }
        if logs_in {
            // A name that was sent before the login had no effect. A user may lack the permission to set a name.
            for (what, value) in NAME {
                words.cmd("CLIENT").arg("SETINFO").arg(what).arg(value);
            }
        }
        let answers = self.raw(&words).await;
        let answers = answers.map_err(|error| broken(&error, target))?;
        for (step, answer) in matter.into_iter().zip(answers) {
            if let Err(error) = answer.extract_error() {
                let (code, detail) = (
                    error.code().unwrap_or_default(),
                    error.detail().unwrap_or_default(),
                );
                let words = format!("{code} {detail}");
                if let (LoginStep::Database, Some(why)) = (&step, rights::remedy(&words, target)) {
                    return Err(StoreError::Unpermitted(why.into()));
                }
                let why = match step {
                    LoginStep::Login => refused_login(code, detail, peer),
                    LoginStep::Database => no_password(code, peer).unwrap_or_else(|| {
                        shortened(format!("no database {}: {words}", target.database))
                    }),
                };
                return Err(StoreError::Refused(why.into()));
            }
        }
        Ok(())
    }

    /// The cause for which a command was refused on a new connection. If the remedy is known, the words name it.
    pub(crate) async fn explain(
        &mut self,
        error: StoreError,
        destination: RedisDestination<'_>,
    ) -> StoreError {
        let reason = match &error {
            StoreError::Refused(reason) => reason,
            StoreError::Unreachable(_) | StoreError::Lost(_) => {
                return words_at_connect(destination).await.unwrap_or(error);
            }
            _ => return error,
        };
        if let Some(why) = no_password(first_word(reason), LoginPeer::Redis) {
            return StoreError::Refused(why.into());
        }
        if let Some(why) = rights::remedy(reason, destination.target) {
            return StoreError::Unpermitted(why.into());
        }
        let Some(address) = destination.address() else {
            return error;
        };
        let target = destination.target;
        if !is_unknown_command(reason) {
            return error;
        }
        let role = self.send(Cmd::new().arg("ROLE")).await;
        let why = match &role {
            Ok(Value::Array(parts)) => match &parts[..] {
                [role, watched, ..] if reply_text(role).as_deref() == Some("sentinel") => {
                    is_sentinel(target, address, watched)
                }
                _ => return error,
            },
            // A server with a password of its own refuses further commands without it.
            Err(StoreError::Refused(reason)) if first_word(reason) == "NOAUTH" => format!(
                "{address} does not know a command that every Redis knows, and wants a password: where it is a sentinel, write `{}`",
                by_sentinel(target, address, "NAME")
            ),
            _ => return error,
        };
        StoreError::Refused(why.into())
    }
}

/// The time for the words of a server that ended a connection before any command. It is less than a sentinel has in
/// all, and a server with TLS sends none.
const LISTENED: Duration = Duration::from_millis(120);

/// The words of a server that ends connections as soon as they are made: protected mode, too many clients. A server may
/// have ended the first connection before its words were read. So they are read from another connection, on which
/// nothing is sent.
async fn words_at_connect(destination: RedisDestination<'_>) -> Option<StoreError> {
    let listening = async {
        let mut stream = dial(destination).await.ok()?;
        let mut words = Vec::new();
        while !words.ends_with(b"\n") && words.len() < LONGEST_WORDS * 2 {
            let mut piece = [0; 512];
            match stream.read(&mut piece).await {
                Ok(read @ 1..) => words.extend_from_slice(&piece[..read]),
                Ok(0) | Err(_) => break,
            }
        }
        Some(words)
    };
    let words = timeout(LISTENED, listening).await.ok()??;
    let words = String::from_utf8_lossy(&words);
    let words = words.lines().next()?.strip_prefix('-')?;
    let why = match first_word(words) {
        "DENIED" => "it runs in protected mode, in which no other machine is let in while its user `default` has no password: \
             give the gateway a user of its own and switch `default` off (docs/redis.md), or give it a password, \
             and write them in `[store]`"
            .to_owned(),
        _ => shortened(format!("it ends every connection at once: {words}")),
    };
    Some(StoreError::Refused(why.into()))
}

/// The command that an answer belongs to.
enum LoginStep {
    Login,
    Database,
}

/// The cause for which the connection ended before any answer.
fn broken(error: &RedisError, target: &RedisTarget) -> StoreError {
    // A server may refuse a certificate only after the handshake.
    if error.kind() == ErrorKind::Parse {
        let why = "the server there is not Redis, but perhaps an HTTP server: check the port in the address";
        return StoreError::Unreachable(why.into());
    }
    let why = tls::explain(error, ADVICE).unwrap_or_else(|| error.to_string());
    let why = match (&target.tls, &target.place) {
        (Some(_), _) | (None, RedisEndpoint::Unix(_)) => why,
        (None, _) => format!(
            "{why}, before it had answered anything: is it a port with TLS? Then write `rediss` in place of `redis` in the address"
        ),
    };
    StoreError::Unreachable(why.into())
}

/// The cause of a refused login. The server's words are repeated only if they are known to be safe: a server without
/// AUTH repeats the password in its answer.
fn refused_login(code: &str, detail: &str, peer: LoginPeer) -> String {
    let (who, place) = peer.named();
    if code == "WRONGPASS" {
        return format!(
            "{who} does not take the user or the password (WRONGPASS): look at `username` and `password` in {place}"
        );
    }
    if detail.contains("without any password configured") {
        return format!(
            "{who} wants no password: leave `password` in {place} out, or write its user as `username` there"
        );
    }
    if is_unknown_command(detail) {
        return format!(
            "{who} knows no AUTH, which has been renamed or taken away: no user can log in there; make it available again, or leave `password` in {place} out where none is needed"
        );
    }
    if detail.contains("wrong number of arguments") {
        return format!(
            "{who} knows no users, which Redis has since 6.0: leave `username` in {place} out"
        );
    }
    format!("{who} refuses the login ({code})")
}

/// The message if a server requires a password and got none.
pub(super) fn no_password(code: &str, peer: LoginPeer) -> Option<String> {
    let (who, place) = peer.named();
    (code == "NOAUTH").then(|| {
        format!("{who} wants a password, and none is given (NOAUTH): write `password` in {place}")
    })
}

/// The message for the address of a sentinel that is configured as the address of a Redis.
fn is_sentinel(target: &RedisTarget, address: &Address, watched: &Value) -> String {
    let names = match watched {
        Value::Array(names) => names.iter().filter_map(reply_text).collect(),
        _ => Vec::new(),
    };
    let name = names.first().map_or("NAME", String::as_str);
    let all = match &names[..] {
        [] => ", with the name of what it watches".to_owned(),
        [_] => String::new(),
        many => format!(", or another that it watches: {}", many[1..].join(", ")),
    };
    let meant = by_sentinel(target, address, name);
    format!("{address} is a sentinel: write `{meant}`{all}")
}

/// The remedy if a lone Redis was meant, and the server's answer shows a cluster.
pub(crate) fn of_cluster(target: &RedisTarget, error: &StoreError) -> Option<StoreError> {
    let StoreError::Refused(reason) = error else {
        return None;
    };
    if !["CROSSSLOT", "MOVED", "ASK", "CLUSTERDOWN"].contains(&first_word(reason)) {
        return None;
    }
    let scheme = scheme(target);
    let place = match &target.place {
        RedisEndpoint::Tcp(address) => address.to_string(),
        _ => "HOST:PORT".to_owned(),
    };
    let why = format!("this is a node of a cluster: write `{scheme}+cluster://{place}` ({reason})");
    Some(StoreError::Refused(why.into()))
}

fn by_sentinel(target: &RedisTarget, address: &Address, name: &str) -> String {
    format!("{}+sentinel://{address}/{name}", scheme(target))
}

/// The beginning of a target's address.
pub(super) fn scheme(target: &RedisTarget) -> &'static str {
    if target.tls.is_some() {
        "rediss"
    } else {
        "redis"
    }
}

/// A text in a server's answer.
pub(crate) fn reply_text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}
