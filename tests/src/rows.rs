//! `requests.csv`, read by the names of its columns.
//!
//! In: the file's text. Out: one [`Row`] a request.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

/// Columns of nanoseconds that are no wait class.
const NOT_A_CLASS: [&str; 7] = [
    "start_unix_ns",
    "latency_ns",
    "on_cpu_ns",
    "run_queue_ns",
    "preempted_ns",
    "blocked_ns",
    "unattributed_ns",
];

/// One request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Unique in the trace.
    pub id: u64,
    /// Begin in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Request type.
    pub request: String,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name of the thread.
    pub comm: String,
    /// Label, empty when there is none.
    pub label: String,
    /// From begin to end, ns.
    pub latency_ns: u64,
    /// On a CPU, ns.
    pub on_cpu_ns: u64,
    /// Runnable after a wakeup, ns.
    pub run_queue_ns: u64,
    /// Switched out while runnable, ns.
    pub preempted_ns: u64,
    /// Blocked, ns.
    pub blocked_ns: u64,
    /// Blocked whose stack was lost, ns.
    pub unattributed_ns: u64,
    /// Blocked by wait class, ns; the key is the column without `_ns`.
    pub classes: BTreeMap<String, u64>,
    /// How often it blocked.
    pub blocks: u64,
    /// How often it was preempted.
    pub preemptions: u64,
    /// Whether begin and end were both seen.
    pub complete: bool,
    /// Why not.
    pub reason: String,
    /// How many requests it stands for.
    pub weight: u64,
}

/// Reads all rows.
///
/// # Errors
///
/// When the text is no CSV, a column is missing, or a value is not what it should be.
pub fn read(text: &str) -> Result<Vec<Row>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers()?.clone();
    ensure!(!header.is_empty(), "requests.csv has no header");
    let mut rows = Vec::new();
    for (number, record) in reader.records().enumerate() {
        let record = record?;
        let row = read_row(&header, &record);
        rows.push(row.with_context(|| format!("row {} of requests.csv", number + 1))?);
    }
    Ok(rows)
}

/// Names of the wait classes, in the order of their columns.
///
/// # Errors
///
/// When the text has no header.
pub fn classes(text: &str) -> Result<Vec<String>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names = reader.headers()?.iter();
    let names = names.filter(|name| !NOT_A_CLASS.contains(name));
    let names = names.filter_map(|name| name.strip_suffix("_ns"));
    Ok(names.map(ToOwned::to_owned).collect())
}

/// Sum of one wait class over all rows; 0 if there is no such column.
#[must_use]
pub fn sum(rows: &[Row], class: &str) -> u64 {
    rows.iter().filter_map(|row| row.classes.get(class)).sum()
}

/// Checks that the table of wait classes has no gap: at most 2 % of the blocked time is `other`.
///
/// # Errors
///
/// With the two sums.
pub fn check_other(rows: &[Row]) -> Result<()> {
    let blocked: u64 = rows.iter().map(|row| row.blocked_ns).sum();
    let other = sum(rows, "other");
    ensure!(
        other * 50 <= blocked,
        "{other} ns of {blocked} ns blocked are `other`: a gap in the table of wait classes"
    );
    Ok(())
}

fn read_row(header: &csv::StringRecord, record: &csv::StringRecord) -> Result<Row> {
    let text = |name: &str| -> Result<&str> {
        let at = header.iter().position(|column| column == name);
        at.and_then(|at| record.get(at))
            .with_context(|| format!("no column {name}"))
    };
    let number = |name: &str| -> Result<u64> {
        let value = text(name)?;
        value
            .parse()
            .with_context(|| format!("{name} is {value:?}, not a number"))
    };
    let mut classes = BTreeMap::new();
    for name in header.iter().filter(|name| !NOT_A_CLASS.contains(name)) {
        if let Some(class) = name.strip_suffix("_ns") {
            classes.insert(class.to_owned(), number(name)?);
        }
    }
    Ok(Row {
        id: number("id")?,
        start_unix_ns: number("start_unix_ns")?,
        request: text("request")?.to_owned(),
        pid: u32::try_from(number("pid")?)?,
        tid: u32::try_from(number("tid")?)?,
        comm: text("comm")?.to_owned(),
        label: text("label")?.to_owned(),
        latency_ns: number("latency_ns")?,
        on_cpu_ns: number("on_cpu_ns")?,
        run_queue_ns: number("run_queue_ns")?,
        preempted_ns: number("preempted_ns")?,
        blocked_ns: number("blocked_ns")?,
        unattributed_ns: number("unattributed_ns")?,
        classes,
        blocks: number("blocks")?,
        preemptions: number("preemptions")?,
        complete: text("complete")?.parse()?,
        reason: text("reason")?.to_owned(),
        weight: number("weight")?,
    })
}
