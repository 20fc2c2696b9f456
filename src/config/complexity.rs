//! The work for a file grows no faster than the file's length, for every kind of list: a list of eight times the length
//! takes about eight times the work. The test covers every list of the schema, and a few pairs of lists that are
//! compared with each other.
//!
//! The test knows nothing about the parts of the work, so it measures the thread's CPU time, which other work on the
//! machine does not lengthen.

mod lists;

use super::input::span::LOOKED_AT;
use super::presentation::diff::{diff, taken_away};
use super::report::render::Colour;
use super::{Report, fixtures, load, parse};
use lists::List;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// The first file of a list has about this many bytes; the file is doubled until its work is long enough to be
/// measured.
const FIRST: usize = 4 * 1024;
/// No file is longer than this.
const LONGEST: usize = 512 * 1024;
/// A report shows this many mistakes, each with its line; in shorter reports, a line with several mistakes is shown
/// once for each of them.
const SHOWN: usize = 100;
/// A list of eight times the length may take this many times the work: quadratic work would take 64 times.
const MOST: u32 = 16;

/// This much work is enough to be measured. Quadratic work is detected where it is the larger part of the work; the
/// long form of the test detects smaller parts.
fn enough() -> Duration {
    Duration::from_millis(if fixtures::long() { 2_000 } else { 60 })
}

/// The CPU time of this thread.
fn work() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.try_into().unwrap()
}

/// The work for a file with `many` entries of a list: reading the file, showing its mistakes, and comparing the file
/// with itself.
fn work_for(list: &List, many: usize, folder: &Path) -> Duration {
    let file = folder.join("gateway.toml");
    fs::write(&file, list.file(many)).unwrap();
    let before = work();
    let (first, second) = (load(&file), load(&file));
    let report: Report = match (first, second) {
        (Ok(old), Ok(new)) => {
            assert!(diff(&old.outline, &new.outline, &old.boot).is_empty());
            assert_eq!(taken_away(&old.outline, &new.outline), None);
            new.report()
        }
        (Err(report), _) | (_, Err(report)) => {
            assert!(!list.is_good, "{}", report.human(Colour::Off));
            report
        }
    };
    let _ = report.human(Colour::Off);
    work() - before
}

/// The growth of the work in words, if the work grew faster than the list.
fn excess(list: &List, folder: &Path) -> Option<String> {
    let bytes = (list.file(200).len() / 200).max(1);
    let least = if list.is_good { 1 } else { SHOWN };
    let mut few = (FIRST / bytes / 8).max(least);
    let more = loop {
        let more = work_for(list, few * 8, folder);
        if more >= enough() || few * 16 * bytes > LONGEST {
            break more;
        }
        few *= 2;
    };
    // A second measurement separates real work from cache effects of other threads.
    let less = (0..2).map(|_| work_for(list, few, folder)).max().unwrap();
    let grew = format!(
        "{}: {less:?} for {few}, {more:?} for {}",
        list.name,
        few * 8
    );
    println!("{grew}");
    (more >= enough() && more > less * MOST).then_some(grew)
}

#[test]
fn eight_times_a_list_is_eight_times_the_work() {
    fixtures::set_modes_of_keys();
    let left = Mutex::new(lists::all_lists());
    let found = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                let folder = tempfile::tempdir().unwrap();
                lists::put_files(folder.path());
                loop {
                    let Some(list) = left.lock().unwrap().pop() else {
                        return;
                    };
                    let excess = excess(&list, folder.path());
                    found.lock().unwrap().extend(excess);
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The paths of all lists and of all tables with free names, as `.routes.*.host[]`.
fn of_schema(node: &Value, root: &Value, path: &str, found: &mut BTreeSet<String>) {
    let node = match node["$ref"].as_str() {
        Some(to) => root.pointer(&to[1..]).unwrap(),
        None => node,
    };
    for form in ["oneOf", "anyOf", "allOf"] {
        for form in node[form].as_array().into_iter().flatten() {
            of_schema(form, root, path, found);
        }
    }
    let mut below = |step: &str, node: &Value| {
        let path = format!("{path}{step}");
        if !step.starts_with('.') || step == ".*" {
            found.insert(path.clone());
        }
        of_schema(node, root, &path, found);
    };
    if let Some(items) = node.get("items") {
        below("[]", items);
    }
    for (name, one) in node["properties"].as_object().into_iter().flatten() {
        if name != "ignore_warnings" {
            below(&format!(".{name}"), one);
        }
    }
    if let Some(any) = node
        .get("additionalProperties")
        .filter(|any| any.is_object())
    {
        below(".*", any);
    }
}

#[test]
fn every_list_of_the_schema_is_tried() {
    let schema = include_str!("../../gateway.schema.json");
    let schema: Value = serde_json::from_str(schema).unwrap();
    let mut found = BTreeSet::new();
    of_schema(&schema, &schema, "", &mut found);
    assert!(found.len() > 60, "{found:?}");
    let all = lists::all_lists();
    let tried: BTreeSet<&str> = all.iter().map(|list| list.name).collect();
    let missing: Vec<&String> = found
        .iter()
        .filter(|path| !tried.contains(lists::one_name(path).as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "no file of `lists` has these: {missing:?}"
    );
}

/// A warning is looked up by its place among the tables that ignore warnings.
#[test]
fn twice_the_ignored_warnings_are_twice_the_places_that_are_looked_at() {
    let looked_at = |many: usize| {
        LOOKED_AT.set(0);
        let text: String = (0..many).map(lists::ignored_warning).collect();
        let compiled = parse("gateway.toml", &text)
            .unwrap_or_else(|report| panic!("{}", report.human(Colour::Off)));
        assert_eq!(compiled.ignored.len(), many);
        LOOKED_AT.get()
    };
    let (some, twice) = (looked_at(100), looked_at(200));
    assert!(
        some >= 100 && twice <= some * 21 / 10,
        "{some} of 100, {twice} of 200"
    );
}
