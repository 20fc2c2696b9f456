//! Which gateway a command asks, and with which token: flags, variables, or the `[admin]` of a file.

use super::admin_client::{AdminAddress, AdminAnswer, AdminClient, AdminQuestion, TOKEN_VARIABLE};
use super::{BAD, CommandFailure, NOT_ALLOWED, UNREACHABLE, USAGE};
use crate::admin::Role;
use crate::config::{AdminPlace, admin_place};
use clap::Args;
use http::StatusCode;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The variable with the address of an admin listener.
const ADMIN_VARIABLE: &str = "TOLLGATE_ADMIN";

/// Which gateway, and with which token.
#[derive(Debug, Args)]
pub(super) struct GatewayArgs {
    /// The admin listener: HOST:PORT, http://HOST:PORT or unix:PATH; several times for several gateways [default:
    /// TOLLGATE_ADMIN, else the [admin] of the file].
    #[arg(long, value_name = "ADDRESS", value_parser = AdminAddress::read)]
    admin: Vec<AdminAddress>,
    /// The file whose [admin] names the listener [default: ./gateway.toml, then /etc/tollgate/gateway.toml].
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// A file with the token [default: TOLLGATE_TOKEN, else what the file names, if it can be read].
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print the gateway's answer as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// A gateway that a command asks, and its address as it is shown.
pub(super) struct AskedGateway {
    pub(super) shown: String,
    client: AdminClient,
}

impl GatewayArgs {
    /// The gateways, to be asked with a token of at least this role where a file names one.
    pub(super) fn gateways(&self, role: Role) -> Result<Vec<AskedGateway>, CommandFailure> {
        let file = self.config.clone().or_else(usual_file);
        let mut place = None;
        let addresses = if self.admin.is_empty() {
            match std::env::var(ADMIN_VARIABLE)
                .ok()
                .filter(|text| !text.is_empty())
            {
                Some(text) => {
                    let read = AdminAddress::read(&text)
                        .map_err(|wrong| usage(format!("{ADMIN_VARIABLE}: {wrong}")))?;
                    vec![read]
                }
                None => {
                    let read = self.place(file.as_deref())?;
                    let first = read.listen.first().map(AdminAddress::from);
                    place = Some(read);
                    first.into_iter().collect()
                }
            }
        } else {
            self.admin.clone()
        };
        let token = self.token(role, place, file.as_deref())?;
        let gateways = addresses.into_iter().map(|address| {
            let shown = address.to_string();
            let client = AdminClient::new(address, token.as_deref()).map_err(usage)?;
            Ok::<_, CommandFailure>(AskedGateway { shown, client })
        });
        gateways.collect()
    }

    /// The admin listener of the file.
    fn place(&self, file: Option<&Path>) -> Result<AdminPlace, CommandFailure> {
        let Some(file) = file else {
            return Err(usage(format!(
                "which gateway? there is no gateway.toml here and none in /etc/tollgate\nhelp: name its admin listener with --admin HOST:PORT or {ADMIN_VARIABLE}"
            )));
        };
        let shown = file.display();
        let read = admin_place(file)
            .map_err(|error| CommandFailure::new(BAD, format!("{shown}: {error}")))?;
        read.ok_or_else(|| {
            usage(format!(
                "{shown} has no [admin] listener to ask\nhelp: name the one of the running gateway with --admin HOST:PORT"
            ))
        })
    }

    fn token(
        &self,
        role: Role,
        place: Option<AdminPlace>,
        file: Option<&Path>,
    ) -> Result<Option<String>, CommandFailure> {
        if let Some(path) = &self.token_file {
            let shown = path.display();
            let text = std::fs::read_to_string(path).map_err(|error| {
                CommandFailure::new(USAGE, format!("cannot read --token-file {shown}: {error}"))
            })?;
            return Ok(Some(text.trim().to_owned()));
        }
        if let Ok(token) = std::env::var(TOKEN_VARIABLE)
            && !token.trim().is_empty()
        {
            return Ok(Some(token.trim().to_owned()));
        }
        // A file that is broken or away is no mistake of a command that names its gateway.
        let place = place.or_else(|| admin_place(file?).ok().flatten());
        let tokens = place.map(|place| place.tokens).unwrap_or_default();
        let mut enough = tokens.iter().filter(|token| token.role >= role);
        Ok(enough.find_map(|token| token.read()))
    }
}

fn usual_file() -> Option<PathBuf> {
    let usual = ["gateway.toml", "/etc/tollgate/gateway.toml"];
    let mut usual = usual.iter().map(PathBuf::from);
    usual.find(|path| path.exists())
}

fn usage(text: String) -> CommandFailure {
    CommandFailure::new(USAGE, text)
}

impl AskedGateway {
    /// The good answer to a request.
    ///
    /// # Errors
    /// If there is none: no gateway there, not allowed, or another refusal, each with its exit code.
    pub(super) async fn ask(&self, question: AdminQuestion<'_>) -> Result<Value, Box<AskFailure>> {
        let answer = self.client.ask(question).await;
        let AdminAnswer { status, body, .. } = answer.map_err(|error| {
            let text = format!("the gateway at {} cannot be asked: {error}", self.shown);
            AskFailure::of(UNREACHABLE, text, Value::Null)
        })?;
        if status == StatusCode::OK {
            return Ok(body);
        }
        let code = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => NOT_ALLOWED,
            _ => BAD,
        };
        let detail = body["detail"].as_str();
        let detail = detail.unwrap_or("is it the admin listener of a gateway?");
        let mut text = format!(
            "the gateway at {} answered {}: {detail}",
            self.shown,
            status.as_u16()
        );
        if let Some(help) = body["help"].as_str() {
            text = format!("{text}\nhelp: {help}");
        }
        Err(AskFailure::of(code, text, body))
    }
}

/// Why there is no good answer.
pub(super) struct AskFailure {
    pub(super) failure: CommandFailure,
    /// The answer, if there was one.
    pub(super) body: Value,
}

impl AskFailure {
    fn of(code: u8, text: String, body: Value) -> Box<Self> {
        let failure = CommandFailure::new(code, text);
        Box::new(Self { failure, body })
    }
}
