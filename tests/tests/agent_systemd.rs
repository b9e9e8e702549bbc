//! What a service manager is told of an agent: that it has begun, is alive and what it traces, reads its configuration again,
//! and ends.
//!
//! Needs root and a kernel with BPF.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use reqtrace_tests::process::Child;
use reqtrace_tests::scraped::configuration;
use reqtrace_tests::shop::Shop;
use reqtrace_tests::{reqtrace, workspace};

use crate::agent::rule_of_shop;

const LIMIT: Duration = Duration::from_secs(60);

/// Waits for a message with all of these lines; gives all that came until then.
fn told(socket: &UnixDatagram, lines: &[&str]) -> Vec<String> {
    let since = Instant::now();
    let mut all = Vec::new();
    loop {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).unwrap_or(0);
        let message = String::from_utf8(bytes[..length].to_vec()).unwrap();
        let has = |line: &&str| message.lines().any(|its| its.starts_with(*line));
        let is_it = length > 0 && lines.iter().all(has);
        all.push(message.clone());
        if is_it {
            return all;
        }
        assert!(since.elapsed() < LIMIT, "no {lines:?} in {all:?}");
    }
}

#[test]
fn a_service_manager_is_told_of_begin_life_reload_and_end() {
    let folder = workspace::scratch().unwrap();
    let program = folder.path().join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let _shop = Shop::open_from(&program).unwrap();
    let (config, at) = (
        folder.path().join("agent.toml"),
        folder.path().join("notify"),
    );
    let socket = UnixDatagram::bind(&at).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    fs::write(&config, configuration(&rule_of_shop(&program))).unwrap();
    let config = config.display().to_string();
    let mut command = reqtrace::command(["agent", "--config", &config]).unwrap();
    command.env("NOTIFY_SOCKET", &at);
    let mut agent = Child::start(command, folder.path(), "agent").unwrap();
    let first = told(&socket, &["READY=1"]);
    assert_eq!(first.len(), 1, "nothing comes before it: {first:?}");
    told(
        &socket,
        &["WATCHDOG=1", "STATUS=1 of 1 services are traced"],
    );
    agent.signal(libc::SIGHUP).unwrap();
    told(&socket, &["RELOADING=1", "MONOTONIC_USEC="]);
    told(&socket, &["READY=1"]);
    agent.signal(libc::SIGTERM).unwrap();
    told(&socket, &["STOPPING=1"]);
    assert_eq!(agent.wait(LIMIT).unwrap().code(), Some(0));
}
