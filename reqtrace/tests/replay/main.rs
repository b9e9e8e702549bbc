//! Recorded traces through decode, aggregate, classify and report, against golden files.
//!
//! `busy`, `idle` and `lost` are made by `scenes`; `shop.rec` and `mariadb.rec` are real traces, which
//! `cargo test --release -p reqtrace-tests --test golden -- --ignored` records anew (as root).
//! `REQTRACE_BLESS=1 cargo test -p reqtrace --test replay` writes the expected outputs anew. A golden
//! file that is missing is a failure.

#![allow(clippy::unwrap_used, reason = "a failure of a test")]

mod build;
mod keyed;
mod scenes;
mod views;

use std::collections::HashMap;
use std::fs;
use std::io::Cursor;
use std::path::PathBuf;

use reqtrace::aggregate::{Aggregator, FilterOptions, Options};
use reqtrace::classify::columns::Columns;
use reqtrace::profile::Profiles;
use reqtrace::report::blame::{Cause, Causes, Reason};
use reqtrace::report::csv::Limits;
use reqtrace::report::folded::{FoldedOptions, Part, Shows};
use reqtrace::report::outputs::{OutputOptions, Target, open};
use reqtrace::report::{Grouping, Ledger, Report, table};
use reqtrace_recording::{Reader, Writer};

/// All that comes out of a replay.
struct Replayed {
    report: Report,
    files: HashMap<&'static str, String>,
}

const FILES: [&str; 4] = [
    "summary.json",
    "requests.csv",
    "stacks.folded",
    "flamegraph.svg",
];

/// What a trace with blame has beside these.
const OF_BLAME: [&str; 3] = ["blame.csv", "chains.folded", "intervals.csv"];

fn run(recording: &[u8], slower_than_ns: u64) -> Replayed {
    let options = Options {
        slower_than_ns: (slower_than_ns > 0).then_some(slower_than_ns),
        ..Options::default()
    };
    run_with(recording, options)
}

fn run_with(recording: &[u8], options: Options) -> Replayed {
    let folder = tempfile::tempdir().unwrap();
    let mut reader = Reader::open(Cursor::new(recording)).unwrap();
    let header = reader.header().clone();
    let profiles = Profiles::parse(header.profile_texts(), "recorded").unwrap();
    let slower_than_ns = options.slower_than_ns.unwrap_or(0);
    let mut analysis = Aggregator::new(&profiles, &header, options).unwrap();
    let outputs = OutputOptions {
        out: Some(folder.path().to_owned()),
        rows: Limits {
            slower_than_ns,
            ..Limits::default()
        },
        stacks: FoldedOptions {
            part: if header.cpu_rate > 0 {
                Part::All
            } else {
                Part::OffCpu
            },
            ..FoldedOptions::default()
        },
        blame: header.blame,
        intervals: header
            .blame
            .then(|| Target::File(folder.path().join("intervals.csv"))),
        ..OutputOptions::default()
    };
    let columns = Columns::of(&profiles).unwrap();
    let mut exporters = open(&outputs, &columns).unwrap();
    let ending = reader.read(|event| analysis.event(&event, &mut exporters));
    let ending = ending.unwrap().unwrap();
    let report = analysis.finish(&ending, &mut exporters).unwrap();
    for exporter in &mut exporters {
        exporter.finish(&report).unwrap();
    }
    let of_blame = OF_BLAME.into_iter().filter(|_| header.blame);
    let read = |name| (name, fs::read_to_string(folder.path().join(name)).unwrap());
    Replayed {
        files: FILES.into_iter().chain(of_blame).map(read).collect(),
        report,
    }
}

/// A file among the golden ones.
fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn is_blessed() -> bool {
    std::env::var("REQTRACE_BLESS").is_ok_and(|value| value == "1")
}

/// Compares with a golden file, or writes it when `REQTRACE_BLESS` is 1.
fn golden(name: &str, text: &str) {
    let path = data(name);
    if is_blessed() {
        fs::write(&path, text).unwrap();
        return;
    }
    let wanted = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; REQTRACE_BLESS=1 writes it", path.display()));
    assert!(
        wanted == text,
        "{name} is not as it was; REQTRACE_BLESS=1 takes the new one:\n{text}"
    );
}

/// Replays a scene, and compares all that comes out.
fn scene(name: &str, recording: &[u8]) -> Replayed {
    let replayed = run(recording, 0);
    compare(name, &replayed);
    replayed
}

/// Compares all that comes out with golden files.
fn compare(name: &str, replayed: &Replayed) {
    for (file, text) in &replayed.files {
        golden(&format!("{name}.{file}"), text);
    }
    let page = table::render(&replayed.report, false, table::WIDTH);
    golden(&format!("{name}.table.txt"), &page);
    for line in page.lines() {
        assert!(line.chars().count() <= 100, "too wide: {line}");
    }
    check_csv(replayed);
    check_page(&replayed.report);
    check_svg(&replayed.files["flamegraph.svg"]);
}

/// The cells of the page add up to the report, and the stacks of each to its ledger.
fn check_page(report: &Report) {
    let page = report.page.as_ref().unwrap();
    for (index, request) in (0..).zip(&report.requests) {
        let mut ledger = Ledger::default();
        let mut causes = Causes::default();
        let mut count = 0;
        for cell in page.cells.iter().filter(|cell| cell.request == index) {
            let off: u64 = cell.stacks.iter().map(|(_, ns)| ns).sum();
            assert_eq!(off, cell.ledger.latency_ns - cell.ledger.on_cpu_ns);
            let held: u64 = cell.holdings.iter().map(|(_, ns)| ns).sum();
            assert_eq!(held, cell.causes.sum());
            ledger.add(&cell.ledger);
            causes.add_times(&cell.causes, 1);
            count += cell.count;
        }
        assert_eq!(count, request.rows);
        if request.classes_exact && request.rows > 0 {
            assert_eq!(ledger, request.ledger);
        }
        if let Some(blame) = &report.blame {
            assert_eq!(causes, blame.types[index as usize].causes);
        }
    }
    // A timeline has all that its request did off the CPU.
    for slow in &page.slowest {
        let Some(timeline) = &slow.timeline else {
            continue;
        };
        let own = timeline.segments.iter().filter(|segment| segment.lane == 0);
        let shown: u64 = own.map(|segment| segment.ns).sum();
        let [(_, left_out), _] = timeline.left_out;
        let off = slow.ledger.latency_ns - slow.ledger.on_cpu_ns;
        assert_eq!(shown + left_out + timeline.missing_ns, off, "{slow:?}");
    }
}

/// The ledger of every row closes, and the complete rows add up to the report.
fn check_csv(replayed: &Replayed) {
    let mut reader = csv::Reader::from_reader(replayed.files["requests.csv"].as_bytes());
    let header = reader.headers().unwrap().clone();
    let first_class = header
        .iter()
        .position(|name| name == "unattributed_ns")
        .unwrap()
        + 1;
    // Parked and queued time, and root causes, stand between them.
    let is_behind = |name: &str| ["blocks", "cause_on_cpu_ns", "parked_ns"].contains(&name);
    let has_keys = header.iter().any(|name| name == "parked_ns");
    let after_classes = header.iter().position(is_behind).unwrap();
    let (mut rows, mut previous_end) = (0, 0);
    let mut latency: HashMap<String, u64> = HashMap::new();
    for record in reader.records() {
        let record = record.unwrap();
        let text = |name: &str| &record[header.iter().position(|column| column == name).unwrap()];
        let value = |name: &str| text(name).parse::<u64>().unwrap();
        let classes: u64 = (first_class..after_classes)
            .map(|index| record[index].parse::<u64>().unwrap())
            .sum();
        assert_eq!(classes, value("blocked_ns"));
        let off: u64 = [
            "run_queue_ns",
            "preempted_ns",
            "blocked_ns",
            "unattributed_ns",
        ]
        .map(value)
        .into_iter()
        .sum();
        let away = match has_keys {
            true => value("parked_ns") + value("queued_ns"),
            false => 0,
        };
        assert_eq!(value("on_cpu_ns") + off + away, value("latency_ns"));
        if header.iter().any(|name| name == "cause_on_cpu_ns") {
            let causes = header.iter().filter(|name| name.starts_with("cause_"));
            let parked = if has_keys { value("parked_ns") } else { 0 };
            let held_up = value("blocked_ns") + value("unattributed_ns") + parked;
            assert_eq!(causes.map(value).sum::<u64>(), held_up);
        }
        let end = value("start_unix_ns") + value("latency_ns");
        assert!(end >= previous_end, "rows are in order of their end");
        previous_end = end;
        assert_eq!(text("complete") == "true", text("reason").is_empty());
        if text("complete") == "true" {
            rows += 1;
            *latency.entry(text("request").to_owned()).or_default() += value("latency_ns");
        }
    }
    let wanted: u64 = replayed
        .report
        .requests
        .iter()
        .map(|request| request.rows)
        .sum();
    assert_eq!(rows, wanted);
    for request in &replayed.report.requests {
        let ledger = &request.ledger;
        assert_eq!(
            ledger.on_cpu_ns
                + ledger.run_queue_ns
                + ledger.preempted_ns
                + ledger.held_up_ns()
                + ledger.queued_ns(),
            ledger.latency_ns
        );
        if request.classes_exact {
            let in_rows = latency.get(&request.name).copied().unwrap_or(0);
            assert_eq!(in_rows, ledger.latency_ns);
        }
    }
}

fn check_svg(svg: &str) {
    assert!(svg.contains("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(!svg.contains("@import") && !svg.contains("href=\"http"));
}

/// A recording among the golden files.
fn recorded(name: &str) -> Vec<u8> {
    let path = data(&format!("{name}.rec"));
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_real_trace_of_the_shop() {
    let replayed = scene("shop", &recorded("shop"));
    let request = &replayed.report.requests[0];
    assert!(request.classes_exact && request.count == 250);
    let classes = &replayed.report.classes;
    for (class, wanted) in ["journal", "stock lock", "payment"].into_iter().enumerate() {
        assert_eq!(classes[class], wanted);
        assert!(request.ledger.classes[class] > 0, "{wanted}");
    }
}

#[test]
fn a_real_trace_of_mariadb() {
    let options = Options {
        group_by: Some(Grouping::Fingerprint),
        ..Options::default()
    };
    let replayed = run_with(&recorded("mariadb"), options);
    compare("mariadb", &replayed);
    let request = &replayed.report.requests[0];
    assert!(request.classes_exact && request.count == request.rows);
    assert!(replayed.report.losses.is_empty());
    assert!(replayed.files["stacks.folded"].contains("dispatch_command"));
}

#[test]
fn a_real_trace_of_who_held_whom_up() {
    let replayed = scene("locks", &recorded("locks"));
    let blame = replayed.report.blame.as_ref().unwrap();
    for (of_type, request) in blame.types.iter().zip(&replayed.report.requests) {
        let blocked = request.ledger.held_up_ns();
        assert_eq!(of_type.causes.sum(), blocked, "{}", of_type.request);
        let rows = blame.rows.iter();
        let rows = rows.filter(|row| row.victim_request == of_type.request);
        assert_eq!(rows.map(|row| row.ns).sum::<u64>(), blocked);
    }
    let all: u64 = blame.types.iter().map(|of_type| of_type.causes.sum()).sum();
    let chains = blame.chains.iter();
    assert_eq!(chains.map(|chain| chain.ns).sum::<u64>(), all);
}

/// The format has not changed: what is read is written as it was.
#[test]
fn a_recording_that_is_written_again_has_the_same_bytes() {
    for name in ["shop", "mariadb", "locks"] {
        let bytes = recorded(name);
        let mut reader = Reader::open(Cursor::new(&bytes)).unwrap();
        let header = reader.header().clone();
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        let ending = reader.read(|event| writer.event(&event)).unwrap();
        assert!(ending.unwrap().is_whole());
        writer.flush().unwrap();
        let written = writer.into_inner();
        if is_blessed() {
            fs::write(data(&format!("{name}.rec")), written).unwrap();
            continue;
        }
        // A new field at the end, or another version of zstd: then REQTRACE_BLESS=1 writes them anew.
        assert!(written == bytes, "{name}");
    }
}

#[test]
fn requests_that_change_threads() {
    let recording = keyed::keyed();
    let options = Options {
        group_by: Some(Grouping::FingerprintOf("path".to_owned())),
        ..Options::default()
    };
    let replayed = run_with(&recording, options);
    compare("keyed", &replayed);
    let report = &replayed.report;
    assert_eq!(report.places.parked, ["client", "upstream", ""]);
    assert_eq!(report.places.queued, ["pool queue", ""]);
    let request = &report.requests[0];
    assert_eq!((request.count, request.rows), (80, 80));
    let ledger = &request.ledger;
    assert_eq!(ledger.parked[0], 80 * 800_000);
    assert_eq!(ledger.parked[1], 76 * 2_000_000 + 4 * 30_000_000);
    assert_eq!(ledger.parked[2], 20 * 10_000);
    assert_eq!(ledger.queued[0], 80 * 30_000 + 1_000 * (0..80).sum::<u64>());
    // Root causes are those of blocked and parked time, and the rest of it is said to be lost.
    let blame = report.blame.as_ref().unwrap();
    let [of_http, _] = blame.types.as_slice() else {
        panic!("{:?}", blame.types)
    };
    assert_eq!(of_http.causes.sum(), ledger.held_up_ns());
    let lost = of_http
        .unknown
        .iter()
        .find(|(reason, _)| *reason == Reason::Lost);
    assert_eq!(lost.map(|(_, ns)| *ns), Some(ledger.parked[2]));
    assert_eq!(of_http.causes.get(Cause::Disk), 80 * 300_000);
    let chains: u64 = blame.chains.iter().map(|chain| chain.ns).sum();
    assert_eq!(chains, ledger.held_up_ns());
    // The whole latency is in the stacks, with a frame for each place.
    let sum = |part| -> u64 {
        let options = FoldedOptions {
            part,
            ..FoldedOptions::default()
        };
        let lines = Shows::Stacks(options).lines(report);
        lines.iter().map(|(_, micros)| micros * 1000).sum()
    };
    let latency: u64 = report.requests.iter().map(|of| of.ledger.latency_ns).sum();
    assert!(sum(Part::All).abs_diff(latency) <= 10_000);
    let folded = &replayed.files["stacks.folded"];
    for frame in [
        "[parked: client]",
        "[parked: upstream]",
        "[parked]",
        "[queued: pool queue]",
    ] {
        assert!(folded.contains(&format!("http;{frame} ")), "{frame}");
    }
    let groups: Vec<_> = report.labels[0]
        .shown
        .iter()
        .map(|group| &group.label)
        .collect();
    assert_eq!(groups, ["/user/?/cart?x=\\n"]);
    assert!(
        report.warnings[0].contains("have a key that no request has"),
        "{:?}",
        report.warnings
    );
    let open = report.open[0]
        .place
        .as_ref()
        .map(|(words, _)| words.as_str());
    assert_eq!(open, Some("parked: upstream"));
}

#[test]
fn groups_of_a_number_need_no_labels() {
    let by = |name: &str| Options {
        group_by: Some(Grouping::Attribute(name.to_owned())),
        ..Options::default()
    };
    let report = run_with(&keyed::keyed(), by("status")).report;
    let groups = &report.labels[0].shown;
    let counts: Vec<_> = groups
        .iter()
        .map(|group| (group.label.as_str(), group.count))
        .collect();
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 80);
    assert!(
        counts.contains(&("500", 1)) && counts.contains(&("not found", 8)),
        "{counts:?}"
    );
}

#[test]
fn a_busy_server() {
    let replayed = scene("busy", &scenes::busy());
    let request = &replayed.report.requests[0];
    assert!(request.classes_exact);
    assert_eq!(request.count, request.rows);
    let redo_log = request.ledger.classes[0];
    assert!(redo_log > 0);
    assert!(replayed.files["stacks.folded"].contains("[run queue]"));
    assert!(!replayed.report.open.is_empty());
}

#[test]
fn a_server_whose_records_were_lost() {
    let replayed = scene("lost", &scenes::lost());
    let request = &replayed.report.requests[0];
    assert!(!request.classes_exact);
    assert!(request.rows < request.count);
    // Only complete requests were lost, so the estimate is the truth.
    let all = run(&scenes::nothing_lost(), 0);
    assert_eq!(request.ledger, all.report.requests[0].ledger);
    assert!(
        replayed
            .report
            .losses
            .iter()
            .any(|loss| loss.name == "ring_full")
    );
}

#[test]
fn an_idle_server() {
    let replayed = scene("idle", &scenes::idle());
    assert_eq!(replayed.files["stacks.folded"], "");
    assert_eq!(replayed.files["requests.csv"].lines().count(), 1);
    assert!(replayed.files["flamegraph.svg"].contains("No off-CPU time"));
    assert!(replayed.report.hints[0].contains("never hit"));
}

#[test]
fn a_narrow_terminal_breaks_no_line() {
    for recording in [
        scenes::busy(),
        scenes::lost(),
        scenes::idle(),
        scenes::open(),
    ] {
        let mut report = run(&recording, 0).report;
        report.warnings.push("these numbers are wrong ".repeat(9));
        for width in [40, 60, 80, 100] {
            let page = table::render(&report, true, width);
            for line in page.lines() {
                assert!(line.chars().count() <= width, "of {width}: {line}");
            }
            let warning = page.find("WARNING").unwrap();
            assert!(warning < page.find("REQUEST ").unwrap(), "{page}");
            if width >= 60 {
                let head = page
                    .lines()
                    .find(|line| line.starts_with("REQUEST"))
                    .unwrap();
                assert!(head.ends_with("P99      MAX"), "{page}");
            }
        }
    }
}

#[test]
fn a_name_that_comes_late_holds_from_then_on() {
    let report = run(&scenes::late_name(), 0).report;
    let class = |report: &Report, name: &str| {
        let index = report.classes.iter().position(|class| class == name);
        report.requests[0].ledger.classes[index.unwrap()]
    };
    assert!(class(&report, "redo log") > 0 && class(&report, "disk") > 0);
    let losses: Vec<_> = report
        .losses
        .iter()
        .map(|loss| loss.name.as_str())
        .collect();
    assert!(losses.contains(&"file_notice"), "{losses:?}");
}

#[test]
fn of_open_requests_the_long_ones_are_shown() {
    let report = run(&scenes::open(), 0).report;
    assert_eq!(report.open.len(), 2);
    let page = table::render(&report, false, table::WIDTH);
    assert!(page.contains("thread 9612"), "{page}");
    assert!(!page.contains("thread 9613"), "{page}");
    assert!(page.contains("2 blocked at stop"), "{page}");
}

#[test]
fn only_slow_requests() {
    let recording = scenes::busy();
    let all = run(&recording, 0);
    let slow = run(&recording, 5_000_000);
    assert_eq!(slow.report.requests[0].count, all.report.requests[0].count);
    let rows = |replayed: &Replayed| replayed.files["requests.csv"].lines().count();
    assert!(rows(&slow) > 1 && rows(&slow) < rows(&all));
    let folded = &slow.files["stacks.folded"];
    assert!(
        folded.contains("lock_wait") && !folded.contains("pread64"),
        "{folded}"
    );
}

#[test]
fn the_whole_latency_is_in_the_stacks() {
    let replayed = scene("computing", &scenes::computing());
    let ledgers = replayed.report.requests.iter().map(|of| &of.ledger);
    let (latency, on_cpu) = ledgers.fold((0, 0), |(latency, on_cpu), ledger| {
        (latency + ledger.latency_ns, on_cpu + ledger.on_cpu_ns)
    });
    let sum = |part| -> u64 {
        let options = FoldedOptions {
            part,
            ..FoldedOptions::default()
        };
        let lines = Shows::Stacks(options).lines(&replayed.report);
        lines.iter().map(|(_, micros)| micros * 1000).sum()
    };
    // Lines are whole microseconds.
    assert!(sum(Part::All).abs_diff(latency) <= 10_000);
    assert!(sum(Part::OnCpu).abs_diff(on_cpu) <= 5_000);
    assert_eq!(sum(Part::All), sum(Part::OnCpu) + sum(Part::OffCpu));
    let svg = &replayed.files["flamegraph.svg"];
    for name in ["on CPU", "disk", "run queue", "preempted", "network"] {
        assert!(svg.contains(&format!(">{name} ")), "{name}");
    }
    assert!(!svg.contains("<b>"));
    assert!(svg.chars().all(|c| c == '\n' || !c.is_control()));
    // The function that computes and blocks has no colour of its own.
    assert!(svg.contains("[on CPU, not sampled]"));
}

#[test]
fn folded_stacks_follow_their_options() {
    let report = run(&scenes::busy(), 0).report;
    let lines = |options| Shows::Stacks(options).lines(&report);
    let all = FoldedOptions::default();
    let has = |options, text: &str| lines(options).iter().any(|(line, _)| line.contains(text));
    assert!(has(all, "[preempted]") && has(all, "futex_wait") && !has(all, ";-;"));
    assert!(!has(
        FoldedOptions {
            blocked_only: true,
            ..all
        },
        "[preempted]"
    ));
    assert!(has(
        FoldedOptions {
            delimiter: true,
            ..all
        },
        ";-;"
    ));
    assert!(!has(
        FoldedOptions {
            kernel: false,
            ..all
        },
        "__schedule"
    ));
    assert!(!has(
        FoldedOptions { user: false, ..all },
        "dispatch_command"
    ));
    assert!(lines(all).iter().all(|(_, micros)| *micros > 0));
}

#[test]
fn a_filter_leaves_requests_out_of_everything() {
    let recording = scenes::busy();
    let all = run(&recording, 0).report;
    let filtered = |filter: FilterOptions| {
        let options = Options {
            filter,
            ..Options::default()
        };
        run_with(&recording, options)
    };
    let one = filtered(FilterOptions {
        tids: vec![9601],
        from_ns: Some(1_000_000_000),
        to_ns: Some(2_000_000_000),
        ..FilterOptions::default()
    });
    let rows = one.files["requests.csv"].lines().count() as u64 - 1;
    assert!(rows > 3 && rows < all.requests[0].rows / 4, "{rows}");
    assert!(
        one.files["requests.csv"]
            .lines()
            .skip(1)
            .all(|row| row.contains(",9601,"))
    );
    let report = &one.report;
    assert_eq!(report.requests[0].count, rows);
    let note = report.filtered.as_ref().unwrap();
    assert_eq!(
        (note.kept, note.kept + note.left_out),
        (rows, all.requests[0].rows + 3)
    );
    // Its stacks are those of its own requests, to the nanosecond.
    let stacks: u64 = report.stacks.iter().map(|line| line.ns).sum();
    let ledger = &report.requests[0].ledger;
    assert_eq!(stacks, ledger.blocked_ns() + ledger.unattributed_ns);
    let page = table::render(report, false, table::WIDTH);
    assert!(page.contains("Filter: thread 9601, begun"), "{page}");
    let hints = report.hints.join("\n");
    assert!(!hints.contains("never hit"), "{hints}");
    check_csv(&one);

    let nothing = filtered(FilterOptions {
        pids: vec![1],
        ..FilterOptions::default()
    });
    assert_eq!(nothing.report.requests[0].count, 0);
    assert_eq!(nothing.files["stacks.folded"], "");
}

#[test]
fn what_was_not_recorded_cannot_be_asked_for() {
    let recording = scenes::busy();
    let reader = Reader::open(Cursor::new(&recording[..])).unwrap();
    let header = reader.header();
    let profiles = Profiles::parse(header.profile_texts(), "recorded").unwrap();
    let refused = |options| {
        let error = Aggregator::new(&profiles, header, options).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        format!("{error} / {}", error.advice().unwrap())
    };
    let filter = |filter| Options {
        filter,
        ..Options::default()
    };
    let label = FilterOptions {
        label: Some("SELECT *".to_owned()),
        ..FilterOptions::default()
    };
    assert!(refused(filter(label)).contains("record with --labels"));
    let request = FilterOptions {
        requests: vec!["query".to_owned()],
        ..FilterOptions::default()
    };
    assert!(refused(filter(request)).contains("it has command"));
    let backwards = FilterOptions {
        from_ns: Some(2),
        to_ns: Some(1),
        ..FilterOptions::default()
    };
    assert!(refused(filter(backwards)).contains("--from"));
    let group = Options {
        group_by: Some(Grouping::Label),
        ..Options::default()
    };
    assert!(refused(group).contains("no labels"));
    let histogram = Options {
        histogram: true,
        ..Options::default()
    };
    assert!(refused(histogram).contains("record with --histogram"));
}

#[test]
fn a_recording_cut_anywhere_is_reported_with_what_it_has() {
    let whole = scenes::busy();
    let all = run(&whole, 0).report.requests[0].rows;
    let mut seen = std::collections::BTreeSet::new();
    for len in (0..whole.len()).step_by(97) {
        if Reader::open(Cursor::new(&whole[..len])).is_err() {
            continue;
        }
        let report = run(&whole[..len], 0).report;
        if report.trace.ended_by == "duration" {
            // Only what comes behind the end was cut off.
            continue;
        }
        seen.insert(report.requests[0].rows);
        assert!(
            report
                .losses
                .iter()
                .any(|loss| loss.name == "recording_unended")
        );
        assert_eq!(report.trace.ended_by, "recording ended");
        let known = |line: &reqtrace::report::StackLine| {
            line.user
                .iter()
                .chain(&line.kernel)
                .all(|frame| frame != "[unknown]")
        };
        assert!(report.stacks.iter().all(known));
        // The requests that are there have the classes of their places.
        assert_eq!(
            report
                .losses
                .iter()
                .filter(|l| l.name == "stacks_unknown")
                .count(),
            0
        );
    }
    assert!(
        seen.len() > 3 && seen.iter().all(|rows| *rows <= all),
        "{seen:?}"
    );
}
