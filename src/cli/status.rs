//! `tollgate status`: the gateway in short.

use super::admin_client::{AdminQuestion, WITHIN};
use super::which_gateway::GatewayArgs;
use super::{BAD, CommandFailure, GOOD, UNREACHABLE, runtime, show, warn};
use crate::admin::Role;
use crate::telemetry::{printable, printable_json};
use clap::Args;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde_json::Value;
use std::fmt::Write as _;

/// Which gateway.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    pub(super) gateway: GatewayArgs,
}

const EXAMPLES: &str = "\
Examples:
  tollgate status                                   the gateway of ./gateway.toml
  tollgate status --admin 127.0.0.1:9090 --json     the answer of /v1/status
  tollgate status --admin edge-1:9090 --admin edge-2:9090    several gateways

Exit codes: 0 ready and no alert, 1 else, 2 wrong usage, 3 nobody there, 4 not allowed.";

/// Shows the state of each gateway.
pub(super) fn status(args: &StatusArgs) -> Result<(), CommandFailure> {
    let gateways = args.gateway.gateways(Role::Read)?;
    let runtime = runtime().map_err(|error| CommandFailure::new(UNREACHABLE, error))?;
    let mut worst = GOOD;
    for gateway in &gateways {
        let asked = gateway.ask(AdminQuestion::get("/v1/status", WITHIN));
        let code = match runtime.block_on(asked) {
            Ok(answer) if args.gateway.json => {
                show(&printable_json(&format!("{answer}\n")));
                code_of(&answer)
            }
            Ok(answer) => {
                show(&printable(&status_text(&answer, &now())));
                code_of(&answer)
            }
            Err(failed) => {
                if args.gateway.json && !failed.body.is_null() {
                    show(&printable_json(&format!("{}\n", failed.body)));
                }
                failed.failure.exit()
            }
        };
        worst = worst.max(code);
    }
    if gateways.is_empty() {
        warn("[admin] has no address");
    }
    match worst {
        GOOD => Ok(()),
        code => Err(CommandFailure::reported(code)),
    }
}

fn now() -> Zoned {
    Timestamp::now().to_zoned(TimeZone::UTC)
}

/// Ready and without an alert is good.
fn code_of(status: &Value) -> u8 {
    let is_calm = status["alerts"].as_array().is_some_and(Vec::is_empty);
    if status["ready"] == true && is_calm {
        GOOD
    } else {
        BAD
    }
}

/// The state in lines, for people.
fn status_text(status: &Value, now: &Zoned) -> String {
    let word = |name: &str| status[name].as_str().unwrap_or("?").to_owned();
    let mut out = String::new();
    let up = duration(status["up_ms"].as_u64().unwrap_or(0));
    let name = word("name");
    line(
        &mut out,
        &name,
        &format!("{}, up {up}   {}", word("version"), word("phase")),
    );
    line(&mut out, "config", &config(status, now));
    line(
        &mut out,
        "store",
        &store(&status["store"], &status["gateways"]),
    );
    line(&mut out, "servers", &servers(&status["servers"]));
    for alert in status["alerts"].as_array().into_iter().flatten() {
        // The lines above tell of the others.
        let code = alert["code"].as_str().unwrap_or_default();
        if !["server_down", "no_server", "reload_refused"].contains(&code) {
            line(&mut out, "alert", alert["text"].as_str().unwrap_or(code));
        }
    }
    line(&mut out, "now", &word("headline"));
    out
}

fn line(out: &mut String, name: &str, text: &str) {
    // Writing into a string cannot fail.
    let _ = writeln!(out, "{name:<8} {text}");
}

fn config(status: &Value, now: &Zoned) -> String {
    let since = instant(&status["loaded_at"], now);
    let generation = &status["generation"];
    let last = &status["last_reload"];
    if last["ok"] == false {
        let at = instant(&last["at"], now);
        let many = last["diagnostics"].as_array().map_or(0, Vec::len);
        return format!(
            "{generation} since {since}; the file of {at} was refused, {many} diagnostics: tollgate check"
        );
    }
    format!("{generation} since {since}, valid")
}

fn store(store: &Value, gateways: &Value) -> String {
    if store["kind"] == "memory" {
        return "memory of this process".to_owned();
    }
    let state = match (
        store["up"] == true,
        store["reaching"].as_u64(),
        store["workers"].as_u64(),
    ) {
        (true, ..) => "Redis".to_owned(),
        (false, Some(0), _) => "Redis, away".to_owned(),
        (false, some, all) => format!(
            "Redis, reached by {} of {} workers",
            some.unwrap_or(0),
            all.unwrap_or(0)
        ),
    };
    match gateways["count"].as_u64() {
        Some(many @ 2..) => format!("{state}, {many} gateways count together"),
        _ => format!("{state}, this gateway counts alone"),
    }
}

fn servers(servers: &Value) -> String {
    let number = |name: &str| servers[name].as_u64().unwrap_or(0);
    let mut text = format!("{} of {}", number("available"), number("count"));
    let down = servers["down"].as_array().into_iter().flatten();
    for (nth, one) in down.enumerate() {
        let word = |name: &str| one[name].as_str().unwrap_or("?");
        let mark = if nth == 0 { ";" } else { "," };
        let _ = write!(
            text,
            "{mark} {} {} {}",
            word("upstream"),
            word("server"),
            word("state")
        );
    }
    text
}

/// `13:58` of today, else with the day; with the zone.
fn instant(at: &Value, now: &Zoned) -> String {
    let read = at.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let Some(at) = read.map(|at| at.to_zoned(now.time_zone().clone())) else {
        return "?".to_owned();
    };
    if at.date() == now.date() {
        at.strftime("%H:%M %Z").to_string()
    } else {
        at.strftime("%-d %b %H:%M %Z").to_string()
    }
}

/// `3 d`, `5 h`, `12 min`, `40 s`.
fn duration(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_in_lines() {
        let mut status = json!({
            "name": "edge-1", "version": "0.2.0", "up_ms": 260_000_000, "ready": true, "phase": "ready",
            "generation": 14, "loaded_at": "2026-11-26T13:58:01.000Z", "last_reload": null,
            "store": { "kind": "redis", "up": true, "workers": 2, "reaching": 2 },
            "gateways": { "count": 3 },
            "servers": { "count": 6, "available": 5, "down": [
                { "upstream": "orders", "server": "10.1.0.6:3000", "state": "down" }] },
            "alerts": [{ "code": "server_down", "text": "orders 10.1.0.6:3000 is down" }],
            "headline": "1 of 6 servers take no requests: orders 10.1.0.6:3000.", "cause": "servers",
        });
        let now: Timestamp = "2026-11-26T14:04:00Z".parse().unwrap();
        let now = now.to_zoned(TimeZone::UTC);
        assert_eq!(
            status_text(&status, &now),
            "edge-1   0.2.0, up 3 d   ready\n\
             config   14 since 13:58 UTC, valid\n\
             store    Redis, 3 gateways count together\n\
             servers  5 of 6; orders 10.1.0.6:3000 down\n\
             now      1 of 6 servers take no requests: orders 10.1.0.6:3000.\n"
        );
        assert_eq!(code_of(&status), BAD);
        status["alerts"] = json!([]);
        assert_eq!(code_of(&status), GOOD);
        status["last_reload"] =
            json!({ "at": "2026-11-25T09:00:00Z", "ok": false, "diagnostics": [{}, {}] });
        let refused = "config   14 since 13:58 UTC; the file of 25 Nov 09:00 UTC was refused, 2 diagnostics: tollgate check\n";
        assert!(status_text(&status, &now).contains(refused));
    }
}
