//! What tracing may cost at most, beside what it costs.
//!
//! In: results. Out: a table with a verdict in each row.

use std::fmt::Write as _;

use anyhow::Result;

use super::loads::{self, Load};
use super::model::{LoadRuns, Results, WatcherRuns};
use super::watchers::Watcher;

/// How much more throughput than offcputime may be lost.
const BESIDE_PEER: f64 = 0.02;
/// How much more than with empty probes.
const BESIDE_EMPTY: f64 = 0.08;
/// How much more with `--blame`.
const BLAME: f64 = 0.04;
/// The program at the begin of a command: with a condition, or without.
const BEGINS: [&str; 2] = ["marked_begin", "request_begin"];

/// A bound for a measured value.
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    fn holds(&self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= *least,
            Self::AtMost(most) => value <= *most,
        }
    }
}

/// A row of the table.
struct Row {
    what: String,
    bound: Bound,
    /// `None` where it was not measured.
    value: Option<f64>,
    /// Digits behind the point, and the unit.
    digits: usize,
    unit: &'static str,
}

impl Row {
    fn text(&self) -> String {
        let number = |value: f64| format!("{value:.*}{}", self.digits, self.unit);
        let target = match self.bound {
            Bound::AtLeast(least) => format!("≥ {}", number(least)),
            Bound::AtMost(most) => format!("≤ {}", number(most)),
        };
        let (measured, verdict) = match self.value {
            None => ("not measured".to_owned(), ""),
            Some(value) if self.bound.holds(value) => (number(value), "reached"),
            Some(value) => (number(value), "**missed**"),
        };
        format!("| {} | {target} | {measured} | {verdict} |", self.what)
    }
}

/// The table.
pub(super) fn table(results: &Results) -> Result<String> {
    let mut text = String::from("| what | target | measured | |\n| --- | ---: | ---: | --- |\n");
    for row in rows(results) {
        writeln!(text, "{}", row.text())?;
    }
    Ok(text)
}

/// What an empty program at `sched_switch` takes on the machine that the targets for programs are from, ns.
const EMPTY_NS: f64 = 40.0;

/// What stands behind the numbers that are missed: the machine, and what probes cost without a tracer.
pub(super) fn reasons(results: &Results) -> String {
    let mut text = String::new();
    let mariadb = watched(results, &loads::MARIADB, Watcher::Reqtrace);
    let program = |name: &str| mariadb.and_then(|(_, watched)| watched.program_ns(name));
    if let (Some(both), Some(begin), Some(end), Some(switch)) = (
        &results.bystander,
        BEGINS.into_iter().find_map(program),
        program("request_end"),
        program("sched_switch"),
    ) {
        let slower = both.empty_ns / EMPTY_NS;
        text += &format!(
            "The targets in nanoseconds are from a machine on which an empty program at `sched_switch` takes \
             {EMPTY_NS:.0} ns. On this one it takes {:.0} ns, {slower:.1} times as long. Divided by that, begin \
             and end together take {:.0} ns, `sched_switch` {:.0} ns, and a switch of an untraced process \
             {:.0} ns beyond the empty program.\n\n",
            both.empty_ns,
            (begin + end) / slower,
            switch / slower,
            (both.switch_ns - both.empty_ns) / slower,
        );
    }
    let empty = |load: &Load| {
        let (runs, empty) = watched(results, load, Watcher::Empty)?;
        let of = |spread: super::model::Spread| (!spread.is_empty()).then(|| spread.median());
        of(runs.shares(empty)).zip(of(runs.cpu_ratios(empty)))
    };
    for (load, why) in [
        (
            &loads::PREPARED,
            "A prepared transaction is four messages, and the marker of the begin is where the server reads a \
             message: five traps for one request",
        ),
        (
            &loads::REDIS,
            "A command takes a few microseconds, of which the traps of its two probes are a large part",
        ),
    ] {
        if let Some((share, cpu)) = empty(load) {
            text += &format!(
                "{}: {why}. Empty probes alone leave {share:.2} of the throughput, and take the server's CPU \
                 time to {cpu:.2} times what it was: no tracer with probes at these places can do better.\n\n",
                load.name
            );
        }
    }
    text
}

fn rows(results: &Results) -> Vec<Row> {
    let share = |load: &Load, watcher: Watcher| {
        let (runs, watched) = watched(results, load, watcher)?;
        let shares = runs.shares(watched);
        (!shares.is_empty()).then(|| shares.median())
    };
    let throughput = |load: &Load, than: &str, least: Option<f64>| {
        least.map(|least| Row {
            what: format!("{}: throughput{than}", load.name),
            bound: Bound::AtLeast(least),
            value: share(load, Watcher::Reqtrace),
            digits: 2,
            unit: "",
        })
    };
    let cpu = watched(results, &loads::REDIS, Watcher::Reqtrace);
    let mariadb = watched(results, &loads::MARIADB, Watcher::Reqtrace);
    let program = |name: &str| mariadb.and_then(|(_, watched)| watched.program_ns(name));
    let begin = BEGINS.into_iter().find_map(program);
    let both = begin.zip(program("request_end"));
    let [plain, blamed] =
        [Watcher::Reqtrace, Watcher::Blame].map(|watcher| share(&loads::MARIADB, watcher));
    let ns = |what: &str, most: f64, value: Option<f64>| {
        Some(Row {
            what: what.to_owned(),
            bound: Bound::AtMost(most),
            value,
            digits: 0,
            unit: " ns",
        })
    };
    let bystander = results.bystander.as_ref();
    let rows = [
        throughput(&loads::MARIADB, "", Some(0.90)),
        throughput(
            &loads::MARIADB,
            ", beside offcputime's",
            share(&loads::MARIADB, Watcher::Offcputime).map(|share| share - BESIDE_PEER),
        ),
        blamed.map(|blamed| Row {
            what: format!(
                "{}: throughput that `--blame` takes more",
                loads::MARIADB.name
            ),
            bound: Bound::AtMost(BLAME),
            value: plain.map(|plain| plain - blamed),
            digits: 2,
            unit: "",
        }),
        throughput(&loads::SELECT, "", Some(0.88)),
        throughput(&loads::PREPARED, "", Some(0.80)),
        throughput(
            &loads::PREPARED,
            ", beside empty probes'",
            share(&loads::PREPARED, Watcher::Empty).map(|share| share - BESIDE_EMPTY),
        ),
        throughput(&loads::TPCB, "", Some(0.90)),
        Some(Row {
            what: "Redis GET: server CPU per command, of the untraced".to_owned(),
            bound: Bound::AtMost(1.35),
            value: cpu.map(|(load, watched)| load.cpu_ratios(watched).median()),
            digits: 2,
            unit: " ×",
        }),
        ns(
            "begin and end of a request together, MariaDB",
            500.0,
            both.map(|(begin, end)| begin + end),
        ),
        ns(
            "`sched_switch`, average of all switches, MariaDB",
            450.0,
            program("sched_switch"),
        ),
        ns(
            "a switch between threads of an untraced process, beyond an empty program",
            25.0,
            bystander.map(|both| both.switch_ns - both.empty_ns),
        ),
    ];
    rows.into_iter().flatten().collect()
}

fn watched<'a>(
    results: &'a Results,
    load: &Load,
    watcher: Watcher,
) -> Option<(&'a LoadRuns, &'a WatcherRuns)> {
    let load = results.load(load.name)?;
    Some((load, load.watcher(watcher.name())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::model::tests::example;

    #[test]
    fn a_target_is_reached_missed_or_not_measured() {
        let text = table(&example(0.8)).unwrap();
        let row =
            "| Redis GET: server CPU per command, of the untraced | ≤ 1.35 × | 1.20 × | reached |";
        assert!(text.contains(row), "{text}");
        let row = "| MariaDB oltp_read_write: throughput | ≥ 0.90 | not measured |  |";
        assert!(text.contains(row), "{text}");
        // There is no peer to be measured by.
        assert!(!text.contains("beside"), "{text}");
        let row = Row {
            what: "w".to_owned(),
            bound: Bound::AtMost(10.0),
            value: Some(11.0),
            digits: 0,
            unit: " ns",
        };
        assert_eq!(row.text(), "| w | ≤ 10 ns | 11 ns | **missed** |");
    }
}
