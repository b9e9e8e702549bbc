//! Rows against metrics: what was handed over, and the last that was seen of each agent, in; how far sums of weights are from the
//! exact totals, and what is missing, out.

use std::path::Path;

use anyhow::Result;
use reqtrace_tests::scraped::Scrape;

use super::kept;
use super::report::Claim;
use super::service::{KINDS, Kind};
use super::watch::{Life, MAY_BE_LOST, WINDOW_END, Watch, of};

/// Σ of weights against the totals of each agent, of windows that were closed when it was seen last.
pub(super) fn claims_of_rows(watch: &Watch, dir: &Path) -> Result<Vec<Claim>> {
    let rows = kept::read(dir)?;
    let seen = watch.seen();
    let mut found = Found::default();
    let of_all = KINDS.map(|kind| {
        let complete = rows
            .rows
            .iter()
            .filter(|row| row.service == kind.name && row.is_complete);
        Sums::of(complete, rows.parts.len())
    });
    for (number, life) in seen.lives.iter().enumerate() {
        for (kind, all) in KINDS.into_iter().zip(&of_all) {
            if let Some(totals) = life.handed_over(&kind) {
                found.compare(&rows, life, totals, (&kind, all), number);
            }
            if life.killed_ns.is_some() {
                found.count_lost(&rows, life, &kind);
            }
        }
    }
    let killed = seen
        .lives
        .iter()
        .filter(|life| life.killed_ns.is_some())
        .count();
    let dropped = |cause: &str| -> f64 {
        let name = format!("reqtrace_rows_dropped_total{{cause=\"{cause}\"}}");
        seen.lives
            .iter()
            .filter_map(|life| life.last.get(&name))
            .sum()
    };
    let dropped = ["queue_full", "disk", "oldest"].map(dropped);
    Ok(vec![
        Claim::new(
            "Σ weight, Σ weight × latency and × each part are the exact totals within 4 σ, of each agent and service",
            found.far.is_empty() && found.checked > 0,
            format!(
                "{} rows in {} files of {} KB; {} sums, the farthest at {:.2} σ, and {} of parts that fewer than 10 drawn rows have{}",
                rows.rows.len(),
                rows.files,
                rows.bytes >> 10,
                found.checked,
                found.farthest,
                found.rare,
                first(&found.far)
            ),
        ),
        Claim::new(
            "each slow and each incomplete request has its row",
            found.missing.is_empty(),
            format!(
                "{} services of {} agents{}",
                seen.lives.len() * KINDS.len(),
                seen.lives.len(),
                first(&found.missing)
            ),
        ),
        Claim::new(
            format!(
                "an agent that is killed loses rows of its last {} s only, and hands no row over twice",
                MAY_BE_LOST.as_secs()
            ),
            found.far.is_empty() && found.missing.is_empty() && rows.twice() == 0,
            format!(
                "{killed} killed; {} rows twice; rows of windows that were closed then stand for {:.0} ± {:.0} of {:.0} requests",
                rows.twice(),
                found.stood_for,
                found.variance.sqrt(),
                found.of
            ),
        ),
        Claim::new(
            "between `max` and `keep-free` no row is dropped",
            dropped == [0.0; 3],
            format!("{dropped:?} (queue full, disk, oldest)"),
        ),
    ])
}

const ALL: [&str; 2] = ["requests", "latency, ns"];

fn is_part(what: &str) -> bool {
    !ALL.contains(&what)
}

fn first(of: &[String]) -> String {
    of.first().map_or_else(String::new, |first| {
        format!("; {} not, first: {first}", of.len())
    })
}

/// What was found.
#[derive(Debug, Default)]
struct Found {
    checked: usize,
    /// Parts of too few rows.
    rare: usize,
    farthest: f64,
    far: Vec<String>,
    missing: Vec<String>,
    /// Of agents that were killed: Σ weight of the rows of windows that were closed, its variance, and the requests of these.
    stood_for: f64,
    variance: f64,
    of: f64,
}

/// Σ weight, Σ weight × latency, and × each part, of complete requests.
struct Sums(Vec<kept::Sum>);

impl Sums {
    fn of<'a>(rows: impl Iterator<Item = &'a kept::Row>, parts: usize) -> Self {
        let mut sums = vec![kept::Sum::default(); parts + ALL.len()];
        for row in rows {
            sums[0].add(row.weight, 1.0);
            sums[1].add(row.weight, row.latency_ns as f64);
            for (part, ns) in &row.parts {
                sums[part + ALL.len()].add(row.weight, *ns as f64);
            }
        }
        Self(sums)
    }
}

/// Rows of requests of an agent that ended in a window that is closed in this scrape.
fn own<'a>(
    rows: &'a kept::Rows,
    life: &'a Life,
    totals: &Scrape,
    kind: &'a Kind,
) -> impl Iterator<Item = &'a kept::Row> {
    let end_ns = (of(totals, WINDOW_END, kind) * 1e9) as u64;
    let of_life = rows
        .rows
        .iter()
        .filter(move |row| row.service == kind.name && row.start_ns >= life.begun_ns);
    of_life.filter(move |row| row.end_ns < end_ns)
}

impl Found {
    fn compare(
        &mut self,
        rows: &kept::Rows,
        life: &Life,
        totals: &Scrape,
        (kind, all): (&Kind, &Sums),
        number: usize,
    ) {
        let own = |is_complete| {
            own(rows, life, totals, kind).filter(move |row| row.is_complete == is_complete)
        };
        let sums = Sums::of(own(true), rows.parts.len()).0;
        let slow = own(true).filter(|row| row.is_slow);
        let slow: f64 = slow.map(|row| row.weight).sum();
        let incomplete: f64 = own(false).map(|row| row.weight).sum();
        let share = sums[0].sum / all.0[0].sum;
        let value = |name: &str| of(totals, name, kind);
        let mut truths = vec![
            (ALL[0], value("reqtrace_request_duration_seconds_count")),
            (ALL[1], value("reqtrace_request_duration_seconds_sum") * 1e9),
        ];
        truths.extend(
            rows.parts
                .iter()
                .map(|part| (part.as_str(), part_ns(totals, kind, part))),
        );
        for ((sum, all), (what, truth)) in sums.iter().zip(&all.0).zip(truths) {
            let Some(sigmas) = sum.sigmas(truth, all, share) else {
                self.rare += 1;
                // Requests themselves, and their durations, are never rare.
                if !is_part(what) {
                    self.far.push(format!(
                        "{} {what} of agent {number}: {} for {truth}",
                        kind.name, sum.sum
                    ));
                }
                continue;
            };
            self.checked += 1;
            self.farthest = self.farthest.max(sigmas.abs());
            if sigmas.abs() > 4.0 {
                self.far.push(format!(
                    "{} {what} of agent {number}: {} for {truth} ({sigmas:+.1} σ)",
                    kind.name, sum.sum
                ));
            }
        }
        let of_slow = value("reqtrace_slow_requests_total") - slow;
        let of_incomplete = value("reqtrace_incomplete_requests_total") - incomplete;
        // The metric takes a duration within 0.1 % below the limit for slow.
        if of_slow < 0.0 || of_slow > 3.0 + 0.01 * slow || of_incomplete != 0.0 {
            self.missing.push(format!(
                "{} of agent {number}: {of_slow} slow and {of_incomplete} incomplete ones have no row",
                kind.name
            ));
        }
    }

    fn count_lost(&mut self, rows: &kept::Rows, life: &Life, kind: &Kind) {
        let complete = own(rows, life, &life.last, kind).filter(|row| row.is_complete);
        let sum = &Sums::of(complete, rows.parts.len()).0[0];
        self.stood_for += sum.sum;
        self.variance += sum.variance;
        self.of += of(&life.last, "reqtrace_request_duration_seconds_count", kind);
    }
}

/// A part of the metrics, ns, by its column's name.
fn part_ns(scrape: &Scrape, kind: &Kind, part: &str) -> f64 {
    let plain = |text: &str| -> String {
        text.chars()
            .map(|c| if c.is_alphanumeric() { c } else { '_' })
            .collect()
    };
    let start = format!(
        "reqtrace_request_part_seconds_total{{service=\"{}\",type=\"{}\",part=\"",
        kind.name, kind.of_type
    );
    let all = scrape.iter().filter_map(|(name, value)| {
        let label = name.strip_prefix(&start)?.strip_suffix("\"}")?;
        (plain(label) == plain(part)).then_some(value * 1e9)
    });
    all.sum()
}
