//! Rows without a kernel: batches in, and what a reader finds in the target folder.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqtrace_analysis::classify::columns::Columns;
use reqtrace_analysis::report::{Ledger, Origin, Places, RequestRow};
use reqtrace_base::plain::Plain;
use reqtrace_output::parquet::ParquetFile;
use reqtrace_output::rows::{Meta, Texts};

use super::queue::{Chosen, Queue};
use super::{KIND, Row};
use crate::config::{Rows, Share};
use crate::ids::Machine;
use crate::listen::Page as _;
use crate::metrics::Metrics;
use crate::records::journal::Left;
use crate::records::{Message, Of, Way, Writer};
use crate::spool::Spool;
use crate::spool::paths::escaped;

/// 2026-11-24 15:59:59.9 UTC.
const NOW_NS: u64 = 1_795_535_999_900_000_000;

fn config(dir: &Path) -> Rows {
    Rows {
        dir: dir.join("rows"),
        spool: dir.join("rows/.spool"),
        keep_slow: Some(Duration::from_millis(1)),
        one_in: 1,
        every: Duration::from_secs(300),
        bytes: 64 << 20,
        max: 500 << 20,
        keep_free: Share::of_percent(0.001),
        rollups: None,
    }
}

fn machine() -> Arc<Machine> {
    Arc::new(Machine::own().unwrap())
}

/// A writer, and the way to it.
fn begin(config: &Rows, metrics: &Arc<Metrics>) -> (Queue, Writer<Row>) {
    let (queue, from) = Queue::new(config, &machine(), false, metrics);
    let writer = Writer::start(config, &machine(), metrics, from).unwrap();
    (queue, writer)
}

fn of(service: &str, texts: bool) -> Of {
    Of {
        service: service.to_owned(),
        profile: "mysql".to_owned(),
        kernel: "6.18".to_owned(),
        columns: Columns {
            classes: vec!["disk".to_owned()],
            attributes: vec!["user".to_owned()],
            ..Columns::default()
        },
        has_causes: false,
        texts,
        most_groups: None,
    }
}

/// Hands requests to a session's choice, each 1 ms after the other, the tenth of ten of 2 ms.
fn serve(chosen: &mut Chosen, ids: std::ops::Range<u64>) {
    let mut exporter = super::queue::tests::exporter(chosen);
    for id in ids {
        let latency_ns = if id.is_multiple_of(10) {
            2_000_000
        } else {
            500_000
        };
        let mut ledger = Ledger::of(1, &Places::default());
        (ledger.latency_ns, ledger.on_cpu_ns) = (latency_ns, latency_ns);
        let label = Plain::of("SELECT canary FROM t WHERE id = 1");
        exporter(&RequestRow {
            id,
            origin: Origin::default(),
            start_unix_ns: NOW_NS + id * 1_000_000,
            since_start_ns: (id * 1_000_000) as i64,
            request: "command",
            pid: 1,
            tid: 2,
            comm: &Plain::of("db"),
            label: &label,
            attributes: &[Plain::of("canary-user")],
            ledger: &ledger,
            blocks: 0,
            preemptions: 0,
            incomplete: None,
            weight: 1,
            slow: None,
            waited_before_ns: None,
            lost: None,
            is_keyed: false,
            causes: None,
            blames: &[],
            kept: None,
        });
    }
}

/// Paths of all files in the target, and in the spool.
fn files(of: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(of).into_iter().flatten().flatten() {
        match entry.path() {
            folder if folder.is_dir() => all.extend(files(&folder)),
            file => all.push(file),
        }
    }
    all.sort();
    all
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    let all = files(dir);
    let tables = all.into_iter();
    tables
        .filter(|file| file.extension().is_some_and(|end| end == "parquet"))
        .collect()
}

/// What is known of a file; its rows, Σ weight and all its labels, fingerprints and attributes.
fn read(path: &Path) -> (Meta, u64, u64, Vec<String>) {
    let file = ParquetFile::open(path).unwrap();
    let meta = file.meta().clone();
    let texts = Texts {
        label: true,
        fingerprint: true,
        attributes: vec![0],
    };
    let (mut rows, mut weight, mut all) = (0, 0, Vec::new());
    file.read(&texts, |row| {
        rows += 1;
        weight += u64::from(row.weight);
        let label = [
            row.label,
            row.fingerprint.unwrap_or_default(),
            row.attributes[0],
        ];
        all.extend(
            label
                .into_iter()
                .filter(|text| !text.is_empty())
                .map(str::to_owned),
        );
        Ok(())
    })
    .unwrap();
    (meta, rows, weight, all)
}

fn scraped(metrics: &Metrics, name: &str) -> f64 {
    let text = metrics.text().unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("{name} in {text}"))
        .parse()
        .unwrap()
}

fn dropped(metrics: &Metrics, cause: &str) -> f64 {
    scraped(
        metrics,
        &format!("reqtrace_rows_dropped_total{{cause=\"{cause}\"}}"),
    )
}

#[test]
fn rows_are_in_their_partitions_and_only_whole_files_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let (config, metrics) = (config(folder.path()), Arc::new(Metrics::default()));
    let (queue, writer) = begin(&config, &metrics);
    let mut chosen = Chosen::new(of("shop/eu:1", false), queue.clone());
    // It goes on beyond the full hour.
    serve(&mut chosen, 1..301);
    chosen.end();
    queue.stop();
    writer.wait();
    let tables = tables(&config.dir);
    let places: Vec<String> = tables
        .iter()
        .map(|path| {
            path.strip_prefix(&config.dir)
                .unwrap()
                .parent()
                .unwrap()
                .display()
                .to_string()
        })
        .collect();
    let date = "date=2026-11-24/hour=15/service=shop%2Feu%3A1";
    assert_eq!(places, [date, &date.replace("=15", "=16")]);
    let mut sum = 0;
    for (number, table) in (1..).zip(&tables) {
        let name = table.file_name().unwrap().to_string_lossy();
        assert!(
            name.starts_with("rows-") && name.ends_with(&format!("-{number:08}.parquet")),
            "{name}"
        );
        assert_eq!(
            fs::metadata(table).unwrap().permissions().mode() & 0o777,
            0o640
        );
        let (meta, rows, weight, texts) = read(table);
        assert!(texts.is_empty(), "{texts:?}");
        assert!(
            !fs::read(table)
                .unwrap()
                .windows(6)
                .any(|at| at == b"canary")
        );
        assert_eq!(
            (meta.alike["slow above"].as_str(), rows),
            ("1000000 ns", weight)
        );
        sum += rows;
    }
    assert_eq!(sum, 300);
    assert_eq!(scraped(&metrics, "reqtrace_rows_written_total"), 300.0);
    assert_eq!(scraped(&metrics, "reqtrace_rows_files_total"), 2.0);
    assert!(scraped(&metrics, "reqtrace_rows_kept_bytes") > 0.0);
    assert_eq!(
        files(&config.spool).len(),
        2,
        "the lock and the next number"
    );
}

#[test]
fn texts_are_there_where_the_rule_asks_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let (config, metrics) = (config(folder.path()), Arc::new(Metrics::default()));
    let (queue, writer) = begin(&config, &metrics);
    let mut chosen = Chosen::new(of("shop", true), queue.clone());
    serve(&mut chosen, 1..2);
    chosen.end();
    queue.stop();
    writer.wait();
    let (_, _, _, texts) = read(&tables(&config.dir)[0]);
    assert_eq!(texts.len(), 3, "{texts:?}");
}

#[test]
fn weights_stand_for_those_that_were_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let config = Rows {
        one_in: 10,
        ..config(folder.path())
    };
    let metrics = Arc::new(Metrics::default());
    let (queue, writer) = begin(&config, &metrics);
    let mut chosen = Chosen::new(of("shop", false), queue.clone());
    serve(&mut chosen, 1..20_001);
    chosen.end();
    queue.stop();
    writer.wait();
    let read: Vec<_> = tables(&config.dir).iter().map(|path| read(path)).collect();
    let rows: u64 = read.iter().map(|(_, rows, ..)| rows).sum();
    let weight: u64 = read.iter().map(|(_, _, weight, _)| weight).sum();
    // 2,000 slow ones and 10 for each of those that were drawn; Var = 10 × 9 for each of some 1,800.
    assert_eq!(weight, 2_000 + 10 * (rows - 2_000));
    let error = weight as f64 - 20_000.0;
    assert!(error.abs() <= 4.0 * f64::sqrt(90.0 * 1_800.0), "{weight}");
}

#[test]
fn half_made_files_go_and_no_name_is_given_twice() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let (mut spool, half_made) = Spool::open(&KIND, config.folders(), &machine()).unwrap();
    assert_eq!(half_made, 0);
    let (first, file) = spool.begin("").unwrap();
    let (second, _) = spool.begin("").unwrap();
    spool.hand_over(&first, &file, "shop", 1).unwrap();
    let refused = Spool::open(&KIND, config.folders(), &machine()).unwrap_err();
    assert!(refused.to_string().contains("another agent"), "{refused}");
    // It is killed; a reader takes away what was handed over.
    drop(spool);
    let handed: Vec<PathBuf> = tables(&config.dir);
    assert_eq!(handed.len(), 1);
    fs::remove_file(&handed[0]).unwrap();
    let (mut spool, half_made) = Spool::open(&KIND, config.folders(), &machine()).unwrap();
    assert_eq!(half_made, 1);
    let (third, _) = spool.begin("").unwrap();
    assert!(![first, second].contains(&third));
    assert!(tables(&config.dir).is_empty());
    // Without its own record the spool counts on from what is there.
    let (fourth, file) = spool.begin("").unwrap();
    spool.hand_over(&fourth, &file, "shop", 1).unwrap();
    drop(spool);
    fs::remove_file(config.spool.join("next")).unwrap();
    let (mut spool, _) = Spool::open(&KIND, config.folders(), &machine()).unwrap();
    assert!(spool.begin("").unwrap().0 > fourth);
}

/// All files of a writer that waits for rows, as a killed one would leave them.
fn copied(from: &Path, to: &Path) -> Rows {
    let of = config(from);
    let copy = config(to);
    fs::create_dir_all(&copy.spool).unwrap();
    for path in files(&of.spool) {
        fs::copy(&path, copy.spool.join(path.file_name().unwrap())).unwrap();
    }
    copy
}

/// Starts a writer that finds what another one has left, and ends it.
fn go_on(config: &Rows) -> Arc<Metrics> {
    let metrics = Arc::new(Metrics::default());
    let (queue, writer) = begin(config, &metrics);
    queue.stop();
    writer.wait();
    let left = files(&config.spool);
    let is_left = |path: &&PathBuf| {
        path.extension()
            .is_some_and(|end| end == "journal" || end == "part")
    };
    assert_eq!(left.iter().find(is_left), None);
    metrics
}

#[test]
fn rows_of_a_killed_writer_are_there_once_whenever_it_was_killed() {
    const ROWS: u64 = 500;
    let folder = tempfile::tempdir().unwrap();
    let of_folder = config(folder.path());
    let metrics = Arc::new(Metrics::default());
    let (queue, writer) = begin(&of_folder, &metrics);
    let mut chosen = Chosen::new(of("shop", false), queue.clone());
    serve(&mut chosen, 0..50);
    serve(&mut chosen, 50..50 + ROWS);
    chosen.hand_over();
    let since = std::time::Instant::now();
    let journal = |of: &Rows| {
        let mut all = files(&of.spool).into_iter();
        all.find(|path| path.extension().is_some_and(|end| end == "journal"))
    };
    let rows_of = |path: &Path| {
        let mut rows = 0;
        let left = Left::open(path).unwrap();
        left.map_or(0, |left| {
            left.records(|_: Row| {
                rows += 1;
                Ok(())
            })
            .unwrap();
            rows
        })
    };
    // The hour ends in between: a first file is handed over.
    while journal(&of_folder).is_none_or(|path| rows_of(&path) < ROWS - 50) {
        assert!(since.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(10));
    }
    let in_journal = rows_of(&journal(&of_folder).unwrap());
    let handed: u64 = tables(&of_folder.dir).iter().map(|path| read(path).1).sum();
    assert_eq!(handed + in_journal, 50 + ROWS);

    // Before the file was whole.
    let killed = tempfile::tempdir().unwrap();
    let of_killed = copied(folder.path(), killed.path());
    let seen = go_on(&of_killed);
    assert_eq!(
        scraped(&seen, "reqtrace_rows_made_again_total"),
        in_journal as f64
    );
    let made = tables(&of_killed.dir);
    assert_eq!(made.len(), 1);
    assert_eq!(read(&made[0]).1, in_journal);
    // A second start finds nothing.
    go_on(&of_killed);
    assert_eq!(tables(&of_killed.dir), made);

    // Between that and the hand-over.
    let whole = tempfile::tempdir().unwrap();
    let of_whole = copied(folder.path(), whole.path());
    let name = made[0].file_name().unwrap().to_str().unwrap();
    let journal_of = |of: &Rows| of.spool.join(format!("{name}.journal"));
    fs::copy(&made[0], of_whole.spool.join(format!("{name}.part"))).unwrap();
    let left = Left::open(&journal_of(&of_whole)).unwrap().unwrap();
    left.go_on().unwrap().note_whole().unwrap();
    let seen = go_on(&of_whole);
    assert_eq!(scraped(&seen, "reqtrace_rows_made_again_total"), 0.0);
    let again = tables(&of_whole.dir);
    assert_eq!(again.len(), 1);
    assert_eq!(fs::read(&again[0]).unwrap(), fs::read(&made[0]).unwrap());

    // Behind it: a reader has taken the file away.
    let behind = tempfile::tempdir().unwrap();
    let of_behind = copied(folder.path(), behind.path());
    let left = Left::open(&journal_of(&of_behind)).unwrap().unwrap();
    left.go_on().unwrap().note_whole().unwrap();
    fs::remove_file(of_behind.spool.join(format!("{name}.part"))).unwrap();
    go_on(&of_behind);
    assert!(tables(&of_behind.dir).is_empty());

    chosen.end();
    queue.stop();
    writer.wait();
    let all: u64 = tables(&of_folder.dir).iter().map(|path| read(path).1).sum();
    assert_eq!(all, 50 + ROWS);
}

#[test]
fn the_oldest_go_first_when_there_are_too_many() {
    let folder = tempfile::tempdir().unwrap();
    let config = Rows {
        max: 200_000,
        bytes: 100_000,
        ..config(folder.path())
    };
    let metrics = Arc::new(Metrics::default());
    let (queue, writer) = begin(&config, &metrics);
    for session in 0..60 {
        // A file for each.
        let mut chosen = Chosen::new(of("shop", false), queue.clone());
        serve(&mut chosen, session * 100..(session + 1) * 100);
        chosen.end();
    }
    queue.stop();
    writer.wait();
    let tables = tables(&config.dir);
    let bytes: u64 = tables
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    assert!(tables.len() > 1 && bytes <= 200_000, "{bytes} {tables:?}");
    let left: u64 = tables.iter().map(|path| read(path).1).sum();
    let gone = dropped(&metrics, "oldest");
    assert_eq!(left as f64 + gone, 6_000.0);
    let seconds = scraped(
        &metrics,
        "reqtrace_rows_dropped_seconds_total{cause=\"oldest\"}",
    );
    assert!(seconds > 0.09 * gone / 100.0, "{seconds} {gone}");
    let last = tables
        .last()
        .unwrap()
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    assert!(last.ends_with("-00000060.parquet"), "{last}");
}

#[test]
fn without_room_rows_are_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    // No file system is that free.
    let config = Rows {
        keep_free: Share::of_percent(100.0),
        ..config(folder.path())
    };
    let metrics = Arc::new(Metrics::default());
    let (queue, writer) = begin(&config, &metrics);
    let mut chosen = Chosen::new(of("shop", false), queue.clone());
    serve(&mut chosen, 1..1_001);
    chosen.end();
    queue.stop();
    writer.wait();
    assert!(tables(&config.dir).is_empty());
    assert_eq!(dropped(&metrics, "disk"), 1_000.0);
    let seconds = scraped(
        &metrics,
        "reqtrace_rows_dropped_seconds_total{cause=\"disk\"}",
    );
    assert!((0.9..1.1).contains(&seconds), "{seconds}");
}

#[test]
fn a_writer_that_stands_still_holds_up_nobody() {
    let metrics = Arc::new(Metrics::default());
    let (way, from) = Way::new(&metrics);
    let queue = Queue {
        way,
        traces: None,
        one_in: 1,
        keep_slow_ns: None,
    };
    let mut chosen = Chosen::new(of("shop", false), queue);
    serve(&mut chosen, 1..200_001);
    chosen.end();
    let waiting = from.try_iter().map(|message| match message {
        Message::Records(batch) => batch.records.len(),
        _ => 0,
    });
    let waiting = waiting.sum::<usize>() as f64;
    assert!(waiting > 10_000.0, "{waiting}");
    assert_eq!(waiting + dropped(&metrics, "queue_full"), 200_000.0);
}

#[test]
fn folders_that_do_not_fit_are_refused_at_start() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let other = tempfile::tempdir().unwrap();
    let refused = |config: Rows| {
        let error = Spool::open(&KIND, config.folders(), &machine()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    if rustix::fs::stat(folder.path()).unwrap().st_dev
        != rustix::fs::stat(other.path()).unwrap().st_dev
    {
        let apart = Rows {
            spool: other.path().join("spool"),
            ..config(folder.path())
        };
        let error = refused(apart);
        assert!(error.contains("on two file systems"), "{error}");
    }
    fs::write(other.path().join("rows"), "").unwrap();
    let error = refused(config(other.path()));
    assert!(error.contains("cannot be made"), "{error}");
}

#[test]
fn names_of_services_are_those_of_folders() {
    assert_eq!(escaped("a.b_c-9"), "a.b_c-9");
    assert_eq!(escaped("a/b:c"), "a%2Fb%3Ac");
}
