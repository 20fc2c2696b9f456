//! Calls about what operators have changed: a look whether there is anything new, an entry, and how many gateways have
//! it. Each call has a deadline of the caller, and none of them makes a server count as unavailable: limits go on.

use super::RedisStore;
use super::link::connection::is_forgotten;
use super::link::reply;
use super::node::Node;
use super::wire::layout;
use super::wire::script::{CHANGES, Script};
use crate::clock::Timestamp;
use crate::limit::{Limit, wire};
use crate::store::changes::{Acceptance, ChangeRequest, Coverage, FORMAT, PollReply};
use crate::store::error::StoreError;
use crate::store::fleet::LIFE;
use bb8_redis::redis::{Cmd, Value, cmd};
use std::time::Duration;
use tokio::time::timeout;

/// One call of the script: its keys and arguments.
struct ScriptCall {
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
}

impl ScriptCall {
    /// A call by the server's clock.
    fn of(prefix: &str, operation: &str) -> Self {
        let keys = layout::CHANGES.map(|name| layout::everyones_key(prefix, name).into_bytes());
        Self {
            keys: keys.into(),
            arguments: vec![Vec::new(), operation.into()],
        }
    }

    fn argument(&mut self, bytes: impl AsRef<[u8]>) {
        self.arguments.push(bytes.as_ref().to_vec());
    }

    /// The command, which names the script by its digest, or has all of its text.
    fn command(&self, is_whole: bool) -> Cmd {
        let script: &Script = &CHANGES;
        let mut command = cmd(if is_whole { "EVAL" } else { "EVALSHA" });
        command.arg(if is_whole {
            script.text()
        } else {
            script.digest()
        });
        command.arg(self.keys.len());
        for part in self.keys.iter().chain(&self.arguments) {
            command.arg(part);
        }
        command
    }
}

impl RedisStore {
    /// Is there anything new for gateway `me`, which has the version `mine`, since just now if `is_new`?
    ///
    /// # Errors
    /// If Redis does not answer within this time, or refuses, or if another value stands at a key.
    pub async fn poll_changes(
        &self,
        me: u64,
        mine: u64,
        is_new: bool,
        within: Duration,
    ) -> Result<PollReply, StoreError> {
        let mut call = ScriptCall::of(&self.context.prefix, "p");
        call.argument(me.to_be_bytes());
        call.argument(wire::double(mine));
        call.argument(if is_new { "1" } else { "0" });
        PollReply::read(&self.ask_about_changes(&call, within).await?)
    }

    /// Adds an entry. Where one Redis has everything, the same call empties `counters`.
    ///
    /// # Errors
    /// See [`RedisStore::poll_changes`]. The entry may have been added, unless Redis has refused it.
    pub async fn change(
        &self,
        request: &ChangeRequest,
        counters: &[(&Limit, &[u8])],
        within: Duration,
    ) -> Result<Acceptance, StoreError> {
        let mut call = ScriptCall::of(&self.context.prefix, "c");
        let mut lives = Vec::new();
        for (limit, key) in counters {
            call.keys.extend(self.context.reset_names(limit, key));
            lives.extend_from_slice(&wire::double(limit.mark_life() / 1000));
        }
        call.argument(request.id.0);
        call.argument([&[request.kind.byte()][..], &request.target.0].concat());
        call.argument(wire::double(crate::clock::micros(request.life)));
        call.argument([&[FORMAT][..], &request.payload].concat());
        let seen = request.if_version.map(wire::double);
        call.argument(seen.as_ref().map_or(&b""[..], |seen| seen));
        call.argument(lives);
        Acceptance::read(&self.ask_about_changes(&call, within).await?)
    }

    /// How many gateways have at least this version, since this instant of the store's clock?
    ///
    /// # Errors
    /// See [`RedisStore::poll_changes`].
    pub async fn look_at_changes(
        &self,
        least: u64,
        since: Timestamp,
        within: Duration,
    ) -> Result<Coverage, StoreError> {
        let mut call = ScriptCall::of(&self.context.prefix, "l");
        let gateways = layout::gateways_key(&self.context.prefix);
        call.keys.push(gateways.into_bytes());
        call.argument(wire::double(least));
        call.argument(wire::double(since.micros()));
        call.argument(wire::double(crate::clock::micros(LIFE)));
        Coverage::read(&self.ask_about_changes(&call, within).await?)
    }

    /// Are all counters in one Redis, so that one call can empty them and add an entry?
    #[must_use]
    pub fn is_lone(&self) -> bool {
        self.router.lone().is_some()
    }

    async fn ask_about_changes(
        &self,
        call: &ScriptCall,
        within: Duration,
    ) -> Result<Vec<u8>, StoreError> {
        if !self.serves_everyone() {
            return Err(StoreError::Down);
        }
        let asked = async {
            let home = self.everyone().await?;
            let answer = home.node.ask_about_changes(call).await;
            if let Err(StoreError::Refused(reason)) = &answer
                && self.router.is_redirected(&home.node, reason)
            {
                // By the next call, the node that serves the keys is known.
                return Err(StoreError::Down);
            }
            answer
        };
        let late = Err(StoreError::Timeout { after: within });
        timeout(within, asked).await.unwrap_or(late)
    }
}

impl Node {
    async fn ask_about_changes(&self, call: &ScriptCall) -> Result<Vec<u8>, StoreError> {
        let mut connection = self.connections.take().await?;
        let mut answer = connection.send(&call.command(false)).await;
        if answer.as_ref().is_err_and(is_forgotten) {
            answer = connection.send(&call.command(true)).await;
        }
        match answer {
            Ok(Value::BulkString(bytes)) => Ok(bytes),
            Ok(_) => Err(StoreError::Protocol("not an answer about changes")),
            Err(error) => {
                let is_refusal =
                    matches!(&error, StoreError::Refused(why) if !reply::is_read_only(why));
                if !is_refusal {
                    connection.condemn();
                }
                Err(error)
            }
        }
    }
}
