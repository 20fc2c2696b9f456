//! `tollgate explain`: what a diagnostic's code means.

use super::{GOOD, USAGE, tell};
use crate::config::Code;
use crate::config::pages::Page;
use clap::Args;
use serde_json::json;
use std::io::Write as _;

/// What to explain.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExplainArgs {
    /// The code of a diagnostic.
    #[arg(value_name = "CODE")]
    what: String,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  tollgate explain missing-choice    what error[missing-choice] means, and what to write instead

Exit codes: 0 explained; 2 wrong usage.";

/// Explains, and returns the exit code.
pub(super) fn explain(args: &ExplainArgs) -> u8 {
    if let Some(code) = Code::named(&args.what) {
        show(&page(code, args.json));
        return GOOD;
    }
    no_code(&args.what);
    USAGE
}

fn no_code(word: &str) {
    let help = match Code::nearest(word) {
        Some(near) => format!("did you mean `tollgate explain {near}`?"),
        None => "all codes are in docs/diagnostics.md".to_owned(),
    };
    tell(&format!(
        "error: `{word}` is not the code of a diagnostic\nhelp: {help}"
    ));
}

fn page(code: Code, as_json: bool) -> String {
    let page = Page::of(code);
    if !as_json {
        return page.text();
    }
    let page = json!({
        "code": code.as_str(),
        "about": code.about(),
        "meaning": page.meaning,
        "wrong": page.wrong,
        "instead": page.instead,
        "right": page.right,
    });
    format!("{page}\n")
}

/// On standard output, which may be closed, and nobody reads then.
fn show(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
