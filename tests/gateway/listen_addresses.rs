//! The addresses of listeners: every address of one family or of both, addresses that another process has, and the log
//! lines about them.

use crate::support::{File, Gateway, Upstream, Wire, free_port, get, tollgate};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

fn has_ipv6() -> bool {
    let has = TcpListener::bind("[::1]:0").is_ok();
    if !has {
        eprintln!("this machine has no IPv6");
    }
    has
}

fn ipv4(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn ipv6(port: u16) -> SocketAddr {
    (Ipv6Addr::LOCALHOST, port).into()
}

async fn listening(upstream: &Upstream, listen: &str) -> Gateway {
    let lines = format!("listen = {listen}");
    Gateway::start(&File::to(upstream, &[]).server(&lines)).await
}

/// Waits until the gateway has logged at its start that it listens at this address.
async fn says(gateway: &Gateway, what: &str) {
    let on = format!("on {what}");
    let said = |line: &str| line.trim() == on;
    gateway.said.line(0, what, said).await;
}

const BOTH: &str = "every address, of IPv4 and of IPv6";
const ALONE: &str = "every address of IPv4 alone";

#[tokio::test]
async fn a_port_alone_is_every_address_of_both_families() {
    let port = free_port();
    let upstream = Upstream::echo().await;
    let mut gateway = listening(&upstream, &format!("\":{port}\"")).await;
    let answer = Wire::to(ipv4(port)).await.ask(get("/")).await.expect(200);
    // A mapped address counts as the IPv4 address in it.
    assert_eq!(gateway.line_of(&answer).await["client"], "127.0.0.1");
    if !has_ipv6() {
        return;
    }
    says(&gateway, BOTH).await;
    let answer = Wire::to(ipv6(port)).await.ask(get("/")).await.expect(200);
    assert_eq!(gateway.line_of(&answer).await["client"], "::1");
    // The successor has the same socket.
    gateway.hand_over().await;
    for address in [ipv4(port), ipv6(port)] {
        Wire::to(address).await.ask(get("/")).await.expect(200);
    }
}

#[tokio::test]
async fn every_address_of_ipv4_is_no_more_where_it_is_written_so() {
    let port = free_port();
    let upstream = Upstream::echo().await;
    let gateway = listening(&upstream, &format!("\"0.0.0.0:{port}\"")).await;
    says(&gateway, ALONE).await;
    Wire::to(ipv4(port)).await.ask(get("/")).await.expect(200);
    assert!(Wire::try_to(ipv6(port)).await.is_err());
}

#[tokio::test]
async fn addresses_of_ipv6_are_left_to_listeners_beside_it() {
    if !has_ipv6() {
        return;
    }
    let port = free_port();
    let upstream = Upstream::echo().await;
    let gateway = listening(&upstream, &format!("[\":{port}\", \"[::1]:{port}\"]")).await;
    says(&gateway, ALONE).await;
    for address in [ipv4(port), ipv6(port)] {
        Wire::to(address).await.ask(get("/")).await.expect(200);
    }
}

#[tokio::test]
async fn what_another_process_has_of_ipv6_is_left_to_it() {
    if !has_ipv6() {
        return;
    }
    let port = free_port();
    let other = TcpListener::bind(ipv6(port)).unwrap();
    let upstream = Upstream::echo().await;
    let gateway = listening(&upstream, &format!("\":{port}\"")).await;
    says(&gateway, ALONE).await;
    let warned = "is on the addresses of IPv4 alone: another process has those of IPv6";
    assert!(gateway.said.text().contains(warned));
    Wire::to(ipv4(port)).await.ask(get("/")).await.expect(200);
    drop(other);
}

/// A gateway of 0.1.0 hands over an IPv4 socket under the name of that version.
#[tokio::test]
async fn a_socket_that_is_handed_over_stays_as_it_is() {
    let port = free_port();
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[]).server(&format!("listen = \":{port}\""));
    let name = format!("server/0.0.0.0%3A{port}");
    let before = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::with_sockets(folder, &file, vec![(&name, before.into())]).await;
    says(&gateway, ALONE).await;
    Wire::to(ipv4(port)).await.ask(get("/")).await.expect(200);
    assert!(Wire::try_to(ipv6(port)).await.is_err());
}

#[tokio::test]
async fn an_address_in_use_is_told_with_the_key_that_has_it() {
    let upstream = Upstream::echo().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let run = async |file: File| {
        std::fs::write(folder.path().join("gateway.toml"), file.text()).unwrap();
        let done = tollgate(folder.path(), &["run"]).await;
        assert_eq!(done.code, Some(1), "{done:?}");
        let said = format!("cannot listen on {address}: ");
        assert!(done.stderr.contains(&said), "{}", done.stderr);
        done.stderr
    };
    let admin = File::to(&upstream, &[]).admin(&format!("listen = \"{address}\""));
    let said = run(admin).await;
    assert!(said.contains("`listen` of `[admin]`"), "{said}");
    assert!(!said.contains("--listen"), "{said}");
    let said = run(File::to(&upstream, &[]).server(&format!("listen = \"{address}\""))).await;
    assert!(said.contains("`listen` of `[server]`"), "{said}");
}
