//! `blame.csv`: who held requests up.
//!
//! In: what a trace with `--blame` left behind. Out: its rows, which add up to what the requests were
//! blocked.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use crate::ledger;
use crate::reqtrace::Outcome;
use crate::rows::Row;

/// A row of `blame.csv`.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Blamed {
    /// Type of the requests that waited.
    pub victim_request: String,
    /// Their label, or its fingerprint.
    pub victim_label: String,
    /// What they were blocked in.
    pub wait_class: String,
    /// `request`, `thread`, `interrupt`, `itself` or `unknown`.
    pub culprit_kind: String,
    /// Type of the request that they waited for.
    pub culprit_request: String,
    /// Its label, or the label's fingerprint.
    pub culprit_label: String,
    /// Name of the thread that they waited for.
    pub culprit_comm: String,
    /// What it came down to.
    pub root_cause: String,
    /// How many threads made each other wait: 0 for an interrupt that ended the wait itself.
    pub depth: u64,
    /// Nanoseconds.
    pub ns: u64,
    /// Requests that waited.
    pub requests: u64,
    /// Process of the culprit, where it is one thread.
    pub culprit_pid: Option<u32>,
    /// That thread.
    pub culprit_tid: Option<u32>,
}

/// Reads `blame.csv`.
///
/// # Errors
///
/// When a row is not what it should be.
pub fn read(text: &str) -> Result<Vec<Blamed>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows: Result<Vec<_>, _> = reader.deserialize().collect();
    rows.context("blame.csv")
}

/// The requests of a trace that ended with 0, and who held them up.
///
/// # Errors
///
/// When it did not, a ledger does not close, or the sums differ.
pub fn of(outcome: &Outcome) -> Result<(Vec<Row>, Vec<Blamed>)> {
    ensure!(outcome.code == Some(0), "{}", outcome.printed());
    ledger::check(&outcome.csv()?)?;
    let (rows, blamed) = (outcome.rows()?, outcome.blame()?);
    check(&rows, &blamed)?;
    Ok((rows, blamed))
}

/// Checks that the root causes of each request are what it was blocked, and that those of all of a
/// type are in `blame.csv`.
///
/// # Errors
///
/// With the request or the type of which that does not hold.
pub fn check(rows: &[Row], blamed: &[Blamed]) -> Result<()> {
    let mut sums: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for row in rows {
        let caused: u64 = row.causes.values().sum();
        ensure!(
            caused == row.blocked_ns + row.unattributed_ns + row.parked_ns,
            "root causes of {caused} ns: {row:?}"
        );
        if row.complete {
            sums.entry(&row.request).or_default()[0] += caused * row.weight;
        }
    }
    for row in blamed {
        sums.entry(&row.victim_request).or_default()[1] += row.ns;
    }
    for (request, [blocked, blamed]) in sums {
        ensure!(
            blocked == blamed,
            "{request}: {blamed} ns in blame.csv, {blocked} ns blocked"
        );
    }
    Ok(())
}

/// Nanoseconds of the rows that fit.
pub fn sum(blamed: &[Blamed], fits: impl Fn(&Blamed) -> bool) -> u64 {
    let fitting = blamed.iter().filter(|row| fits(row));
    fitting.map(|row| row.ns).sum()
}

/// Checks that of most of what requests waited for at sockets the cause is known. A thread that is born to answer has no
/// time before that.
///
/// # Errors
///
/// When it is not.
pub fn sockets_known(blamed: &[Blamed], victim: &str, class: &str, share: f64) -> Result<()> {
    let waits = |row: &Blamed| row.victim_request == victim && row.wait_class == class;
    let all = sum(blamed, waits);
    let known = sum(blamed, |row| waits(row) && row.root_cause != "unknown");
    ensure!(
        all > 0 && known as f64 >= share * all as f64,
        "{known} ns of {all}: {blamed:#?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nanosecond_that_is_missing_is_found() {
        let mut row = Row {
            request: "r".to_owned(),
            blocked_ns: 7,
            complete: true,
            weight: 1,
            ..Row::default()
        };
        row.causes.insert("disk".to_owned(), 7);
        let header = "victim_request,victim_label,wait_class,culprit_kind,culprit_request,\
                      culprit_label,culprit_comm,root_cause,depth,ns,requests\n";
        let blamed = |ns| read(&format!("{header}r,,disk,interrupt,,,,disk,0,{ns},1\n")).unwrap();
        assert_eq!(sum(&blamed(7), |row| row.root_cause == "disk"), 7);
        check(&[row.clone()], &blamed(7)).unwrap();
        assert!(check(&[row.clone()], &blamed(6)).is_err());
        row.blocked_ns = 8;
        assert!(check(&[row], &blamed(7)).is_err());
    }
}
