//! Files that lose restrictions: for a moment, while they are written, or for good.

use super::{Watched, file_text, folder, replace};
use crate::reload::*;
use std::fs;
use std::io::Write as _;

const DEFAULTS: &str = "[defaults]\nlimits = [\"d\"]\n";

/// A file with a limit for every request at its end, and one without.
fn file_versions(rate: &str) -> (String, String) {
    let first = format!(
        "{}[limits.d]\nby = \"ip\"\nrate = \"3/h\"\n",
        file_text(rate)
    );
    let whole = format!("{first}{DEFAULTS}");
    (first, whole)
}

#[tokio::test]
async fn a_file_that_is_written_in_two_steps_never_loses_its_second_half() {
    let (_folder, file) = folder();
    fs::write(&file, file_versions("1/s").1).unwrap();
    let mut watched = Watched::start(&file);
    let (first, _) = file_versions("2/s");
    fs::write(&file, first).unwrap();
    // The writer takes its time.
    sleep(Duration::from_millis(400)).await;
    assert!(watched.is_quiet());
    let mut open = fs::OpenOptions::new().append(true).open(&file).unwrap();
    open.write_all(DEFAULTS.as_bytes()).unwrap();
    drop(open);
    watched.becomes("2/s").await;
    assert!(watched.is_quiet());
}

#[tokio::test]
async fn what_is_taken_away_for_good_is_gone_half_a_second_later() {
    let (_folder, file) = folder();
    fs::write(&file, file_versions("1/s").1).unwrap();
    let mut watched = Watched::start(&file);
    let begun = clock::now();
    replace(&file, &file_versions("2/s").0);
    watched.becomes("2/s").await;
    assert!(begun.elapsed() >= SETTLE + SETTLE_LESS);
    // This is the thread of all other control work, which continues while long lists are compared.
    assert_eq!(config::diff::COMPARED.get(), 0);
    // This change removes no restriction.
    replace(&file, &file_versions("3/s").1);
    watched.becomes("3/s").await;
}

/// Another file that changes all the time keeps a removal from settling. A signal installs the file as it is.
#[tokio::test]
async fn a_signal_takes_at_once_what_does_not_settle() {
    let (folder, file) = folder();
    let secret = folder.path().join("password");
    fs::write(&secret, "0").unwrap();
    let store = "[store]\nurl = \"redis://h\"\npassword = { file = \"password\" }\n";
    let with_store = |text: &str| format!("{store}{text}");
    fs::write(&file, with_store(&file_versions("1/s").1)).unwrap();
    let mut watched = Watched::start(&file);
    replace(&file, &with_store(&file_versions("2/s").0));
    let writing = tokio::spawn(async move {
        for n in 1.. {
            fs::write(&secret, n.to_string()).unwrap();
            sleep(SETTLE_LESS / 5).await;
        }
    });
    sleep(SETTLE_LESS * 3).await;
    assert!(watched.is_quiet());
    watched.trigger.pull();
    watched.becomes("2/s").await;
    writing.abort();
}

/// A team that has removed one of its routes and keeps writing its file does not delay the operator's new limit.
#[tokio::test]
async fn what_never_settles_is_taken_over_after_a_while() {
    let (folder, file) = folder();
    let team = folder.path().join("team.toml");
    let with_team = |rate: &str| format!("include = \"team.toml\"\n{}", file_text(rate));
    fs::write(&file, with_team("1/s")).unwrap();
    let team_text =
        "[upstreams.t]\nservers = \"b:1\"\n[routes.t]\npath = \"/t\"\nupstream = \"t\"\n";
    fs::write(&team, team_text).unwrap();
    let mut watched = Watched::start(&file);
    let begun = clock::now();
    let writing = tokio::spawn(async move {
        for n in 0.. {
            replace(&team, &format!("# {n}\n"));
            sleep(SETTLE_LESS * 3 / 5).await;
        }
    });
    replace(&file, &with_team("2/s"));
    sleep(NOT_SETTLED / 2).await;
    assert!(watched.is_quiet());
    watched.becomes("2/s").await;
    assert!(begun.elapsed() >= NOT_SETTLED);
    writing.abort();
}

/// A removal waits, for every kind of key; a changed number is installed at once.
#[test]
fn what_is_taken_away_is_told_by_its_key() {
    let outline = |text: &str| config::parse("gateway.toml", text).unwrap().outline;
    let old = "[groups.g]\nby = \"header:x-api-key\"\nmembers = [\"a-long-secret-key\", \"another-secret-key\"]\n\
        [limits.a]\nby = \"header:x-api-key\"\nmissing = \"refuse\"\nunknown = \"ip\"\nrate = \"1/s\"\n\
        tiers.g = { rate = \"1/h\" }\n\
        [limits.b]\nby = \"ip\"\nrate = \"2/s\"\nburst = 5\n[limits.c]\nby = \"ip\"\nrate = [\"1/s\", \"9/h\"]\n\
        [upstreams.u]\nservers = [\"a:1\", \"b:1\"]\nlimits = [\"b\"]\n\
        [routes.r]\nhost = [\"a.example\", \"b.example\"]\npath = \"/r\"\nmethods = [\"GET\"]\nheaders = { x-a = \"b\" }\n\
        upstream = \"u\"\nlimits = [\"a\"]\nforward_identity = { x-user = \"{group}\" }\n\
        [routes.s]\nupstream = \"u\"\ngroups = [\"g\"]\n[defaults]\nlimits = [\"b\"]\n";
    let before = outline(old);
    for (from, to, expected) in [
        ("", "", None),
        ("\"1/s\"", "\"7/s\"", None),
        ("burst = 5", "burst = 9", None),
        ("limits = [\"a\"]", "limits = [\"a\", \"b\"]", None),
        ("[defaults]\nlimits = [\"b\"]\n", "", Some("`defaults`")),
        (
            "[defaults]\nlimits = [\"b\"]\n",
            "[defaults]\nlimits = []\n",
            Some("the value of `defaults.limits`"),
        ),
        (
            "1\"]\nlimits = [\"b\"]\n",
            "1\"]\n",
            Some("`upstreams.u.limits`"),
        ),
        ("[routes.s]", "[routes.t]", Some("`routes.s`")),
        ("groups = [\"g\"]\n", "", Some("`routes.s.groups`")),
        (
            "forward_identity = { x-user = \"{group}\" }\n",
            "",
            Some("`routes.r.forward_identity`"),
        ),
        ("unknown = \"ip\"\n", "", Some("`limits.a.unknown`")),
        ("burst = 5\n", "", Some("`limits.b.burst`")),
        (", \"9/h\"", "", Some("an entry of `limits.c.rate`")),
        (
            "tiers.g = { rate = \"1/h\" }\n",
            "",
            Some("`limits.a.tiers`"),
        ),
        ("methods = [\"GET\"]\n", "", Some("`routes.r.methods`")),
        (
            "headers = { x-a = \"b\" }\n",
            "",
            Some("`routes.r.headers`"),
        ),
        (", \"b.example\"", "", Some("an entry of `routes.r.host`")),
        (
            "path = \"/r\"",
            "path = \"/{*rest}\"",
            Some("the value of `routes.r.path`"),
        ),
        (
            ", \"another-secret-key\"",
            "",
            Some("an entry of `groups.g.members`"),
        ),
    ] {
        let new = old.replacen(from, to, 1);
        let taken_away = config::diff::taken_away(&before, &outline(&new));
        assert_eq!(taken_away.as_deref(), expected, "{new}");
    }
}

/// Members are mostly in files.
#[test]
fn a_member_that_its_file_loses_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let [file, members] = ["gateway.toml", "members"].map(|name| folder.path().join(name));
    let text = "[groups.g]\nby = \"header:x-api-key\"\nfile = \"members\"\n\
        [limits.a]\nby = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"9/s\"\ntiers.g = { rate = \"1/h\" }\n\
        [upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = [\"a\"]\n";
    fs::write(&file, text).unwrap();
    let outline = |listed: &str| {
        fs::write(&members, listed).unwrap();
        config::load(&file).unwrap().outline
    };
    let (two, one) = (outline("first-key\nsecond-key\n"), outline("second-key\n"));
    let found = config::diff::taken_away(&two, &one);
    assert_eq!(found.as_deref(), Some("a member of group `g`"));
    assert_eq!(config::diff::taken_away(&one, &two), None);
}
