//! Whole requests of nginx, whoever they wait for: against the client's own clock, and the upstream's.
//!
//! Needs root, a kernel with BPF, nginx and apache2-utils.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use reqtrace_tests::http::client::{self, Exchange};
use reqtrace_tests::http::upstream::Upstream;
use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::rows::Row;

const REQUESTS: u64 = 1000;

/// With all probes, and with few.
const PROFILES: [&str; 2] = ["nginx", "nginx:cheap"];

/// How long clients and the upstream hold things up.
const PAUSE: Duration = Duration::from_millis(60);

/// A connection is closed when the request ends. Otherwise nginx goes on reading for a while what a client may
/// send that it does not want, and only then ends the request.
const AT_ONCE: &str = "lingering_close off;\n";

/// The rows of a good trace by their path, each of which was asked for once; and what turns their clock into
/// that of the clients.
fn by_path(outcome: &Outcome) -> (BTreeMap<String, Row>, i64) {
    let summary = outcome.checked().unwrap();
    let request = summary.request("request").unwrap();
    let misfits = (request.unknown_keys, request.running_elsewhere);
    assert_eq!(misfits, (Some(0), Some(0)), "{}", outcome.printed());
    let mut rows = BTreeMap::new();
    for row in outcome.rows().unwrap() {
        assert!(row.complete, "{row:?}");
        let path = row.attributes["path"].clone();
        assert!(rows.insert(path.clone(), row).is_none(), "{path} twice");
    }
    (rows, summary.trace.monotonic_to_unix_ns)
}

fn begin_ns(row: &Row, offset: i64) -> u64 {
    row.start_unix_ns.checked_add_signed(-offset).unwrap()
}

/// No request begins before its client has asked, and none ends after the client has seen its connection closed.
fn within_the_clients_time(exchange: &Exchange, row: &Row, offset: i64) {
    let begin = begin_ns(row, offset);
    let end = begin + row.latency_ns;
    assert!(exchange.before_ns <= begin, "{exchange:?} {row:?}");
    assert!(end <= exchange.after_ns, "{exchange:?} {row:?}");
    assert_eq!(row.attributes["status"], exchange.status.to_string());
}

/// What it was parked for that, or, where the profile does not tell that apart, for anything.
fn parked_for(place: &str, row: &Row) -> u64 {
    match row.places.is_empty() {
        true => row.parked_ns,
        false => row.places[place],
    }
}

/// Time in which a thread ran the request.
fn running_ns(row: &Row) -> u64 {
    row.latency_ns - row.parked_ns - row.queued_ns
}

#[test]
fn a_proxied_request_waits_for_its_upstream() {
    PROFILES.into_iter().for_each(proxied_requests_wait);
}

fn proxied_requests_wait(profile: &str) {
    let upstream = Upstream::start(|_| PAUSE).unwrap();
    let server = format!(
        "location /slow {{ proxy_pass http://127.0.0.1:{}; }}",
        upstream.port()
    );
    let nginx = Nginx::start_with(1, "", &server).unwrap();
    let trace = Trace::start(Path::new(profile), nginx.pid(), &["--labels"]).unwrap();
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let port = nginx.port();
            let paths = (0..5).map(move |number| format!("/slow/{client}/{number}"));
            thread::spawn(move || -> Vec<_> {
                paths
                    .map(|path| client::get(port, &path).unwrap())
                    .collect()
            })
        })
        .collect();
    let exchanges: Vec<_> = clients
        .into_iter()
        .flat_map(|client| client.join().unwrap())
        .collect();
    let outcome = trace.finish().unwrap();
    let (rows, offset) = by_path(&outcome);
    assert_eq!(rows.len(), exchanges.len());
    let answers = upstream.answers();
    for exchange in &exchanges {
        let row = &rows[&exchange.path];
        within_the_clients_time(exchange, row, offset);
        let answer = answers
            .iter()
            .find(|answer| answer.path == exchange.path)
            .unwrap();
        let slept_ns = answer.answered_ns - answer.received_ns;
        let upstream_ns = parked_for("upstream", row);
        assert!(
            upstream_ns + running_ns(row) >= slept_ns,
            "{answer:?} {row:?}"
        );
        assert!(2 * running_ns(row) < row.latency_ns, "{row:?}");
        let places_ns = row.places.values().sum::<u64>();
        assert!(
            row.places.is_empty() || row.parked_ns == places_ns,
            "{row:?}"
        );
        assert_eq!(row.attributes["method"], "GET");
    }
    let folded = outcome.folded().unwrap();
    assert!(!folded.contains("ep_poll"), "{folded}");
    // The marker's own stack is where the request was left.
    let parked: Vec<&str> = folded
        .lines()
        .filter(|line| line.contains("[parked: upstream]") || line.contains("[parked]"))
        .collect();
    let with_stack = parked
        .iter()
        .filter(|line| line.contains("ngx_process_events_and_timers;"))
        .count();
    assert!(with_stack > 0, "{folded}");
}

#[test]
fn slow_clients_are_waited_for() {
    PROFILES.into_iter().for_each(slow_clients_park);
}

fn slow_clients_park(profile: &str) {
    let upstream = Upstream::start(|_| Duration::ZERO).unwrap();
    let proxy = format!(
        "location /body {{ proxy_pass http://127.0.0.1:{}; }}",
        upstream.port()
    );
    let server = format!("{AT_ONCE}{proxy}");
    let nginx = Nginx::start_with(1, "", &server).unwrap();
    for number in 0..5 {
        let file = nginx.documents().join(format!("large{number}"));
        fs::write(file, vec![b'x'; 32 << 20]).unwrap();
    }
    let trace = Trace::start(Path::new(profile), nginx.pid(), &["--labels"]).unwrap();
    let port = nginx.port();
    let mut exchanges = Vec::new();
    for number in 0..5 {
        exchanges.push(client::get_slowly(port, &format!("/large{number}"), PAUSE).unwrap());
        let body = format!("/body/{number}");
        exchanges.push(client::post_slowly(port, &body, "twelve bytes", PAUSE).unwrap());
    }
    let (rows, offset) = by_path(&trace.finish().unwrap());
    assert_eq!(rows.len(), exchanges.len());
    for exchange in &exchanges {
        let row = &rows[&exchange.path];
        within_the_clients_time(exchange, row, offset);
        // Until the client went on, the request could not end.
        let held_up_ns = exchange.held_back_ns - begin_ns(row, offset);
        let client_ns = parked_for("client", row);
        assert!(
            client_ns + running_ns(row) >= held_up_ns,
            "{exchange:?} {row:?}"
        );
        assert!(client_ns > row.latency_ns / 4, "{row:?}");
        assert_eq!(
            row.attributes["method"],
            ["GET", "POST"][usize::from(exchange.path.starts_with("/body"))]
        );
    }
}

#[test]
fn subrequests_are_part_of_theirs() {
    let upstream = Upstream::start(|path| {
        if path == "/auth" {
            PAUSE
        } else {
            Duration::ZERO
        }
    })
    .unwrap();
    let server = format!(
        "location /checked {{ auth_request /auth; add_after_body /more; }}\n\
         location = /auth {{ internal; proxy_pass http://127.0.0.1:{}/auth; }}\n",
        upstream.port()
    );
    let nginx = Nginx::start_with(1, "", &server).unwrap();
    fs::create_dir(nginx.documents().join("checked")).unwrap();
    fs::write(nginx.documents().join("more"), "more").unwrap();
    for number in 0..10 {
        fs::write(nginx.documents().join(format!("checked/{number}")), "page").unwrap();
    }
    let trace = Trace::start(Path::new("nginx"), nginx.pid(), &["--labels"]).unwrap();
    let paths: Vec<_> = (0..10).map(|number| format!("/checked/{number}")).collect();
    let exchanges = paths
        .iter()
        .map(|path| client::get(nginx.port(), path).unwrap());
    let exchanges: Vec<_> = exchanges.collect();
    let (rows, offset) = by_path(&trace.finish().unwrap());
    assert_eq!(rows.len(), exchanges.len());
    let answers = upstream.answers();
    assert_eq!(answers.len(), exchanges.len());
    for (exchange, answer) in exchanges.iter().zip(&answers) {
        let row = &rows[&exchange.path];
        assert_eq!(exchange.status, 200);
        within_the_clients_time(exchange, row, offset);
        let slept_ns = answer.answered_ns - answer.received_ns;
        assert!(
            row.places["upstream"] + running_ns(row) >= slept_ns,
            "{answer:?} {row:?}"
        );
    }
}

#[test]
fn a_kept_connection_is_no_request_and_a_pipeline_is_many() {
    PROFILES
        .into_iter()
        .for_each(kept_connections_and_pipelines);
}

fn kept_connections_and_pipelines(profile: &str) {
    let nginx = Nginx::start_with(1, "", AT_ONCE).unwrap();
    let names = |prefix: &str| -> Vec<String> {
        (0..20).map(|number| format!("/{prefix}{number}")).collect()
    };
    let (kept, piped) = (names("kept"), names("piped"));
    for name in kept.iter().chain(&piped) {
        fs::write(nginx.documents().join(&name[1..]), "page").unwrap();
    }
    let trace = Trace::start(Path::new(profile), nginx.pid(), &["--labels"]).unwrap();
    let exchanges = client::keep_alive(nginx.port(), &kept, PAUSE / 10).unwrap();
    let statuses = client::pipeline(nginx.port(), &piped).unwrap();
    assert!(statuses.iter().all(|status| *status == 200));
    let (rows, offset) = by_path(&trace.finish().unwrap());
    assert_eq!(rows.len(), kept.len() + piped.len());
    let mut end_before = 0;
    for exchange in &exchanges {
        let row = &rows[&exchange.path];
        let begin = begin_ns(row, offset);
        assert!(
            end_before <= begin && exchange.before_ns <= begin,
            "{exchange:?} {row:?}"
        );
        end_before = begin + row.latency_ns;
        // The answer is with the client before nginx has written its log.
        assert!(row.latency_ns - running_ns(row) <= exchange.after_ns - exchange.before_ns);
    }
    for path in &piped {
        let row = &rows[path];
        assert_eq!(row.attributes["status"], "200");
        let delay_ns = row.places.get("delay").copied().unwrap_or(0);
        assert_eq!(delay_ns, 0, "{row:?}");
    }
}

#[test]
fn a_request_that_is_held_up_by_a_limit_is_delayed() {
    let http = "limit_req_zone $binary_remote_addr zone=z:1m rate=50r/s;";
    let server = "location /late { limit_req zone=z burst=50; }";
    let nginx = Nginx::start_with(1, http, server).unwrap();
    for number in 0..10 {
        fs::write(nginx.documents().join(format!("late{number}")), "page").unwrap();
    }
    let trace = Trace::start(Path::new("nginx"), nginx.pid(), &["--labels"]).unwrap();
    let clients: Vec<_> = (0..10)
        .map(|number| {
            let port = nginx.port();
            thread::spawn(move || client::get(port, &format!("/late{number}")).unwrap())
        })
        .collect();
    let exchanges: Vec<_> = clients
        .into_iter()
        .map(|client| client.join().unwrap())
        .collect();
    let (rows, offset) = by_path(&trace.finish().unwrap());
    assert_eq!(rows.len(), exchanges.len());
    for exchange in &exchanges {
        within_the_clients_time(exchange, &rows[&exchange.path], offset);
    }
    // All but the first wait for their turn, a fiftieth of a second each after the one before.
    let delayed: Vec<_> = rows.values().map(|row| row.places["delay"]).collect();
    assert_eq!(
        delayed.iter().filter(|ns| **ns > 10_000_000).count(),
        9,
        "{delayed:?}"
    );
    let longest = delayed.iter().max().copied().unwrap();
    assert!(longest > 150_000_000, "{delayed:?}");
}

#[test]
fn under_load_all_requests_are_counted() {
    PROFILES.into_iter().for_each(all_requests_are_counted);
}

fn all_requests_are_counted(profile: &str) {
    let upstream = Upstream::start(|_| Duration::from_micros(500)).unwrap();
    let server = format!(
        "location /slow {{ proxy_pass http://127.0.0.1:{}; }}",
        upstream.port()
    );
    let nginx = Nginx::start_with(2, "", &server).unwrap();
    fs::write(nginx.documents().join("page"), [b'x'; 4096]).unwrap();
    let trace = Trace::start(Path::new(profile), nginx.pid(), &[]).unwrap();
    for keep in [&["-k"][..], &[]] {
        nginx.ab("/page", REQUESTS, 8, keep).unwrap();
        nginx.ab("/slow", REQUESTS, 8, keep).unwrap();
    }
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    let request = summary.request("request").unwrap();
    assert_eq!((request.begins, request.ends), (4 * REQUESTS, 4 * REQUESTS));
    assert_eq!((request.count, request.rows), (4 * REQUESTS, 4 * REQUESTS));
    assert_eq!(
        (request.unknown_keys, request.running_elsewhere),
        (Some(0), Some(0))
    );
    assert_eq!(nginx.logged().unwrap(), 4 * REQUESTS);
    let rows = outcome.rows().unwrap();
    let waited = rows
        .iter()
        .filter(|row| parked_for("upstream", row) > 0)
        .count();
    assert_eq!(waited as u64, 2 * REQUESTS);
}
