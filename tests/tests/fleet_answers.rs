//! The answers to the queries of `deploy/`: rows in; what is computed from them, without an engine, out.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::fleet_rows::{CAUSES, Row, SERVICE};

/// Share of requests that has to be fast.
pub(crate) const TARGET: f64 = 0.999;
/// Rows of an answer.
pub(crate) type Answer = Vec<Vec<Value>>;

/// The least value up to which so large a share of the weights is.
fn quantile<'a>(rows: impl IntoIterator<Item = &'a &'a Row>, share: f64) -> u64 {
    let mut all: Vec<(u64, u64)> = rows
        .into_iter()
        .map(|row| (row.latency(), row.w()))
        .collect();
    all.sort_unstable();
    let wanted = (all.iter().map(|(_, w)| w).sum::<u64>() as f64 * share).ceil();
    let mut below = 0;
    let reached = all.iter().find(|(_, w)| {
        below += w;
        below as f64 >= wanted
    });
    reached.unwrap().0
}

fn grouped<'a, K: Ord>(rows: &[&'a Row], key: impl Fn(&Row) -> K) -> BTreeMap<K, Vec<&'a Row>> {
    let mut groups: BTreeMap<K, Vec<&'a Row>> = BTreeMap::new();
    for row in rows {
        groups.entry(key(row)).or_default().push(row);
    }
    groups
}

pub(crate) fn sum(rows: &[&Row], of: impl Fn(&Row) -> u64) -> u64 {
    rows.iter().map(|row| of(row)).sum()
}

/// Σ w x / Σ w.
fn mean(rows: &[&Row], of: impl Fn(&Row) -> u64) -> f64 {
    sum(rows, |row| row.w() * of(row)) as f64 / sum(rows, Row::w) as f64
}

fn slow_share(rows: &[&Row]) -> f64 {
    sum(rows, Row::slow_w) as f64 / sum(rows, Row::w) as f64
}

/// Sums over parts: n, and Σ w ns, of those that fit.
fn by_part(rows: &[&Row], fits: impl Fn(&Row, u64) -> bool) -> BTreeMap<String, (u64, u64)> {
    let mut parts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for row in rows {
        for (part, ns) in row.parts() {
            let sums = parts.entry(part).or_default();
            sums.0 += if fits(row, ns) { row.w() } else { 0 };
            sums.1 += row.w() * ns;
        }
    }
    parts
}

fn of_json(rows: impl IntoIterator<Item = Value>) -> Answer {
    rows.into_iter()
        .map(|row| row.as_array().unwrap().clone())
        .collect()
}

/// The largest first.
fn ordered(mut rows: Vec<(f64, Value)>) -> Answer {
    rows.sort_by(|a, b| {
        b.0.total_cmp(&a.0)
            .then_with(|| a.1.to_string().cmp(&b.1.to_string()))
    });
    of_json(rows.into_iter().map(|(_, row)| row))
}

/// The answers, from the rows.
pub(crate) fn computed(all: &[Row]) -> BTreeMap<&'static str, Answer> {
    let complete: Vec<&Row> = all.iter().filter(|row| row.made.is_complete).collect();
    let own: Vec<&Row> = complete
        .iter()
        .copied()
        .filter(|row| row.of.service == SERVICE)
        .collect();
    let slow: Vec<&Row> = own.iter().copied().filter(|row| row.made.is_slow).collect();
    let mut out = BTreeMap::new();

    let [low, high, tail] = [0.4, 0.6, 0.99].map(|share| quantile(&own, share));
    let mut answer = Vec::new();
    for (name, from, to) in [
        ("slowest 1 %", tail, u64::MAX),
        ("typical", low, high.min(tail - 1)),
    ] {
        let chosen: Vec<&Row> = own
            .iter()
            .copied()
            .filter(|row| (from..=to).contains(&row.latency()))
            .collect();
        let n = sum(&chosen, Row::w);
        let parts = by_part(&chosen, |_, _| true).into_iter();
        let rows =
            parts.map(|(part, (_, ns))| (ns as f64, json!([name, part, n, ns as f64 / n as f64])));
        answer.extend(ordered(rows.collect()));
    }
    out.insert("slow-tail.sql", answer);

    let threads = grouped(&own, |row| (row.of.host, row.made.tid))
        .into_iter()
        .map(|((host, tid), rows)| {
            let slow_ns = sum(&rows, |row| row.slow_w() * row.latency());
            let max = rows.iter().map(|row| row.latency()).max();
            (
                slow_ns as f64,
                json!([
                    host,
                    7,
                    tid,
                    sum(&rows, Row::w),
                    sum(&rows, Row::slow_w),
                    max,
                    slow_ns
                ]),
            )
        });
    out.insert(
        "who.sql",
        ordered(threads.collect()).into_iter().take(10).collect(),
    );

    let minutes = grouped(&own, |row| row.made.start_unix_ns / 60_000_000_000 * 60)
        .into_iter()
        .map(|(minute, rows)| {
            json!([
                minute,
                sum(&rows, Row::w),
                sum(&rows, Row::slow_w),
                mean(&rows, Row::latency),
                mean(&rows, Row::blocked)
            ])
        });
    out.insert("since.sql", of_json(minutes));

    let (slow_n, slow_ns) = (
        sum(&slow, Row::w),
        sum(&slow, |row| row.w() * row.latency()),
    );
    let parts = by_part(&slow, |row, ns| ns * 2 > row.latency()).into_iter();
    let parts = parts.map(|(part, (mostly, ns))| {
        let share = ns as f64 / slow_ns as f64;
        (share, json!([part, mostly, slow_n, share]))
    });
    out.insert("share.sql", ordered(parts.collect()));

    let slowest = own.iter().max_by_key(|row| row.latency()).unwrap();
    let (begins, ends) = (slowest.made.start_unix_ns, slowest.end());
    let mut beside: Vec<&Row> = complete
        .iter()
        .copied()
        .filter(|row| {
            row.of.host == slowest.of.host && row.made.start_unix_ns < ends && row.end() > begins
        })
        .collect();
    beside.sort_by_key(|row| (u64::MAX - row.latency(), row.of.name(), row.id));
    out.insert(
        "overlap.sql",
        of_json(beside.iter().take(10).map(|row| {
            let from = |at: u64, of: u64| at as i64 - of as i64;
            json!([
                row.of.service,
                "order",
                row.made.tid,
                from(row.made.start_unix_ns, begins),
                row.latency(),
                from(row.end(), ends),
                row.blocked()
            ])
        })),
    );

    let p99 = quantile(&own, 0.99) as f64;
    let hosts = grouped(&own, |row| row.of.host)
        .into_iter()
        .map(|(host, rows)| {
            let of_host = quantile(&rows, 0.99);
            let ratio = of_host as f64 / p99;
            (
                ratio,
                json!([
                    host,
                    sum(&rows, Row::w),
                    of_host,
                    ratio,
                    slow_share(&rows),
                    mean(&rows, |row| row.made.on_cpu_ns),
                    mean(&rows, |row| row.made.preempted_ns),
                    mean(&rows, Row::blocked)
                ]),
            )
        });
    out.insert("hosts.sql", ordered(hosts.collect()));

    let builds = grouped(&own, |row| row.of.build_id)
        .into_iter()
        .map(|(build, rows)| {
            let first = rows.iter().map(|row| row.made.start_unix_ns).min();
            let hosts: BTreeSet<&str> = rows.iter().map(|row| row.of.host).collect();
            json!([
                build,
                "order",
                first,
                hosts.len(),
                sum(&rows, Row::w),
                quantile(&rows, 0.5),
                quantile(&rows, 0.99),
                mean(&rows, Row::latency),
                mean(&rows, |row| row.made.on_cpu_ns),
                mean(&rows, Row::blocked),
                slow_share(&rows)
            ])
        });
    out.insert("deploy.sql", of_json(builds));

    let all_ns = sum(&complete, |row| row.w() * row.latency());
    let culprits = grouped(&complete, |row| row.of.service)
        .into_iter()
        .flat_map(|(service, rows)| {
            let causes = CAUSES.iter().enumerate().filter_map(move |(at, cause)| {
                let ns = sum(&rows, |row| row.w() * row.made.causes[at]);
                let of_slow = sum(&rows, |row| row.slow_w() * row.made.causes[at]);
                (ns > 0).then(|| {
                    (
                        ns as f64,
                        json!([service, cause, ns, ns as f64 / all_ns as f64, of_slow]),
                    )
                })
            });
            causes.collect::<Vec<_>>()
        });
    out.insert("culprits.sql", ordered(culprits.collect()));

    let now = complete.iter().map(|row| row.end()).max().unwrap();
    let burn = grouped(&complete, |row| row.of.service)
        .into_iter()
        .flat_map(|(service, rows)| {
            let windows = [5, 60, 360, 4320].map(|minutes: u64| {
                let inside = |row: &&Row| {
                    row.end() as i128 > i128::from(now) - i128::from(minutes) * 60_000_000_000
                };
                let rows: Vec<&Row> = rows.iter().copied().filter(inside).collect();
                json!([
                    service,
                    minutes,
                    sum(&rows, Row::w),
                    sum(&rows, Row::slow_w),
                    slow_share(&rows) / (1.0 - TARGET)
                ])
            });
            windows.to_vec()
        });
    out.insert("burn.sql", of_json(burn));
    out
}
