//! The reference page, docs/configuration.md, generated from the vocabulary.

use crate::config::document::vocabulary::{Default, Key, Table, ValueShape};
use crate::config::document::{IGNORE_WARNINGS, INCLUDE, TABLES};
use crate::config::report::{Code, one_of};
use std::fmt::Write as _;

const HEAD: &str = "\
<!-- Generated from src/config/document. Change it there, then run the tests with UPDATE=1. -->

# Configuration

Tollgate reads one TOML file, `gateway.toml`: from `--config FILE`, else from the working directory, else from
`/etc/tollgate/`. `tollgate check` reports all mistakes in the file, and the meaning of each limit in numbers.

Tables have names and their order means nothing. A time is a number with its unit (`us`, `ms`, `s`, `min`, `h`, `d`,
`w`, and their usual spellings); several in a row add up: `\"250ms\"`, `\"1m30s\"`. A rate is `N/TIME`: `\"100/min\"`,
`\"10/s\"`, `\"7/3s\"`. Several rates of one limit are a list, in which a bucket's rate may be written
`{ rate = \"100/min\", burst = 20 }`. All rates of a list are charged, or none; a refusal names the rate with the longest
wait. Names are up to 64 letters, digits, `_` and `-`, since they appear in response fields, metrics and Redis keys.

In texts, never in names, `${NAME}` is a variable of the environment that the gateway was started in:

- `${NAME}` is an error where the variable is not set.
- `${NAME:-default}` gives the default where the variable is not set or empty.
- `${NAME:?message}` is an error with this message where the variable is not set or empty.
- `$$` is a `$`.

A text that is exactly one variable may stand for a number, or for `true` or `false`, where a key takes one: `burst =
\"${BURST}\"`, `burst = \"${BURST:-3}\"`. `\"${BURST}0\"` is a text. Variables inside a value are not filled in. A message
about a text with variables also shows their values, unless they are secret.

`check`, `explain` and `simulate` take variables that only the gateway's unit knows from a file: `tollgate check
--env-file /etc/tollgate/env` reads it as `EnvironmentFile=` of systemd does, and its variables take precedence over
those of the shell. Lines that set nothing, under systemd as well, are reported with file, line and cause. A missing
file is reported in the same way if a `-` in front of its name allows that.

The value of a variable is a secret in three cases. Whether a default is a secret depends on its own place only.

- The variable's name has a word for a secret (`KEY`, `TOKEN`, `SECRET`, `PASSWORD`, `PW`, `CREDS`, `PRIVATE`, `HMAC`,
  `SALT`, `PAT`, `TOTP`, `DSN` and the like).
- The value is an address with `user:password@`.
- The variable is used in a place that holds a secret.

Paths of files are no secrets.

A secret need not be in the file. The store's `password`, the `password` of its sentinels, and every value under
`set` and `add` of `request_headers` and `response_headers` may be `{ file = \"/run/secrets/NAME\" }` or `{ env = \"NAME\"
}` instead of a text. A newline at the end of such a file does not count. The file is watched: a changed value is taken
over like any other change. New connections to Redis use a changed password.

Every message, log and dump shows stars in place of a secret: `check` with its `--print` and `--diff`, `explain`, the
start and a reload. Three stars stand for a secret of any length. Numbers after the stars tell one secret from another:
`***` to `***2` is a change. The column of a mistake is the column in the file. After a secret on the same line it is
the column of the secret, since it would otherwise reveal the secret's length. The queries of URLs in `jwks` and
`directory` are secrets, too, and so are queries of other URLs in shown lines, except those of redirects. Three things
are shown as they are:

- texts of a request;
- addresses of servers in the access log, in metrics and in messages about connections;
- outside of `--print`, a secret of fewer than 4 bytes, or of fewer than 8 bytes that could be a word.

A secret that is written into the file is a warning.

A change of the file is taken over while requests go on, completely or not at all.

- **When.** The new file applies once two readings 50 ms apart agree, within a second after the first change. SIGHUP
  asks for a reading at once. Links are followed, and a link that leads elsewhere counts as a change. If the new file
  has a mistake, the old file stays in use.
- **A file that takes anything away** may be half written, so it waits for a third equal reading, 500 ms later. This
  applies if a key, a value or an entry of a list is missing, if a group's file has lost a member, a file of `trust` a
  network, or a revocation list a certificate. Other numbers (`rate`, `max`, times, sizes; not in a list) and additions
  take nothing away. SIGHUP takes such a file over without the third reading. A file that keeps changing is taken over
  as it is 10 s after it was first read, with a warning in the log.
- **Counters.** New numbers keep a limit's counters. In a bucket the units that are used stay used: of a bucket of 10 in
  which all are used, 90 are left once it holds 100. Windows and logs keep their counts, and requests in a queue their
  turns. Where several gateways share a Redis, first update every gateway, then change numbers. Another algorithm, window
  or `by` has counters of its own, and so has a bucket that begins or ceases to have `refund` or a cost from responses.
  They start afresh, unless counters from an earlier time with the same settings still exist: these go on. Another
  `key_case` keeps them, but for keys with capitals, or with blanks at the ends.
- **Restarts.** Keys marked *restart* are read once, at the start. A reload names such keys that have changed, and a
  [successor](restarts.md) takes them over without an outage.
";

const INCLUDED: &str = "
## Several files

Write `include` at the top, before the first table. A team can own an included file. Such a file has limits, groups,
upstreams and routes and nothing else, and includes no others. The name of a limit, group, upstream or route is in
one file only; two files with one name are an error that shows both places. A pattern that finds nothing is a warning, a
path that leads nowhere an error. Included files are watched as the main file is, and a new file that a pattern finds is
included. At most 1,000 files are included, of 4 MiB each and 16 MiB together. Names that begin with a dot are found
only by patterns that begin with a dot.

";

const GRANTED: &str = "
An included file is a team's, not the operator's. Four things need a grant of the file's entry; the error shows the
entry to write:

- reading a variable, as `${NAME}` or `{ env = .. }` (`variables`);
- reading a file outside the included file's own folder (`secrets`);
- a route that drops a limit of `[defaults]` (`drops`);
- an upstream of another file, and a server on a Unix socket outside the included file's own folder (`upstreams`).

A file's own folder is the folder of the file with all below it, without folders that have other files of the
configuration. The folder of the main file, and each folder above it, is no file's own. Included files in one
folder share the files in it: a team with secrets needs a folder to itself. The place to which a path leads through all
links counts. A file that two entries take in, of which one is a table, is an error.

A route to an upstream of another file may set only a `host` that a route of its own file has. It must not set a field that
`forward_identity` of another file's route writes; such fields are also removed if clients send them. It must not set a field
by which gateways state a client's address, certificate or name, or the host, URL or method that the client asked for
([the list](who-is-counted.md)). Such a field of a client is removed on every route, unless the peer is in `trust`.

```toml
include = [
    \"routes.d/*.toml\",
    { files = \"team-a/*.toml\", hosts = [\"a.example.com\"], paths = [\"/a/{*rest}\"], secrets = [\"secrets.d/team-a-*\"], variables = [\"TEAM_A_*\"], drops = [\"per-ip\"], upstreams = [\"orders\"] },
]
```

";

const IGNORED: &str = "
## Warnings that are meant

`ignore_warnings` may be in any table below, or at the top for the whole file (not at the top of an included file). A
warning belongs to each table with one of its places: a warning about a limit and a route may be ignored in either.

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
        // A candidate and a tier share their inner tables with the limit, which has a section already.
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
        ValueShape::Named(_) => format!("{outer}.{}.NAME]", key.name),
        _ => format!("{outer}.{}]", key.name),
    }
}

/// The fragment of a heading, as Markdown generates it.
fn fragment(title: &str) -> String {
    let kept = title
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "_-".contains(*c));
    kept.collect::<String>().to_lowercase()
}

/// A row of a table for each key. A cell has at most 25 words; the text of a longer meaning is below the table.
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

/// The beginning of a meaning with at most 20 words, up to the end of a sentence, or else of a clause.
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
    // The cost of a tier is described in the section of the limit.
    let title = title.split_once(".NAME.").map_or(title, |(table, _)| table);
    let title = if title.ends_with(']') {
        title.to_owned()
    } else {
        format!("{title}.NAME]")
    };
    let link = |text: &str| format!("{text}(#{})", fragment(&inner_title(&title, key)));
    match key.shape() {
        ValueShape::Duration => "time".into(),
        ValueShape::DurationOrOff => "time or `false`".into(),
        ValueShape::ByteRate => "bytes a second, or 0".into(),
        ValueShape::Rate(_) => "rate or list".into(),
        ValueShape::FlagOrTexts => "`true`, text or list".into(),
        ValueShape::Flag => "`true`, `false`".into(),
        ValueShape::Text
        | ValueShape::ListenAddress
        | ValueShape::File
        | ValueShape::FolderOr(_)
        | ValueShape::ErrorBody
        | ValueShape::StoreUrl
        | ValueShape::Destination => "text".into(),
        ValueShape::Texts
        | ValueShape::Files
        | ValueShape::Members
        | ValueShape::ListenAddresses => "text or list".into(),
        ValueShape::Customers => "file, table of names, or `true`".into(),
        ValueShape::Choice(all) => words(all),
        ValueShape::Choices(all) => format!("list of {}", words(all)),
        ValueShape::Include(_) => "text, table or list".into(),
        ValueShape::Listeners(_) | ValueShape::Servers(_) | ValueShape::Networks(_) => {
            link("text, list or [table]")
        }
        ValueShape::Authorities(_) => link("text, list or [table]"),
        ValueShape::ListenerTls(_) => link("`true`, text, list or [table]"),
        ValueShape::RefundCauses => "status, `\"cancel\"` or list".into(),
        ValueShape::StatusCosts => "table of statuses".into(),
        ValueShape::JsonMembers => "text, list or table of weights".into(),
        ValueShape::Conditions | ValueShape::Lines => "table of names".into(),
        ValueShape::Tiers(_) => link("[table of groups]"),
        ValueShape::Named(_) => link("[table of names]"),
        ValueShape::Inner(_) => link("[table]"),
        ValueShape::TextOrInner(_) => link("text or [table]"),
        ValueShape::OffOrInner(_) => link("`false` or [table]"),
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
        Default::Words(words) | Default::Computed(words, _) | Default::Compiled(words, _) => {
            words.into()
        }
    }
}
