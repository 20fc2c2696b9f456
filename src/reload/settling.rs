//! Files that lose what restricts: for a moment, while they are written, or for good.

use super::tests::{Watched, folder, replace, text};
use super::*;
use std::fs;
use std::io::Write as _;

const DEFAULTS: &str = "[defaults]\nlimits = [\"d\"]\n";

/// A file with a limit for every request at its end, and one without.
fn halves(rate: &str) -> (String, String) {
    let first = format!("{}[limits.d]\nby = \"ip\"\nrate = \"3/h\"\n", text(rate));
    let whole = format!("{first}{DEFAULTS}");
    (first, whole)
}

#[tokio::test]
async fn a_file_that_is_written_in_two_steps_never_loses_its_second_half() {
    let (_folder, file) = folder();
    fs::write(&file, halves("1/s").1).unwrap();
    let mut watched = Watched::start(&file);
    let (first, _) = halves("2/s");
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
    fs::write(&file, halves("1/s").1).unwrap();
    let mut watched = Watched::start(&file);
    let begun = clock::now();
    replace(&file, &halves("2/s").0);
    watched.becomes("2/s").await;
    assert!(begun.elapsed() >= SETTLE + SETTLE_LESS);
    // Nothing is taken away now.
    replace(&file, &halves("3/s").1);
    watched.becomes("3/s").await;
}

/// A file beside that changes all the time keeps a removal from settling. A signal takes it as it is.
#[tokio::test]
async fn a_signal_takes_at_once_what_does_not_settle() {
    let (folder, file) = folder();
    let secret = folder.path().join("password");
    fs::write(&secret, "0").unwrap();
    let store = "[store]\nurl = \"redis://h\"\npassword = { file = \"password\" }\n";
    let with_store = |text: &str| format!("{store}{text}");
    fs::write(&file, with_store(&halves("1/s").1)).unwrap();
    let mut watched = Watched::start(&file);
    replace(&file, &with_store(&halves("2/s").0));
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

#[test]
fn what_restricts_is_told_by_its_name() {
    let outline = |text: &str| config::parse("gateway.toml", text).unwrap().outline;
    let base = "[groups.g]\nby = \"header:x-api-key\"\nmembers = [\"a-long-secret-key\"]\n\
        [limits.a]\nby = \"ip\"\nrate = \"1/s\"\n[limits.b]\nby = \"ip\"\nrate = \"2/s\"\n\
        [upstreams.u]\nservers = \"a:1\"\nlimits = [\"b\"]\n\
        [routes.r]\npath = \"/r\"\nclient_cert = \"required\"\nupstream = \"u\"\nlimits = [\"a\"]\n[routes.s]\nupstream = \"u\"\ngroups = [\"g\"]\n";
    let defaults = "[defaults]\nlimits = [\"a\"]\n";
    let old = outline(&format!("{base}{defaults}"));
    let told = |new: &str| config::diff::taken_away(&old, &outline(new));
    for (new, expected) in [
        (format!("{base}{defaults}"), None),
        (base.to_owned(), Some("limit `a` of `[defaults]`")),
        (
            format!("{base}{defaults}").replace("limits = [\"b\"]\n", "limits = []\n"),
            Some("limit `b` of route `r`"),
        ),
        (
            format!("{base}{defaults}").replace("[routes.r]", "[routes.t]"),
            Some("route `r`"),
        ),
        (
            format!("{base}{defaults}").replace("groups = [\"g\"]\n", ""),
            Some("`groups` of route `s`"),
        ),
        (
            format!("{base}{defaults}").replace("client_cert = \"required\"\n", ""),
            Some("`client_cert` of route `r`"),
        ),
        (
            format!("{base}{defaults}").replace("rate = \"1/s\"", "rate = \"9/s\""),
            None,
        ),
    ] {
        assert_eq!(told(&new).as_deref(), expected, "{new}");
    }
}
