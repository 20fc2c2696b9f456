//! The command line: arguments to commands, outcomes to exit codes.
//!
//! In: arguments. Out: an exit code, and a report in text or JSON.
//!
//! ```text
//! run           `tollgate run`: a file, or one made of flags
//! check         `tollgate check`: is the file right, and what does it mean?
//! explain       `tollgate explain`: a diagnostic's meaning, or what would become of a request
//! simulate      `tollgate simulate`: a logged trace through the limits of a file
//! status        `tollgate status`: the running gateway in short
//! reload        `tollgate reload`: it reads its file again
//! which_gateway which gateway a command asks, and with which token
//! admin_client  the client of a gateway's admin listener
//! ```

mod admin_client;
pub mod check;
mod explain;
mod reload;
mod run;
mod simulate;
mod status;
mod which_gateway;

use crate::config::render::Colour;
use crate::config::{EnvironmentFiles, Report};
use crate::telemetry::printable;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Error, Parser, Subcommand};
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::runtime::Runtime;

/// A reverse-proxy gateway with built-in distributed rate limiting.
///
/// Without a command it runs: `tollgate` is `tollgate run`.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = EXAMPLES)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

const EXAMPLES: &str = "\
Examples:
  tollgate run --to 127.0.0.1:3000 --limit 10/s    at most 10 a second for each client, no file needed
  tollgate run --to 127.0.0.1:3000 --tls cert.pem,key.pem    the same by https, on port 8443
  tollgate run --config gateway.toml               what the file says, reloaded when it changes
  tollgate check                                   is gateway.toml right, and what does it mean?
  tollgate check --diff old.toml                   what would a reload from old.toml change?
  tollgate explain missing-choice                  what does that diagnostic mean, and what is to be written instead?
  tollgate explain GET /v1/orders/42               which route and limits would that meet, and on which keys?
  tollgate simulate access.json --set limits.per-ip.rate=5/s    what would that have done to yesterday's traffic?
  tollgate status                                  is the running gateway well?
  tollgate reload                                  it reads its file again, and says what has changed

Exit codes: 0 good, 1 the answer is bad, 2 wrong usage, 3 the gateway cannot be reached, 4 not allowed.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway.
    ///
    /// SIGHUP makes it read the file again. SIGUSR2 makes it start a successor, which takes over when it serves.
    /// SIGTERM makes it finish requests under way and end.
    Run(RunArgs),
    /// Validate a file and say what its limits mean; nothing is started. Servers are asked with --connect, and the store for
    /// what it keeps of ordered certificates.
    Check(CheckArgs),
    /// Say what the code of a diagnostic means, or what would become of a request, and why.
    Explain(explain::ExplainArgs),
    /// Replay logged traffic and say what the limits, or a change of them, would have done to it.
    Simulate(simulate::SimulateArgs),
    /// Say how the running gateway is.
    Status(status::StatusArgs),
    /// Make the running gateway read its file again, and say what has changed.
    Reload(reload::ReloadArgs),
}

/// How to run.
#[derive(Debug, Args)]
struct RunArgs {
    /// The file [default: ./gateway.toml, then /etc/tollgate/gateway.toml].
    #[arg(long, value_name = "FILE", conflicts_with_all = ["to", "limit", "listen", "redis", "tls"])]
    config: Option<PathBuf>,
    /// Forward everything to this server; no file is needed or read.
    #[arg(long, value_name = "HOST:PORT")]
    to: Option<String>,
    /// How much each client may, like 10/s or 100/min.
    #[arg(long, value_name = "RATE", requires = "to")]
    limit: Option<String>,
    /// Where to listen [default: :8080, with --tls :8443].
    #[arg(long, value_name = "ADDR", requires = "to")]
    listen: Option<String>,
    /// Listen with TLS: a certificate and its key, two PEM files that are read once.
    #[arg(long, value_name = "CERT,KEY", requires = "to")]
    tls: Option<String>,
    /// Share the count through this Redis, like redis://localhost:6379.
    #[arg(long, value_name = "URL", requires = "to")]
    redis: Option<String>,
}

/// What to check.
#[derive(Debug, Args)]
struct CheckArgs {
    /// The file [default: ./gateway.toml, then /etc/tollgate/gateway.toml].
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// The file, as other commands name it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How to report.
    #[arg(long, value_enum, default_value = "human")]
    format: check::Format,
    /// Short for --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Exit with 1 when there are warnings.
    #[arg(long)]
    deny_warnings: bool,
    /// Print the file as it is understood: includes merged, variables filled in, defaults written out, secrets as ***.
    #[arg(long, conflicts_with_all = ["format", "json", "diff", "connect"])]
    print: bool,
    /// Say what a reload from this file would change, and which counters it keeps.
    #[arg(long, value_name = "OLD", conflicts_with = "connect")]
    diff: Option<PathBuf>,
    /// Ask Redis and the upstreams as well: exit 3 when one of them cannot be reached.
    #[arg(long)]
    connect: bool,
    #[command(flatten)]
    variables: VariableArgs,
}

/// The variables that a file may name, beside those of the shell.
#[derive(Debug, Args)]
struct VariableArgs {
    /// Take variables from this file, as a unit's `EnvironmentFile=` (with `-` in front it may be absent); any number of times.
    #[arg(long, value_name = "FILE", allow_hyphen_values = true)]
    env_file: Vec<PathBuf>,
}

impl VariableArgs {
    fn read(&self) -> Result<EnvironmentFiles, CommandFailure> {
        let mut environment = EnvironmentFiles::default();
        for file in &self.env_file {
            let odd = environment.read(file).map_err(|error| {
                let text = format!("cannot read --env-file {}: {error}", file.display());
                CommandFailure::new(BAD, text)
            })?;
            let Some(odd) = odd else {
                warn(&format!(
                    "--env-file {}: there is no such file, and the `-` allows that: it sets nothing",
                    file.display()
                ));
                continue;
            };
            for odd in odd {
                warn(&format!("{}:{}: {}", file.display(), odd.line, odd.why));
            }
        }
        Ok(environment)
    }
}

/// Good.
const GOOD: u8 = 0;
/// The answer is bad.
const BAD: u8 = 1;
/// Wrong usage.
const USAGE: u8 = 2;
/// The gateway, the store or a server cannot be reached.
const UNREACHABLE: u8 = 3;
/// The gateway refuses this without another token.
const NOT_ALLOWED: u8 = 4;

/// Runs one command line.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command = match CommandLine::try_parse_from(args).and_then(CommandLine::chosen) {
        Ok(command) => command,
        Err(error) => {
            // Help goes to standard output, errors to standard error; either may be closed.
            if !error.use_stderr() {
                let _ = error.print();
                return ExitCode::from(GOOD);
            }
            // The text repeats the arguments, and is therefore made printable.
            warn(error.render().to_string().trim_end());
            return ExitCode::from(USAGE);
        }
    };
    let done = match command {
        Command::Run(args) => run::run(args),
        Command::Check(args) => check_command(args),
        Command::Explain(args) => explain::explain(&args),
        Command::Simulate(args) => simulate::simulate(&args),
        Command::Status(args) => status::status(&args),
        Command::Reload(args) => reload::reload(&args),
    };
    ExitCode::from(match done {
        Ok(()) => GOOD,
        Err(failure) => failure.exit(),
    })
}

/// The failure of a command: the text for standard error, if any, and the exit code.
struct CommandFailure {
    code: u8,
    text: String,
}

impl CommandFailure {
    fn new(code: u8, error: impl Display) -> Self {
        Self {
            code,
            text: printable(&format!("error: {error}")).into_owned(),
        }
    }

    /// A failure that has been reported already.
    fn reported(code: u8) -> Self {
        let text = String::new();
        Self { code, text }
    }

    fn report(code: u8, report: &Report) -> Self {
        Self {
            code,
            text: human(report),
        }
    }

    /// Writes the text to standard error, which may be closed, and returns the exit code.
    fn exit(self) -> u8 {
        if !self.text.is_empty() {
            let _ = writeln!(std::io::stderr(), "{}", self.text);
        }
        self.code
    }
}

impl CommandLine {
    /// The command to run; `--config` may come before the command as well as after it.
    fn chosen(self) -> Result<Command, Error> {
        let Some(mut command) = self.command else {
            return Ok(Command::Run(self.run));
        };
        if let Some(flag) = self.run.flags().first() {
            return Err(conflict(&format!(
                "{flag} is an option of `tollgate run`: write `tollgate run {flag} ...`"
            )));
        }
        let Some(front) = self.run.config else {
            return Ok(command);
        };
        if let Command::Run(args) = &command
            && let Some(flag) = args.flags().first()
        {
            return Err(conflict(&format!(
                "--config {} and {flag} cannot be used together",
                front.display()
            )));
        }
        let file = command.file();
        if let Some(named) = file {
            return Err(conflict(&format!(
                "two files are named, {} and {}; name one",
                front.display(),
                named.display()
            )));
        }
        *file = Some(front);
        Ok(command)
    }
}

impl Command {
    /// The file that the command's own arguments name.
    fn file(&mut self) -> &mut Option<PathBuf> {
        match self {
            Self::Run(args) => &mut args.config,
            Self::Check(CheckArgs { file, config, .. }) => match file {
                Some(_) => file,
                None => config,
            },
            Self::Explain(args) => &mut args.config,
            Self::Simulate(args) => &mut args.config,
            Self::Status(args) => &mut args.gateway.config,
            Self::Reload(args) => &mut args.gateway.config,
        }
    }
}

impl RunArgs {
    /// The flags that replace a file, if given.
    fn flags(&self) -> Vec<&'static str> {
        [
            ("--to", &self.to),
            ("--limit", &self.limit),
            ("--listen", &self.listen),
            ("--redis", &self.redis),
            ("--tls", &self.tls),
        ]
        .into_iter()
        .filter(|(_, value)| value.is_some())
        .map(|(flag, _)| flag)
        .collect()
    }
}

fn conflict(text: &str) -> Error {
    <CommandLine as CommandFactory>::command().error(ErrorKind::ArgumentConflict, text)
}

fn check_command(args: CheckArgs) -> Result<(), CommandFailure> {
    let file = args.file.or(args.config).map_or_else(find_file, Ok)?;
    let format = if args.json {
        check::Format::Json
    } else {
        args.format
    };
    let task = match (args.print, args.diff, args.connect) {
        (true, ..) => check::CheckTask::Print,
        (_, Some(old), _) => check::CheckTask::Diff(old),
        (_, _, true) => check::CheckTask::Connect,
        _ => check::CheckTask::Meaning,
    };
    let environment = args.variables.read()?;
    let file = check::CheckedFile {
        path: &file,
        environment: &environment,
    };
    match check::check_file(file, &task, format, args.deny_warnings) {
        GOOD => Ok(()),
        code => Err(CommandFailure::reported(code)),
    }
}

/// The file at its usual place.
fn find_file() -> Result<PathBuf, CommandFailure> {
    let usual = ["gateway.toml", "/etc/tollgate/gateway.toml"];
    let mut usual = usual.iter().map(Path::new);
    let found = usual.find(|path| path.exists()).map(Path::to_path_buf);
    found.ok_or_else(|| CommandFailure::new(
        BAD,
        "there is no gateway.toml here and none in /etc/tollgate\n\
         help: name one with --config FILE, or start without one: tollgate run --to HOST:PORT --limit 10/s",
    ))
}

/// The runtime in which a command asks gateways, stores and servers.
fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Writes a text to standard output, which may be closed.
fn show(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Writes a line to standard error, which may be closed.
fn warn(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text));
}

/// Writes a report's warnings, if it has any, to standard error.
fn warn_of(report: &Report) {
    if !report.diagnostics.is_empty() {
        let _ = writeln!(std::io::stderr(), "{}", human(report));
    }
}

/// A report for people, in colour if the terminal supports it. The texts of files in the report are made printable.
fn human(report: &Report) -> String {
    report.human(Colour::of_stderr()).trim_end().to_owned()
}
