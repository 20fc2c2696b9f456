//! The rules of this repository: imports between rooms, the first line of each file, lengths, and required twins.

mod grain;
mod imports;
mod names;
mod pages;
mod release_build;

use std::fs;
use std::path::{Path, PathBuf};

/// The rooms, lowest first. A room may import only from rooms above it in this list, and only those that its entry
/// names.
///
/// The order gives the levels, and each list gives the permitted imports. A `*` means every room above.
const ROOMS: [(&str, &[&str]); 27] = [
    ("client", &[]),
    ("clock", &[]),
    ("descriptors", &[]),
    ("interim", &[]),
    ("shutdown", &["clock"]),
    ("telemetry", &["client", "clock"]),
    ("tls", &["client", "clock"]),
    ("fetch", &["interim", "tls"]),
    ("route", &[]),
    (
        "upstream",
        &[
            "client",
            "clock",
            "descriptors",
            "interim",
            "shutdown",
            "telemetry",
            "tls",
        ],
    ),
    (
        "listen",
        &[
            "client",
            "clock",
            "descriptors",
            "shutdown",
            "telemetry",
            "tls",
        ],
    ),
    ("key", &["client", "route"]),
    ("limit", &["clock", "key"]),
    (
        "store",
        &["clock", "shutdown", "telemetry", "tls", "key", "limit"],
    ),
    ("acme", &["clock", "telemetry", "tls", "fetch", "store"]),
    ("snapshot", &["tls", "route", "upstream", "key", "limit"]),
    (
        "admission",
        &[
            "client",
            "telemetry",
            "route",
            "key",
            "limit",
            "store",
            "snapshot",
        ],
    ),
    (
        "intake",
        &[
            "client",
            "telemetry",
            "tls",
            "route",
            "listen",
            "key",
            "limit",
            "snapshot",
            "admission",
        ],
    ),
    (
        "proxy",
        &[
            "client",
            "clock",
            "descriptors",
            "shutdown",
            "telemetry",
            "tls",
            "route",
            "upstream",
            "listen",
            "key",
            "limit",
            "store",
            "snapshot",
            "admission",
            "intake",
        ],
    ),
    (
        "changes",
        &["clock", "telemetry", "limit", "store", "snapshot"],
    ),
    (
        "admin",
        &[
            "changes",
            "clock",
            "shutdown",
            "telemetry",
            "listen",
            "store",
            "snapshot",
        ],
    ),
    ("config", &["*"]),
    (
        "reload",
        &[
            "clock",
            "shutdown",
            "telemetry",
            "route",
            "upstream",
            "limit",
            "store",
            "snapshot",
            "admin",
            "config",
        ],
    ),
    (
        "replay",
        &[
            "client",
            "clock",
            "telemetry",
            "route",
            "key",
            "limit",
            "store",
            "snapshot",
            "admission",
            "intake",
            "proxy",
        ],
    ),
    ("app", &["*"]),
    ("cli", &["*"]),
    ("main", &["*"]),
];

/// A file with so many lines may have two subjects, so it is printed.
const LINES: usize = 400;

/// A file with so many lines fails the test.
const MOST_LINES: usize = 700;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `folder` with this extension, with its path from the repository and its text.
fn files(folder: &str, extension: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![repository().join(folder)];
    while let Some(next) = open.pop() {
        for entry in
            fs::read_dir(&next).unwrap_or_else(|error| panic!("{}: {error}", next.display()))
        {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|own| own == extension) {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(repository()).unwrap().to_owned(), text));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no .{extension} file below {folder}");
    found
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The room that a file of `src` belongs to. `lib.rs` lists the rooms and belongs to none.
fn room(path: &Path) -> Option<String> {
    let first = path
        .strip_prefix("src")
        .unwrap()
        .components()
        .next()
        .unwrap();
    let name = first.as_os_str().to_str().unwrap().trim_end_matches(".rs");
    (name != "lib").then(|| name.to_owned())
}

/// The rooms that a text names after `crate::` (or `tollgate::`), with their lines. Tests may import more than the code
/// that they test.
fn imports(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut skip = false;
    for (number, line) in text.lines().enumerate() {
        // By convention, a module of tests is at the end of a file.
        skip |= line.trim_start().starts_with("#[cfg(test)]");
        let code = line.split("//").next().unwrap_or_default();
        if skip && !code.starts_with("#[cfg(test)]") && code.trim_end().ends_with(';') {
            // The line `#[cfg(test)] mod tests;` skips only itself.
            skip = false;
            continue;
        }
        if skip {
            continue;
        }
        for prefix in ["crate::", "tollgate::"] {
            for (at, _) in code.match_indices(prefix) {
                let before = code[..at].chars().next_back();
                if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                    continue;
                }
                let rest = &code[at + prefix.len()..];
                let names: Vec<&str> = match rest.strip_prefix('{') {
                    Some(list) => list.split([',', '}']).map(str::trim).collect(),
                    None => vec![rest],
                };
                for name in names {
                    let end = name
                        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                        .unwrap_or(name.len());
                    found.push((number + 1, name[..end].to_owned()));
                }
            }
        }
    }
    found
}

#[test]
fn rooms_import_in_one_direction() {
    let mut wrong = Vec::new();
    for (path, text) in files("src", "rs") {
        let Some(own) = room(&path) else { continue };
        // A folder `tests` or a file `tests.rs` tests its room from outside.
        if path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs") {
            continue;
        }
        let Some(level) = ROOMS.iter().position(|(name, _)| *name == own) else {
            wrong.push(format!(
                "{}: the room {own} is not on the plan",
                path.display()
            ));
            continue;
        };
        let doors = ROOMS[level].1;
        for (line, used) in imports(&text) {
            let Some(other) = ROOMS.iter().position(|(name, _)| *name == used) else {
                continue;
            };
            let below = other < level && (doors == ["*"] || doors.contains(&used.as_str()));
            if used != own && !below {
                wrong.push(format!(
                    "{}:{line}: {own} must not know {used}",
                    path.display()
                ));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn every_room_is_on_the_plan_and_on_the_map() {
    let map = fs::read_to_string(repository().join("src/README.md")).unwrap();
    let mut wrong = Vec::new();
    for entry in fs::read_dir(repository().join("src")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let room = name.trim_end_matches(".rs");
        if !["lib", "README.md"].contains(&room) && !ROOMS.iter().any(|(known, _)| *known == room) {
            wrong.push(format!("src/{name} is not on the plan"));
        }
        if !["lib.rs", "README.md"].contains(&name.as_str()) && !map.contains(room) {
            wrong.push(format!("src/{name} is not on the map, src/README.md"));
        }
    }
    assert_none(&wrong);
}

#[test]
fn every_file_says_its_job_first() {
    let mut wrong = Vec::new();
    for (folder, extension, mark) in [
        ("src", "rs", "//! "),
        ("tests", "rs", "//! "),
        ("lua", "lua", "-- "),
    ] {
        for (path, text) in files(folder, extension) {
            let first = text.lines().next().unwrap_or_default();
            // A page may take the place of the module's documentation.
            if !first.starts_with(mark) && !first.starts_with("#![doc = include_str!") {
                wrong.push(format!("{} begins with {first:?}", path.display()));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn no_file_is_too_long_to_read() {
    let mut wrong = Vec::new();
    for (folder, extension) in [("src", "rs"), ("tests", "rs"), ("lua", "lua")] {
        for (path, text) in files(folder, extension) {
            let lines = text.lines().count();
            let sentence = format!("{} has {lines} lines", path.display());
            if lines > MOST_LINES {
                wrong.push(sentence);
            } else if lines > LINES {
                println!("{sentence}");
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn nothing_is_left_for_later() {
    // The words are composed here, so that the test does not find its own file.
    let marks = [
        ["todo", "!("].concat(),
        ["unimplemented", "!("].concat(),
        ["FIX", "ME"].concat(),
        ["XX", "X"].concat(),
    ];
    let mut wrong = Vec::new();
    for (folder, extension) in [("src", "rs"), ("tests", "rs"), ("lua", "lua")] {
        for (path, text) in files(folder, extension) {
            for (number, line) in text.lines().enumerate() {
                if marks.iter().any(|mark| line.contains(mark.as_str())) {
                    wrong.push(format!(
                        "{}:{}: {}",
                        path.display(),
                        number + 1,
                        line.trim()
                    ));
                }
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn no_file_is_called_after_nothing() {
    let mut wrong = Vec::new();
    for folder in ["src", "tests"] {
        for (path, _) in files(folder, "rs") {
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if [
                "util", "utils", "helper", "helpers", "common", "misc", "types", "manager",
            ]
            .contains(&stem)
            {
                wrong.push(path.display().to_string());
            }
        }
    }
    assert_none(&wrong);
}

/// The algorithms, as the compiled rule lists them: `TokenBucket(TokenBucket)` is `token_bucket`.
fn algorithms() -> Vec<String> {
    let text = fs::read_to_string(repository().join("src/limit/mod.rs")).unwrap();
    let (_, rule) = text
        .split_once("pub enum Rule {")
        .expect("a limit's algorithms are the variants of Rule");
    let (variants, _) = rule.split_once("\n}").unwrap();
    variants
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//") && !line.starts_with('#'))
        .filter_map(|line| line.split_once('('))
        .map(|(name, _)| {
            let mut snake = String::new();
            for c in name.chars() {
                if c.is_uppercase() && !snake.is_empty() {
                    snake.push('_');
                }
                snake.extend(c.to_lowercase());
            }
            snake
        })
        .collect()
}

#[test]
fn every_algorithm_has_its_twin() {
    let algorithms = algorithms();
    assert!(algorithms.len() >= 3, "{algorithms:?}");
    let mut wrong = Vec::new();
    for name in algorithms {
        for place in [format!("src/limit/{name}.rs"), format!("lua/{name}.lua")] {
            if !repository().join(&place).is_file() {
                wrong.push(format!("{place} is missing"));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn tests_run() {
    let mut wrong = Vec::new();
    let mark = ["#[", "ignore"].concat();
    for folder in ["src", "tests"] {
        for (path, text) in files(folder, "rs") {
            if text.contains(&mark) {
                wrong.push(format!("{} has a test that never runs", path.display()));
            }
        }
    }
    assert_none(&wrong);
}
