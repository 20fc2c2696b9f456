//! The tables of `tests/law/README.md`: they contain all defects, and every test that they name exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The number of defects in each family.
const FAMILIES: [(&str, usize); 15] = [
    ("FW", 6),
    ("SH", 5),
    ("SL", 5),
    ("LB", 8),
    ("TB", 8),
    ("SG", 4),
    ("RR", 7),
    ("IF", 10),
    ("IR", 7),
    ("BF", 5),
    ("BZ", 6),
    ("BL", 4),
    ("BT", 4),
    ("D", 6),
    ("RS", 11),
];

fn place(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The text of every file below `folder` with this ending.
fn texts(folder: &Path, ending: &str, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts(&path, ending, into);
        } else if path.extension().is_some_and(|found| found == ending) {
            into.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

/// The names of all functions.
fn functions(code: &str) -> BTreeSet<&str> {
    let after = code.split("fn ").skip(1);
    after
        .filter_map(|rest| Some(rest.split_once('(')?.0))
        .collect()
}

/// The texts between two of `mark`.
fn marked(cell: &str, mark: char) -> impl Iterator<Item = &str> {
    cell.split(mark).skip(1).step_by(2)
}

/// The rows of all tables, as cells.
fn rows() -> Vec<Vec<String>> {
    let text = fs::read_to_string(place("tests/law/README.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

#[test]
fn every_defect_has_its_row_and_every_row_its_test() {
    let (mut code, mut vectors) = (String::new(), String::new());
    texts(&place("tests"), "rs", &mut code);
    texts(&place("src"), "rs", &mut code);
    texts(&place("tests/vectors"), "toml", &mut vectors);
    let functions = functions(&code);
    let lines: BTreeSet<&str> = vectors.lines().collect();
    let mut ids = BTreeSet::new();
    for row in rows() {
        let [_, id, _, tests, _] = &row[..] else {
            // This row belongs to the table of files, or is a heading.
            continue;
        };
        let mut named = 0;
        for test in marked(tests, '`') {
            assert!(functions.contains(test), "{id}: no test {test}");
            named += 1;
        }
        for title in marked(tests, '"') {
            let line = format!("name = \"{title}\"");
            assert!(lines.contains(&*line), "{id}: no scenario {title}");
            named += 1;
        }
        let heading = matches!(&**id, "id" | "whose" | "---");
        let excused = tests.starts_with("none: ");
        assert!(heading || excused || named > 0, "{id}: {row:?}");
        ids.insert(id.clone());
    }
    for (family, count) in FAMILIES {
        for number in 1..=count {
            let id = format!("{family}{number}");
            assert!(ids.contains(&id), "{id} has no row");
        }
    }
}
