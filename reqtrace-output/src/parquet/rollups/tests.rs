//! A file as another reader of Parquet finds it.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, TimestampNanosecondType};
use arrow_array::{Array as _, RecordBatch};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use reqtrace_analysis::report::blame::Causes;

use super::*;
use crate::rollups::OfService;

const MINUTE_NS: u64 = 60_000_000_000;

fn columns() -> Columns {
    Columns {
        // One is called as a column that is there.
        classes: vec!["disk".to_owned(), "covered".to_owned()],
        places: Places {
            parked: vec!["reply".to_owned(), String::new()],
            queued: vec![String::new()],
        },
        ..Columns::default()
    }
}

fn requests(of: u64, has_causes: bool) -> Rollup {
    let columns = columns();
    let mut ledger = Ledger::of(columns.classes.len(), &columns.places);
    (ledger.on_cpu_ns, ledger.classes[0], ledger.classes[1]) = (of, 10 * of, 100 * of);
    (ledger.parked[0], ledger.parked[1], ledger.queued[0]) =
        (1_000 * of, 10_000 * of, 100_000 * of);
    ledger.latency_ns = 111_111 * of;
    let mut causes = Causes::default();
    causes.add(Cause::Disk, 7 * of);
    Rollup {
        minute_unix_ns: 5 * MINUTE_NS,
        level: Level::Type("order".to_owned()),
        build_id: None,
        figures: Figures::Requests(Box::new(OfRequests {
            recorded: of,
            requests: 4 * of,
            incomplete: Some(of),
            slow: None,
            ledger,
            causes: has_causes.then_some(causes),
            histogram: vec![of, 3 * of, 0],
        })),
    }
}

/// A file with these, and its rows.
fn file(rollups: &[Rollup]) -> (RollupsFile, RecordBatch) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rollups.parquet");
    let meta = RollupsMeta {
        service: "shop".to_owned(),
        edges_ns: vec![1_000, 2_000],
        most_groups: Some(2),
        ..RollupsMeta::default()
    };
    let out = Box::new(File::create(&path).unwrap());
    let mut exporter = RollupsExporter::new(out, "rollups", &columns(), meta);
    rollups.iter().for_each(|rollup| exporter.add(rollup));
    let (most, rows) = (exporter.size(), exporter.rows());
    exporter.finish("web-1").unwrap();
    assert_eq!(exporter.rows(), rows, "as many as it will have");
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(size <= most, "{size} {most}");
    let rows = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
    let rows = rows.build().unwrap().next().unwrap().unwrap();
    (RollupsFile::open(&path).unwrap(), rows)
}

fn number(rows: &RecordBatch, column: &str, at: usize) -> Option<i64> {
    let column = rows
        .column_by_name(column)
        .unwrap_or_else(|| panic!("{column}"));
    let column = column.as_primitive::<Int64Type>();
    column.is_valid(at).then(|| column.value(at))
}

#[test]
fn windows_of_a_minute_are_a_row_and_their_figures_add_up() {
    let service = |covered_ns: u64| Rollup {
        minute_unix_ns: 5 * MINUTE_NS,
        level: Level::Service,
        build_id: None,
        figures: Figures::Service(OfService {
            covered_ns,
            traced_ns: covered_ns / 2,
            lost: 1,
        }),
    };
    let group = Rollup {
        level: Level::Group("order".to_owned(), "SELECT ?".to_owned()),
        ..requests(1, false)
    };
    let later = Rollup {
        minute_unix_ns: 6 * MINUTE_NS,
        ..requests(9, false)
    };
    let all = [
        later,
        requests(1, true),
        service(10),
        requests(2, false),
        group,
        service(30),
    ];
    let (file, rows) = file(&all);
    assert_eq!((file.rows(), rows.num_rows()), (4, 4));
    let meta = file.meta();
    assert_eq!(
        (meta.start_unix_ns, meta.duration_ns),
        (5 * MINUTE_NS, 2 * MINUTE_NS)
    );
    assert_eq!(
        (&*meta.host, &*meta.service, meta.schema_version),
        ("web-1", "shop", 1)
    );
    let text = |column: &str| {
        let column = rows
            .column_by_name(column)
            .unwrap()
            .as_string::<i32>()
            .iter();
        column
            .map(|text| text.unwrap_or("-").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(text("level"), ["service", "type", "group", "type"]);
    assert_eq!(text("request"), ["-", "order", "order", "order"]);
    assert_eq!(text("request_group"), ["-", "-", "SELECT ?", "-"]);
    assert_eq!(text("host"), ["web-1"; 4]);
    let minutes = rows.column_by_name("minute").unwrap();
    let minutes = minutes.as_primitive::<TimestampNanosecondType>().values();
    assert_eq!(
        minutes[..],
        [5, 5, 5, 6].map(|minute| minute * MINUTE_NS as i64)
    );
    let of = |column: &str| [0, 1, 2, 3].map(|at| number(&rows, column, at));
    assert_eq!(of("covered_ns"), [Some(40), None, None, None]);
    assert_eq!(of("traced_ns"), [Some(20), None, None, None]);
    assert_eq!(of("lost"), [Some(2), None, None, None]);
    let types = |one: i64| [None, Some(3 * one), Some(one), Some(9 * one)];
    let wanted = [
        ("recorded", 1),
        ("requests", 4),
        ("incomplete", 1),
        ("latency_ns", 111_111),
        ("on_cpu_ns", 1),
        ("blocked_ns", 110),
        ("disk_ns", 10),
        ("_covered_ns", 100),
        ("parked_ns", 11_000),
        ("reply_ns", 1_000),
        ("queued_ns", 100_000),
    ];
    for (column, one) in wanted {
        assert_eq!(of(column), types(one), "{column}");
    }
    assert_eq!(of("slow"), [None; 4], "nothing says what is slow");
    assert_eq!(of("cause_disk_ns"), [None, Some(7), None, None]);
    let lists = |column: &str| {
        let lists = rows.column_by_name(column).unwrap().as_list::<i32>().iter();
        let list = lists.map(|list| Some(list?.as_primitive::<Int64Type>().values().to_vec()));
        list.collect::<Vec<_>>()
    };
    assert_eq!(lists("edges_ns")[..2], [None, Some(vec![1_000, 2_000])]);
    assert_eq!(lists("histogram")[..2], [None, Some(vec![3, 9, 0])]);
}

fn texts(rows: &RecordBatch, column: &str) -> Vec<String> {
    let column = rows.column_by_name(column).unwrap();
    let texts = column.as_string::<i32>().iter();
    texts.map(|text| text.unwrap_or("-").to_owned()).collect()
}

#[test]
fn a_minute_has_a_row_for_each_build_and_what_came_before_one_was_known_is_of_the_first() {
    let of = |number: u64, build_id: Option<&str>| Rollup {
        build_id: build_id.map(str::to_owned),
        ..requests(number, false)
    };
    let group = Rollup {
        level: Level::Group("order".to_owned(), "a".to_owned()),
        ..of(1, None)
    };
    let other_type = Rollup {
        level: Level::Type("pay".to_owned()),
        ..of(50, None)
    };
    let all = [
        of(1, None),
        group,
        other_type,
        of(2, Some("aa")),
        of(4, None),
        of(8, Some("bb")),
        of(16, None),
    ];
    let (file, rows) = file(&all);
    assert_eq!(file.rows(), 4);
    assert_eq!(texts(&rows, "level"), ["type", "type", "type", "group"]);
    assert_eq!(texts(&rows, "build_id"), ["aa", "bb", "-", "aa"]);
    let recorded = [0, 1, 2, 3].map(|at| number(&rows, "recorded", at).unwrap());
    assert_eq!(recorded, [1 + 2 + 4, 8 + 16, 50, 1]);
}

#[test]
fn groups_of_a_minute_beyond_those_that_are_told_apart_are_one_and_sums_stay() {
    let group = |name: &str, of: u64, minute: u64| Rollup {
        minute_unix_ns: minute * MINUTE_NS,
        level: Level::Group("order".to_owned(), name.to_owned()),
        ..requests(of, true)
    };
    // Each window has distinguished two.
    let all = [
        group("a", 1, 5),
        group("b", 2, 5),
        group("c", 7, 5),
        group("~other", 100, 5),
        group("a", 3, 5),
        group("d", 3, 5),
        group("a", 1, 6),
        group("b", 2, 6),
        group("c", 3, 6),
        group("b", 2, 7),
        group("a", 2, 7),
    ];
    let (file, rows) = file(&all);
    assert_eq!(file.rows(), 8);
    let minutes = rows.column_by_name("minute").unwrap();
    let minutes = minutes.as_primitive::<TimestampNanosecondType>().values();
    let names = texts(&rows, "request_group");
    let counted: Vec<_> = minutes
        .iter()
        .zip(&names)
        .zip(0..)
        .map(|((minute, name), at)| {
            let minute = minute / MINUTE_NS as i64;
            (
                minute,
                name.as_str(),
                number(&rows, "recorded", at).unwrap(),
            )
        })
        .collect();
    let wanted = [
        (5, "a", 4),
        (5, "c", 7),
        (5, "~other", 100 + 2 + 3),
        (6, "b", 2),
        (6, "c", 3),
        (6, "~other", 1),
        (7, "a", 2),
        (7, "b", 2),
    ];
    assert_eq!(counted, wanted);
    for column in [
        "requests",
        "latency_ns",
        "disk_ns",
        "cause_disk_ns",
        "parked_ns",
    ] {
        let sum: i64 = (0..8).map(|at| number(&rows, column, at).unwrap()).sum();
        let one = number(&file_of_one(), column, 0).unwrap();
        assert_eq!(sum, 126 * one, "{column}");
    }
    let histograms = rows.column_by_name("histogram").unwrap().as_list::<i32>();
    let counts: i64 = histograms
        .values()
        .as_primitive::<Int64Type>()
        .values()
        .iter()
        .sum();
    assert_eq!(counts, 126 * 4);
}

fn file_of_one() -> RecordBatch {
    file(&[requests(1, true)]).1
}

#[test]
fn columns_say_what_they_are_about() {
    let (file, rows) = file(&[requests(1, true)]);
    let described = file.columns();
    let schema = rows.schema();
    let names = schema.fields().iter().map(|field| field.name().clone());
    let own = described.iter().map(|column| column.name.clone());
    assert_eq!(own.collect::<Vec<_>>(), names.collect::<Vec<_>>());
    let about = |about: About| -> Vec<&str> {
        let those = described.iter().filter(|column| column.about == about);
        those.map(|column| column.name.as_str()).collect()
    };
    assert_eq!(about(About::Part), ["disk_ns", "_covered_ns", "reply_ns"]);
    assert_eq!(about(About::Cause).len(), Cause::ALL.len());
    assert!(about(About::Fixed).contains(&"queued_ns"));
    assert!(about(About::Attribute).is_empty());
}

#[test]
fn a_file_of_rows_is_none_of_roll_ups() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    std::fs::write(&path, b"PAR1").unwrap();
    let refused = RollupsFile::open(&path).err().unwrap().to_string();
    assert!(refused.contains("is no whole Parquet file"), "{refused}");
    let columns = Columns::default();
    let out = Box::new(File::create(&path).unwrap());
    let limits = crate::chunks::Limits::default();
    let mut rows = super::super::ParquetExporter::new(out, "a", &columns, limits);
    let report = reqtrace_analysis::report::Report::default();
    reqtrace_analysis::report::Exporter::finish(&mut rows, &report).unwrap();
    let refused = RollupsFile::open(&path).err().unwrap().to_string();
    assert!(refused.contains("it is no file of roll-ups"), "{refused}");
}
