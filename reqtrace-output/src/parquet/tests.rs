use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use reqtrace_analysis::report::blame::{Blame, Causes};
use reqtrace_analysis::report::{Ledger, LostCpu, Origin, Places, TraceInfo};
use reqtrace_recording::Incomplete;

use super::*;
use crate::chunks::Limits;
use crate::rows::{Meta, Texts};
use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::blame::Cause;
use reqtrace_analysis::report::{Exporter, Report, RequestRow};
use reqtrace_base::plain::Plain;

/// An output that can be read, and that takes nothing while it stands still.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<(Vec<u8>, bool)>>);

impl io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut own = self.0.lock().unwrap();
        if own.1 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        own.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn of_trace() -> Columns {
    Columns {
        classes: ["redo log", "row lock", "disk", "network", "lock", "other"]
            .map(str::to_owned)
            .to_vec(),
        places: Places {
            parked: vec!["upstream".to_owned(), String::new()],
            queued: vec!["pool".to_owned(), String::new()],
        },
        attributes: vec!["status".to_owned(), "Host".to_owned()],
        ..Columns::default()
    }
}

/// Numbers as if by chance (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    /// Most are short and some far longer, as times of requests are.
    fn ns(&mut self) -> u64 {
        let shift = self.below(8);
        1_000 + (self.below(4_000_000) >> shift)
    }
}

/// Hands rows in which each column has values to an exporter.
fn write(exporter: &mut ParquetExporter, rows: u64) -> Report {
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let mut at_ns: u64 = 0;
    for id in 1..=rows {
        at_ns += chance.below(60_000);
        let mut ledger = Ledger::of(6, &of_trace().places);
        ledger.on_cpu_ns = chance.ns() / 10;
        ledger.run_queue_ns = chance.below(40_000);
        ledger.preempted_ns = if id % 16 == 0 { chance.ns() } else { 0 };
        ledger.unattributed_ns = if id % 512 == 0 { chance.ns() } else { 0 };
        let class = chance.below(6) as usize;
        // One of four never waits.
        ledger.classes[class] = if chance.below(4) > 0 { chance.ns() } else { 0 };
        if id % 8 == 0 {
            ledger.classes[2] += chance.ns();
            ledger.parked[(id / 8 % 2) as usize] = chance.ns();
            ledger.queued[(id / 16 % 2) as usize] = chance.ns();
        }
        let parts = ledger
            .classes
            .iter()
            .chain(&ledger.parked)
            .chain(&ledger.queued);
        ledger.latency_ns = parts.sum::<u64>()
            + ledger.on_cpu_ns
            + ledger.run_queue_ns
            + ledger.preempted_ns
            + ledger.unattributed_ns;
        let mut causes = Causes::default();
        causes.add(Cause::ALL[class], ledger.held_up_ns());
        let (comm, status) = (Plain::of("connection"), chance.below(5));
        let label = format!(
            "SELECT * FROM t{} WHERE id = {}",
            chance.below(9),
            chance.below(900)
        );
        exporter
            .request(&RequestRow {
                id,
                origin: Origin {
                    host: "db-17",
                    service: "mysql",
                    build_id: (id > 3).then_some("0123456789abcdef"),
                },
                start_unix_ns: 1_790_000_000_000_000_000 + at_ns,
                since_start_ns: at_ns as i64,
                request: if id % 4 == 0 { "commit" } else { "command" },
                pid: 4711,
                tid: 4800 + chance.below(64) as u32,
                comm: &comm,
                label: &Plain::of(&label),
                attributes: &[Plain::of(&format!("{status}00")), Plain::of("shop.example")],
                ledger: &ledger,
                blocks: 1 + chance.below(4) as u32,
                preemptions: u32::from(id % 16 == 0),
                incomplete: (id % 1_000 == 0).then_some(Incomplete::NoEnd),
                weight: 1,
                slow: None,
                waited_before_ns: (id % 2 == 0).then(|| chance.below(50_000)),
                lost: (id % 3 > 0).then_some(LostCpu {
                    interrupts_ns: id,
                    softirqs_ns: 10 * id,
                    steal_ns: (id % 2 == 0).then_some(100 * id),
                }),
                is_keyed: true,
                causes: Some(causes),
                blames: &[],
                kept: None,
            })
            .unwrap();
    }
    Report {
        trace: TraceInfo {
            host: "db-17".to_owned(),
            duration_ns: 60_000_000_000,
            alike: [("--labels".to_owned(), "yes".to_owned())].into(),
            ..TraceInfo::default()
        },
        blame: Some(Blame::default()),
        ..Report::default()
    }
}

fn written(rows: u64, limits: Limits) -> Vec<u8> {
    written_with(&of_trace(), rows, limits)
}

fn written_with(columns: &Columns, rows: u64, limits: Limits) -> Vec<u8> {
    let out = Shared::default();
    let mut exporter = ParquetExporter::new(Box::new(out.clone()), "x", columns, limits);
    let report = write(&mut exporter, rows);
    exporter.finish(&report).unwrap();
    drop(exporter);
    std::mem::take(&mut *out.0.lock().unwrap()).0
}

fn opened(bytes: &[u8], each: impl FnOnce(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows");
    std::fs::write(&path, bytes).unwrap();
    each(&path);
}

/// Rows and metadata of a file.
fn read(bytes: &[u8]) -> (Meta, u64) {
    let mut found = None;
    opened(bytes, |path| {
        let file = ParquetFile::open(path).unwrap();
        let meta = file.meta().clone();
        let mut rows = 0;
        let all = Texts {
            label: true,
            fingerprint: true,
            attributes: vec![0, 1],
        };
        file.read(&all, |row| {
            rows += 1;
            let ledger = row.ledger;
            let parts = ledger.blocked_ns() + ledger.parked_ns() + ledger.queued_ns();
            let parts = parts + ledger.on_cpu_ns + ledger.run_queue_ns + ledger.preempted_ns;
            assert_eq!(parts + ledger.unattributed_ns, ledger.latency_ns);
            assert_eq!(row.causes.unwrap().sum(), ledger.held_up_ns());
            assert_eq!(
                row.fingerprint.unwrap(),
                "SELECT * FROM t? WHERE id = ?".replace("t?", &row.label[14..16])
            );
            assert_eq!(row.attributes[1], "shop.example");
            Ok(())
        })
        .unwrap();
        found = Some((meta, rows));
    });
    found.unwrap()
}

#[test]
fn a_row_takes_few_bytes() {
    for (rows, most) in [(100_000, 30), (1_000, 100)] {
        let bytes = written(rows, Limits::default());
        let each = (bytes.len() as u64).div_ceil(rows);
        println!("{rows} rows: {} bytes, {each} a row", bytes.len());
        assert!(each <= most, "{rows} rows: {each} bytes a row");
        assert_eq!(read(&bytes).1, rows);
    }
}

/// Why there is no file of fingerprints apart: each file has them once, and its rows have numbers of some bits.
#[test]
fn a_file_has_each_fingerprint_once() {
    opened(&written(100_000, Limits::default()), |path| {
        let file = std::fs::File::open(path).unwrap();
        let metadata = ArrowReaderMetadata::load(&file, Default::default()).unwrap();
        let groups = metadata.metadata().row_groups().iter();
        let column = |name: &str| -> i64 {
            let columns = groups.clone().flat_map(RowGroupMetaData::columns);
            let own = columns.filter(|column| column.column_path().string() == name);
            own.map(ColumnChunkMetaData::compressed_size).sum()
        };
        let (fingerprints, labels) = (column("fingerprint"), column("label"));
        println!("100000 rows: {fingerprints} bytes of fingerprints, {labels} of labels");
        assert!(fingerprints <= 100_000, "{fingerprints} bytes");
    });
}

#[test]
fn metadata_is_what_is_known_of_the_trace() {
    let meta = read(&written(10, Limits::default())).0;
    assert_eq!(
        (meta.host.as_str(), meta.duration_ns),
        ("db-17", 60_000_000_000)
    );
    assert!(meta.has_labels && meta.has_causes);
    assert_eq!(meta.classes, of_trace().classes);
    assert_eq!(meta.places(), of_trace().places);
}

#[test]
fn columns_of_a_profile_never_hide_those_of_the_format() {
    let all = columns::columns(&Columns {
        classes: vec!["since start".to_owned()],
        attributes: vec!["host".to_owned(), "Service".to_owned(), "_host".to_owned()],
        ..Columns::default()
    });
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[12..15], ["_host", "_Service", "__host"]);
    assert!(names.contains(&"_since_start_ns"));
    let mut lower: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
    lower.sort();
    lower.dedup();
    assert_eq!(lower.len(), names.len());
}

#[test]
fn columns_of_a_file_are_those_of_its_schema_and_the_profiles_are_told_apart() {
    opened(&written(10, Limits::default()), |path| {
        let file = ParquetFile::open(path).unwrap();
        let columns = file.columns();
        let schema = file.schema_names();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, schema);
        let about = |about| {
            let those = columns.iter().filter(|column| column.about == about);
            those.map(|column| column.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(about(About::Attribute), ["status", "_Host"]);
        let parts = "redo_log row_lock disk network lock other upstream pool";
        let parts: Vec<String> = parts.split(' ').map(|part| format!("{part}_ns")).collect();
        assert_eq!(about(About::Part), parts);
        let causes = about(About::Cause);
        assert_eq!(causes.len(), Cause::ALL.len());
        assert!(causes.iter().all(|name| name.starts_with("cause_")));
        let fixed = about(About::Fixed);
        assert!(fixed.contains(&"parked_ns") && fixed.contains(&"slow"));
        assert_eq!(fixed.len() + 2 + parts.len() + causes.len(), names.len());
    });
}

#[test]
fn what_took_the_cpu_is_in_the_last_columns_of_a_trace_that_knows_it() {
    let columns = Columns {
        classes: ["redo log", "interrupt", "disk", "network", "lock", "other"]
            .map(str::to_owned)
            .to_vec(),
        ..of_trace()
    };
    let lost = ["interrupt_ns", "softirq_ns", "steal_ns"];
    let with = columns.clone().with_lost(true);
    let bytes = written_with(&with, 9, Limits::default());
    assert_eq!(read(&bytes).1, 9);
    opened(&bytes, |path| {
        let file = ParquetFile::open(path).unwrap();
        let described = file.columns();
        let names: Vec<&str> = described
            .iter()
            .map(|column| column.name.as_str())
            .collect();
        assert_eq!(names, file.schema_names());
        assert_eq!(names[names.len() - 3..], lost);
        let last = &described[names.len() - 3..];
        assert!(last.iter().all(|column| column.about == About::Fixed));
        // That of the wait class gives way.
        assert!(names.contains(&"_interrupt_ns"));
        let file = std::fs::File::open(path).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let batch = reader.build().unwrap().next().unwrap().unwrap();
        let values = |name: &str| {
            let column = batch.column_by_name(name).unwrap();
            let column = column.as_primitive::<Int64Type>();
            column.iter().take(4).collect::<Vec<_>>()
        };
        assert_eq!(values(lost[0]), [Some(1), Some(2), None, Some(4)]);
        assert_eq!(values(lost[1]), [Some(10), Some(20), None, Some(40)]);
        assert_eq!(values(lost[2]), [None, Some(200), None, Some(400)]);
    });
    // Files of other traces stay as they are.
    opened(&written_with(&columns, 9, Limits::default()), |path| {
        let names = ParquetFile::open(path).unwrap().schema_names();
        assert_eq!(names.last().unwrap(), "kept");
        assert!(names.iter().any(|name| name == "interrupt_ns"));
    });
}

#[test]
fn rows_beyond_the_limits_are_left_out_and_counted() {
    let limits = Limits {
        max_rows: Some(7),
        ..Limits::default()
    };
    let (meta, rows) = read(&written(100, limits));
    assert_eq!((rows, meta.beyond_limits), (7, 93));
    let most = 3 << 20;
    let limits = Limits {
        max_bytes: Some(most),
        ..Limits::default()
    };
    let bytes = written(200_000, limits);
    let (meta, rows) = read(&bytes);
    assert!(bytes.len() as u64 <= most, "{}", bytes.len());
    assert_eq!(rows + meta.beyond_limits, 200_000);
    assert!(rows > 10_000, "{rows}");
}

#[test]
fn an_output_that_stands_still_for_a_while_gets_a_whole_file() {
    let out = Shared::default();
    let mut exporter =
        ParquetExporter::new(Box::new(out.clone()), "x", &of_trace(), Limits::default());
    out.0.lock().unwrap().1 = true;
    let report = write(&mut exporter, 20_000);
    assert!(out.0.lock().unwrap().0.is_empty());
    out.0.lock().unwrap().1 = false;
    exporter.finish(&report).unwrap();
    let bytes = out.0.lock().unwrap().0.clone();
    assert_eq!(read(&bytes).1, 20_000);
}

#[test]
fn what_is_no_whole_file_is_refused() {
    let bytes = written(5_000, Limits::default());
    let refused = |bytes: &[u8]| {
        let mut error = None;
        opened(bytes, |path| {
            error = Some(ParquetFile::open(path).err().unwrap());
        });
        let error = error.unwrap();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    for cut in [4, bytes.len() / 2, bytes.len() - 1] {
        let error = refused(&bytes[..cut]);
        assert!(error.contains("no whole Parquet file"), "{error}");
    }
    // Of another program, and of a later version.
    let key = bytes.windows(8).rposition(|at| at == b"reqtrace").unwrap();
    let mut foreign = bytes.clone();
    let meta = bytes
        .windows(16)
        .position(|at| at == b"{\"schema_version")
        .unwrap();
    let key = bytes[..meta]
        .windows(8)
        .rposition(|at| at == b"reqtrace")
        .unwrap_or(key);
    foreign[key] = b'R';
    assert!(refused(&foreign).contains("has not written it"));
    let mut later = bytes.clone();
    let version = meta + "{\"schema_version\":".len();
    assert_eq!(later[version], b'1');
    later[version] = b'9';
    assert!(refused(&later).contains("has version 9 of the columns"));
}
