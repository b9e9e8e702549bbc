//! Commands of Redis that block their client, and those that run others: each is one request, and no longer
//! than for its client.
//!
//! Needs root, a kernel with BPF, redis-server and redis-tools.

use std::path::Path;
use std::thread;
use std::time::Duration;

use reqtrace_tests::redis::{Client, Exchange};
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::rows::Row;
use reqtrace_tests::servers::Server;

const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_NS: u64 = 50_000_000;

/// The commands of a good trace, in the order in which they began; and what turns their clock into the clients'.
fn commands(outcome: &Outcome) -> (Vec<Row>, i64) {
    let summary = outcome.checked().unwrap();
    let command = summary.request("command").unwrap();
    let misfits = (command.unknown_keys, command.running_elsewhere);
    assert_eq!(misfits, (Some(0), Some(0)), "{}", outcome.printed());
    let mut rows = outcome.rows().unwrap();
    rows.retain(|row| row.request == "command");
    rows.sort_by_key(|row| row.start_unix_ns);
    assert!(rows.iter().all(|row| row.complete), "{rows:#?}");
    (rows, summary.trace.monotonic_to_unix_ns)
}

fn named<'a>(rows: &'a [Row], command: &str) -> Vec<&'a Row> {
    let named = |row: &&Row| row.attributes["command"] == command;
    rows.iter().filter(named).collect()
}

/// A blocked command ends before its client has the answer, since the event loop sends it later.
fn within_the_clients_time(exchange: &Exchange, row: &Row, offset: i64) {
    let begin = row.start_unix_ns.checked_add_signed(-offset).unwrap();
    assert!(exchange.before_ns <= begin, "{exchange:?} {row:?}");
    assert!(
        begin + row.latency_ns <= exchange.after_ns,
        "{exchange:?} {row:?}"
    );
}

#[test]
fn a_blocked_command_is_parked_until_there_is_an_element() {
    let server = Server::redis().unwrap();
    let mut other = Client::connect(&server.socket()).unwrap();
    let trace = Trace::start(Path::new("redis.toml"), server.pid(), &["--labels"]).unwrap();
    let socket = server.socket();
    let blocked = thread::spawn(move || {
        let mut client = Client::connect(&socket).unwrap();
        let all = (0..5).map(|_| client.ask("BLPOP list 0").unwrap());
        all.collect::<Vec<_>>()
    });
    let mut pushes = Vec::new();
    for number in 0..5 {
        thread::sleep(PAUSE);
        pushes.push(other.ask(&format!("RPUSH list {number}")).unwrap());
    }
    let blocked = blocked.join().unwrap();
    assert_eq!(blocked[4].answer, "list 4");
    // Nothing came for this one.
    let in_vain = other.ask("BLPOP other 0.05").unwrap();
    assert_eq!(in_vain.answer, "nil");
    let (rows, offset) = commands(&trace.finish().unwrap());

    assert_eq!(rows.len(), 5 + 5 + 1);
    let popped = named(&rows, "blpop");
    let pushed = named(&rows, "rpush");
    assert_eq!((popped.len(), pushed.len()), (6, 5));
    for (exchange, row) in blocked.iter().chain([&in_vain]).zip(&popped) {
        within_the_clients_time(exchange, row, offset);
        assert_eq!(row.label, "BLPOP");
        assert!(
            row.places["key"] > 0 && row.places["key"] == row.parked_ns,
            "{row:?}"
        );
    }
    // From one push to the next the client was blocked, but for its own command in between.
    for (pair, row) in pushes.windows(2).zip(&popped[1..]) {
        let between_ns = pair[1].before_ns - pair[0].after_ns;
        assert!(
            between_ns > PAUSE_NS / 2 && row.latency_ns > between_ns / 2,
            "{pair:?} {row:?}"
        );
        assert!(row.places["key"] * 10 > row.latency_ns * 9, "{row:?}");
    }
    assert!(popped[5].latency_ns > PAUSE_NS * 9 / 10, "{popped:?}");
    // A push that ends the wait of another client goes on meanwhile.
    for (exchange, row) in pushes.iter().zip(&pushed) {
        within_the_clients_time(exchange, row, offset);
        assert_eq!(row.parked_ns, 0, "{row:?}");
    }
}

#[test]
fn waiting_for_replicas_and_for_the_end_of_a_pause_is_parked_time() {
    let server = Server::redis_without_file().unwrap();
    let mut client = Client::connect(&server.socket()).unwrap();
    let mut other = Client::connect(&server.socket()).unwrap();
    let trace = Trace::start(Path::new("redis.toml"), server.pid(), &["--labels"]).unwrap();
    client.ask("SET a 1").unwrap();
    let waited = client.ask("WAIT 1 60").unwrap();
    assert_eq!(waited.answer, "0");
    other.ask("CLIENT PAUSE 60 WRITE").unwrap();
    let paused = client.ask("SET a 2").unwrap();
    let (rows, offset) = commands(&trace.finish().unwrap());

    let names: Vec<_> = rows
        .iter()
        .map(|row| row.attributes["command"].as_str())
        .collect();
    assert_eq!(names, ["set", "wait", "client|pause", "set"]);
    within_the_clients_time(&waited, &rows[1], offset);
    assert!(rows[1].places["replicas"] > PAUSE_NS, "{:?}", rows[1]);
    // It is processed twice, and is one request.
    within_the_clients_time(&paused, &rows[3], offset);
    assert!(rows[3].places["pause"] > PAUSE_NS, "{:?}", rows[3]);
}

#[test]
fn what_a_script_or_a_transaction_runs_is_part_of_it() {
    let server = Server::redis_without_file().unwrap();
    let mut client = Client::connect(&server.socket()).unwrap();
    let trace = Trace::start(Path::new("redis.toml"), server.pid(), &["--labels"]).unwrap();
    let script = "for i = 1, 100 do redis.call('INCR', 'n') end return redis.call('GET', 'n')";
    let ran = client.ask_words(&["EVAL", script, "0"]).unwrap();
    assert_eq!(ran.answer, "100");
    for command in ["MULTI", "INCR n", "INCR n"] {
        client.ask(command).unwrap();
    }
    assert_eq!(client.ask("EXEC").unwrap().answer, "101 102");
    let (rows, _) = commands(&trace.finish().unwrap());
    let names: Vec<_> = rows
        .iter()
        .map(|row| row.attributes["command"].as_str())
        .collect();
    assert_eq!(names, ["eval", "multi", "incr", "incr", "exec"]);
    assert!(rows.iter().all(|row| row.parked_ns == 0), "{rows:#?}");
}

#[test]
fn many_blocked_clients_are_as_many_requests() {
    let server = Server::redis_without_file().unwrap();
    let trace = Trace::start(Path::new("redis.toml"), server.pid(), &[]).unwrap();
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let socket = server.socket();
            thread::spawn(move || {
                let mut client = Client::connect(&socket).unwrap();
                for _ in 0..100 {
                    client.ask("BLPOP list 0").unwrap();
                }
            })
        })
        .collect();
    server
        .redis_benchmark(&["-t", "rpush", "-n", "800", "-c", "4", "-q"])
        .unwrap();
    // Their key is another one.
    let mut other = Client::connect(&server.socket()).unwrap();
    for number in 0..800 {
        other.ask(&format!("RPUSH list {number}")).unwrap();
    }
    for client in clients {
        client.join().unwrap();
    }
    let (rows, _) = commands(&trace.finish().unwrap());
    // redis-benchmark asks for two settings first.
    assert_eq!(rows.len(), 800 + 2 + 800 + 800);
    let parked = rows.iter().filter(|row| row.places["key"] > 0).count();
    assert!((1..=800).contains(&parked), "{parked}");
}
