//! Truth by brackets: a service reads its clock outside and inside each request at both ends, and
//! what reqtrace says must lie between, for every single request.
//!
//! In: a service's log (`tid seq outer_begin inner_begin inner_end outer_end`, ns, and what else the
//! service has to say), `requests.csv` and the trace's clock offset. Out: the number of requests checked, or the violations.
//!
//! There is no tolerance: preemption between a clock reading and a probe widens the bracket by
//! the same time, so a right tracer is never outside, and a wrong one cannot hide.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

use crate::rows::{self, Row};

/// How many violations an error lists.
const LISTED: usize = 5;

/// One line of the log.
#[derive(Clone, Copy, Debug)]
struct Bracket {
    seq: u64,
    outer_begin: i128,
    inner_begin: i128,
    inner_end: i128,
    outer_end: i128,
}

type ByThread<T> = BTreeMap<u32, Vec<T>>;

/// Checks a trace that saw all requests of the log: each line has exactly one complete row, in
/// order per thread, inside its bracket. Gives the number of requests.
///
/// # Errors
///
/// When the texts cannot be read, or with the number of violations and the first five of them.
pub fn check(log: &str, csv: &str, monotonic_to_unix_ns: i64) -> Result<usize> {
    let mut log = read_log(log)?;
    let mut rows = read_rows(csv)?;
    let threads: BTreeSet<u32> = log.keys().chain(rows.keys()).copied().collect();
    let mut violations = Violations::default();
    for tid in threads {
        let brackets = log.remove(&tid).unwrap_or_default();
        let rows = rows.remove(&tid).unwrap_or_default();
        if brackets.len() != rows.len() {
            let (logged, traced) = (brackets.len(), rows.len());
            violations.add(format!(
                "tid {tid}: {logged} requests logged, {traced} traced"
            ));
        }
        for (bracket, row) in brackets.iter().zip(&rows) {
            violations.compare(bracket, row, monotonic_to_unix_ns);
        }
    }
    violations.verdict()
}

/// Checks a trace that saw only some requests of the log: each complete row belongs to one line,
/// inside its bracket, and no line has two. Gives the number of rows.
///
/// # Errors
///
/// As [`check`].
pub fn check_some(log: &str, csv: &str, monotonic_to_unix_ns: i64) -> Result<usize> {
    let log = read_log(log)?;
    let mut violations = Violations::default();
    for (tid, rows) in read_rows(csv)? {
        let brackets = log.get(&tid).map(Vec::as_slice).unwrap_or_default();
        let mut unused = brackets;
        for row in &rows {
            let begin = i128::from(row.start_unix_ns) - i128::from(monotonic_to_unix_ns);
            let after = unused.partition_point(|bracket| bracket.outer_begin <= begin);
            let Some(at) = after.checked_sub(1) else {
                violations.add(format!("tid {tid}: a request at {begin} that no line has"));
                continue;
            };
            violations.compare(&unused[at], row, monotonic_to_unix_ns);
            unused = &unused[after..];
        }
    }
    violations.verdict()
}

#[derive(Default)]
struct Violations {
    checked: usize,
    count: usize,
    first: Vec<String>,
}

impl Violations {
    fn add(&mut self, text: String) {
        self.count += 1;
        if self.first.len() < LISTED {
            self.first.push(text);
        }
    }

    fn compare(&mut self, bracket: &Bracket, row: &Row, monotonic_to_unix_ns: i64) {
        self.checked += 1;
        let begin = i128::from(row.start_unix_ns) - i128::from(monotonic_to_unix_ns);
        let latency = i128::from(row.latency_ns);
        let least = bracket.inner_end - bracket.inner_begin;
        let most = bracket.outer_end - bracket.outer_begin;
        let mut wrong = Vec::new();
        let mut within = |what: &str, low: i128, value: i128, high: i128| {
            if value < low {
                wrong.push(format!("{what} {} ns too small", low - value));
            } else if value > high {
                wrong.push(format!("{what} {} ns too large", value - high));
            }
        };
        within("begin", bracket.outer_begin, begin, bracket.inner_begin);
        within("latency", least, latency, most);
        let end = begin + latency;
        within("end", bracket.inner_end, end, bracket.outer_end);
        if !wrong.is_empty() {
            let (tid, seq) = (row.tid, bracket.seq);
            self.add(format!("tid {tid} request {seq}: {}", wrong.join(", ")));
        }
    }

    fn verdict(self) -> Result<usize> {
        if self.count == 0 {
            return Ok(self.checked);
        }
        bail!(
            "{} violations in {} requests:\n{}",
            self.count,
            self.checked,
            self.first.join("\n")
        )
    }
}

fn read_log(log: &str) -> Result<ByThread<Bracket>> {
    let mut threads = ByThread::new();
    for line in log.lines() {
        let (tid, bracket) = read_line(line).with_context(|| format!("log line {line:?}"))?;
        threads.entry(tid).or_insert_with(Vec::new).push(bracket);
    }
    // A thread writes its lines in order, but a later one may have got the same number.
    for brackets in threads.values_mut() {
        brackets.sort_by_key(|bracket: &Bracket| bracket.outer_begin);
    }
    Ok(threads)
}

fn read_line(line: &str) -> Result<(u32, Bracket)> {
    let numbers = line.split(' ').take(6).map(str::parse::<u64>);
    let numbers = numbers.collect::<Result<Vec<_>, _>>()?;
    let [tid, seq, clocks @ ..] = numbers.as_slice() else {
        bail!("too short");
    };
    let &[outer_begin, inner_begin, inner_end, outer_end] = clocks else {
        bail!("{} clocks instead of 4", clocks.len());
    };
    let bracket = Bracket {
        seq: *seq,
        outer_begin: outer_begin.into(),
        inner_begin: inner_begin.into(),
        inner_end: inner_end.into(),
        outer_end: outer_end.into(),
    };
    Ok((u32::try_from(*tid)?, bracket))
}

fn read_rows(csv: &str) -> Result<ByThread<Row>> {
    let mut threads = ByThread::new();
    for row in rows::read(csv)?.into_iter().filter(|row| row.complete) {
        threads.entry(row.tid).or_insert_with(Vec::new).push(row);
    }
    for rows in threads.values_mut() {
        rows.sort_by_key(|row: &Row| row.start_unix_ns);
    }
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSET: i64 = 1_000_000;
    const LOG: &str = "7 1 100 110 190 200\n8 1 150 160 170 180\n7 2 300 310 390 400\n";

    /// A CSV of (tid, monotonic begin, latency, complete).
    fn csv(rows: &[(u32, u64, u64, bool)]) -> String {
        let mut text = "id,start_unix_ns,request,pid,tid,comm,label,latency_ns,on_cpu_ns,\
            run_queue_ns,preempted_ns,blocked_ns,unattributed_ns,other_ns,blocks,preemptions,\
            complete,reason,weight\n"
            .to_owned();
        for (id, (tid, begin, latency, complete)) in rows.iter().enumerate() {
            let start = begin + OFFSET.unsigned_abs();
            text +=
                &format!("{id},{start},order,1,{tid},c,,{latency},0,0,0,0,0,0,0,0,{complete},,1\n");
        }
        text
    }

    fn error(result: Result<usize>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn requests_inside_their_brackets_pass_in_any_order_of_rows() {
        let csv = csv(&[(7, 300, 100, true), (8, 155, 20, true), (7, 110, 80, true)]);
        assert_eq!(check(LOG, &csv, OFFSET).unwrap(), 3);
        assert_eq!(check_some(LOG, &csv, OFFSET).unwrap(), 3);
    }

    #[test]
    fn an_empty_trace_of_nothing_passes() {
        assert_eq!(check("", &csv(&[]), OFFSET).unwrap(), 0);
    }

    #[test]
    fn one_nanosecond_outside_is_found_at_each_edge() {
        for (begin, latency, word) in [
            (99, 101, "begin 1 ns too small"),
            (111, 80, "begin 1 ns too large"),
            (110, 79, "latency 1 ns too small"),
            (100, 101, "latency 1 ns too large"),
            (105, 84, "end 1 ns too small"),
            (105, 96, "end 1 ns too large"),
        ] {
            let csv = csv(&[(7, begin, latency, true)]);
            let message = error(check("7 1 100 110 190 200\n", &csv, OFFSET));
            assert!(message.contains(word), "{message}");
            assert!(message.contains("tid 7 request 1"), "{message}");
        }
    }

    #[test]
    fn missing_and_surplus_requests_are_found() {
        let two = csv(&[(7, 105, 90, true), (8, 155, 20, true)]);
        let message = error(check(LOG, &two, OFFSET));
        assert!(
            message.contains("tid 7: 2 requests logged, 1 traced"),
            "{message}"
        );
        assert_eq!(check_some(LOG, &two, OFFSET).unwrap(), 2);

        let foreign = csv(&[(9, 105, 90, true)]);
        let message = error(check("", &foreign, OFFSET));
        assert!(
            message.contains("tid 9: 0 requests logged, 1 traced"),
            "{message}"
        );
        assert!(check_some("", &foreign, OFFSET).is_err());
    }

    #[test]
    fn one_line_is_not_used_twice() {
        let twice = csv(&[(8, 155, 20, true), (8, 156, 20, true)]);
        assert!(check_some(LOG, &twice, OFFSET).is_err());
    }

    #[test]
    fn incomplete_requests_do_not_count() {
        let csv = csv(&[(8, 155, 20, true), (8, 500, 20, false)]);
        assert_eq!(check("8 1 150 160 170 180\n", &csv, OFFSET).unwrap(), 1);
    }

    #[test]
    fn the_first_five_violations_are_listed() {
        let rows: Vec<_> = (0..9).map(|i| (20 + i, 105, 90, true)).collect();
        let message = error(check("", &csv(&rows), OFFSET));
        assert!(message.starts_with("9 violations"), "{message}");
        assert_eq!(message.lines().count(), 6);
    }

    #[test]
    fn unreadable_lines_are_errors() {
        for log in ["7 1 100 110 190\n", "7 1 100 110 190 x\n", "7\n"] {
            assert!(check(log, &csv(&[]), OFFSET).is_err(), "{log}");
        }
    }
}
