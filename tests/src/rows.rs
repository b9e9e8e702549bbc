//! `requests.csv`, read by the names of its columns.
//!
//! In: the file's text. Out: one [`Row`] a request.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

/// Columns of nanoseconds that are no wait class.
const NOT_A_CLASS: [&str; 13] = [
    "start_unix_ns",
    "latency_ns",
    "on_cpu_ns",
    "run_queue_ns",
    "preempted_ns",
    "blocked_ns",
    "unattributed_ns",
    PARKED,
    QUEUED,
    WAITED,
    LOST[0],
    LOST[1],
    LOST[2],
];

/// A column of a trace with `--before`.
const WAITED: &str = "waited_before_ns";

/// Columns of a trace with `--interrupts`.
const LOST: [&str; 3] = ["interrupt_ns", "softirq_ns", "steal_ns"];

/// Columns of request types with a key. Behind them stand those of the places, each with its name.
const PARKED: &str = "parked_ns";
const QUEUED: &str = "queued_ns";

/// Columns that attributes stand between.
const LABEL: &str = "label";
const LATENCY: &str = "latency_ns";

/// How a column of a root cause begins.
const CAUSE: &str = "cause_";

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
    /// Blocked by root cause, ns, with `--blame`; the key is the column without `cause_` and `_ns`.
    pub causes: BTreeMap<String, u64>,
    /// No thread ran it, and it waited for an event, ns; 0 in a trace without keys.
    pub parked_ns: u64,
    /// No thread ran it, and it waited for a thread, ns.
    pub queued_ns: u64,
    /// Parked or queued by place, of those that have a name; the key is the column without `_ns`.
    pub places: BTreeMap<String, u64>,
    /// What it was about, by the attributes' names; empty texts for what was not read.
    pub attributes: BTreeMap<String, String>,
    /// How long its data had been waiting when it began, ns; `None` where that is not known, and without
    /// `--before`.
    pub waited_before_ns: Option<u64>,
    /// What interrupts and softirqs took of its time on CPU, ns; `None` without `--interrupts`.
    pub lost_ns: Option<[u64; 2]>,
    /// The same of the hypervisor; `None` where that does not say.
    pub steal_ns: Option<u64>,
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
    let names = kinds(reader.headers()?).into_iter();
    let names = names.filter_map(|(name, kind)| match kind {
        Kind::Class => name.strip_suffix("_ns"),
        _ => None,
    });
    Ok(names.map(ToOwned::to_owned).collect())
}

/// What a column is that not every trace has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Class,
    Cause,
    Place,
    Attribute,
}

/// The columns that not every trace has. What they are tells their place among the others, too.
fn kinds(header: &csv::StringRecord) -> Vec<(&str, Kind)> {
    let at = |name: &str| header.iter().position(|column| column == name);
    let (label, latency) = (at(LABEL), at(LATENCY));
    let queued = at(QUEUED);
    let kind = |(index, name): (usize, &'_ str)| {
        if Some(index) > label && Some(index) < latency {
            return Some(Kind::Attribute);
        }
        if NOT_A_CLASS.contains(&name) || !name.ends_with("_ns") {
            return None;
        }
        if name.starts_with(CAUSE) {
            return Some(Kind::Cause);
        }
        let is_place = queued.is_some_and(|queued| index > queued);
        Some(if is_place { Kind::Place } else { Kind::Class })
    };
    let columns = header.iter().enumerate();
    columns
        .filter_map(|(index, name)| Some((name, kind((index, name))?)))
        .collect()
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
    let (mut classes, mut causes) = (BTreeMap::new(), BTreeMap::new());
    let (mut places, mut attributes) = (BTreeMap::new(), BTreeMap::new());
    for (column, kind) in kinds(header) {
        let name = column.strip_suffix("_ns").unwrap_or(column);
        match kind {
            Kind::Class => _ = classes.insert(name.to_owned(), number(column)?),
            Kind::Place => _ = places.insert(name.to_owned(), number(column)?),
            Kind::Cause => {
                let name = name.strip_prefix(CAUSE).unwrap_or(name);
                causes.insert(name.to_owned(), number(column)?);
            }
            Kind::Attribute => {
                attributes.insert(column.to_owned(), text(column)?.to_owned());
            }
        }
    }
    let maybe = |name: &str| match text(name) {
        Ok("") | Err(_) => Ok(None),
        Ok(_) => number(name).map(Some),
    };
    let of_keys = |name: &str| match header.iter().any(|column| column == name) {
        true => number(name),
        false => Ok(0),
    };
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
        causes,
        parked_ns: of_keys(PARKED)?,
        queued_ns: of_keys(QUEUED)?,
        places,
        attributes,
        waited_before_ns: maybe(WAITED)?,
        lost_ns: match (maybe(LOST[0])?, maybe(LOST[1])?) {
            (Some(interrupts), Some(softirqs)) => Some([interrupts, softirqs]),
            _ => None,
        },
        steal_ns: maybe(LOST[2])?,
        blocks: number("blocks")?,
        preemptions: number("preemptions")?,
        complete: text("complete")?.parse()?,
        reason: text("reason")?.to_owned(),
        weight: number("weight")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "id,start_unix_ns,request,pid,tid,comm,label,sql,time_ns,latency_ns,on_cpu_ns,\
        run_queue_ns,preempted_ns,blocked_ns,unattributed_ns,redo_log_ns,parked_ns,queued_ns,upstream_ns,\
        cause_lock_ns,blocks,preemptions,complete,reason,weight\n";

    #[test]
    fn columns_are_told_apart_by_their_name_and_place() {
        let text = format!(
            "{HEADER}1,5,order,1,2,shop,,select 1,9,100,40,10,5,20,1,20,17,7,16,3,4,3,true,,1\n"
        );
        let row = &read(&text).unwrap()[0];
        assert_eq!(row.classes, [("redo_log".to_owned(), 20)].into());
        assert_eq!(row.causes, [("lock".to_owned(), 3)].into());
        assert_eq!(row.places, [("upstream".to_owned(), 16)].into());
        assert_eq!((row.parked_ns, row.queued_ns), (17, 7));
        let attributes = [("sql", "select 1"), ("time_ns", "9")];
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(row.attributes, attributes.into());
        assert_eq!(classes(&text).unwrap(), ["redo_log"]);
        assert_eq!(row.waited_before_ns, None);
        for (waited, is) in [("0", Some(0)), ("70", Some(70)), ("", None)] {
            let text = text.replace(",weight\n", ",weight,waited_before_ns\n");
            let text = text.replace(",,1\n", &format!(",,1,{waited}\n"));
            assert_eq!(read(&text).unwrap()[0].waited_before_ns, is);
            assert_eq!(classes(&text).unwrap(), ["redo_log"]);
        }
    }
}
