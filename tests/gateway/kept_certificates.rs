//! Files that somebody else has put into the folder of ordered certificates.

use crate::support::tls::Authority;
use crate::support::{Gateway, Site, free_port, tollgate};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

/// A site whose authority never answers.
async fn site(own: &Authority) -> (Site, String) {
    let site = Site::at(free_port(), free_port()).await;
    let nowhere = format!("https://127.0.0.1:{}/directory", free_port());
    let shop = "[tls.shop]\nacme = \"test\"\nhosts = [\"shop.example.com\"]\n";
    let text = site.file(&site.listen(""), &nowhere, &own.path("ca.pem"), shop);
    fs::create_dir(site.path("certificates")).unwrap();
    (site, text)
}

async fn says(gateway: &Gateway, words: &str) {
    gateway
        .said
        .line(0, words, |line| line.contains(words))
        .await;
}

/// The attack: a pair whose key is known to an attacker that could write to the folder.
#[tokio::test]
async fn a_pair_that_others_may_have_put_there_is_not_served() {
    let own = Authority::new();
    let pair = own.server(&["shop.example.com"]);
    for (lax, mode) in [
        ("", 0o777),
        ("certificates", 0o777),
        ("certificates/shop.pem", 0o666),
    ] {
        let (site, text) = site(&own).await;
        let planted = site.path("certificates/shop.pem");
        fs::write(&planted, format!("{}{}", pair.cert, pair.key)).unwrap();
        let lax = site.path(lax);
        fs::set_permissions(&lax, fs::Permissions::from_mode(mode)).unwrap();
        let gateway = site.start(&text).await;
        let shown = lax.display().to_string();
        let words = format!("everybody may write to {}", shown.trim_end_matches('/'));
        says(&gateway, &words).await;
        let client = own.trusting();
        let served = client.connect(site.tls(), "shop.example.com").await;
        assert!(served.is_err(), "{words}");
        let now = fs::metadata(&lax).unwrap().permissions().mode() & 0o777;
        assert_eq!(now, mode, "nothing is taken over");
        let check = tollgate(gateway.folder(), &["check"]).await;
        let told = check.stderr;
        assert_eq!(check.code, Some(1), "{told}");
        assert!(
            told.contains("error[certificate-unreadable]")
                && told.contains(&words)
                && told.contains("chmod o-w"),
            "{told}"
        );
    }
    // The same pair is accepted in the form in which the gateway keeps its own pairs.
    let (site, text) = site(&own).await;
    let kept = site.path("certificates/shop.pem");
    fs::write(&kept, format!("{}{}", pair.cert, pair.key)).unwrap();
    let mut gateway = site.start(&text).await;
    let served = own.trusting().connect(site.tls(), "shop.example.com").await;
    assert!(served.is_ok());
    // A running gateway would at some time take the right to write from others, so it is stopped first.
    gateway.stop().await;
    // The gateway warns if a group that it belongs to may write to the folder.
    fs::set_permissions(site.path(""), fs::Permissions::from_mode(0o770)).unwrap();
    let check = tollgate(gateway.folder(), &["check"]).await;
    assert_eq!(check.code, Some(0), "{}", check.stderr);
    let words = "note: members of group ";
    assert!(check.stdout.contains(words), "{}", check.stdout);
}

/// The attack: the pair is behind a link into a folder where anybody may replace it.
#[tokio::test]
async fn a_pair_behind_a_link_is_not_served() {
    let own = Authority::new();
    let pair = own.server(&["shop.example.com"]);
    for linked in ["certificates/shop.pem", "certificates"] {
        let (site, text) = site(&own).await;
        let planted = site.path("certificates/shop.pem");
        fs::write(&planted, format!("{}{}", pair.cert, pair.key)).unwrap();
        let lax = tempfile::tempdir().unwrap();
        fs::set_permissions(lax.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let (place, behind) = (site.path(linked), lax.path().join("kept"));
        fs::rename(&place, &behind).unwrap();
        symlink(&behind, &place).unwrap();
        let gateway = site.start(&text).await;
        let words = format!("{} is a symbolic link", place.display());
        says(&gateway, &words).await;
        let served = own.trusting().connect(site.tls(), "shop.example.com").await;
        assert!(served.is_err(), "{words}");
        let check = tollgate(gateway.folder(), &["check"]).await;
        assert_eq!(check.code, Some(1), "{}", check.stderr);
        assert!(check.stderr.contains(&words), "{}", check.stderr);
    }
}

/// The attack: opening a pipe waits without end until somebody writes to it.
#[tokio::test]
async fn a_pipe_in_the_folder_stops_nobody() {
    let own = Authority::new();
    for place in ["certificates/shop.pem", "lock"] {
        let (site, text) = site(&own).await;
        let pipe = site.path(place);
        fs::create_dir_all(pipe.parent().expect("a folder")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let gateway = site.start(&text).await;
        let words = format!("{} is not a regular file", pipe.display());
        says(&gateway, &words).await;
        let check = tollgate(gateway.folder(), &["check"]).await;
        assert_eq!(check.code, Some(1), "{}", check.stderr);
        assert!(check.stderr.contains(&words), "{}", check.stderr);
    }
}
