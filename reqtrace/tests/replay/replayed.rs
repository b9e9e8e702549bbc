//! A replay: a recording in, the report and all files out, compared with golden files and with each other.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Cursor;
use std::path::PathBuf;

use reqtrace_analysis::aggregate::{Aggregator, Options};
use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::blame::Causes;
use reqtrace_analysis::report::{Ledger, Report};
use reqtrace_base::error::Result;
use reqtrace_output::csv::Limits;
use reqtrace_output::folded::{FoldedOptions, Part};
use reqtrace_output::formats::{FORMATS, Format};
use reqtrace_output::outputs::{OutputSpec, Target, open, settled};
use reqtrace_output::table;
use reqtrace_profile::Profiles;
use reqtrace_recording::{Ending, Event, Header, Reader};

use crate::decoded;

/// Files that are large as text, and the scenes that have golden ones of them: without a request, with samples, with
/// blame.
const LARGE: [&str; 2] = ["page.txt", "perfetto.txt"];
const IN_FULL: [&str; 3] = ["idle", "computing", "locks"];

/// All that comes out of a replay.
pub(crate) struct Replayed {
    pub(crate) report: Report,
    pub(crate) files: HashMap<&'static str, String>,
    #[cfg(feature = "parquet")]
    pub(crate) parquet: Vec<BTreeMap<String, String>>,
}

/// The file that is compared with another one, and not with a golden file.
const PARQUET: &str = "requests.parquet";

/// Formats with an option of their own, beside those of `--out`; of a trace with blame more.
const OPTIONS: [&str; 3] = ["pprof", "perfetto", "windows"];

pub(crate) fn run(recording: &[u8], slower_than_ns: u64) -> Replayed {
    let options = Options {
        slower_than_ns: (slower_than_ns > 0).then_some(slower_than_ns),
        ..Options::default()
    };
    run_with(recording, options)
}

pub(crate) fn run_with(recording: &[u8], options: Options) -> Replayed {
    let mut reader = Reader::open(Cursor::new(recording)).unwrap();
    let header = reader.header().clone();
    analysed(&header, options, |take| reader.read(take).unwrap().unwrap())
}

/// All that comes out of these events, which `read` hands out.
pub(crate) fn analysed(
    header: &Header,
    options: Options,
    read: impl FnOnce(&mut dyn FnMut(Event<'_>) -> Result<()>) -> Ending,
) -> Replayed {
    let folder = tempfile::tempdir().unwrap();
    let profiles = Profiles::parse(header.profile_texts(), "recorded").unwrap();
    let slower_than_ns = options.slower_than_ns.unwrap_or(0);
    let mut analysis = Aggregator::new(&profiles, header, options).unwrap();
    let outputs = OutputSpec {
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
        targets: OPTIONS
            .into_iter()
            .chain(header.blame.then_some("intervals"))
            .chain(cfg!(feature = "parquet").then_some("parquet"))
            .map(|option| Format::of(option).unwrap())
            .map(|format| (format, Target::File(folder.path().join(format.file_name))))
            .collect(),
        ..OutputSpec::default()
    };
    let columns = Columns::of(&profiles).unwrap();
    let mut exporters = settled(open(&outputs, &columns).unwrap());
    let ending = read(&mut |event| analysis.event(&event, &mut exporters));
    let report = analysis.finish(&ending, &mut exporters).unwrap();
    for exporter in &mut exporters {
        exporter.finish(&report).unwrap();
    }
    let written = FORMATS
        .iter()
        .map(|format| (format.file_name, folder.path().join(format.file_name)))
        .filter(|(name, path)| *name != PARQUET && path.exists())
        .map(|(name, path)| text_of(name, &fs::read(path).unwrap()));
    Replayed {
        files: written.collect(),
        #[cfg(feature = "parquet")]
        parquet: crate::parquet::rows(&folder.path().join(PARQUET)),
        report,
    }
}

/// A file as text, and what that is called.
fn text_of(name: &'static str, bytes: &[u8]) -> (&'static str, String) {
    match name {
        "report.html" => ("page.txt", decoded::page(bytes)),
        "profile.pb.gz" => ("pprof.txt", decoded::gzipped(bytes)),
        "trace.pftrace" => ("perfetto.txt", decoded::message(bytes)),
        text => (text, String::from_utf8(bytes.to_vec()).unwrap()),
    }
}

/// A file among the golden ones.
pub(crate) fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

pub(crate) fn is_blessed() -> bool {
    std::env::var("REQTRACE_BLESS").is_ok_and(|value| value == "1")
}

/// Compares with a golden file, or writes it when `REQTRACE_BLESS` is 1.
pub(crate) fn golden(name: &str, text: &str) {
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
pub(crate) fn scene(name: &str, recording: &[u8]) -> Replayed {
    let replayed = run(recording, 0);
    compare(name, &replayed);
    replayed
}

/// Compares all that comes out with golden files.
pub(crate) fn compare(name: &str, replayed: &Replayed) {
    for (file, text) in &replayed.files {
        if !LARGE.contains(file) || IN_FULL.contains(&name) {
            golden(&format!("{name}.{file}"), text);
        }
    }
    let page = table::render(&replayed.report, false, table::WIDTH);
    golden(&format!("{name}.table.txt"), &page);
    for line in page.lines() {
        assert!(line.chars().count() <= 100, "too wide: {line}");
    }
    check_csv(replayed);
    #[cfg(feature = "parquet")]
    crate::parquet::check(&replayed.files["requests.csv"], &replayed.parquet);
    check_windows(replayed);
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
pub(crate) fn check_csv(replayed: &Replayed) {
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

/// The rows of all windows add up to those of all requests, column by column, and none is longer than a second.
fn check_windows(replayed: &Replayed) {
    type Sums = BTreeMap<(String, String), u64>;
    let sums = |file: &str, is_of: fn(&str) -> bool| {
        let (mut sums, mut incomplete) = (Sums::new(), 0);
        let mut reader = csv::Reader::from_reader(replayed.files[file].as_bytes());
        let header = reader.headers().unwrap().clone();
        for record in reader.records() {
            let record = record.unwrap();
            let row: BTreeMap<&str, &str> = header.iter().zip(&record).collect();
            let number = |name: &str| row.get(name).map_or(0, |text| text.parse::<u64>().unwrap());
            let weight = number("weight").max(1);
            if row.get("complete") == Some(&"false") {
                incomplete += weight;
                continue;
            }
            incomplete += number("incomplete");
            let times = header
                .iter()
                .filter(|name| name.ends_with("_ns") && is_of(name));
            for name in times {
                let key = (row["request"].to_owned(), name.to_owned());
                *sums.entry(key).or_default() += number(name) * weight;
            }
            assert!(number("length_ns") <= 1_000_000_000);
            if let Some(slowest) = row.get("max_ns").filter(|text| !text.is_empty()) {
                assert!(number("p50_ns") <= number("p99_ns"));
                assert!(number("p99_ns") <= slowest.parse().unwrap());
            }
        }
        sums.retain(|_, ns| *ns > 0);
        (sums, incomplete)
    };
    let is_sum = |name: &str| {
        let others = [
            "start_unix_ns",
            "length_ns",
            "p50_ns",
            "p90_ns",
            "p99_ns",
            "max_ns",
        ];
        !others.contains(&name) && name != "waited_before_ns"
    };
    assert_eq!(sums("windows.csv", is_sum), sums("requests.csv", is_sum));
}

fn check_svg(svg: &str) {
    assert!(svg.contains("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(!svg.contains("@import") && !svg.contains("href=\"http"));
}

/// A recording among the golden files.
pub(crate) fn recorded(name: &str) -> Vec<u8> {
    let path = data(&format!("{name}.rec"));
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
