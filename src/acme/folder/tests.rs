//! The folder, on a disk.

use super::*;
use std::os::unix::fs::symlink;
use std::thread;
use std::time::{Duration, Instant};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn files_are_the_owners_alone_and_replaced_whole() {
    let root = tempfile::tempdir().unwrap();
    let folder = Folder::at(&root.path().join("deep/acme"));
    let lock = folder.lock().unwrap().unwrap();
    assert!(folder.lock().unwrap().is_none(), "a second one orders too");
    assert_eq!(folder.read(Part::Accounts, "a").unwrap(), None);
    // A process that was interrupted left this file behind, with careless permissions.
    let temporary = folder.path().join("accounts/a.json.new");
    fs::write(&temporary, "half").unwrap();
    for text in ["one", "two"] {
        folder.keep(Part::Accounts, "a", text).unwrap();
        let kept = folder.read(Part::Accounts, "a").unwrap();
        assert_eq!(kept.as_deref(), Some(text));
    }
    assert!(!temporary.exists());
    // A disk may lose bytes: a damaged file must not prevent new ones.
    fs::write(folder.path().join("accounts/a.json"), b"\xff\0").unwrap();
    let damaged = folder.read(Part::Accounts, "a").unwrap();
    assert_eq!(damaged.as_deref(), Some("\u{fffd}\0"));
    folder.keep(Part::Accounts, "a", "two").unwrap();
    assert_eq!(mode(folder.path()), 0o700);
    assert_eq!(mode(&folder.path().join("accounts")), 0o700);
    assert_eq!(mode(&folder.path().join("accounts/a.json")), 0o600);
    folder.forget(Part::Accounts, "a").unwrap();
    folder.forget(Part::Accounts, "a").unwrap();
    assert_eq!(folder.read(Part::Accounts, "a").unwrap(), None);
    drop(lock);
    // A process that another test is just forking has the lock's file open too, until its exec.
    let until = Instant::now() + Duration::from_secs(10);
    while folder.lock().unwrap().is_none() {
        assert!(Instant::now() < until, "the lock is free");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_folder_that_was_there_is_closed_unless_it_is_somebody_elses_too() {
    for (file, expected) in [(None, 0o700), (Some("index.html"), 0o755)] {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("acme");
        DirBuilder::new().mode(0o755).create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        if let Some(file) = file {
            fs::write(path.join(file), "hello").unwrap();
        }
        let folder = Folder::at(&path);
        for _ in 0..2 {
            let lock = folder.lock().unwrap();
            assert!(lock.is_some());
            assert_eq!(mode(&path), expected);
            assert_eq!(mode(&path.join("accounts")), 0o700);
        }
    }
}

#[test]
fn a_folder_that_others_may_write_to_is_refused_as_it_is() {
    for part in ["", "certificates", "challenges"] {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::at(&root.path().join("acme"));
        drop(folder.lock().unwrap());
        folder.keep(Part::Certificates, "shop", "a pair").unwrap();
        let lax = folder.path().join(part);
        fs::set_permissions(&lax, fs::Permissions::from_mode(0o777)).unwrap();
        let error = folder.lock().unwrap_err().to_string();
        let said = format!("everybody may write to {}", lax.display());
        assert!(error.starts_with(said.trim_end_matches('/')), "{error}");
        assert_eq!(mode(&lax), 0o777, "nothing is taken over");
        let read = folder.read(Part::Certificates, "shop");
        assert_eq!(read.is_ok(), part == "challenges");
        assert_eq!(folder.all_posted().is_ok(), part == "certificates");
        fs::set_permissions(&lax, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(folder.lock().unwrap().is_some());
        assert_eq!(mode(&lax), 0o700);
    }
}

#[test]
fn a_pair_that_others_may_have_written_is_not_believed() {
    let root = tempfile::tempdir().unwrap();
    let folder = Folder::at(root.path());
    let _lock = folder.lock().unwrap().unwrap();
    folder.keep(Part::Certificates, "shop", "a pair").unwrap();
    let pair = folder.path().join("certificates/shop.pem");
    fs::set_permissions(&pair, fs::Permissions::from_mode(0o602)).unwrap();
    let error = folder.read(Part::Certificates, "shop").unwrap_err();
    let said = error.to_string();
    assert!(said.contains("shop.pem: `chmod o-w"), "{said}");
}

/// A group that may write to the whole volume may write to its files, until the gateway makes them its own again.
#[test]
fn the_group_of_a_volume_writes_to_its_files_until_the_start() {
    let pair = "certificates/shop.pem";
    for (volume, mounted) in [(false, 0o700), (true, 0o2770)] {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::at(&root.path().join("acme"));
        drop(folder.lock().unwrap());
        folder.keep(Part::Certificates, "shop", "a pair").unwrap();
        for (place, mode) in [("", mounted), ("certificates", mounted), (pair, 0o660)] {
            let place = folder.path().join(place);
            fs::set_permissions(place, fs::Permissions::from_mode(mode)).unwrap();
        }
        let kept = folder.path().join(pair);
        let read = || folder.read(Part::Certificates, "shop");
        assert_eq!(read().is_ok(), volume);
        drop(folder.lock().unwrap());
        assert_eq!(mode(&kept), if volume { 0o600 } else { 0o660 });
        match read() {
            Ok(read) => assert_eq!(read.as_deref(), Some("a pair")),
            Err(error) => assert!(
                error.to_string().contains("shop.pem: `chmod g-w"),
                "{error}"
            ),
        }
    }
}

/// The attack: a member of a volume's group replaces a file by a link after the gateway has examined the file, and
/// before the gateway closes it to the group.
#[test]
fn a_link_that_comes_meanwhile_is_not_closed_to_the_group() {
    let root = tempfile::tempdir().unwrap();
    let folder = Folder::at(&root.path().join("acme"));
    drop(folder.lock().unwrap());
    folder.keep(Part::Certificates, "shop", "a pair").unwrap();
    let pair = folder.path().join("certificates/shop.pem");
    let elsewhere = root.path().join("elsewhere");
    fs::write(&elsewhere, "a letter").unwrap();
    let opened = |place: &Path, mode| {
        fs::set_permissions(place, fs::Permissions::from_mode(mode)).unwrap();
    };
    opened(folder.path(), 0o2770);
    opened(&folder.path().join("certificates"), 0o2770);
    opened(&pair, 0o660);
    opened(&elsewhere, 0o660);
    let volume = folder.require_ownership("certificates").unwrap();
    let looked_at = open(&pair, volume).unwrap().unwrap();
    fs::remove_file(&pair).unwrap();
    symlink(&elsewhere, &pair).unwrap();
    ownership::close_to_group(&looked_at, volume).unwrap();
    assert_eq!(mode(&elsewhere), 0o660);
    let closed = looked_at.metadata().unwrap().permissions();
    assert_eq!(closed.mode() & 0o777, 0o600);
    assert!(open(&pair, volume).is_err());
}

/// The attack: anyone who may write to the folder behind a link controls the content.
#[test]
fn no_link_is_followed_but_that_to_the_folder() {
    let root = tempfile::tempdir().unwrap();
    let (real, lax) = (root.path().join("real"), root.path().join("lax"));
    let folder = Folder::at(&root.path().join("acme"));
    fs::create_dir(&lax).unwrap();
    fs::set_permissions(&lax, fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(&real).unwrap();
    symlink(&real, folder.path()).unwrap();
    drop(folder.lock().unwrap());
    folder.keep(Part::Certificates, "shop", "a pair").unwrap();
    let read = || folder.read(Part::Certificates, "shop");
    assert!(read().unwrap().is_some(), "behind the one link");
    for place in ["certificates/shop.pem", "certificates"] {
        let place = folder.path().join(place);
        let behind = lax.join(place.file_name().unwrap());
        fs::rename(&place, &behind).unwrap();
        symlink(&behind, &place).unwrap();
        let error = read().unwrap_err().to_string();
        let said = format!("{} is a symbolic link", place.display());
        assert!(error.starts_with(&said), "{error}");
        assert_eq!(folder.lock().is_ok(), place.ends_with("shop.pem"));
        fs::remove_file(&place).unwrap();
        fs::rename(&behind, &place).unwrap();
    }
    for place in ["lock", "watch"] {
        let place = folder.path().join(place);
        let _ = fs::remove_file(&place);
        symlink(lax.join("anything"), &place).unwrap();
        assert!(folder.lock().is_err());
        fs::remove_file(&place).unwrap();
    }
    assert!(!lax.join("anything").exists());
}

/// Opening a pipe would block until its other end is opened.
#[test]
fn nothing_is_opened_but_regular_files() {
    let digest = "a".repeat(64);
    for place in ["certificates/shop.pem", "challenges", "lock", "watch"] {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::at(root.path());
        drop(folder.lock().unwrap());
        let mut pipe = folder.path().join(place);
        if pipe.is_dir() {
            pipe.push(&digest);
        }
        let _ = fs::remove_file(&pipe);
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        assert_eq!(
            folder.read(Part::Certificates, "shop").is_ok(),
            place != "certificates/shop.pem"
        );
        assert!(folder.all_posted().unwrap().is_empty());
        assert_eq!(folder.watch().is_ok(), place != "watch");
        assert_eq!(folder.is_watched().is_ok(), place != "watch");
        assert_eq!(folder.lock().is_ok(), !matches!(place, "lock" | "watch"));
    }
}

#[test]
fn answers_to_challenges_are_for_other_processes_and_go_with_their_orders() {
    let root = tempfile::tempdir().unwrap();
    let folder = Folder::at(root.path());
    let lock = folder.lock().unwrap();
    let (host, token) = ("a.".repeat(120), "t".repeat(128));
    let [first, second] = [&host, &token].map(|one| format!("text:{one}:{token}"));
    let posted = |of: &Folder, name: &str| {
        let all = of.all_posted().unwrap();
        all.get(&OthersAnswers::digest(name)).cloned()
    };
    assert_eq!(posted(&folder, &first), None);
    folder.post(&first, b"one").unwrap();
    folder.post(&second, &[0, 255]).unwrap();
    let other = Folder::at(root.path());
    assert_eq!(posted(&other, &first).unwrap(), b"one");
    assert_eq!(posted(&other, &second).unwrap(), [0, 255]);
    // An answer that is being written does not count.
    let temporary = folder.challenge(&first).with_extension("new");
    fs::write(&temporary, "half").unwrap();
    assert_eq!(other.all_posted().unwrap().len(), 2);
    assert_eq!(mode(&folder.challenge(&first)), 0o600);
    folder.withdraw(&first).unwrap();
    folder.withdraw(&first).unwrap();
    assert_eq!(posted(&other, &first), None);
    // A killed process leaves its answers: they expire, and are removed with the next lock at the latest.
    let old = std::time::SystemTime::now() - CHALLENGE_LIFE * 2;
    let file = File::open(folder.challenge(&second)).unwrap();
    file.set_modified(old).unwrap();
    assert_eq!(posted(&other, &second), None);
    drop(lock);
    let _lock = other.lock().unwrap().unwrap();
    assert!(!folder.challenge(&second).exists());
}

#[test]
fn whoever_orders_sees_that_another_process_watches() {
    let root = tempfile::tempdir().unwrap();
    let (folder, other) = (
        Folder::at(&root.path().join("acme")),
        root.path().join("acme"),
    );
    let other = Folder::at(&other);
    assert!(other.watch().unwrap().is_none(), "there is no folder");
    let _lock = folder.lock().unwrap().unwrap();
    assert!(!folder.is_watched().unwrap());
    let watches = [other.watch().unwrap(), other.watch().unwrap()];
    assert!(watches.iter().all(Option::is_some) && folder.is_watched().unwrap());
    drop(watches);
    assert!(!folder.is_watched().unwrap());
    assert_eq!(mode(folder.path()), 0o700);
}
