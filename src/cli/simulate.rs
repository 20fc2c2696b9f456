//! `tollgate simulate`: the effect that the limits of a file would have had on logged traffic, and the effect of a
//! change of the limits.

use super::{BAD, CommandFailure, UNREACHABLE, USAGE, VariableArgs, find_file, warn, warn_of};
use crate::clock;
use crate::config::{self, Compiled, Set, suggest};
use crate::replay::report::{self, Marks};
use crate::replay::{Fault, Mapping, Replay, ReplayError, Report, TraceLines};
use crate::store::{Backend, RedisTarget};
use crate::telemetry::{printable, printable_json};
use clap::Args;
use std::fs::{File, Metadata};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// What to replay, and what to compare.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct SimulateArgs {
    /// The trace: our access log or JSON like it, or what Apache, nginx, Caddy, Traefik, Envoy, HAProxy or an AWS load
    /// balancer logs, whose formats are recognised; plain or gzip, - for standard input.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The file [default: ./gateway.toml, then /etc/tollgate/gateway.toml].
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Read other JSON: which members say what a request is made of, nested ones with dots. Names: ts, client, method, host,
    /// path, request, status, cost, duration (seconds; also _ms, _us, _ns), `user_agent`, referer, header:NAME.
    #[arg(long, value_name = "NAME=MEMBER,..")]
    fields: Vec<String>,
    /// Compare with the file as this changes it; any number of times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Write each decision as a line of JSON; with --set those of the changed file.
    #[arg(long, value_name = "FILE")]
    decisions: Option<PathBuf>,
    /// Count in this Redis instead of memory, under a prefix of its own that is removed at the end.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
    /// Draw the course over time into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    variables: VariableArgs,
}

const EXAMPLES: &str = "\
Examples:
  tollgate simulate access.json                                    what this file does to that traffic
  tollgate simulate access.json.gz --set limits.per-ip.rate=5/s    and what it would do with 5/s
  zcat *.gz | tollgate simulate - --config new.toml --json
  docker compose logs proxy | tollgate simulate -                  lines of others, with compose's names before them
  tollgate simulate app.json --fields ts=time,client=remote_addr,path=request_uri,header:x-api-key=req.key

Exit codes: 0 replayed, whatever was refused; 1 a bad file, or a trace that cannot be read or has no request; 2 wrong usage;
3 the --store cannot be reached.";

/// The run time without a progress bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time between two updates of the progress bar.
const LOOK: Duration = Duration::from_millis(100);

pub(super) fn simulate(args: &SimulateArgs) -> Result<(), CommandFailure> {
    let mapping = mapping(args)?;
    let (file, changed) = load(args)?;
    let target = store(args)?;
    for out in [&args.decisions, &args.svg].into_iter().flatten() {
        if is_same_file(out, &args.trace) {
            let out = out.display();
            let text = format!("{out} is the trace: it would be overwritten");
            return Err(CommandFailure::new(USAGE, text));
        }
    }
    let lines = TraceLines::open(&args.trace).map_err(|error| {
        let trace = args.trace.display();
        CommandFailure::new(BAD, format!("cannot open {trace}: {error}"))
    })?;
    let decisions = args.decisions.as_deref().map(create).transpose()?;
    let snapshot = changed.map(|changed| changed.snapshot);
    let replay = Replay::new(file.snapshot, snapshot, target.as_ref()).map_err(|error| {
        let target = target.as_ref().map(ToString::to_string).unwrap_or_default();
        CommandFailure::new(UNREACHABLE, format!("--store {target}: {error}"))
    })?;
    let mut replay = replay.reading(mapping);
    let began = clock::now();
    run(&mut replay, lines, decisions)?;
    show(&replay.report(), args, began.elapsed())
}

/// Replays the lines, with a progress bar, and writes the decisions.
fn run(
    replay: &mut Replay,
    mut lines: TraceLines,
    mut decisions: Option<BufWriter<File>>,
) -> Result<(), CommandFailure> {
    let mut bar = ProgressBar::new(clock::now());
    let out = decisions.as_mut().map(|out| out as &mut dyn Write);
    let ran = replay.run(&mut lines, out, &mut |lines, requests| {
        bar.show(lines, requests)
    });
    bar.end();
    if let Err(error) = replay.clear() {
        warn(&format!(
            "warning: counters of the replay are left in Redis until they end: {error}"
        ));
    }
    ran.map_err(|failure| {
        let code = if matches!(failure, ReplayError::Store(_)) {
            UNREACHABLE
        } else {
            BAD
        };
        CommandFailure::new(code, failure)
    })
}

/// Writes the report, and the picture if requested.
fn show(report: &Report, args: &SimulateArgs, took: Duration) -> Result<(), CommandFailure> {
    if let Some(path) = &args.svg {
        let mut out = create(path)?;
        let drawn = out.write_all(report::svg(report, &args.sets).as_bytes());
        drawn
            .and_then(|()| out.flush())
            .map_err(|error| cannot_write(path, &error))?;
    }
    if args.json {
        let text = format!("{}\n", report::json(report, &args.sets, took));
        super::show(&printable_json(&text));
    } else {
        super::show(&printable(&report::report_text(
            report,
            &args.sets,
            took,
            marks(),
        )));
    }
    if report.requests == 0 {
        return Err(CommandFailure::new(BAD, no_requests(report, args)));
    }
    Ok(())
}

/// The name that `word` probably means.
fn meant(word: &str, names: &[&'static str]) -> Option<&'static str> {
    suggest::nearest(word, names.iter().copied())
}

/// The mapping that `--fields` gives, if any.
fn mapping(args: &SimulateArgs) -> Result<Option<Mapping>, CommandFailure> {
    if args.fields.is_empty() {
        return Ok(None);
    }
    let mapping = Mapping::read_options(&args.fields, meant).map(Some);
    mapping.map_err(|wrong| CommandFailure::new(USAGE, format!("--fields: {wrong}")))
}

/// The reason why the trace has no request.
fn no_requests(report: &Report, args: &SimulateArgs) -> String {
    let trace = if args.trace.as_path() == Path::new("-") {
        "standard input".to_owned()
    } else {
        args.trace.display().to_string()
    };
    let (written, nameless) = (report.written, report.nameless.count);
    if written == 0 {
        return format!("{trace} is empty: there is nothing to replay");
    }
    let lines = if written == 1 {
        "line names"
    } else {
        "lines name"
    };
    let names = format!("{nameless} of {written} {lines} no client and no path");
    let help = if args.fields.is_empty() {
        "name the members that do: --fields client=remote_addr,path=request_uri,ts=time"
    } else {
        "look at what --fields names"
    };
    let unreadable = &report.unreadable.first;
    let untimed = unreadable
        .iter()
        .any(|line| line.fault == Some(Fault::NoTime));
    let first = unreadable
        .first()
        .map_or(String::new(), |line| format!(": line {line}"));
    let none = format!("no line of {trace} is a request{first}");
    match nameless {
        _ if nameless == written => format!("{names}: {help}"),
        0 if untimed => format!("{none}; {help}"),
        0 => none,
        _ => format!("{none}; {names}: {help}"),
    }
}

/// The unchanged file, and the file with the changes of `--set`.
fn load(args: &SimulateArgs) -> Result<(Compiled, Option<Compiled>), CommandFailure> {
    let sets: Result<Vec<Set>, String> = args.sets.iter().map(|set| Set::read(set)).collect();
    let sets = sets.map_err(|wrong| CommandFailure::new(USAGE, wrong))?;
    let path = args.config.clone().map_or_else(find_file, Ok)?;
    let environment = args.variables.read()?;
    let read = |sets: &[Set], code: u8| {
        let file = config::load_for_replay(&path, &environment, sets);
        file.map_err(|report| CommandFailure::report(code, &report))
    };
    let file = read(&[], BAD)?;
    let changed = match sets.as_slice() {
        [] => None,
        // The file was valid without the options. So any mistake is in the options.
        sets => Some(read(sets, USAGE)?),
    };
    warn_of(&changed.as_ref().unwrap_or(&file).report());
    Ok((file, changed))
}

/// The Redis to count in, if any.
fn store(args: &SimulateArgs) -> Result<Option<RedisTarget>, CommandFailure> {
    let Some(url) = &args.store else {
        return Ok(None);
    };
    match config::store(url) {
        Ok(Backend::Memory) => Ok(None),
        Ok(Backend::Redis(target)) => Ok(Some(target)),
        Err(report) => Err(CommandFailure::report(USAGE, &report)),
    }
}

fn create(path: &Path) -> Result<BufWriter<File>, CommandFailure> {
    let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
    Ok(BufWriter::with_capacity(256 * 1024, file))
}

fn cannot_write(path: &Path, error: &io::Error) -> CommandFailure {
    let path = path.display();
    CommandFailure::new(BAD, format!("cannot write {path}: {error}"))
}

/// Do both paths lead to the same file?
fn is_same_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| {
        let file = path.metadata().ok().filter(Metadata::is_file)?;
        Some((file.dev(), file.ino()))
    };
    id(one).is_some_and(|one| id(other) == Some(one))
}

/// Block characters if the locale uses UTF-8, or if no locale is set.
fn marks() -> Marks {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    let spoken = locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    });
    if spoken && std::env::var_os("TERM").is_none_or(|term| term != "dumb") {
        Marks::Blocks
    } else {
        Marks::Ascii
    }
}

/// The progress bar, on standard error if that is a terminal and the run takes long.
struct ProgressBar {
    began: Instant,
    next: Option<Instant>,
    shown: bool,
}

impl ProgressBar {
    fn new(began: Instant) -> Self {
        let watched = io::stderr().is_terminal();
        Self {
            began,
            next: watched.then_some(began + PATIENCE),
            shown: false,
        }
    }

    fn show(&mut self, lines: &TraceLines, requests: u64) {
        let Some(next) = self.next else {
            return;
        };
        let now = clock::now();
        if now < next {
            return;
        }
        self.next = Some(now + LOOK);
        self.shown = true;
        let (read, size) = lines.progress();
        let progress = match size {
            Some(size @ 1..) => {
                let done = (read.min(size) * 30 / size) as usize;
                format!(
                    "[{:<30}] {:>3} %",
                    "#".repeat(done),
                    read.min(size) * 100 / size
                )
            }
            _ => format!("{} MiB", read / (1024 * 1024)),
        };
        let seconds = now.duration_since(self.began).as_secs().max(1);
        let speed = requests / seconds;
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{progress}  {requests} requests, {speed} a second"
        );
    }

    fn end(&self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
