//! A profile that a user could write from the documentation alone: Squid's requests, each in as many callbacks of one
//! event loop as it takes; because of whom they wait, through another server that is traced too.
//!
//! Needs root, a kernel with BPF, squid, nginx and apache2-utils.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use reqtrace_tests::blamed;
use reqtrace_tests::http;
use reqtrace_tests::http::client;
use reqtrace_tests::http::upstream::Upstream;
use reqtrace_tests::process::Child;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::rows::Row;
use reqtrace_tests::workspace;

use crate::eventloop::{ASKED, Innocent, check_depth, check_waits, proxy};

const REQUESTS: u64 = 1000;

/// A request is known by its `HttpRequest`. What a read from the server behind and what is sent to the client belong to
/// lies behind their first or second argument; the offsets are those of Squid 5.7 as Debian builds it.
const PROFILE: &str = r#"
[profile]
name = "squid"
executables = ["squid"]

[[request]]
name = "request"
key = { arg = 0, deref = [0x18] }
begin = { function = "ClientHttpRequest::initRequest", key = { arg = 1 } }
resume = [
    { function = "HttpStateData::readReply", key = { arg = 0, deref = [0x40] } },
    { function = "clientSocketRecipient", key = { arg = 1, deref = [0x18] } },
]
park = { function = "CommSelectEngine::checkEvents", key = "current", as = "event" }
end = { function = "ClientHttpRequest::logRequest" }
"#;

/// Squid before a server on this port, its own port and its profile. It answers `/here` itself.
fn start(behind: u16, folder: &Path) -> (Child, u16, PathBuf) {
    let port = http::free_port().unwrap();
    let types = workspace::file("usr/share/squid/mime.conf").unwrap();
    let share = types.parent().unwrap().display();
    let helper = workspace::file("usr/lib/squid/unlinkd").unwrap();
    let helper = helper.display();
    let config = folder.join("squid.conf");
    let text = format!(
        "http_port 127.0.0.1:{port} accel defaultsite=127.0.0.1 no-vhost\n\
         cache_peer 127.0.0.1 parent {behind} 0 no-query no-digest originserver\n\
         acl here urlpath_regex ^/here\nhttp_access deny here\nhttp_access allow all\n\
         cache deny all\ncache_log /dev/null\naccess_log none\npid_filename none\n\
         cache_effective_user nobody\npinger_enable off\n\
         mime_table {share}/mime.conf\nicon_directory {share}/icons\n\
         error_directory {share}-langpack/templates\n\
         unlinkd_program {helper}\nshutdown_lifetime 0 seconds\n"
    );
    fs::write(&config, text).unwrap();
    let profile = folder.join("squid.toml");
    fs::write(&profile, PROFILE).unwrap();
    let mut command = Command::new(workspace::program("squid").unwrap());
    command.arg("-N").arg("-f").arg(&config);
    let server = Child::start(command, folder, "squid").unwrap();
    http::listens(port, Duration::from_secs(20)).unwrap();
    (server, port, profile)
}

#[test]
fn each_request_is_one() {
    const PAUSE: Duration = Duration::from_millis(2);
    let upstream = Upstream::start(|_| PAUSE).unwrap();
    let folder = workspace::scratch().unwrap();
    let (server, port, profile) = start(upstream.port(), folder.path());
    let trace = Trace::start(&profile, server.pid(), &[]).unwrap();
    http::ab(port, "/", REQUESTS, 8, &["-k"]).unwrap();
    http::ab(port, "/", REQUESTS, 1, &[]).unwrap();
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    let request = summary.request("request").unwrap();
    let counts = (request.count, request.rows, request.unknown_keys);
    assert_eq!(
        counts,
        (2 * REQUESTS, 2 * REQUESTS, Some(0)),
        "{}",
        outcome.printed()
    );
    let rows = outcome.rows().unwrap();
    let pause_ns = PAUSE.as_nanos() as u64;
    assert!(rows.iter().all(|row| row.complete));
    assert!(rows.iter().all(|row| row.latency_ns > pause_ns));
    // It is parked when the loop has done what else there was: at once where requests come one by one.
    let parked = |row: &&Row| row.places["event"] > pause_ns * 9 / 10;
    let parked = rows[REQUESTS as usize..].iter().filter(parked).count();
    assert!(parked as u64 * 10 > REQUESTS * 9, "{parked}");
}

#[test]
fn a_chain_goes_through_the_parked_request_of_nginx() {
    const PAUSE: Duration = Duration::from_millis(100);
    let upstream = Upstream::start(|_| PAUSE).unwrap();
    let nginx = proxy(upstream.port());
    let folder = workspace::scratch().unwrap();
    let (squid, port, profile) = start(nginx.port(), folder.path());
    let pid = nginx.pid().to_string();
    let options = ["--blame", "--profile", "nginx", "-p", &pid];
    let trace = Trace::start(&profile, squid.pid(), &options).unwrap();
    // One keeps Squid's loop awake, and one that of nginx.
    let others = [
        Innocent::start(port, "/other"),
        Innocent::start(nginx.port(), "/"),
    ];
    for number in 0..ASKED {
        client::get(port, &format!("/slow/{number}")).unwrap();
    }
    for other in others {
        assert!(other.end() > 60);
    }
    let outcome = trace.finish().unwrap();
    let (rows, blamed) = blamed::of(&outcome).unwrap();
    check_waits(&rows, &blamed, "parked: event", PAUSE);
    check_waits(&rows, &blamed, "parked: upstream", PAUSE);
    check_depth(&blamed);
}
