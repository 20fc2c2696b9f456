//! Each word is a test: its answer is shown, and the lines that the answer offers make a good file.

use super::values::{KeyPlace, VALUES};
use super::{ForeignName, ForeignSetting, Offer, TablePlace, all_settings};
use crate::config::document::table_named;
use crate::config::report::render::Colour;
use crate::config::report::{Report, Severity};
use crate::config::{load, parse};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A table's lines, by key.
type Lines = BTreeMap<String, String>;

/// A good file with one table of each kind that a route needs.
fn good_file() -> BTreeMap<&'static str, Lines> {
    let table = |lines: &[(&str, &str)]| {
        let lines = lines.iter();
        let lines = lines.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        lines.collect::<Lines>()
    };
    BTreeMap::from([
        ("", Lines::new()),
        (
            "upstreams",
            table(&[("servers", "[\"http://127.0.0.1:3000\"]")]),
        ),
        ("limits", table(&[("by", "\"ip\""), ("rate", "\"10/s\"")])),
        (
            "routes",
            table(&[
                ("path", "\"/api/{*rest}\""),
                ("upstream", "\"orders\""),
                ("limits", "[\"per-ip\"]"),
            ]),
        ),
    ])
}

fn title(table: &str) -> String {
    let name = match table {
        "upstreams" => "orders",
        "limits" => "per-ip",
        "groups" => "gold",
        _ => "api",
    };
    table_named(table).map_or_else(String::new, |table| table.title(name))
}

fn file_text(tables: &BTreeMap<&'static str, Lines>) -> String {
    let mut out = String::new();
    for (table, lines) in tables {
        out.push_str(&title(table));
        out.push('\n');
        for (key, value) in lines {
            out.push_str(&format!("{key} = {value}\n"));
        }
    }
    out
}

/// The good file with the lines of the offers in place of its own.
fn with_offers(offers: &'static [Offer]) -> String {
    let mut file = good_file();
    for offer in offers {
        let table = file.entry(offer.table).or_default();
        for line in offer.lines {
            let (key, value) = line.split_once(" = ").unwrap();
            table.insert(key.to_owned(), value.to_owned());
            match key {
                "respond" => drop(table.remove("upstream")),
                "max" => drop(table.remove("rate")),
                "on_down" if offer.table == "store" => {
                    table.insert("url".to_owned(), "\"redis://127.0.0.1\"".to_owned());
                }
                "by" if offer.table == "limits" && !value.contains("ip") => {
                    table
                        .entry("missing".to_owned())
                        .or_insert("\"refuse\"".to_owned());
                }
                _ => {}
            }
        }
    }
    file_text(&file)
}

/// A folder with the files that offers name.
fn folder() -> tempfile::TempDir {
    crate::config::fixtures::set_modes_of_keys();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in [
        ("tests/config/tls/api.pem", "api.pem"),
        ("tests/config/tls/api.key", "api.key"),
        ("tests/config/jwt/rsa.pem", "issuer.pem"),
        ("deploy/gold-keys.txt", "gold-keys.txt"),
    ] {
        fs::copy(root.join(from), folder.path().join(to)).unwrap();
    }
    let customers =
        "acme sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n";
    for name in ["pro-keys.txt", "staff.txt"] {
        fs::write(folder.path().join(name), customers).unwrap();
    }
    fs::write(folder.path().join("slow-down.html"), "<p>{retry_after}</p>").unwrap();
    fs::create_dir(folder.path().join("routes.d")).unwrap();
    let limit = "[limits.other]\nby = \"ip\"\nrate = \"1/s\"\n";
    fs::write(folder.path().join("routes.d/other.toml"), limit).unwrap();
    folder
}

fn report(folder: &Path, text: &str) -> Report {
    let path = folder.join("gateway.toml");
    fs::write(&path, text).unwrap();
    match load(&path) {
        Ok(compiled) => compiled.report(),
        Err(report) => report,
    }
}

#[test]
fn every_offered_line_makes_a_good_file() {
    let folder = folder();
    for row in all_settings() {
        let text = with_offers(row.offers);
        let report = report(folder.path(), &text);
        assert_eq!(
            report.errors(),
            0,
            "{:?}\n{text}{}",
            row.words,
            report.human(Colour::Off)
        );
    }
}

/// The tables in which a row's words are asked for.
fn tables(row: &ForeignSetting) -> Vec<Option<&'static str>> {
    let of = |place: &TablePlace| match place {
        TablePlace::Top => vec![None],
        TablePlace::In(table) => vec![Some(*table)],
        TablePlace::Key => ["routes", "limits", "upstreams", "server"]
            .map(Some)
            .to_vec(),
    };
    row.places.iter().flat_map(of).collect()
}

#[test]
fn every_word_is_answered_at_every_place() {
    for row in all_settings() {
        for (table, word) in tables(row)
            .into_iter()
            .flat_map(|table| row.words.iter().map(move |word| (table, word)))
        {
            let vocabulary = table.and_then(table_named);
            if vocabulary.is_some_and(|table| table.key(word).is_some()) {
                continue;
            }
            let Some(found) = ForeignName::find(vocabulary, word) else {
                panic!("{word} in {table:?} is not found");
            };
            let is_named_elsewhere = table.is_some() && !std::ptr::eq(found.row, row);
            if is_named_elsewhere {
                assert!(
                    row.places.contains(&TablePlace::Key),
                    "{word} in {table:?} has two rows"
                );
                continue;
            }
            let mut file = good_file();
            let lines = file.entry(table.unwrap_or_default()).or_default();
            lines.insert((*word).to_owned(), "5".to_owned());
            let report = parse("gateway.toml", &file_text(&file)).unwrap_err();
            let help = found.advice(vocabulary);
            let helps = report
                .diagnostics
                .iter()
                .filter_map(|one| one.help.as_deref());
            assert_eq!(
                helps.filter(|one| *one == help).count(),
                1,
                "{word}: {help}\n{}",
                report.human(Colour::Off)
            );
            assert_eq!(report.errors(), 1, "{}", report.human(Colour::Off));
        }
    }
}

#[test]
fn a_table_of_others_means_only_a_table_that_its_advice_offers() {
    for row in all_settings() {
        for word in row.words {
            if !row.places.contains(&TablePlace::Top) || table_named(word).is_some() {
                continue;
            }
            let found = ForeignName::find(None, word).unwrap();
            let table = format!("[{word}.sso]\nupstream = \"orders\"\npath = \"/sso\"\n");
            let text = format!("{}{table}", file_text(&good_file()));
            let report = parse("gateway.toml", &text).unwrap_err();
            let help = report.diagnostics[0].help.clone().unwrap_or_default();
            let is_offered = row.offers.iter().any(|offer| offer.table == "routes");
            if is_offered {
                assert_eq!(help, "did you mean `routes`?", "{word}");
            } else {
                assert_eq!(help, found.advice(None), "{word}");
            }
            assert_eq!(report.errors(), 1, "{}", report.human(Colour::Off));
        }
    }
}

/// The line of a value, in a table inside its table where the key is of such a table.
fn line_of((table, key): KeyPlace, value: &str) -> (String, String) {
    match (table, key) {
        ("upstreams", "by") => ("balance".to_owned(), format!("{{ by = \"{value}\" }}")),
        ("upstreams", "url") => (
            "servers".to_owned(),
            format!("{{ url = \"{value}\", weight = 2 }}"),
        ),
        _ => (key.to_owned(), format!("\"{value}\"")),
    }
}

/// A good file with the line of a value, and with the keys that the value needs.
fn with_value(place: KeyPlace, value: &str) -> String {
    let mut file = good_file();
    let (table, key) = place;
    if table == "groups" {
        let lines = file.entry(table).or_default();
        let member = match value {
            "ip" => "192.0.2.1",
            "basic" => "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            _ => "anna",
        };
        lines.insert("members".to_owned(), format!("\"{member}\""));
        let limits = file.entry("limits").or_default();
        limits.insert(
            "tiers".to_owned(),
            "{ gold = { rate = \"5/s\" } }".to_owned(),
        );
    }
    let lines = file.entry(table).or_default();
    let (name, line) = line_of(place, value);
    lines.insert(name, line);
    match place {
        ("limits", "by") if value != "ip" => {
            lines.insert("missing".to_owned(), "\"refuse\"".to_owned());
            if value == "customer" {
                let groups = file.entry("groups").or_default();
                groups.insert("by".to_owned(), "\"header:x-api-key\"".to_owned());
                groups.insert("customers".to_owned(), "{ acme = \"k\" }".to_owned());
            }
        }
        ("limits", "missing") => {
            lines.insert("by".to_owned(), "\"header:x-user\"".to_owned());
        }
        ("limits", "unknown") => {
            lines.insert("by".to_owned(), "\"header:x-user\"".to_owned());
            lines.insert("missing".to_owned(), "\"refuse\"".to_owned());
            let groups = file.entry("groups").or_default();
            groups.insert("by".to_owned(), "\"header:x-user\"".to_owned());
            groups.insert("members".to_owned(), "\"anna\"".to_owned());
        }
        _ => {}
    }
    if key == "on_down" {
        let store = file.entry("store").or_default();
        store.insert("url".to_owned(), "\"redis://127.0.0.1\"".to_owned());
    }
    let mut text = file_text(&file);
    if value == "customer" {
        text += "[groups.keys]\nby = \"header:x-api-key\"\ncustomers = { anna = \"key-1\" }\n";
    }
    text
}

#[test]
fn every_value_is_answered_and_what_is_offered_can_be_read() {
    let all = VALUES.iter().flat_map(|row| {
        let places = row.places.iter();
        places.flat_map(move |place| row.words.iter().map(move |word| (row, *place, *word)))
    });
    for (row, place, word) in all {
        let written = word.replace('*', "x_user");
        let report = parse("gateway.toml", &with_value(place, &written)).unwrap_err();
        let shown = report.human(Colour::Off);
        let mut errors = report.diagnostics.iter();
        let error = errors.find(|one| one.severity == Severity::Error).unwrap();
        let help = error.help.clone().unwrap_or_default();
        assert_eq!(report.errors(), 1, "{shown}");
        let Some(offer) = row.offer else {
            assert_eq!(help, row.about, "{shown}");
            continue;
        };
        let is_field = offer.starts_with("header");
        let tail = if is_field { "x-user" } else { "x_user" };
        let offer = offer.replace('*', tail);
        let advice = format!("write `\"{offer}\"`");
        assert!(help.ends_with(&advice), "{word} in {place:?}: {shown}");
        let text = with_value(place, &offer);
        let good = parse("gateway.toml", &text);
        let errors = good.err().map(|report| report.human(Colour::Off));
        assert!(errors.is_none(), "{text}{}", errors.unwrap_or_default());
    }
}

#[test]
fn a_near_word_is_found_where_no_word_of_others_is() {
    for (table, word, meant) in [
        ("limits", "brust", "burst"),
        ("routes", "pth", "path"),
        ("upstreams", "server", "servers"),
    ] {
        let mut file = good_file();
        let lines = file.entry(table).or_default();
        lines.insert(word.to_owned(), "5".to_owned());
        let report = parse("gateway.toml", &file_text(&file)).unwrap_err();
        let help = report
            .diagnostics
            .iter()
            .find_map(|one| one.help.clone())
            .unwrap();
        assert!(
            help.starts_with(&format!("did you mean `{meant}`?")),
            "{help}"
        );
    }
}

#[test]
fn variables_of_others_and_names_with_a_dot_are_answered() {
    for (value, help) in [
        (
            "http://$BACKEND",
            "a variable of the environment is written `${BACKEND}`",
        ),
        (
            "http://{$BACKEND}",
            "a variable of the environment is written `${BACKEND}`",
        ),
        (
            "http://{{ backend }}",
            "a variable of the environment is written `${backend}`",
        ),
        (
            "http://{env.BACKEND}",
            "a variable of the environment is written `${BACKEND}`",
        ),
    ] {
        let mut file = good_file();
        let lines = file.entry("upstreams").or_default();
        lines.insert("servers".to_owned(), format!("\"{value}\""));
        let report = parse("gateway.toml", &file_text(&file)).unwrap_err();
        assert_eq!(report.diagnostics[0].help.as_deref(), Some(help), "{value}");
    }
}

#[test]
fn a_variable_that_stands_for_something_else_is_not_the_environments() {
    let help_of = |table: &'static str, key: &str, value: &str| {
        let mut file = good_file();
        let lines = file.entry(table).or_default();
        lines.insert(key.to_owned(), format!("\"{value}\""));
        let report = parse("gateway.toml", &file_text(&file)).unwrap_err();
        report.diagnostics[0].help.clone().unwrap_or_default()
    };
    let help = help_of("limits", "by", "$server_name");
    assert!(!help.contains("environment"), "{help}");
    let help = help_of("routes", "rewrite", "/v2/$1/{x");
    assert!(help.starts_with("a part of the path has a name"), "{help}");
    let help = help_of("routes", "host", "$1.example");
    assert!(!help.contains("a part of the path"), "{help}");
}

#[test]
fn a_name_with_a_dot_is_one_mistake() {
    for (table, helps) in [
        (
            "[routes.a.b]\nupstream = \"orders\"\n",
            &["a name has no dot: write `[routes.a-b]`"][..],
        ),
        (
            "[limits.a.b]\nby = \"ip\"\nrate = \"1/s\"\n[limits.a.c]\nby = \"ip\"\nrate = \"1/s\"\n\
             [routes.x]\npath = \"/x\"\nupstream = \"orders\"\nlimits = [\"a.b\", \"a\"]\n",
            &[
                "a name has no dot: write `[limits.a-b]`",
                "a name has no dot: write `[limits.a-c]`",
            ],
        ),
    ] {
        let text = format!("{}{table}", file_text(&good_file()));
        let report = parse("gateway.toml", &text).unwrap_err();
        let shown = report.human(Colour::Off);
        assert_eq!(report.errors(), helps.len(), "{shown}");
        let all = report.diagnostics.iter();
        let all: Vec<&str> = all.filter_map(|one| one.help.as_deref()).collect();
        assert_eq!(all, helps, "{shown}");
    }
}
