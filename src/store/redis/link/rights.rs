//! The commands that the scripts call: does the user have the permissions, and does the server know them?
//!
//! The error of a script that calls a forbidden command does not name it. So the commands are called individually, in a
//! way that changes nothing and leaves nothing behind.

use super::connection::{RedisConnection, first_word};
use crate::store::error::StoreError;
use crate::store::redis::wire::layout;
use crate::store::settings::RedisTarget;
use crate::store::trials::CounterUses;
use bb8_redis::redis::{Cmd, Pipeline};

/// The placeholder of the key.
const KEY: &str = "";

/// Commands of every script, and of the heartbeat that reports the number of gateways, which each file needs.
const ALWAYS: &[&[&str]] = &[&["TIME"], &["GET", KEY], &["SET", KEY, "", "XX", "PX", "1"]];
const LOGS: &[&[&str]] = &[
    &["LLEN", KEY],
    &["LINDEX", KEY, "0"],
    &["LSET", KEY, "0", ""],
    &["LTRIM", KEY, "0", "0"],
    &["PEXPIRE", KEY, "1"],
];
const SLOTS: &[&[&str]] = &[
    &["ZCOUNT", KEY, "0", "0"],
    &["ZSCORE", KEY, ""],
    &["ZADD", KEY, "XX", "0", ""],
    &["ZRANGEBYSCORE", KEY, "0", "0"],
    &["ZREMRANGEBYSCORE", KEY, "0", "0"],
    &["PEXPIRE", KEY, "1"],
    &["ZREM", KEY, ""],
    &["ZRANGE", KEY, "0", "0"],
];
/// Commands that only refunds need.
const RETURNED_STATES: &[&[&str]] = &[&["DEL", KEY]];
const RETURNED_LOGS: &[&[&str]] = &[&["LREM", KEY, "0", ""], &["DEL", KEY]];

/// The rights of a gateway's user at a server, on keys with a prefix and a tag.
pub(crate) struct Rights<'a> {
    pub(crate) target: &'a RedisTarget,
    pub(crate) prefix: &'a str,
    pub(crate) tag: &'a [u8],
}

impl Rights<'_> {
    /// Calls each command that counters of these uses need, on an absent key of the gateway's own.
    ///
    /// # Errors
    /// If a command cannot be called, a refusal that names the first one.
    pub(crate) async fn look(
        &self,
        connection: &mut RedisConnection,
        uses: CounterUses,
    ) -> Result<(), StoreError> {
        let key = layout::probe_counter(self.prefix, "absent", self.tag);
        let call = if self.target.functions {
            &["FCALL", "tollgate_none", "0"]
        } else {
            &["EVALSHA", "0000000000000000000000000000000000000000", "0"]
        };
        let mut commands: Vec<&[&str]> = vec![call];
        commands.extend(ALWAYS);
        for (needed, more) in [
            (uses.has(CounterUses::LOGS), LOGS),
            (uses.has(CounterUses::SLOTS), SLOTS),
            (uses.has(CounterUses::RETURNED_STATES), RETURNED_STATES),
            (uses.has(CounterUses::RETURNED_LOGS), RETURNED_LOGS),
        ] {
            if needed {
                commands.extend(more);
            }
        }
        let mut all = Pipeline::with_capacity(commands.len());
        for words in &commands {
            all.add_command(command(words, &key));
        }
        for (words, answer) in commands.iter().zip(connection.many(&all).await?) {
            let name = words.first().copied().unwrap_or_default();
            self.refused(answer.err(), name)?;
        }
        if uses.has(CounterUses::LOGS) {
            return self.look_at_push(connection, &key).await;
        }
        Ok(())
    }

    /// Calls RPUSH, which always has an effect. The user may limit the key's life and remove it.
    async fn look_at_push(
        &self,
        connection: &mut RedisConnection,
        key: &[u8],
    ) -> Result<(), StoreError> {
        let mut all = Pipeline::with_capacity(3);
        for words in [
            &["RPUSH", KEY, "0"][..],
            &["PEXPIRE", KEY, "1000"],
            &["LTRIM", KEY, "1", "0"],
        ] {
            all.add_command(command(words, key));
        }
        let pushed = connection.many(&all).await?.into_iter().next();
        self.refused(pushed.and_then(Result::err), "RPUSH")
    }

    /// Fails if the command `name` cannot be called at all. Any other answer was given after the permission check.
    fn refused(&self, error: Option<StoreError>, name: &str) -> Result<(), StoreError> {
        match error {
            None => Ok(()),
            Some(StoreError::Refused(reason)) => {
                match why(&reason, name, self.target, self.prefix) {
                    Some(words) => Err(StoreError::Unpermitted(words.into())),
                    None => Ok(()),
                }
            }
            Some(error) => Err(error),
        }
    }
}

fn command(words: &[&str], key: &[u8]) -> Cmd {
    let mut command = Cmd::new();
    for (nth, word) in words.iter().enumerate() {
        // Only the second word is ever the key.
        match nth {
            1 if word.is_empty() => command.arg(key),
            _ => command.arg(*word),
        };
    }
    command
}

/// The remedy, if the server's words mean that the command `name` is forbidden, or unknown.
fn why(reason: &str, name: &str, target: &RedisTarget, prefix: &str) -> Option<String> {
    if is_unknown_command(reason) {
        return Some(format!(
            "this server does not know {name}, which has been renamed or taken away; the scripts need it: make it available again"
        ));
    }
    if first_word(reason) != "NOPERM" {
        return None;
    }
    let target = target.latest();
    let user = target.username.as_deref().unwrap_or("default");
    let words = reason.to_ascii_lowercase();
    if words.contains("command") {
        let right = name.to_ascii_lowercase().replace(' ', "|");
        return Some(format!("user `{user}` may not call {name}: add `+{right}`"));
    }
    words
        .contains("key")
        .then(|| format!("user `{user}` may not use keys of the prefix: add `~{prefix}:*`"))
}

/// The remedy, if the server's words mean that a command without keys is forbidden, such as the loading of a script.
/// The words name the command.
pub(crate) fn remedy(reason: &str, target: &RedisTarget) -> Option<String> {
    if first_word(reason) != "NOPERM" || !reason.contains("command") {
        return None;
    }
    let name = reason.split('\'').nth(1)?.replace('|', " ");
    why(reason, &name.to_ascii_uppercase(), target, "")
}

/// Does a server answer that it does not know the command?
pub(super) fn is_unknown_command(reason: &str) -> bool {
    reason.to_ascii_lowercase().contains("unknown command")
}

/// Do the words, which may come from within a script, mean that a command is forbidden, or unknown?
pub(crate) fn is_refused(reason: &str) -> bool {
    const WORDS: [&str; 4] = [
        "The user executing the script can't",
        "Unknown Redis command called from script",
        "Unknown Redis command called from Lua script",
        "NOPERM",
    ];
    WORDS.iter().any(|words| reason.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::RedisEndpoint;

    #[test]
    fn a_refusal_names_the_user_and_the_right() {
        let lone = RedisTarget::new(RedisEndpoint::tcp("cache", 6379));
        let named = RedisTarget {
            username: Some("t".into()),
            ..lone.clone()
        };
        let seven = "NOPERM User t has no permissions to run the 'zrem' command";
        let six = "NOPERM this user has no permissions to run the 'zrem' command or its subcommand";
        for reason in [seven, six] {
            assert_eq!(
                why(reason, "ZREM", &named, "p").unwrap(),
                "user `t` may not call ZREM: add `+zrem`"
            );
        }
        let load = "NOPERM User t has no permissions to run the 'script|load' command";
        assert_eq!(
            remedy(load, &named).unwrap(),
            "user `t` may not call SCRIPT LOAD: add `+script|load`"
        );
        let key = "NOPERM No permissions to access a key";
        assert_eq!(
            why(key, "GET", &lone, "shop").unwrap(),
            "user `default` may not use keys of the prefix: add `~shop:*`"
        );
        let unknown = "ERR unknown command 'ZREM', with args beginning with: 'a'";
        let said = why(unknown, "ZREM", &lone, "p").unwrap();
        assert!(said.contains("does not know ZREM"), "{said}");
        for fine in [
            "WRONGTYPE Operation",
            "NOSCRIPT No matching script",
            "ERR no such key",
        ] {
            assert_eq!(why(fine, "LSET", &lone, "p"), None);
        }
    }

    #[test]
    fn refusals_from_within_scripts_are_told_from_foreign_values() {
        for refused in [
            "ERR The user executing the script can't run this command or subcommand script: f_0, on @user_script:3.",
            "@user_script: 12: The user executing the script can't run this command or subcommand",
            "ERR Unknown Redis command called from script script: f_0, on @user_script:3.",
            "@user_script: 9: Unknown Redis command called from Lua script",
        ] {
            assert!(is_refused(refused), "{refused}");
        }
        assert!(!is_refused(
            "WRONGTYPE Operation against a key holding the wrong kind of value"
        ));
        assert!(!is_refused("LOG a list of something else than instants"));
    }
}
