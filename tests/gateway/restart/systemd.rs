//! The messages to systemd: that the gateway is ready, that it hands over and to which process, and that it stops.

use super::{gone, upstream};
use crate::support::{File, Gateway, PATIENCE};
use std::path::Path;
use tokio::net::UnixDatagram;
use tokio::time::timeout;

async fn heard(systemd: &UnixDatagram) -> String {
    let mut message = [0; 1024];
    let received = timeout(PATIENCE, systemd.recv(&mut message)).await;
    let length = received.expect("a message in time").unwrap();
    String::from_utf8_lossy(&message[..length]).into_owned()
}

#[tokio::test]
async fn systemd_hears_of_every_change_and_follows_the_successor() {
    let upstream = upstream().await;
    let folder = tempfile::tempdir().unwrap();
    let file = File::to(&upstream, &[]).server("drain = \"2s\"\ndrain_delay = \"1s\"");
    std::fs::write(folder.path().join("gateway.toml"), file.text()).unwrap();
    let path = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    let variables: &[(&str, &Path)] = &[("NOTIFY_SOCKET", &path)];
    let mut gateway = Gateway::launch_with(folder, &["run"], variables).await;
    assert!(heard(&systemd).await.starts_with("READY=1\n"));
    let before = gateway.hand_over().await;
    assert!(heard(&systemd).await.starts_with("RELOADING=1\n"));
    let message = heard(&systemd).await;
    let expected = format!("MAINPID={}\nREADY=1\n", gateway.pid());
    assert!(message.starts_with(&expected), "{message}");
    gone(before).await;
    gateway.write_in_place("nonsense");
    gateway.signal("USR2");
    assert!(heard(&systemd).await.starts_with("RELOADING=1\n"));
    assert!(heard(&systemd).await.starts_with("READY=1\n"));
    gateway.signal("TERM");
    let message = heard(&systemd).await;
    assert!(message.starts_with("STOPPING=1\n"), "{message}");
    assert!(message.contains("EXTEND_TIMEOUT_USEC=8000000"), "{message}");
}

/// The need for these lines was observed with systemd 252. Without the first line it gave the gateway up at the sixth
/// start in ten seconds, and closed its socket. Without the second line it killed a process that had taken over by
/// SIGUSR2, instead of letting it drain.
#[test]
fn the_unit_never_gives_up_and_waits_for_the_end_of_a_successor() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/tollgate.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    for line in [
        "StartLimitIntervalSec=0",
        "ExecStop=-/bin/kill -TERM $MAINPID",
        "ExecStop=-/usr/bin/tail --pid=${MAINPID} --sleep-interval=0.1 -f /dev/null",
    ] {
        assert!(unit.lines().any(|one| one == line), "{line}");
    }
}

#[test]
fn the_units_are_valid() {
    let analyze = |arguments: &[&str]| {
        let mut command = std::process::Command::new("systemd-analyze");
        command.args(arguments).output()
    };
    if analyze(&["--version"]).is_err() {
        println!("systemd-analyze is not installed: the units are not verified");
        return;
    }
    // The program in the unit file exists only on the machine that runs it.
    let folder = tempfile::tempdir().unwrap();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let units = ["tollgate.service", "tollgate.socket"].map(|name| {
        let text = std::fs::read_to_string(deploy.join(name)).unwrap();
        let path = folder.path().join(name);
        let here = env!("CARGO_BIN_EXE_tollgate");
        std::fs::write(&path, text.replace("/usr/local/bin/tollgate", here)).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let verified = analyze(&["verify", "--man=no", &units[0], &units[1]]).unwrap();
    let said = String::from_utf8_lossy(&verified.stderr);
    let ours: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("tollgate"))
        .collect();
    assert!(verified.status.success() && ours.is_empty(), "{said}");
}
