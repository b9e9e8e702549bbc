//! The ledger closes: every nanosecond of every request is in exactly one column.
//!
//! In: `requests.csv`. Out: the number of requests checked, or those that do not add up.

use std::collections::HashSet;

use anyhow::{Result, bail};

use crate::rows::{self, Row};

/// Checks `on_cpu + run_queue + preempted + blocked + unattributed = latency` and
/// `blocked = Σ classes` for every row, complete or not; and that every row has an id of its own.
///
/// # Errors
///
/// When the file cannot be read or a row does not add up; the first five are listed.
pub fn check(csv: &str) -> Result<usize> {
    let rows = rows::read(csv)?;
    let mut ids = HashSet::new();
    if let Some(twice) = rows.iter().find(|row| !ids.insert(row.id)) {
        bail!("two requests have the id {}", twice.id);
    }
    let wrong: Vec<String> = rows.iter().filter_map(fault).collect();
    if wrong.is_empty() {
        return Ok(rows.len());
    }
    let first: Vec<_> = wrong.iter().take(5).map(String::as_str).collect();
    bail!(
        "{} of {} ledgers do not close:\n{}",
        wrong.len(),
        rows.len(),
        first.join("\n")
    )
}

fn fault(row: &Row) -> Option<String> {
    let parts = [
        row.on_cpu_ns,
        row.run_queue_ns,
        row.preempted_ns,
        row.blocked_ns,
        row.unattributed_ns,
    ];
    let sum: u128 = parts.into_iter().map(u128::from).sum();
    let classes: u128 = row.classes.values().copied().map(u128::from).sum();
    if sum != u128::from(row.latency_ns) {
        let latency = row.latency_ns;
        return Some(format!("tid {}: parts {sum}, latency {latency}", row.tid));
    }
    (classes != u128::from(row.blocked_ns)).then(|| {
        let blocked = row.blocked_ns;
        format!("tid {}: classes {classes}, blocked {blocked}", row.tid)
    })
}

#[cfg(test)]
mod tests {
    use super::check;

    const HEADER: &str = "id,start_unix_ns,request,pid,tid,comm,label,latency_ns,on_cpu_ns,\
        run_queue_ns,preempted_ns,blocked_ns,unattributed_ns,redo_log_ns,lock_ns,other_ns,\
        blocks,preemptions,complete,reason,weight\n";

    #[test]
    fn a_closed_ledger_passes() {
        let csv = format!("{HEADER}1,5,order,1,2,shop,,100,40,10,5,44,1,30,10,4,3,1,true,,1\n");
        assert_eq!(check(&csv).unwrap(), 1);
        assert_eq!(check(HEADER).unwrap(), 0);
    }

    #[test]
    fn an_id_that_comes_twice_is_found() {
        let row = "5,order,1,2,shop,,100,40,10,5,44,1,30,10,4,3,1,true,,1\n";
        assert_eq!(check(&format!("{HEADER}1,{row}2,{row}")).unwrap(), 2);
        let error = check(&format!("{HEADER}1,{row}1,{row}")).unwrap_err();
        assert_eq!(error.to_string(), "two requests have the id 1");
    }

    #[test]
    fn one_nanosecond_too_many_is_found() {
        let csv = format!("{HEADER}1,5,order,1,2,shop,,101,40,10,5,44,1,30,10,4,3,1,true,,1\n");
        let error = check(&csv).unwrap_err().to_string();
        assert!(error.contains("parts 100, latency 101"), "{error}");
    }

    #[test]
    fn classes_must_make_up_blocked() {
        let csv = format!("{HEADER}1,5,order,1,2,shop,,100,40,10,5,44,1,30,10,3,3,1,true,,1\n");
        let error = check(&csv).unwrap_err().to_string();
        assert!(error.contains("classes 43, blocked 44"), "{error}");
    }
}
