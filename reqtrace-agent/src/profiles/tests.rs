//! Profiles without a kernel: stacks in; files in a folder, and what somebody at the other end of a socket gets, out.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use prost::Message as _;
use reqtrace_analysis::report::{StackKind, StackLine, StacksRow};
use reqtrace_base::plain::Plain;
use reqtrace_output::pprof::NamesOfTimes;

use super::made::Made;
use super::queue::{About, MOST_WAITING, Queue};
use super::wire::PushRequest;
use super::writer::Writer;
use crate::config::{Folder, OffCpu, Share};
use crate::ids::Machine;
use crate::listen::Page as _;
use crate::metrics::Metrics;

/// 2026-11-24 15:59:00 UTC.
const BEGIN_NS: u64 = 1_795_535_940_000_000_000;
const MINUTE_NS: u64 = 60_000_000_000;

fn config(dir: &Path, max: u64, pyroscope: Option<u16>) -> OffCpu {
    OffCpu {
        every: Duration::from_secs(60),
        folder: Some(Folder {
            dir: dir.join("profiles"),
            spool: dir.join("profiles/.spool"),
            max,
            keep_free: Share::of_percent(0.001),
        }),
        pyroscope: pyroscope.map(|port| format!("http://127.0.0.1:{port}")),
    }
}

fn row(minute: u64, request: &str) -> Arc<StacksRow> {
    let line = StackLine {
        comm: Plain::of("shop"),
        request: request.to_owned(),
        user: vec!["main".to_owned()],
        kernel: Vec::new(),
        kind: StackKind::Blocked,
        class: None,
        ns: 100,
        count: 1,
        longest_ns: 0,
    };
    Arc::new(StacksRow {
        start_unix_ns: BEGIN_NS + minute * MINUTE_NS,
        length_ns: MINUTE_NS,
        request: request.to_owned(),
        recorded: 1,
        requests: 1,
        latency_ns: 100,
        stacks: vec![line],
        ..StacksRow::default()
    })
}

fn about() -> Arc<About> {
    Arc::new(About {
        service: "shop/a".to_owned(),
        names: NamesOfTimes::default(),
    })
}

/// The writer, and the way to it.
struct Started {
    writer: Writer,
    to: mpsc::SyncSender<Made>,
}

impl Started {
    fn write(&self, minute: u64, request: &str) {
        self.to
            .send(Made::of(&about(), &row(minute, request)).unwrap())
            .unwrap();
    }

    fn end(self) {
        drop(self.to);
        self.writer.end();
    }
}

fn start(config: &OffCpu) -> (Started, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::default());
    let machine = Machine::own().unwrap();
    let (to, from) = mpsc::sync_channel(64);
    let writer = Writer::start(config, &machine, &metrics, from).unwrap();
    (Started { writer, to }, metrics)
}

/// A port at which nobody listens.
fn nobodys_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Files below a folder that do not begin with a dot, in the order of their paths.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        match entry.file_type().unwrap().is_dir() {
            _ if name.starts_with('.') => {}
            true => all.extend(files(&entry.path())),
            false => all.push(entry.path()),
        }
    }
    all.sort();
    all
}

fn figure(metrics: &Metrics, name: &str) -> f64 {
    let text = metrics.text().unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("reqtrace_{name} ")));
    line.unwrap_or_else(|| panic!("{name}: {text}"))
        .parse()
        .unwrap()
}

fn wait_for(metrics: &Metrics, name: &str, wanted: f64) {
    let since = Instant::now();
    while figure(metrics, name) < wanted {
        assert!(
            since.elapsed() < Duration::from_secs(30),
            "{name}: {}",
            figure(metrics, name)
        );
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_profile_has_its_place_by_hour_and_service_and_its_type_in_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), 500 << 20, None);
    let (writer, metrics) = start(&config);
    for (minute, request) in [(0, "order"), (0, "sign up"), (1, "order")] {
        writer.write(minute, request);
    }
    writer.end();
    let all = files(&folder.path().join("profiles"));
    let places: Vec<String> = all
        .iter()
        .map(|path| {
            let below = path.strip_prefix(folder.path().join("profiles")).unwrap();
            let text = below.to_string_lossy();
            let (place, name) = text.rsplit_once('/').unwrap();
            assert!(name.starts_with("profiles-"), "{name}");
            let number = name.len() - name.rfind("-0000000").unwrap();
            format!("{place} {}", &name[name.len() - number..])
        })
        .collect();
    assert_eq!(
        places,
        [
            "date=2026-11-24/hour=15/service=shop%2Fa -00000001-order.pb.gz",
            "date=2026-11-24/hour=15/service=shop%2Fa -00000002-sign_up.pb.gz",
            "date=2026-11-24/hour=16/service=shop%2Fa -00000003-order.pb.gz",
        ]
    );
    let mode = fs::metadata(&all[0]).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o640);
    assert_eq!(figure(&metrics, "profiles_files_total"), 3.0);
    // The next agent counts on.
    let (writer, _) = start(&config);
    writer.write(2, "order");
    writer.end();
    let last = files(&folder.path().join("profiles")).pop().unwrap();
    assert!(
        last.to_string_lossy().ends_with("-00000004-order.pb.gz"),
        "{}",
        last.display()
    );
}

#[test]
fn the_oldest_go_when_there_is_no_room_and_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, metrics) = start(&config(folder.path(), 1_000, None));
    for minute in 0..20 {
        writer.write(minute, "order");
    }
    writer.end();
    let all = files(&folder.path().join("profiles"));
    let bytes: u64 = all
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    assert!(bytes <= 1_000 && !all.is_empty(), "{bytes}");
    let oldest = figure(&metrics, "profiles_dropped_total{cause=\"oldest\"}");
    assert_eq!(oldest, (20 - all.len()) as f64);
    assert!(all.last().unwrap().to_string_lossy().contains("-00000020-"));
}

/// Takes requests one after the other: gives what they have, and answers as it is asked to.
fn pyroscope(listener: TcpListener, answers: &'static [u16]) -> mpsc::Receiver<PushRequest> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut answers = answers.iter();
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            loop {
                let (mut head, mut length) = (String::new(), 0);
                while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
                if head.is_empty() {
                    break;
                }
                assert!(
                    head.starts_with("POST /push.v1.PusherService/Push HTTP/1.1\r\n"),
                    "{head}"
                );
                for line in head.to_ascii_lowercase().lines() {
                    if let Some(value) = line.strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                }
                assert!(
                    head.to_ascii_lowercase()
                        .contains("content-type: application/proto\r\n"),
                    "{head}"
                );
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let status = answers.next().copied().unwrap_or(200);
                if status == 200 {
                    send.send(PushRequest::decode(&body[..]).unwrap()).unwrap();
                }
                let answer = format!("HTTP/1.1 {status} As asked\r\ncontent-length: 0\r\n\r\n");
                (&stream).write_all(answer.as_bytes()).unwrap();
            }
        }
    });
    receive
}

#[test]
fn what_could_not_be_sent_is_sent_again_and_what_is_refused_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let port = nobodys_port();
    let (writer, metrics) = start(&config(folder.path(), 500 << 20, Some(port)));
    for minute in 0..3 {
        writer.write(minute, "order");
    }
    wait_for(
        &metrics,
        "profiles_failures_total{cause=\"unreachable\"}",
        1.0,
    );
    // The folder does not wait.
    wait_for(&metrics, "profiles_files_total", 3.0);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let taken = pyroscope(listener, &[503, 400]);
    wait_for(&metrics, "profiles_sent_total", 2.0);
    assert_eq!(
        figure(&metrics, "profiles_dropped_total{cause=\"refused\"}"),
        1.0
    );
    assert_eq!(
        figure(&metrics, "profiles_failures_total{cause=\"busy\"}"),
        1.0
    );
    assert_eq!(figure(&metrics, "profiles_waiting"), 0.0);
    writer.end();
    let taken: Vec<PushRequest> = taken.try_iter().collect();
    assert_eq!(taken.len(), 2);
    let series = &taken[0].series[0];
    let labels: Vec<_> = series
        .labels
        .iter()
        .map(|of| (&*of.name, &*of.value))
        .collect();
    let host = Machine::own().unwrap().host;
    assert_eq!(
        labels,
        [
            ("__name__", "off_cpu"),
            ("hostname", &host),
            ("request", "order"),
            ("service_name", "shop/a")
        ]
    );
    // What is in the folder, and an id of its own.
    let file = files(&folder.path().join("profiles")).remove(1);
    assert_eq!(series.samples[0].raw_profile, fs::read(file).unwrap());
    let id = &series.samples[0].id;
    assert_eq!((id.len(), &id[14..15]), (36, "8"));
    assert_ne!(*id, taken[1].series[0].samples[0].id);
}

#[test]
fn an_end_does_not_wait_for_who_is_away_and_counts_what_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let port = nobodys_port();
    let (writer, metrics) = start(&config(folder.path(), 500 << 20, Some(port)));
    for minute in 0..3 {
        writer.write(minute, "order");
    }
    wait_for(&metrics, "profiles_files_total", 3.0);
    let since = Instant::now();
    writer.end();
    assert!(since.elapsed() < Duration::from_secs(10));
    assert_eq!(
        figure(&metrics, "profiles_dropped_total{cause=\"ended\"}"),
        3.0
    );
}

#[test]
fn a_session_never_waits_for_the_writer() {
    let metrics = Arc::new(Metrics::default());
    let (queue, _from) = Queue::new(&metrics);
    for minute in 0..MOST_WAITING as u64 + 5 {
        queue.offer(&about(), &row(minute, "order"));
    }
    assert_eq!(
        figure(&metrics, "profiles_dropped_total{cause=\"queue_full\"}"),
        5.0
    );
}
