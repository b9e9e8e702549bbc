//! Roll-ups without a kernel: windows in; what is on its way to the writer, and files, out.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

use proptest::prelude::*;
use reqtrace_analysis::cells::{Cell, One};
use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::{Ledger, Places};
use reqtrace_output::parquet::RollupsFile;
use reqtrace_output::rollups::OfRequests;

use super::*;
use crate::config::{self, Rows, Share};
use crate::ids::Machine;
use crate::listen::Page as _;
use crate::records::{Message, Writer};

const SECOND_NS: u64 = 1_000_000_000;
const WINDOW_NS: u64 = 10 * SECOND_NS;
/// 2026-11-24 15:58:00 UTC.
const BEGIN_NS: u64 = 1_795_535_880 * SECOND_NS;

fn of() -> Of {
    Of {
        service: "shop".to_owned(),
        profile: "shop".to_owned(),
        kernel: "6.18".to_owned(),
        columns: Columns {
            classes: vec!["disk".to_owned()],
            ..Columns::default()
        },
        has_causes: false,
        texts: false,
        most_groups: Some(2),
    }
}

/// Metrics of a service that has an slo of 7 ms.
fn metrics() -> Arc<Metrics> {
    let metrics = Arc::new(Metrics::default());
    let slo = Some(Duration::from_millis(7));
    metrics.want(&[("shop".to_owned(), slo)].into());
    metrics
}

fn begin(metrics: &Arc<Metrics>, window_ns: u64) -> (Rollups, Receiver<Message<Rollup>>) {
    let (way, from) = Way::new(metrics);
    (Rollups::new(of(), way, moment(BEGIN_NS), window_ns), from)
}

/// A window of requests of these durations, each for so many; half of each was on the CPU.
fn closed(durations: &[(u64, u32)], groups: &[&str]) -> Closed {
    let cell = |durations: &[(u64, u32)]| {
        let mut cell = Cell::default();
        for (at, (ns, weight)) in durations.iter().enumerate() {
            let mut ledger = Ledger::of(1, &Places::default());
            (ledger.latency_ns, ledger.on_cpu_ns) = (*ns, ns / 2);
            ledger.classes[0] = ns - ns / 2;
            cell.add(&One {
                id: at as u64,
                ledger: &ledger,
                weight: *weight,
            });
        }
        cell
    };
    let mut closed = Closed::new(!groups.is_empty());
    closed.add(&cell(durations), 3, false);
    for (group, one) in groups.iter().zip(durations) {
        closed.add_group(Some(group), &cell(&[*one]));
    }
    closed
}

fn window(begin_ns: u64, closed: Closed) -> (u64, BTreeMap<String, Closed>) {
    (begin_ns, [("order".to_owned(), closed)].into())
}

/// Of a clock that was never set.
fn moment(unix_ns: u64) -> Moment {
    Moment {
        monotonic_ns: unix_ns,
        unix_ns,
    }
}

fn hand(rollups: &mut Rollups, windows: &[(u64, BTreeMap<String, Closed>)], until_ns: u64) {
    let windows = windows.iter().map(|(begin_ns, types)| (*begin_ns, types));
    rollups.closed(windows, moment(until_ns));
}

fn come(from: &Receiver<Message<Rollup>>) -> Vec<Rollup> {
    let all = from.try_iter().flat_map(|message| match message {
        Message::Records(batch) => batch.records,
        _ => Vec::new(),
    });
    all.collect()
}

fn requests(rollup: &Rollup) -> &OfRequests {
    match &rollup.figures {
        Figures::Requests(of) => of,
        Figures::Service(_) => panic!("{rollup:?}"),
    }
}

fn of_service(rollup: &Rollup) -> (u64, OfService) {
    match rollup.figures {
        Figures::Service(of) => ((rollup.minute_unix_ns - BEGIN_NS) / MINUTE_NS, of),
        Figures::Requests(_) => panic!("{rollup:?}"),
    }
}

fn scraped(metrics: &Metrics, name: &str) -> f64 {
    let text = metrics.text().unwrap();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    value
        .unwrap_or_else(|| panic!("{name}\n{text}"))
        .parse()
        .unwrap()
}

proptest! {
    /// The figures are those that the metrics make of the same windows.
    #[test]
    fn figures_are_those_of_the_metrics(
        windows in prop::collection::vec(prop::collection::vec((1_u64..20_000_000_000, 1_u32..5), 0..8), 1..6),
    ) {
        let metrics = metrics();
        let (mut rollups, from) = begin(&metrics, WINDOW_NS);
        let windows: Vec<_> = windows.iter().zip(0..).map(|(durations, at)| {
            window(BEGIN_NS + at * WINDOW_NS, closed(durations, &[]))
        }).collect();
        hand(&mut rollups, &windows, BEGIN_NS + MINUTE_NS);
        for (_, types) in &windows {
            metrics.closed("shop", BEGIN_NS, 0, types);
        }
        let labels = "{service=\"shop\",type=\"order\"}";
        let page = {
            metrics.targets(&[("shop", 1)].into(), BTreeMap::new());
            metrics
        };
        let of = |name: &str| scraped(&page, &format!("reqtrace_{name}{labels}"));
        let all = come(&from);
        let all: Vec<&OfRequests> = all.iter().filter(|one| one.level != Level::Service).map(requests).collect();
        let sum = |of: fn(&OfRequests) -> u64| all.iter().map(|one| of(one)).sum::<u64>() as f64;
        prop_assert_eq!(sum(|of| of.requests), of("request_duration_seconds_count"));
        prop_assert_eq!(sum(|of| of.recorded), of("recorded_requests_total"));
        prop_assert_eq!(sum(|of| of.slow.unwrap()), of("slow_requests_total"));
        prop_assert_eq!(sum(|of| of.incomplete.unwrap()), of("incomplete_requests_total"));
        prop_assert_eq!(sum(|of| of.ledger.latency_ns) / 1e9, of("request_duration_seconds_sum"));
        prop_assert_eq!(sum(|of| of.ledger.on_cpu_ns + of.ledger.blocked_ns()), sum(|of| of.ledger.latency_ns));
        let mut below = 0;
        for (at, edge_ns) in crate::metrics::grid().enumerate() {
            below += all.iter().map(|one| one.histogram[at]).sum::<u64>();
            let edge = edge_ns as f64 / 1e9;
            let bucket = format!("reqtrace_request_duration_seconds_bucket{{service=\"shop\",type=\"order\",le=\"{edge:?}\"}}");
            prop_assert_eq!(below as f64, scraped(&page, &bucket), "{}", edge);
        }
    }
}

#[test]
fn what_comes_has_the_build_of_its_window() {
    let (mut rollups, from) = begin(&metrics(), WINDOW_NS);
    let mut closed = closed(&[(5, 1)], &["a"]);
    closed.of_build(Some("aa"));
    closed.of_build(None);
    hand(&mut rollups, &[window(BEGIN_NS, closed)], BEGIN_NS);
    let builds = come(&from).into_iter().map(|one| one.build_id);
    assert_eq!(
        builds.collect::<Vec<_>>(),
        [Some("aa".to_owned()), Some("aa".to_owned())]
    );
}

#[test]
fn a_window_is_one_of_the_minute_in_which_it_ends() {
    let minutes = |window_s: u64, begin_s: u64| {
        let (mut rollups, from) = begin(&metrics(), window_s * SECOND_NS);
        let begin_ns = BEGIN_NS + begin_s * SECOND_NS;
        let windows = [window(begin_ns, closed(&[(1, 1)], &[]))];
        hand(&mut rollups, &windows, BEGIN_NS);
        let all = come(&from);
        assert_eq!(all.len(), 1, "no time has passed: {all:?}");
        (all[0].minute_unix_ns - BEGIN_NS) / MINUTE_NS
    };
    assert_eq!(minutes(10, 40), 0);
    assert_eq!(minutes(10, 50), 0, "it ends when the minute does");
    assert_eq!(minutes(10, 60), 1);
    assert_eq!(minutes(7, 56), 1);
    assert_eq!(minutes(300, 0), 4);
}

#[test]
fn time_is_covered_from_the_begin_on_and_less_of_it_is_traced_where_windows_are_left_out() {
    let metrics = metrics();
    let (mut rollups, from) = begin(&metrics, WINDOW_NS);
    rollups.covered_until = moment(BEGIN_NS + 34 * SECOND_NS);
    rollups.lost(7);
    // What was closed before it began covers nothing.
    hand(&mut rollups, &[], BEGIN_NS);
    assert!(come(&from).is_empty());
    hand(&mut rollups, &[], BEGIN_NS + 70 * SECOND_NS);
    let all: Vec<_> = come(&from).iter().map(of_service).collect();
    let of = |covered_s: u64, traced_s: u64, lost| OfService {
        covered_ns: covered_s * SECOND_NS,
        traced_ns: traced_s * SECOND_NS,
        lost,
    };
    // The loss came with the last of the windows.
    assert_eq!(all, [(0, of(26, 26, 0)), (1, of(10, 10, 7))]);
    // Windows are closed later than what is left out changes.
    rollups.shed(Shed::Windows(4), BEGIN_NS + 78 * SECOND_NS);
    rollups.shed(Shed::Sample(16), BEGIN_NS + 102 * SECOND_NS);
    hand(&mut rollups, &[], BEGIN_NS + 90 * SECOND_NS);
    hand(&mut rollups, &[], BEGIN_NS + 110 * SECOND_NS);
    hand(&mut rollups, &[], BEGIN_NS + 120 * SECOND_NS);
    let all: Vec<_> = come(&from).iter().map(of_service).collect();
    let wanted = [of(20, 8 + 3, 0), of(20, 3 + 8, 0), of(10, 10, 0)];
    assert_eq!(all, wanted.map(|of| (1, of)));
    assert_eq!(rollups.sheds.len(), 1, "what is over is forgotten");
}

/// Whatever the clock is set to, and while the machine is suspended.
#[test]
fn what_is_covered_is_the_time_that_has_passed() {
    let (mut rollups, from) = begin(&metrics(), WINDOW_NS);
    rollups.shed(Shed::Windows(4), BEGIN_NS);
    // Until that second, when the clock is so many minutes ahead: seconds that are covered, by minute.
    let mut covered = |until_s: u64, ahead_minutes: i64| {
        let monotonic_ns = BEGIN_NS + until_s * SECOND_NS;
        let ahead_ns = ahead_minutes * MINUTE_NS.cast_signed();
        let until = Moment {
            monotonic_ns,
            unix_ns: monotonic_ns.saturating_add_signed(ahead_ns),
        };
        rollups.closed(std::iter::empty(), until);
        let all = come(&from);
        let all = all.iter().map(of_service).map(|(minute, of)| {
            assert_eq!(of.traced_ns, of.covered_ns / 4);
            (minute, of.covered_ns / SECOND_NS)
        });
        all.collect::<Vec<_>>()
    };
    assert_eq!(covered(30, 0), [(0, 30)]);
    // Suspended for eight hours.
    assert_eq!(covered(60, 480), [(480, 30)]);
    // Set to another year, and back.
    assert_eq!(covered(70, 1_576_800), [(1_576_801, 10)]);
    assert_eq!(covered(80, 0), [(1, 10)]);
    // A minute back: there are two of it.
    assert_eq!(covered(110, -1), [(0, 30)]);
    assert_eq!(covered(120, -1), [(0, 10)]);
    // Nothing has passed.
    assert_eq!(covered(120, 480), []);
    assert_eq!(covered(130, 480), [(482, 10)]);
}

#[test]
fn groups_with_the_least_time_are_one_and_all_are_the_type() {
    let (mut rollups, from) = begin(&metrics(), WINDOW_NS);
    let durations = [(5_000, 1), (70_000, 2), (9_000_000, 1), (10, 1)];
    let closed = closed(&durations, &["b", "c", "", "a"]);
    hand(&mut rollups, &[window(BEGIN_NS, closed)], BEGIN_NS);
    let all = come(&from);
    let levels: Vec<_> = all.iter().map(|one| one.level.clone()).collect();
    let group = |name: &str| Level::Group("order".to_owned(), name.to_owned());
    let wanted = [
        Level::Type("order".to_owned()),
        group("~none"),
        group("c"),
        group("~other"),
    ];
    assert_eq!(levels, wanted);
    let [of_type, groups @ ..] = all.as_slice() else {
        panic!("{all:?}");
    };
    let sum = |of: fn(&OfRequests) -> u64| groups.iter().map(|one| of(requests(one))).sum::<u64>();
    let of_type = requests(of_type);
    assert_eq!(sum(|of| of.requests), of_type.requests);
    assert_eq!(sum(|of| of.ledger.latency_ns), of_type.ledger.latency_ns);
    assert_eq!(sum(|of| of.slow.unwrap()), of_type.slow.unwrap());
    assert_eq!(
        (of_type.incomplete, requests(&groups[0]).incomplete),
        (Some(3), None)
    );
}

fn configuration(folder: &Path) -> Rows {
    Rows {
        dir: folder.join("rows"),
        spool: folder.join("rows/.spool"),
        keep_slow: None,
        one_in: 100,
        every: Duration::from_secs(1),
        bytes: 64 << 20,
        max: 500 << 20,
        keep_free: Share::of_percent(0.1),
        rollups: Some(config::Rollups {
            dir: folder.join("rollups"),
            spool: folder.join("rollups/.spool"),
            max: 100 << 20,
        }),
    }
}

fn files(of: &Path, end: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(of).into_iter().flatten().flatten() {
        match entry.path() {
            folder if folder.is_dir() => all.extend(files(&folder, end)),
            file if file.extension().is_some_and(|own| own == end) => all.push(file),
            _ => {}
        }
    }
    all.sort();
    all
}

/// Files have whole minutes; those of a writer that was killed are made again, with the windows of the open minute.
#[test]
fn files_have_whole_minutes_and_a_killed_writer_loses_no_window() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path()).of_rollups().unwrap();
    let machine = Machine::own().unwrap();
    let metrics = metrics();
    let (way, from) = Way::new(&metrics);
    let writer = Writer::<Rollup>::start(&config, &machine, &metrics, from).unwrap();
    let mut rollups = Rollups::new(of(), way.clone(), moment(BEGIN_NS), WINDOW_NS);
    // Three minutes, the last of which begins an hour.
    for at in 0..15 {
        let begin_ns = BEGIN_NS + at * WINDOW_NS;
        let windows = [window(begin_ns, closed(&[(1_000_000, 1)], &[]))];
        hand(&mut rollups, &windows, begin_ns + WINDOW_NS);
    }
    let since = std::time::Instant::now();
    while files(&config.dir, "parquet").len() < 2 {
        assert!(since.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(10));
    }
    // The open minute as a killed one leaves it, when its three windows are in the journal.
    let killed = tempfile::tempdir().unwrap();
    let of_killed = configuration(killed.path()).of_rollups().unwrap();
    let journal = || {
        let path = files(&config.spool, "journal").pop()?;
        let left = crate::records::journal::Left::open(&path).ok()??;
        let mut count = 0;
        left.records(|_: Rollup| {
            count += 1;
            Ok(())
        })
        .ok()?;
        (count == 6).then_some(path)
    };
    let path = loop {
        if let Some(path) = journal() {
            break path;
        }
        assert!(since.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(10));
    };
    fs::create_dir_all(&of_killed.spool).unwrap();
    fs::copy(&path, of_killed.spool.join(path.file_name().unwrap())).unwrap();
    rollups.end();
    way.stop();
    writer.wait();
    let tables = files(&config.dir, "parquet");
    assert_eq!(tables.len(), 3);
    for (table, minute) in tables.iter().zip(0..) {
        let file = RollupsFile::open(table).unwrap();
        assert_eq!(file.rows(), 2, "the service and a type");
        let meta = file.meta();
        assert_eq!(meta.start_unix_ns, BEGIN_NS + minute * MINUTE_NS);
        assert_eq!(
            (meta.duration_ns, meta.slow_above_ns),
            (MINUTE_NS, Some(7_000_000))
        );
        assert_eq!((&*meta.service, &meta.host), ("shop", &machine.host));
    }
    let hours = tables
        .iter()
        .map(|path| path.to_string_lossy().contains("/hour=15/"));
    assert_eq!(hours.collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(scraped(&metrics, "reqtrace_rollups_written_total"), 6.0);
    assert_eq!(scraped(&metrics, "reqtrace_rollups_files_total"), 3.0);

    let again = Arc::new(Metrics::default());
    let (way, from) = Way::new(&again);
    let writer = Writer::<Rollup>::start(&of_killed, &machine, &again, from).unwrap();
    way.stop();
    writer.wait();
    assert_eq!(scraped(&again, "reqtrace_rollups_made_again_total"), 2.0);
    let made = files(&of_killed.dir, "parquet");
    assert_eq!(fs::read(&made[0]).unwrap(), fs::read(&tables[2]).unwrap());
}

#[test]
fn without_room_roll_ups_are_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let rows = Rows {
        keep_free: Share::of_percent(100.0),
        ..configuration(folder.path())
    };
    let config = rows.of_rollups().unwrap();
    let metrics = metrics();
    let (way, from) = Way::new(&metrics);
    let writer = Writer::<Rollup>::start(&config, &Machine::own().unwrap(), &metrics, from);
    let writer = writer.unwrap();
    let mut rollups = Rollups::new(of(), way.clone(), moment(BEGIN_NS), WINDOW_NS);
    let windows = [window(BEGIN_NS, closed(&[(1_000_000, 1)], &[]))];
    hand(&mut rollups, &windows, BEGIN_NS + WINDOW_NS);
    rollups.end();
    way.stop();
    writer.wait();
    assert!(files(&config.dir, "parquet").is_empty());
    let dropped = "reqtrace_rollups_dropped_total{cause=\"disk\"}";
    assert_eq!(scraped(&metrics, dropped), 2.0, "the service and a type");
    assert_eq!(scraped(&metrics, "reqtrace_rollups_files_total"), 0.0);
}
