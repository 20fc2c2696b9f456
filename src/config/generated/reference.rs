//! The reference page, docs/configuration.md, made from the vocabulary.

use crate::config::diagnostic::Code;
use crate::config::document::{IGNORE_WARNINGS, INCLUDE, TABLES};
use crate::config::suggest::one_of;
use crate::config::vocabulary::{Default, Key, Table, ValueShape};
use std::fmt::Write as _;

const HEAD: &str = "\
<!-- Generated from src/config/document. Change it there, then run the tests with UPDATE=1. -->

# Configuration

Tollgate reads one TOML file, `gateway.toml`: from `--config FILE`, else from the working directory, else from
`/etc/tollgate/`. `tollgate check` says what is wrong with it, all of it, and what each limit means in numbers.

Tables have names and their order means nothing. A time is a number with its unit (`us`, `ms`, `s`, `min`, `h`, `d`,
`w`, and their usual spellings), several in a row add up: `\"250ms\"`, `\"1m30s\"`. A rate is `N/TIME`: `\"100/min\"`,
`\"10/s\"`, `\"7/3s\"`. Several rates on one limit are a list, in which a bucket's rate may be
written `{ rate = \"100/min\", burst = 20 }`: all of them are charged, or none, and a refusal names the one with the
longest wait. Names are up to 64 letters, digits, `_` and `-`, since they appear in response fields, metrics
and Redis keys.

In texts, never in names, `${NAME}` is a variable of the environment the gateway was started in. One that is not set is a
mistake, unless it has a default: `${NAME:-default}`, which also stands in for an empty one. `${NAME:?message}` says what is
missing. `$$` is a `$`. What a variable gives is a text, so `burst = \"${BURST}\"` is not a number, and it is not looked at
for further variables. Mistakes in a result say what the variables gave, unless it is a secret.

A variable gives a secret if its name has a word for one (`KEY`, `TOKEN`, `SECRET`, `PASSWORD`, `PW`, `CREDS`, `PRIVATE`, `HMAC`, `SALT`,
`PAT`, `TOTP`, `DSN` and the like), if it gives an address with `user:password@`, or if one place where it is used is a secret's; so does its
default. Paths of files are none.

A secret need not stand in the file: the store's `password`, that of its sentinels, and every value under `set` and `add` of `request_headers` and
`response_headers`, may be `{ file = \"/run/secrets/NAME\" }` or `{ env = \"NAME\" }` instead of a text. A newline at the end
of the file does not count. Such a file is watched: a changed value is taken over as any other change, a changed password by
the connections to Redis that are made from then on. No message, log or dump shows a secret but as stars: not `check` and its
`--print` and `--diff`, not `explain`, not the start, not a reload. Numbers behind stars tell one secret from another: `***` to `***2` is a
change. What a request says itself is shown as it is, as are the addresses of servers in the access log, in metrics and in messages about
connections; a secret of fewer than 4 bytes, or of fewer than 8 that could be a word, has stars in `--print` alone. One that is written into the file is a warning.

A change of the file is taken over while requests go on, whole or not at all: the new file once two readings 50 ms apart
agree, or the old one where the new one has a mistake. Links are followed, and a link that is swapped counts as a change;
SIGHUP asks for a reading at once. New numbers keep a limit's counters. Another algorithm, window or `by` has counters of
its own: they start afresh, or go on where they are still held from when the limit counted so before. The log says which.
Keys marked *restart* are read once, at start; a reload says which of them have changed.
";

const INCLUDED: &str = "
## Several files

`include` stands at the top, before the first table. A team can own a file: an included one has limits, upstreams and routes
and nothing else, and includes no others. A name is one thing in all of them; written in two files it is an error that shows
both places. A pattern that finds nothing is a warning, a path that leads nowhere an error. Included files are watched as the
file itself is, and a new one that a pattern finds is taken in; at most 1,000 of them, of 4 MiB each and 16 MiB together.
Names that begin with a dot are found only by patterns that do.

";

const GRANTED: &str = "
An included file is a team's, not the operator's. It reads no variable, as `${NAME}` or `{ env = .. }`, and no file outside its own
folder, and its routes drop no limit of `[defaults]`, unless its entry lets it; the error says what to write. A file's own folder
is the one that it stands in and what is below that, without folders in which other files of the configuration stand; the folder of the main
file, and each above it, is nobody's own. Files that share a folder share what lies there: a team with secrets has a folder to itself. Where
a path leads counts, through all links. A file that two entries take in, of which one is a table, is an error.

```toml
include = [
    \"routes.d/*.toml\",
    { files = \"team-a/*.toml\", hosts = [\"a.example.com\"], paths = [\"/a/{*rest}\"], secrets = [\"secrets.d/team-a-*\"], variables = [\"TEAM_A_*\"], drops = [\"per-ip\"] },
]
```

";

const IGNORED: &str = "
## Warnings that are meant

`ignore_warnings` stands in any table below, or at the top for the whole file (not at the top of an included one). A warning is a
table's when any of its places is there: one about a limit and a route may be ignored in either.

";

const COLUMNS: &str = "| key | takes | default | example | meaning |\n|---|---|---|---|---|\n";

/// The text of docs/configuration.md.
pub(super) fn reference() -> String {
    let mut out = HEAD.to_owned();
    out.push_str(INCLUDED);
    rows("[include]", [&INCLUDE], &mut out);
    out.push_str(GRANTED);
    let tables = INCLUDE.shape().tables();
    rows(
        "[include]",
        tables.iter().flat_map(|table| table.keys),
        &mut out,
    );
    out.push_str(IGNORED);
    rows("", [&IGNORE_WARNINGS], &mut out);
    for table in TABLES {
        section(&table.title("NAME"), table, &mut out);
    }
    out.push_str(
        "\n## Diagnostics\n\nThe code in brackets after `error` or `warning` is stable, and `tollgate explain CODE` shows its page.\n\n\
         | code | meaning |\n|---|---|\n",
    );
    for code in Code::ALL {
        let _ = writeln!(
            out,
            "| [`{code}`](diagnostics.md#{code}) | {} |",
            code.about()
        );
    }
    out
}

fn section(title: &str, table: &Table, out: &mut String) {
    let _ = write!(out, "\n## `{title}`\n\n{}\n\n", table.about);
    rows(title, table.keys, out);
    for key in table.keys {
        let tables = key.shape().tables();
        // What the tables of a candidate and of a tier take is what the limit's own take.
        let first = tables.iter().filter(|_| !title.contains(".NAME."));
        for inner in first {
            section(&inner_title(title, key), inner, out);
        }
    }
}

/// `[limits.NAME.cost]`, `[limits.NAME.tiers.GROUP]`.
fn inner_title(title: &str, key: &Key) -> String {
    let outer = title.trim_end_matches(']');
    match key.shape() {
        ValueShape::Tiers(_) => format!("{outer}.{}.GROUP]", key.name),
        _ => format!("{outer}.{}]", key.name),
    }
}

/// The fragment of a heading, as Markdown makes it.
fn fragment(title: &str) -> String {
    let kept = title
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "_-".contains(*c));
    kept.collect::<String>().to_lowercase()
}

/// A row of a table for each key. A cell has 25 words at most: a longer meaning stands in full below the table.
fn rows<'k>(title: &str, keys: impl IntoIterator<Item = &'k Key>, out: &mut String) {
    let mut below = String::new();
    out.push_str(COLUMNS);
    for key in keys {
        let restart = if key.is_live() { "" } else { " *restart*" };
        let head = head(key.about);
        if head.len() < key.about.len() {
            let _ = writeln!(below, "- `{}`: {}", key.name, key.about);
        }
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | `{}` | {}{restart} |",
            key.name,
            takes(title, key),
            default(key),
            key.example,
            if head.ends_with('.') {
                head.to_owned()
            } else {
                format!("{head}, see below.")
            },
        );
    }
    if !below.is_empty() {
        let _ = write!(out, "\n{below}");
    }
}

/// The beginning of a meaning that has 20 words at most, up to the end of a sentence, else of a clause.
fn head(about: &str) -> &str {
    let ends = |marks: &'static [&str]| {
        let all = marks.iter().flat_map(|mark| about.match_indices(mark));
        let ends = all.map(|(at, mark)| at + usize::from(mark == ". "));
        ends.chain([about.len()]).filter(|end| {
            let head = &about[..*end];
            let is_whole = head.matches('`').count().is_multiple_of(2)
                && head.matches('(').count() == head.matches(')').count();
            is_whole && head.split(' ').count() <= 20
        })
    };
    let end = ends(&[". "]).max();
    let end = end.or_else(|| ends(&[": ", "; "]).max());
    let end = end.or_else(|| ends(&[", "]).max());
    &about[..end.expect("a meaning begins with a short clause")]
}

fn takes(title: &str, key: &Key) -> String {
    let words = |words: &[&str]| {
        let words: Vec<_> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
        words.join(", ")
    };
    // A tier's cost is described where the limit's is.
    let title = title.split_once(".NAME.").map_or(title, |(table, _)| table);
    let title = if title.ends_with(']') {
        title.to_owned()
    } else {
        format!("{title}.NAME]")
    };
    let link = |text: &str| format!("{text}(#{})", fragment(&inner_title(&title, key)));
    match key.shape() {
        ValueShape::Duration => "time".into(),
        ValueShape::ByteRate => "bytes a second, or 0".into(),
        ValueShape::Rate(_) => "rate or list".into(),
        ValueShape::Flag => "`true`, `false`".into(),
        ValueShape::Text
        | ValueShape::File
        | ValueShape::ErrorBody
        | ValueShape::StoreUrl
        | ValueShape::Destination => "text".into(),
        ValueShape::Texts | ValueShape::Files | ValueShape::Members => "text or list".into(),
        ValueShape::Choice(all) => words(all),
        ValueShape::Choices(all) => format!("list of {}", words(all)),
        ValueShape::Include(_) => "text, table or list".into(),
        ValueShape::Conditions | ValueShape::Lines => "table of names".into(),
        ValueShape::Tiers(_) => link("[table of groups]"),
        ValueShape::Inner(_) => link("[table]"),
        ValueShape::Cost(_) => link("whole number from 1, or [table]"),
        ValueShape::Lease => "`\"auto\"`, `\"off\"` or a whole number".into(),
        shape => shape.describe(),
    }
}

fn default(key: &Key) -> String {
    match key.default {
        Default::Required => "required".into(),
        Default::Unless(others) => format!("required, unless {} is there", one_of(others)),
        Default::Value(value) => format!("`{value}`"),
        Default::Words(words) | Default::Computed(words, _) => words.into(),
    }
}
