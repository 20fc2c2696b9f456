//! Real files in a real folder, changed in all the ways that editors and orchestrators use.

mod settling;

use super::*;
use std::fs;
use std::path::Path;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The outcome of a change: the installed rate, or `None` if the change was refused.
type Taken = Option<String>;

struct Record {
    outcomes: mpsc::Sender<Taken>,
    in_force: Option<Arc<Outline>>,
}

impl Record {
    fn telling(outcomes: mpsc::Sender<Taken>) -> Self {
        Self {
            outcomes,
            in_force: None,
        }
    }
}

impl ReloadTarget for Record {
    async fn apply(&mut self, compiled: Compiled) {
        let rate = config::describe::rate(&compiled.outline.limits[0]);
        self.in_force = Some(compiled.outline);
        self.outcomes.send(Some(rate)).await.unwrap();
    }

    fn in_force(&self) -> Option<&Arc<Outline>> {
        self.in_force.as_ref()
    }

    fn refused(&mut self, _: &Report) {
        self.outcomes.try_send(None).unwrap();
    }
}

pub(super) struct Watched {
    outcomes: mpsc::Receiver<Taken>,
    pub(super) trigger: Trigger,
}

impl Watched {
    pub(super) fn start(file: &Path) -> Self {
        let trigger = Trigger::default();
        let (sender, outcomes) = mpsc::channel(64);
        let Compiled {
            files,
            identities,
            outline,
            ..
        } = config::load(file).unwrap();
        let watcher = Watcher::new(file.to_owned(), files, identities, trigger.clone());
        let record = Record {
            in_force: Some(outline),
            ..Record::telling(sender)
        };
        tokio::spawn(watcher.run(record));
        Self { outcomes, trigger }
    }

    async fn next(&mut self) -> Taken {
        // The wait is well below the 30 s of readings without events: an event must have caused it.
        timeout(Duration::from_secs(10), self.outcomes.recv())
            .await
            .expect("an outcome in time")
            .unwrap()
    }

    pub(super) async fn becomes(&mut self, rate: &str) {
        assert_eq!(self.next().await.as_deref(), Some(rate));
    }

    pub(super) fn is_quiet(&mut self) -> bool {
        self.outcomes.try_recv().is_err()
    }
}

pub(super) fn file_text(rate: &str) -> String {
    format!(
        "[limits.l]\nby = \"ip\"\nrate = \"{rate}\"\n[upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = \"l\"\n"
    )
}

pub(super) fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    fs::write(&file, file_text("1/s")).unwrap();
    (folder, file)
}

/// Replaces a file as editors save it: written under another name, then renamed over the file.
pub(super) fn replace(file: &Path, content: &str) {
    let swap_file = file.with_extension("swp");
    fs::write(&swap_file, content).unwrap();
    fs::rename(&swap_file, file).unwrap();
}

#[tokio::test]
async fn a_rename_over_the_file_is_seen_every_time() {
    let (_folder, file) = folder();
    let mut watched = Watched::start(&file);
    for rate in ["2/s", "3/s", "4/s"] {
        replace(&file, &file_text(rate));
        watched.becomes(rate).await;
    }
}

#[tokio::test]
async fn a_write_in_place_is_seen() {
    let (_folder, file) = folder();
    let mut watched = Watched::start(&file);
    for rate in ["2/s", "3/s"] {
        fs::write(&file, file_text(rate)).unwrap();
        watched.becomes(rate).await;
    }
}

#[tokio::test]
async fn a_file_is_taken_when_it_has_stopped_growing() {
    use std::io::Write as _;
    let (_folder, file) = folder();
    let mut watched = Watched::start(&file);
    let whole = file_text("5/s");
    let mut open = fs::File::create(&file).unwrap();
    for piece in whole.as_bytes().chunks(20) {
        open.write_all(piece).unwrap();
        open.flush().unwrap();
        // The writer is slower than one reading and faster than two.
        sleep(SETTLE / 4).await;
    }
    drop(open);
    // A reading may fall between two pieces on a slow machine; the whole file is installed at the end.
    loop {
        if let Some(rate) = watched.next().await {
            assert_eq!(rate, "5/s");
            break;
        }
    }
}

#[tokio::test]
async fn a_file_that_never_rests_is_taken_all_the_same() {
    let (_folder, file) = folder();
    let mut watched = Watched::start(&file);
    let writer = tokio::spawn(async move {
        for number in 2.. {
            replace(&file, &file_text(&format!("{number}/s")));
            sleep(SETTLE / 5).await;
        }
    });
    assert!(watched.next().await.is_some());
    assert!(!writer.is_finished());
    writer.abort();
}

#[tokio::test]
async fn a_swapped_link_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let version = |name: &str, rate: &str| {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(
            folder.path().join(name).join("gateway.toml"),
            file_text(rate),
        )
        .unwrap();
    };
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
    };
    version("..1", "1/s");
    link("..1", "..data");
    link("..data/gateway.toml", "gateway.toml");
    let mut watched = Watched::start(&folder.path().join("gateway.toml"));
    for (old, new, rate) in [("..1", "..2", "2/s"), ("..2", "..3", "3/s")] {
        version(new, rate);
        link(new, "..data_tmp");
        fs::rename(
            folder.path().join("..data_tmp"),
            folder.path().join("..data"),
        )
        .unwrap();
        fs::remove_dir_all(folder.path().join(old)).unwrap();
        watched.becomes(rate).await;
    }
}

#[tokio::test]
async fn a_swapped_folder_on_the_way_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    for (name, rate) in [("old", "1/s"), ("new", "2/s")] {
        fs::create_dir_all(folder.path().join("releases").join(name)).unwrap();
        let file = folder
            .path()
            .join("releases")
            .join(name)
            .join("gateway.toml");
        fs::write(file, file_text(rate)).unwrap();
    }
    let current = folder.path().join("current");
    std::os::unix::fs::symlink("releases/old", &current).unwrap();
    let mut watched = Watched::start(&current.join("gateway.toml"));
    let next = folder.path().join("next");
    std::os::unix::fs::symlink("releases/new", &next).unwrap();
    fs::rename(&next, &current).unwrap();
    watched.becomes("2/s").await;
}

#[tokio::test]
async fn the_target_of_a_link_is_watched_where_it_is() {
    let (_target, file) = folder();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("linked.toml");
    std::os::unix::fs::symlink(&file, &path).unwrap();
    let mut watched = Watched::start(&path);
    replace(&file, &file_text("2/s"));
    watched.becomes("2/s").await;
}

#[tokio::test]
async fn a_file_that_goes_away_is_reported_and_taken_when_it_is_back() {
    let (_folder, file) = folder();
    let mut watched = Watched::start(&file);
    // The first change shows that the watch is active before the file is removed.
    replace(&file, &file_text("2/s"));
    watched.becomes("2/s").await;
    fs::remove_file(&file).unwrap();
    assert_eq!(watched.next().await, None);
    fs::write(&file, file_text("3/s")).unwrap();
    loop {
        // The file is created empty, then written: a reading may fall between.
        if let Some(rate) = watched.next().await {
            assert_eq!(rate, "3/s");
            break;
        }
    }
}

#[tokio::test]
async fn a_folder_that_goes_away_is_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("etc");
    let file = inner.join("gateway.toml");
    fs::create_dir(&inner).unwrap();
    fs::write(&file, file_text("1/s")).unwrap();
    let mut watched = Watched::start(&file);
    replace(&file, &file_text("2/s"));
    watched.becomes("2/s").await;
    for rate in ["3/s", "4/s"] {
        fs::remove_dir_all(&inner).unwrap();
        assert_eq!(watched.next().await, None);
        fs::create_dir(&inner).unwrap();
        replace(&file, &file_text(rate));
        watched.becomes(rate).await;
    }
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_is_told_once() {
    let (_folder, file) = folder();
    let mut watched = Watched::start(&file);
    replace(&file, &file_text("2/fortnight"));
    assert_eq!(watched.next().await, None);
    watched.trigger.pull();
    replace(&file, &file_text("3/s"));
    watched.becomes("3/s").await;
    assert!(watched.is_quiet());
}

#[tokio::test]
async fn asking_for_the_same_file_changes_nothing() {
    let (_folder, file) = folder();
    let mut watched = Watched::start(&file);
    watched.trigger.pull();
    replace(&file, &file_text("1/s"));
    replace(&file, &file_text("2/s"));
    watched.becomes("2/s").await;
    assert!(watched.is_quiet());
}

#[tokio::test]
async fn a_change_before_the_watch_began_is_seen() {
    let (_folder, file) = folder();
    let (sender, mut outcomes) = mpsc::channel(4);
    let before = Files::with_content(&file, file_text("7/s").as_bytes());
    let watcher = Watcher::new(file, before, Arc::default(), Trigger::default());
    tokio::spawn(watcher.run(Record::telling(sender)));
    let outcome = timeout(Duration::from_secs(10), outcomes.recv())
        .await
        .unwrap();
    assert_eq!(outcome.unwrap().as_deref(), Some("1/s"));
}

#[tokio::test]
async fn a_secret_beside_the_file_is_watched() {
    let (folder, file) = folder();
    let secret = folder.path().join("password");
    fs::write(&secret, "one").unwrap();
    let store = "[store]\nurl = \"redis://h\"\npassword = { file = \"password\" }\n";
    fs::write(&file, format!("{store}{}", file_text("1/s"))).unwrap();
    let mut watched = Watched::start(&file);
    replace(&secret, "two");
    watched.becomes("1/s").await;
    fs::remove_file(&secret).unwrap();
    assert_eq!(watched.next().await, None);
    replace(&secret, "three");
    watched.becomes("1/s").await;
}

#[tokio::test]
async fn a_file_that_is_named_by_a_change_is_watched_from_then_on() {
    let (folder, file) = folder();
    let mut watched = Watched::start(&file);
    let elsewhere = folder.path().join("secrets");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("password"), "one").unwrap();
    let store = "[store]\nurl = \"redis://h\"\npassword = { file = \"secrets/password\" }\n";
    replace(&file, &format!("{store}{}", file_text("2/s")));
    watched.becomes("2/s").await;
    replace(&elsewhere.join("password"), "two");
    watched.becomes("2/s").await;
}

/// A file that includes all files in `routes.d`, and the text of one of them.
fn spread(folder: &Path) -> (PathBuf, impl Fn(&str) -> String) {
    let file = folder.join("gateway.toml");
    let main = "include = [{ files = \"routes.d/*.toml\", upstreams = [\"u\"] }]\n[upstreams.u]\nservers = \"a:1\"\n";
    fs::write(&file, main).unwrap();
    let part = |rate: &str| {
        format!(
            "[limits.l]\nby = \"ip\"\nrate = \"{rate}\"\n[routes.r]\nupstream = \"u\"\nlimits = \"l\"\n"
        )
    };
    (file, part)
}

#[tokio::test]
async fn included_files_are_watched_and_new_ones_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let (file, part) = spread(folder.path());
    let inner = folder.path().join("routes.d");
    fs::create_dir(&inner).unwrap();
    let orders = inner.join("orders.toml");
    fs::write(&orders, part("1/s")).unwrap();
    let mut watched = Watched::start(&file);
    replace(&orders, &part("2/s"));
    watched.becomes("2/s").await;
    let more = "[routes.more]\npath = \"/more\"\nupstream = \"u\"\n";
    replace(&inner.join("more.toml"), more);
    watched.becomes("2/s").await;
    replace(&inner.join("clash.toml"), more);
    assert_eq!(watched.next().await, None, "a name in two files");
    fs::remove_file(inner.join("clash.toml")).unwrap();
    watched.becomes("2/s").await;
    fs::write(inner.join("notes.txt"), "no part of it").unwrap();
    replace(&orders, &part("3/s"));
    watched.becomes("3/s").await;
    assert!(watched.is_quiet());
}

#[tokio::test]
async fn a_folder_of_included_files_that_is_swapped_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let (file, part) = spread(folder.path());
    let version = |name: &str, rate: &str| {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("orders.toml"), part(rate)).unwrap();
    };
    version("v1", "1/s");
    version("v2", "2/s");
    let link = |to: &str| {
        std::os::unix::fs::symlink(to, folder.path().join("next")).unwrap();
        fs::rename(folder.path().join("next"), folder.path().join("routes.d")).unwrap();
    };
    link("v1");
    let mut watched = Watched::start(&file);
    link("v2");
    watched.becomes("2/s").await;
    replace(&folder.path().join("v2/orders.toml"), &part("3/s"));
    watched.becomes("3/s").await;
}

#[tokio::test]
async fn a_folder_of_included_files_may_come_later() {
    let folder = tempfile::tempdir().unwrap();
    let (file, part) = spread(folder.path());
    fs::write(&file, file_text("1/s")).unwrap();
    let mut watched = Watched::start(&file);
    let (_, _) = spread(folder.path());
    assert_eq!(watched.next().await, None, "there are no routes yet");
    fs::create_dir(folder.path().join("routes.d")).unwrap();
    fs::write(folder.path().join("routes.d/orders.toml"), part("2/s")).unwrap();
    loop {
        if let Some(rate) = watched.next().await {
            assert_eq!(rate, "2/s");
            break;
        }
    }
}

#[tokio::test]
async fn without_events_everything_is_read_from_time_to_time() {
    let (folder, file) = folder();
    let secret = folder.path().join("password");
    fs::write(&secret, "one").unwrap();
    let store = "[store]\nurl = \"redis://h\"\npassword = { file = \"password\" }\n";
    fs::write(&file, format!("{store}{}", file_text("1/s"))).unwrap();
    let trigger = Trigger::default();
    let (sender, outcomes) = mpsc::channel(64);
    let files = config::load(&file).unwrap().files;
    let watcher = Watcher {
        has_events: false,
        interval: Duration::from_millis(20),
        ..Watcher::new(file.clone(), files, Arc::default(), trigger.clone())
    };
    tokio::spawn(watcher.run(Record::telling(sender)));
    let mut watched = Watched { outcomes, trigger };
    replace(&file, &format!("{store}{}", file_text("2/s")));
    watched.becomes("2/s").await;
    replace(&secret, "two");
    watched.becomes("2/s").await;
    fs::remove_file(&secret).unwrap();
    assert_eq!(watched.next().await, None);
}
