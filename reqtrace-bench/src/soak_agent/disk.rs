//! A disk that somebody else fills under an agent: what it drops has to be what it counts.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use reqtrace_tests::process::until;
use reqtrace_tests::scraped::Scrape;

use super::report::Claim;
use super::service::{KINDS, Running, all};
use super::watch::{Watch, of};
use super::{Args, kept};

const LIMIT: Duration = Duration::from_secs(60);
/// So often room that was made is taken.
const AGAIN: Duration = Duration::from_millis(5);

/// Does this while a file takes all room of its disk, also the room that the agent makes by removing its oldest rows.
fn kept_full<T>(file: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut filling = File::create(file)?;
    // tmpfs has pages; the last of them go, too.
    let mut fill = move || while filling.write_all(&[0; 4096]).is_ok() {};
    fill();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                fill();
                thread::sleep(AGAIN);
            }
        });
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

/// Somebody else fills the disk: what is dropped is counted. Then there is room again.
pub(super) fn nearly_full(
    args: &Args,
    watch: &Watch,
    running: &[Running],
    disk: &Path,
    dir: &Path,
) -> Result<Vec<Claim>> {
    let rows_of = |scrape: &Scrape| {
        let dropped =
            |cause: &str| scrape[&format!("reqtrace_rows_dropped_total{{cause=\"{cause}\"}}")];
        [
            scrape["reqtrace_rows_written_total"],
            dropped("oldest"),
            dropped("disk"),
            dropped("queue_full"),
        ]
    };
    let requests_of = |scrape: &Scrape| {
        let sum = |name: &str| KINDS.iter().map(|kind| of(scrape, name, kind)).sum::<f64>();
        let [complete, slow, incomplete] = [
            "reqtrace_request_duration_seconds_count",
            "reqtrace_slow_requests_total",
            "reqtrace_incomplete_requests_total",
        ]
        .map(sum);
        [complete - slow, slow + incomplete]
    };
    let before = watch.last();
    let rows_before = kept::count(dir)?;
    ensure!(
        rows_of(&watch.last())[0] == rows_of(&before)[0],
        "rows were handed over meanwhile"
    );
    let other = disk.join("other");
    let round = |seconds: u64| -> Result<()> {
        let requests = (u64::from(args.rate) * seconds).next_multiple_of(4);
        all(running, move |service| service.steady(requests).map(drop))?;
        KINDS.iter().try_for_each(|kind| watch.mark(kind).map(drop))
    };
    kept_full(&other, || round(5))?;
    fs::remove_file(&other)?;
    thread::sleep(Duration::from_secs(2));
    round(5)?;
    let empty = || {
        until(LIMIT, "the spool to be empty", || {
            let seen = watch.last();
            Ok((seen.get("reqtrace_rows_spool_bytes") == Some(&0.0)).then_some(seen))
        })
    };
    empty()?;
    thread::sleep(Duration::from_secs(1));
    let after = empty()?;
    let rows_after = kept::count(dir)?;
    let (was, is) = (rows_of(&before), rows_of(&after));
    let [written, oldest, disk, queue] = [0, 1, 2, 3].map(|at| is[at] - was[at]);
    let left = rows_before as f64 + written - oldest;
    let (was, is) = (requests_of(&before), requests_of(&after));
    let [drawn_from, kept_all] = [0, 1].map(|at| is[at] - was[at]);
    let share = 1.0 / f64::from(args.one_in);
    let (expected, sigma) = (
        kept_all + drawn_from * share,
        (drawn_from * share * (1.0 - share)).sqrt(),
    );
    let error = written + disk + queue - expected;
    Ok(vec![
        Claim::new(
            "on a full disk the oldest rows go first, and what goes is counted",
            left == rows_after as f64 && oldest > 0.0,
            format!(
                "{rows_before} rows before, {written} handed over, {oldest} removed: {left}; {rows_after} are there"
            ),
        ),
        Claim::new(
            "on a full disk rows that cannot be written are counted: those written and dropped are those chosen, within 4 σ",
            disk > 0.0 && error.abs() <= 4.0 * sigma + 3.0,
            format!(
                "{disk} dropped, {queue} of them before the writer; {} of {expected:.0} ± {sigma:.0} chosen",
                written + disk + queue
            ),
        ),
    ])
}
