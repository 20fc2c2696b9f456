//! `tollgate reload`: the gateway reads its file again, and says what has changed.

use super::admin_client::AdminQuestion;
use super::which_gateway::GatewayArgs;
use super::{BAD, CommandFailure, GOOD, UNREACHABLE, runtime, show, warn};
use crate::admin::Role;
use crate::telemetry::{printable, printable_json};
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// The longest wait for the outcome.
const WITHIN: Duration = Duration::from_secs(35);

/// Which gateway.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    pub(super) gateway: GatewayArgs,
}

const EXAMPLES: &str = "\
Examples:
  tollgate reload                                   the gateway of ./gateway.toml
  tollgate reload --admin unix:/run/tollgate/admin.sock --token-file admin.token

A token with the role `operate` is needed. Exit codes: 0 in force or unchanged, 1 refused, 2 wrong usage, 3 nobody
there, 4 not allowed.";

/// Makes each gateway read its file.
pub(super) fn reload(args: &ReloadArgs) -> Result<(), CommandFailure> {
    let gateways = args.gateway.gateways(Role::Operate)?;
    let runtime = runtime().map_err(|error| CommandFailure::new(UNREACHABLE, error))?;
    let (mut worst, body) = (GOOD, json!({}));
    for gateway in &gateways {
        if gateways.len() > 1 && !args.gateway.json {
            show(&printable(&format!("{}\n", gateway.shown)));
        }
        let asked = gateway.ask(AdminQuestion::post("/v1/reload", &body, WITHIN));
        let code = match runtime.block_on(asked) {
            Ok(answer) if args.gateway.json => {
                show(&printable_json(&format!("{answer}\n")));
                GOOD
            }
            Ok(answer) => {
                show(&printable(&reload_text(&answer)));
                GOOD
            }
            Err(failed) if args.gateway.json && !failed.body.is_null() => {
                show(&printable_json(&format!("{}\n", failed.body)));
                failed.failure.code
            }
            Err(failed) if failed.body["code"] == "config_refused" => {
                warn("the file is refused; the earlier configuration stays in force");
                for line in failed.body["help"].as_str().unwrap_or_default().lines() {
                    warn(line);
                }
                BAD
            }
            Err(failed) => failed.failure.exit(),
        };
        worst = worst.max(code);
    }
    match worst {
        GOOD => Ok(()),
        code => Err(CommandFailure::reported(code)),
    }
}

/// The outcome in lines, for people.
fn reload_text(answer: &Value) -> String {
    let generation = &answer["generation"];
    if answer["unchanged"] == true {
        return format!("the file is unchanged, configuration {generation} stays in force\n");
    }
    let took = answer["took_ms"].as_f64().unwrap_or(0.0);
    let mut out = format!("configuration {generation} in force in {took:.0} ms\n");
    let changes = answer["changed"].as_array();
    let changes = || changes.into_iter().flatten();
    let word = |one: &Value, name: &str| one[name].as_str().unwrap_or("?").to_owned();
    let widths = changes().map(|one| word(one, "subject").chars().count());
    let width = widths.max().unwrap_or(0).min(30);
    for one in changes() {
        // Writing into a string cannot fail.
        let _ = writeln!(
            out,
            "  {:<width$}   {}",
            word(one, "subject"),
            word(one, "what")
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_stand_below_each_other() {
        let answer = json!({
            "generation": 15, "unchanged": false, "took_ms": 3.2,
            "changed": [
                { "subject": "limits.per-ip", "what": "rate 10/s to 20/s, units used stay used", "restart": false },
                { "subject": "log.level", "what": "changed, needs a restart; still info", "restart": true },
            ],
        });
        assert_eq!(
            reload_text(&answer),
            "configuration 15 in force in 3 ms\n\
             \x20 limits.per-ip   rate 10/s to 20/s, units used stay used\n\
             \x20 log.level       changed, needs a restart; still info\n"
        );
        let unchanged = json!({ "generation": 15, "unchanged": true });
        assert_eq!(
            reload_text(&unchanged),
            "the file is unchanged, configuration 15 stays in force\n"
        );
    }
}
