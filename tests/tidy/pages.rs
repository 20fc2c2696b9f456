//! The pages: table cells that can be read at a glance, and links with an existing target.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::grain::folder;
use super::{assert_none, files, repository};

/// The most words in a cell. Longer text belongs below the table.
const WORDS_IN_A_CELL: usize = 25;

/// The number of longer cells. This figure only goes down.
const LONG_CELLS: usize = 0;

/// The pages for readers, each with its text.
fn pages() -> Vec<(String, String)> {
    let mut pages: Vec<(String, String)> = files("docs", "md")
        .into_iter()
        .map(|(path, text)| (path.to_str().unwrap().to_owned(), text))
        .collect();
    for name in [
        "README.md",
        "CHANGELOG.md",
        "deploy/README.md",
        "benches/README.md",
        "src/README.md",
    ] {
        let text = fs::read_to_string(repository().join(name)).unwrap();
        pages.push((name.to_owned(), text));
    }
    pages
}

/// The lines of a page that are not part of an example, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut example = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        example ^= fence;
        (!example && !fence).then_some((number + 1, line))
    })
}

#[test]
fn a_cell_of_a_table_is_read_at_a_glance() {
    let mut long = Vec::new();
    for (page, text) in pages() {
        for (number, line) in prose(&text).filter(|(_, line)| line.starts_with('|')) {
            // A vertical bar inside a cell is written with a backslash.
            let cells = line.replace("\\|", "/");
            for cell in cells.split('|') {
                let words = cell.split_whitespace().count();
                if words > WORDS_IN_A_CELL {
                    long.push(format!("{page}:{number}: {words} words"));
                }
            }
        }
    }
    println!(
        "cells of more than {WORDS_IN_A_CELL} words: {} (at most {LONG_CELLS})",
        long.len()
    );
    if long.len() > LONG_CELLS {
        assert_none(&long);
    }
}

/// The anchor of a heading in links, as GitHub makes it.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| {
            if c == ' ' {
                '-'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let pages: BTreeMap<String, String> = pages().into_iter().collect();
    let mut wrong = Vec::new();
    for (page, text) in &pages {
        let folder = repository().join(page);
        let folder = folder.parent().unwrap();
        for (number, line) in prose(text) {
            for (at, _) in line.match_indices("](") {
                let target = line[at + 2..].split(')').next().unwrap_or_default();
                if target.contains("://") {
                    continue;
                }
                let (file, part) = target.split_once('#').unwrap_or((target, ""));
                let path = if file.is_empty() {
                    repository().join(page)
                } else {
                    folder.join(file)
                };
                let Ok(path) = path.canonicalize() else {
                    wrong.push(format!("{page}:{number}: {target} is not there"));
                    continue;
                };
                if part.is_empty() || path.extension().is_none_or(|kind| kind != "md") {
                    continue;
                }
                let text = fs::read_to_string(&path).unwrap();
                if !prose(&text).any(|(_, line)| line.starts_with('#') && anchor(line) == part) {
                    wrong.push(format!("{page}:{number}: {target} has no such heading"));
                }
            }
        }
    }
    assert_none(&wrong);
}

fn is_path(word: &str) -> bool {
    !word.is_empty()
        && word
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_/".contains(c))
}

/// The names of `src` files on the map, such as `store/lease`: at the beginnings of the steps of a request, and in
/// backticks.
fn named_files(map: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    let mut take = |word: &str| {
        let word = word.trim_end_matches([',', ':', ';', '.', ')']);
        let word = word.trim_start_matches('(');
        if is_path(word) && word.contains('/') && !word.ends_with('/') {
            named.insert(word.to_owned());
        }
    };
    for line in map.lines() {
        line.split('`').skip(1).step_by(2).for_each(&mut take);
        line.split_whitespace().for_each(&mut take);
    }
    named
}

#[test]
fn the_map_leads_to_files_that_are_there() {
    let map = fs::read_to_string(repository().join("src/README.md")).unwrap();
    let named = named_files(&map);
    assert!(named.len() > 50, "{named:?}");
    let wrong: Vec<String> = named
        .into_iter()
        .filter(|name| {
            let below = |folder: &str| repository().join(format!("{folder}{name}"));
            !["src/", ""]
                .iter()
                .any(|folder| below(folder).exists() || below(folder).with_extension("rs").exists())
        })
        .map(|name| format!("src/README.md: there is no {name}"))
        .collect();
    assert_none(&wrong);
}

/// The files that the map in a face names, such as `src/store/lease`: the first word of each line in its block of text.
fn mapped_files(face: &str, text: &str) -> Vec<String> {
    let folder = folder(face);
    let mut found = Vec::new();
    let mut is_map = false;
    for line in text.lines().map_while(|line| line.strip_prefix("//!")) {
        let line = line.strip_prefix(' ').unwrap_or(line);
        if line.starts_with("```") {
            is_map = line == "```text";
        } else if is_map && !line.starts_with(' ') {
            let name = line.split(' ').next().unwrap_or_default();
            if is_path(name) {
                found.push(format!("{folder}/{name}"));
            }
        }
    }
    found
}

#[test]
fn the_faces_name_each_file_and_no_other() {
    let sources: Vec<(String, String)> = files("src", "rs")
        .into_iter()
        .map(|(path, text)| (path.to_str().unwrap().to_owned(), text))
        .filter(|(path, _)| !path.contains("/tests/") && !path.ends_with("tests.rs"))
        .collect();
    let there: BTreeSet<String> = sources.iter().map(|(path, _)| folder(path)).collect();
    let mut named = BTreeSet::new();
    let mut wrong = Vec::new();
    for (face, text) in &sources {
        for name in mapped_files(face, text) {
            if !there.contains(&name) {
                wrong.push(format!("{face}: there is no {name}"));
            }
            if !named.insert(name.clone()) {
                wrong.push(format!("{face}: {name} is on a map already"));
            }
        }
    }
    // A room, such as `src/store`, is on the map in `src/README.md`.
    for file in there.iter().filter(|file| file.matches('/').count() > 1) {
        if !named.contains(file) {
            wrong.push(format!("{file} is in no face above it"));
        }
    }
    assert!(named.len() > 500, "{} files", named.len());
    assert_none(&wrong);
}

/// A page that is read once, before the first change.
const WORDS_OF_THE_MAP: usize = 1_800;

#[test]
fn the_map_is_short() {
    let map = fs::read_to_string(repository().join("src/README.md")).unwrap();
    let words = map.split_whitespace().count();
    println!("words of the map: {words} (at most {WORDS_OF_THE_MAP})");
    assert!(words <= WORDS_OF_THE_MAP, "{words} words");
}
