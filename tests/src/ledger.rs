//! The ledger closes: every nanosecond of every request is in exactly one column.
//!
//! In: `requests.csv`. Out: the number of requests checked, or those that do not add up.

use std::collections::HashSet;

use anyhow::{Result, bail};

use crate::rows::{self, Row};

/// Checks `on_cpu + run_queue + preempted + blocked + unattributed + parked + queued = latency`,
/// `blocked = Σ classes` and `Σ places ≤ parked + queued` for every row, complete or not; and that every row has an id of its own.
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
        row.parked_ns,
        row.queued_ns,
    ];
    let sum: u128 = parts.into_iter().map(u128::from).sum();
    let classes: u128 = row.classes.values().copied().map(u128::from).sum();
    if sum != u128::from(row.latency_ns) {
        let latency = row.latency_ns;
        return Some(format!("tid {}: parts {sum}, latency {latency}", row.tid));
    }
    if classes != u128::from(row.blocked_ns) {
        let blocked = row.blocked_ns;
        return Some(format!(
            "tid {}: classes {classes}, blocked {blocked}",
            row.tid
        ));
    }
    let places: u128 = row.places.values().copied().map(u128::from).sum();
    let away = u128::from(row.parked_ns) + u128::from(row.queued_ns);
    (places > away).then(|| format!("tid {}: places {places}, parked or queued {away}", row.tid))
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
    fn parked_and_queued_time_is_part_of_the_latency() {
        let header = HEADER.replace(",blocks", ",parked_ns,queued_ns,upstream_ns,blocks");
        let row = "1,5,order,1,2,shop,,100,40,10,5,14,1,0,10,4,20,10";
        let csv = |upstream: u32| format!("{header}{row},{upstream},3,1,true,,1\n");
        assert_eq!(check(&csv(20)).unwrap(), 1);
        let error = check(&csv(31)).unwrap_err().to_string();
        assert!(error.contains("places 31, parked or queued 30"), "{error}");
        let without = csv(0).replace(",20,10,0,", ",20,9,0,");
        assert!(
            check(&without)
                .unwrap_err()
                .to_string()
                .contains("parts 99")
        );
    }

    #[test]
    fn classes_must_make_up_blocked() {
        let csv = format!("{HEADER}1,5,order,1,2,shop,,100,40,10,5,44,1,30,10,3,3,1,true,,1\n");
        let error = check(&csv).unwrap_err().to_string();
        assert!(error.contains("classes 43, blocked 44"), "{error}");
    }
}
