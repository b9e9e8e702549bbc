//! STAND-IN, to be deleted when `reqtrace-tests` has these modules: then `verdict.rs` says
//! `use reqtrace_tests::{brackets, ledger, summary::Summary}` and `xtask/Cargo.toml` names
//! `reqtrace-tests` instead of `csv` and `serde`. Same names, same signatures.

/// Every request within its service's clock readings.
pub(crate) mod brackets {
    use std::collections::BTreeMap;

    use anyhow::{Context as _, Result, ensure};

    /// Number of requests that lie within their brackets; an error for the first that does not.
    pub(crate) fn check(log: &str, csv: &str, monotonic_to_unix_ns: i64) -> Result<usize> {
        let mut logged: BTreeMap<u64, Vec<[u64; 5]>> = BTreeMap::new();
        for line in log.lines().filter(|line| !line.trim().is_empty()) {
            let numbers: Vec<u64> = line
                .split_whitespace()
                .map(str::parse)
                .collect::<Result<_, _>>()?;
            let [tid, times @ ..] = numbers.as_slice() else {
                continue;
            };
            let times: [u64; 5] = times
                .try_into()
                .with_context(|| format!("service log: {line:?}"))?;
            logged.entry(*tid).or_default().push(times);
        }
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let header = reader.headers()?.clone();
        let at = |name: &str| {
            header
                .iter()
                .position(|column| column == name)
                .context(name.to_owned())
        };
        let (tid, start, latency) = (at("tid")?, at("start_unix_ns")?, at("latency_ns")?);
        let mut traced: BTreeMap<u64, Vec<(i128, u64)>> = BTreeMap::new();
        for record in reader.records() {
            let record = record?;
            let number = |index: usize| -> Result<u64> { Ok(record[index].parse()?) };
            let begin = i128::from(number(start)?) - i128::from(monotonic_to_unix_ns);
            traced
                .entry(number(tid)?)
                .or_default()
                .push((begin, number(latency)?));
        }
        let mut checked = 0;
        for (tid, mut rows) in traced {
            rows.sort_unstable();
            let lines = logged.entry(tid).or_default();
            lines.sort_unstable_by_key(|times| times[0]);
            let (seen, said) = (rows.len(), lines.len());
            ensure!(
                seen == said,
                "tid {tid}: {seen} rows, {said} lines in the log"
            );
            for ((begin, latency), [seq, outer_begin, inner_begin, inner_end, outer_end]) in
                rows.into_iter().zip(lines.iter().copied())
            {
                ensure!(
                    inner_end - inner_begin <= latency
                        && latency <= outer_end - outer_begin
                        && (i128::from(outer_begin)..=i128::from(inner_begin)).contains(&begin),
                    "tid {tid}, request {seq}: begin {begin}, latency {latency} not within \
                     {outer_begin} {inner_begin} {inner_end} {outer_end}"
                );
                checked += 1;
            }
        }
        Ok(checked)
    }
}

/// Every nanosecond of every request in exactly one column.
pub(crate) mod ledger {
    use anyhow::{Result, ensure};

    /// Number of rows whose parts add up to their latency; an error for the first that does not.
    pub(crate) fn check(csv: &str) -> Result<usize> {
        const PARTS: [&str; 4] = ["on_cpu_ns", "run_queue_ns", "preempted_ns", "blocked_ns"];
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let header = reader.headers()?.clone();
        let mut rows = 0;
        for record in reader.records() {
            let record = record?;
            let (mut latency, mut sum) = (0, 0);
            for (name, value) in header.iter().zip(record.iter()) {
                if name == "latency_ns" {
                    latency = value.parse::<u64>()?;
                } else if PARTS.contains(&name) || name == "unattributed_ns" {
                    sum += value.parse::<u64>()?;
                }
            }
            ensure!(
                sum == latency,
                "row {}: parts {sum}, latency {latency}",
                rows + 1
            );
            rows += 1;
        }
        Ok(rows)
    }
}

/// `summary.json`, as far as it is read here.
pub(crate) mod summary {
    use anyhow::{Context as _, Result};
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    pub(crate) struct Summary {
        pub(crate) trace: Trace,
        pub(crate) requests: Vec<Request>,
        pub(crate) losses: Vec<Loss>,
    }

    #[derive(Debug, Deserialize)]
    pub(crate) struct Trace {
        pub(crate) monotonic_to_unix_ns: i64,
    }

    #[derive(Debug, Deserialize)]
    pub(crate) struct Request {
        pub(crate) count: u64,
    }

    #[derive(Debug, Deserialize)]
    pub(crate) struct Loss {
        pub(crate) count: u64,
    }

    impl Summary {
        pub(crate) fn read(text: &str) -> Result<Self> {
            serde_json::from_str(text).context("summary.json is not as agreed")
        }

        pub(crate) fn lost(&self) -> u64 {
            self.losses.iter().map(|loss| loss.count).sum()
        }
    }
}
