//! The fixtures under tests/config: every valid file compiles, and every invalid file yields exactly the report next to
//! it. With `UPDATE` set the reports are written instead of compared.

use super::document::TABLES;
use super::document::vocabulary::{Default, Key, ValueShape};
use super::report::render::Colour;
use super::{Code, parse};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Whether the long form of the tests was requested.
pub(super) fn long() -> bool {
    std::env::var_os("TOLLGATE_LONG").is_some_and(|value| !value.is_empty() && value != "0")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = root().join("tests/config").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// Sets the modes of identity keys as on a well-kept machine: only `open.key` is readable by every user.
pub(super) fn set_modes_of_keys() {
    for entry in fs::read_dir(root().join("tests/config/tls")).unwrap() {
        let path = entry.unwrap().path();
        let is_open = path.ends_with("open.key");
        if path.extension().is_some_and(|extension| extension == "key") {
            let mode = if is_open { 0o644 } else { 0o600 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

#[test]
fn every_valid_file_compiles_without_a_warning() {
    set_modes_of_keys();
    let mut all = files("valid");
    all.push(root().join("gateway.toml"));
    all.push(root().join("deploy/api-keys.toml"));
    for path in all {
        match super::load(&path) {
            Ok(compiled) => assert!(
                compiled.warnings.is_empty(),
                "{}",
                compiled.report().human(Colour::Off)
            ),
            Err(report) => panic!("{}", report.human(Colour::Off)),
        }
    }
}

/// The pages about customers have files that are valid and cause no warning.
#[test]
fn every_example_of_customers_is_good() {
    for (page, file) in [
        (include_str!("../../docs/plans.md"), "gold.txt"),
        (include_str!("../../docs/rotation.md"), "new.txt"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let blocks = |kind: &str| -> Vec<&str> {
            let mark = format!("```{kind}\n");
            let blocks = page.split(mark.as_str()).skip(1);
            blocks.filter_map(|rest| rest.split("```").next()).collect()
        };
        for (name, text) in ["keys.txt", file, "own-day.txt"].iter().zip(blocks("text")) {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let path = folder.path().join("gateway.toml");
        fs::write(&path, blocks("toml")[0]).unwrap();
        match super::load(&path) {
            Ok(compiled) => {
                let report = compiled.report().human(Colour::Off);
                assert!(compiled.warnings.is_empty(), "{report}");
            }
            Err(report) => panic!("{}", report.human(Colour::Off)),
        }
    }
}

/// The manual's examples of groups and tokens are valid and cause no warning.
#[test]
fn every_example_of_who_is_counted_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let manual = include_str!("../../docs/who-is-counted.md");
    for (from, to) in [
        ("deploy/gold-keys.txt", "gold-keys.txt"),
        ("tests/config/jwt/rsa.pem", "issuer.pem"),
    ] {
        fs::copy(root().join(from), folder.path().join(to)).unwrap();
    }
    let examples = manual.split("```toml\n").skip(1);
    let examples: Vec<&str> = examples
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert_eq!(examples.len(), 7);
    for example in examples {
        let limits = example
            .lines()
            .filter_map(|line| line.strip_prefix("[limits.")?.strip_suffix(']'));
        let limits: Vec<&str> = limits.collect();
        let text = format!(
            "{example}\n[upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = {limits:?}\n"
        );
        let path = folder.path().join("gateway.toml");
        fs::write(&path, text).unwrap();
        let report = match super::load(&path) {
            Ok(compiled) => compiled.report(),
            Err(report) => report,
        };
        assert!(
            report.diagnostics.is_empty(),
            "{}",
            report.human(Colour::Off)
        );
    }
}

/// The manual's examples of TLS, and the deployed file, are valid and cause no warning.
#[test]
fn every_example_of_tls_is_good() {
    set_modes_of_keys();
    let folder = tempfile::tempdir().unwrap();
    let sibling = folder.path().join("tls");
    fs::create_dir(&sibling).unwrap();
    for (from, to) in [
        ("api.pem", "api.pem"),
        ("api.key", "api.key"),
        ("shop.pem", "shop.pem"),
        ("shop.key", "shop.key"),
        ("authority.pem", "partners-ca.pem"),
    ] {
        let from = root().join("tests/config/tls").join(from);
        fs::copy(from, sibling.join(to)).unwrap();
    }
    let manual = include_str!("../../docs/tls.md");
    let examples = manual.split("```toml\n").skip(1);
    let examples = examples.filter_map(|rest| rest.split("```").next());
    let end = "\n[upstreams.u]\nservers = \"a:1\"\n[routes.r]\nclient_cert = \"none\"\nupstream = \"u\"\n";
    // An example is an excerpt or a whole file.
    let whole = |one: &str| format!("{one}{}", if one.contains("routes") { "" } else { end });
    let mut all: Vec<String> = examples.map(whole).collect();
    assert_eq!(all.len(), 7);
    all.push(include_str!("../../deploy/https.toml").to_owned());
    all.push(include_str!("../../deploy/acme.toml").to_owned());
    let secret = root().join("tests/config/valid/acme.secret");
    for text in all {
        let text = text.replace("/run/secrets/acme", secret.to_str().unwrap());
        let path = folder.path().join("gateway.toml");
        fs::write(&path, text).unwrap();
        let report = match super::load(&path) {
            Ok(compiled) => compiled.report(),
            Err(report) => report,
        };
        assert!(
            report.diagnostics.is_empty(),
            "{}",
            report.human(Colour::Off)
        );
    }
}

#[test]
fn every_invalid_file_yields_its_report() {
    let mut wrong = Vec::new();
    for path in files("invalid") {
        let text = String::from_utf8(fs::read(&path).unwrap()).unwrap();
        let report = match parse("gateway.toml", &text) {
            Ok(compiled) => compiled.report(),
            Err(report) => report,
        };
        let (found, sibling) = (report.human(Colour::Off), path.with_extension("report"));
        assert!(!report.diagnostics.is_empty(), "{}", path.display());
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&sibling, &found).unwrap();
        }
        if fs::read_to_string(&sibling).unwrap_or_default() != found {
            wrong.push(format!("{}\n{found}", path.display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "run the tests with UPDATE=1 and read the difference:\n{}",
        wrong.join("\n")
    );
}

/// Each folder has a `gateway.toml`, its included files, and the expected report.
#[test]
fn every_folder_of_files_yields_its_report() {
    set_modes_of_keys();
    let mut wrong = Vec::new();
    let all = root().join("tests/config/included");
    for folder in fs::read_dir(&all).unwrap() {
        let folder = folder.unwrap().path();
        let report = match super::load(&folder.join("gateway.toml")) {
            Ok(compiled) => compiled.report(),
            Err(report) => report,
        };
        let here = format!("{}/", folder.display());
        let found = report.human(Colour::Off).replace(&here, "");
        let sibling = folder.join("report");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&sibling, &found).unwrap();
        }
        if fs::read_to_string(&sibling).unwrap_or_default() != found {
            wrong.push(format!("{}\n{found}", folder.display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "run the tests with UPDATE=1 and read the difference:\n{}",
        wrong.join("\n")
    );
}

/// Messages and pages show examples of keys, and a default is read if a key is absent. So no example and no default may
/// be a mistake.
#[test]
fn every_example_and_every_default_of_a_key_can_be_read() {
    for table in TABLES {
        for key in table.keys {
            readable(&table.title("x"), "", key);
            for inner in key.shape().tables() {
                let (open, group) = match key.shape() {
                    ValueShape::Tiers(_) | ValueShape::Named(_) => {
                        (format!("{} = {{ g = {{ ", key.name), "} ")
                    }
                    ValueShape::Rate(_)
                    | ValueShape::KeyFiles(_)
                    | ValueShape::Servers(_)
                    | ValueShape::Listeners(_)
                    | ValueShape::Networks(_) => (format!("{} = [{{ ", key.name), ""),
                    _ => (format!("{} = {{ ", key.name), ""),
                };
                let close = match key.shape() {
                    ValueShape::Rate(_)
                    | ValueShape::KeyFiles(_)
                    | ValueShape::Servers(_)
                    | ValueShape::Listeners(_)
                    | ValueShape::Networks(_) => "}]",
                    _ => "}",
                };
                let open = format!("{}\n{open}", table.title("x"));
                for key in inner.keys {
                    readable(&open, &format!(" {group}{close}"), key);
                }
            }
        }
    }
}

fn readable(open: &str, close: &str, key: &Key) {
    let default = match key.default {
        Default::Value(value) => Some(value),
        _ => None,
    };
    for value in [Some(key.example), default].into_iter().flatten() {
        let line = if close.is_empty() { "\n" } else { "" };
        let front = format!("{open}{line}");
        let text = format!("{front}{} = {value}{close}\n", key.name);
        let Err(report) = parse("gateway.toml", &text) else {
            continue;
        };
        let place = front.len()..text.len() - close.len();
        let names = [
            Code::MissingKey,
            Code::UnaskedCertificate,
            Code::UnknownAuthority,
            Code::UnknownGroup,
            Code::UnknownLimit,
            Code::UnknownUpstream,
            Code::Unreadable,
            Code::Conflict,
            Code::UnreachableRoute,
        ];
        let wrong = report.diagnostics.iter().find(|one| {
            let primary = one.primary.as_ref();
            let here = primary.is_some_and(|at| place.contains(&at.span.start));
            here && !names.contains(&one.code)
        });
        assert!(wrong.is_none(), "{text}{wrong:?}");
    }
}

#[test]
fn the_smallest_file_that_is_shown_is_good() {
    let report = parse("gateway.toml", "").unwrap_err();
    let help = report.diagnostics[0].help.as_deref().unwrap();
    let (_, smallest) = help.split_once('\n').unwrap();
    assert!(parse("gateway.toml", smallest).is_ok(), "{smallest}");
}

#[test]
fn every_code_has_a_fixture() {
    let included = root().join("tests/config/included");
    let folders = fs::read_dir(included).unwrap();
    let reports = folders.map(|folder| folder.unwrap().path().join("report"));
    let files = files("invalid").into_iter();
    let all = files
        .map(|path| path.with_extension("report"))
        .chain(reports);
    let seen: BTreeSet<Code> = all
        .flat_map(|report| {
            let text = fs::read_to_string(report).unwrap_or_default();
            let code = |line: &str| {
                let rest = line
                    .strip_prefix("error[")
                    .or(line.strip_prefix("warning["))?;
                Code::named(rest.split_once(']')?.0)
            };
            text.lines().filter_map(code).collect::<Vec<_>>()
        })
        .collect();
    let missing: Vec<&Code> = Code::ALL
        .iter()
        .filter(|code| !seen.contains(code) && !code.is_found_later())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
