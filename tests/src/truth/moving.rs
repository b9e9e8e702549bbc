//! `truth --moving`: requests that change threads, held against their trace one by one. The form of its log
//! is described in `examples/truth/src/moving/story.rs`.
//!
//! In: the log and the rows of `requests.csv`. Out: what does not fit. There is no tolerance: each moment of the
//! log lies between two readings of the clock that the kernel programs use too.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use super::log::{Interval, each_line, interval};
use crate::reqtrace::{Outcome, Trace};
use crate::rows::Row;
use crate::summary::Summary;
use crate::workspace;

/// Places that the kinds name, in the order of the profile, and whether requests are queued there.
const PLACES: [(&str, bool); 5] = [
    ("pool_queue", true),
    ("upstream", false),
    ("timer", false),
    ("event", false),
    ("executor", true),
];

/// The kinds of requests: the request types of the profile.
const KINDS: [&str; 3] = ["pool", "loop", "coroutine"];

/// One request, as it measured itself.
#[derive(Clone, Debug)]
pub struct Line {
    /// What kind of request it is: the request type of the profile.
    pub kind: String,
    /// Its number among those.
    pub number: u64,
    /// When it began, `CLOCK_MONOTONIC` ns.
    pub begin: Interval,
    /// When it ended.
    pub end: Interval,
    /// How often another thread went on with it than the one before.
    pub moves: u64,
    /// Where it was while no thread ran it, and how long, ns; in order.
    pub away: Vec<(String, Interval)>,
}

/// Path of its profile.
#[must_use]
pub fn profile() -> PathBuf {
    workspace::root().join("examples/truth/moving.toml")
}

/// Traces so many requests of each kind, all that there are.
///
/// # Errors
///
/// When something does not run, or the log cannot be read.
pub fn trace(requests: u64, more: &[&str]) -> Result<(Outcome, Vec<Line>)> {
    let mut service = super::Truth::open_moving(requests)?;
    let trace = Trace::start(&profile(), service.pid(), more)?;
    service.run()?;
    let outcome = trace.finish()?;
    let log = service.close()?;
    if outcome.code != Some(0) {
        bail!(
            "reqtrace ended with {:?}\n{}",
            outcome.code,
            outcome.printed()
        );
    }
    Ok((outcome, read(&log)?))
}

/// Checks that there are so many requests of each kind, all with a row, and that no marker was of another one.
///
/// # Errors
///
/// With the kind and what was counted.
pub fn check_counts(summary: &Summary, of_each: u64) -> Result<()> {
    for kind in KINDS {
        let request = summary.request(kind)?;
        let counts = [request.count, request.rows, request.begins, request.ends];
        ensure!(counts == [of_each; 4], "{kind}: {request:?}");
        // One that was touched and named no request is not counted.
        let misfits = [request.unknown_keys, request.running_elsewhere];
        ensure!(misfits == [Some(0); 2], "{kind}: {request:?}");
    }
    Ok(())
}

/// Checks that each request of the log is one complete row, within its brackets, and was parked and queued
/// everywhere for as long as it says.
///
/// # Errors
///
/// With the first ten things that do not fit, and their number.
pub fn check(lines: &[Line], rows: &[Row], monotonic_to_unix_ns: i64) -> Result<()> {
    let mut by_number = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in rows {
        let number = row.attributes.get("number").context("no column number")?;
        let number: u64 = number
            .parse()
            .with_context(|| format!("request {}: its number is {number:?}", row.id))?;
        if by_number
            .insert((row.request.as_str(), number), row)
            .is_some()
        {
            wrong.push(format!("{} {number} comes twice", row.request));
        }
    }
    for line in lines {
        let name = format!("{} {}", line.kind, line.number);
        match by_number.remove(&(line.kind.as_str(), line.number)) {
            None => wrong.push(format!("{name} was not traced")),
            Some(row) => {
                let faults = faults(line, row, monotonic_to_unix_ns);
                wrong.extend(faults.into_iter().map(|fault| format!("{name}: {fault}")));
            }
        }
    }
    wrong.extend(
        by_number
            .keys()
            .map(|(kind, number)| format!("{kind} {number} is in no log")),
    );
    let first = &wrong[..wrong.len().min(10)];
    ensure!(
        wrong.is_empty(),
        "{} faults in {} requests:\n{}",
        wrong.len(),
        lines.len(),
        first.join("\n")
    );
    Ok(())
}

fn faults(line: &Line, row: &Row, monotonic_to_unix_ns: i64) -> Vec<String> {
    if !row.complete {
        return vec![format!("incomplete: {}", row.reason)];
    }
    let mut faults = Vec::new();
    let mut within = |what: &str, measured: Interval, traced: i128| {
        if traced < measured.least {
            faults.push(format!("{what} {} ns too small", measured.least - traced));
        } else if traced > measured.most {
            faults.push(format!("{what} {} ns too large", traced - measured.most));
        }
    };
    let begin = i128::from(row.start_unix_ns) - i128::from(monotonic_to_unix_ns);
    within("begin", line.begin, begin);
    within("end", line.end, begin + i128::from(row.latency_ns));
    let mut sums = [Interval { least: 0, most: 0 }; 2];
    for (place, is_queued) in PLACES {
        let measured = line.at(place);
        let traced = row.places.get(place).copied().unwrap_or(0);
        within(place, measured, traced.into());
        let sum = &mut sums[usize::from(is_queued)];
        sum.least += measured.least;
        sum.most += measured.most;
    }
    within("parked", sums[0], row.parked_ns.into());
    within("queued", sums[1], row.queued_ns.into());
    faults
}

impl Line {
    /// How long it was at a place, all times together.
    #[must_use]
    pub fn at(&self, place: &str) -> Interval {
        let mut sum = Interval { least: 0, most: 0 };
        for (_, away) in self.away.iter().filter(|(name, _)| name == place) {
            sum.least += away.least;
            sum.most += away.most;
        }
        sum
    }
}

/// Reads all lines.
///
/// # Errors
///
/// When one is not as described.
pub fn read(log: &str) -> Result<Vec<Line>> {
    each_line(log, read_line)
}

fn read_line(line: &str) -> Result<Line> {
    let words: Vec<_> = line.split(' ').collect();
    let [kind, number, begin, end, moves, away @ ..] = words.as_slice() else {
        bail!("{} words are too few", words.len());
    };
    let away = away.iter().map(|text| {
        let (place, ns) = text.split_once(':').context("not PLACE:least..most")?;
        ensure!(PLACES.iter().any(|(known, _)| *known == place), "{place}?");
        Ok((place.to_owned(), interval(ns)?))
    });
    Ok(Line {
        kind: (*kind).to_owned(),
        number: number.parse()?,
        begin: interval(begin)?,
        end: interval(end)?,
        moves: moves.parse()?,
        away: away.collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "pool 3 100..110 200..210 1 pool_queue:20..30\n\
        loop 3 100..110 300..320 0 upstream:50..60 timer:40..45 upstream:10..11\n";

    /// Rows that are what the log says.
    fn rows() -> Vec<Row> {
        let row = |request: &str, latency_ns, parked_ns, queued_ns, places: &[(&str, u64)]| Row {
            start_unix_ns: 1105,
            request: request.to_owned(),
            complete: true,
            latency_ns,
            parked_ns,
            queued_ns,
            places: places
                .iter()
                .map(|(name, ns)| ((*name).to_owned(), *ns))
                .collect(),
            attributes: [("number".to_owned(), "3".to_owned())].into(),
            ..Row::default()
        };
        vec![
            row("loop", 200, 110, 0, &[("upstream", 65), ("timer", 45)]),
            row("pool", 100, 0, 20, &[("pool_queue", 20)]),
        ]
    }

    fn fault(change: impl FnOnce(&mut Vec<Row>)) -> String {
        let mut rows = rows();
        change(&mut rows);
        let error = check(&read(LOG).unwrap(), &rows, 1000).unwrap_err();
        error
            .to_string()
            .lines()
            .skip(1)
            .collect::<Vec<_>>()
            .join("; ")
    }

    #[test]
    fn a_trace_that_says_the_same_passes() {
        check(&read(LOG).unwrap(), &rows(), 1000).unwrap();
    }

    #[test]
    fn one_nanosecond_outside_is_found() {
        assert_eq!(
            fault(|rows| rows[1].start_unix_ns = 1099),
            "pool 3: begin 1 ns too small; pool 3: end 1 ns too small"
        );
        assert_eq!(
            fault(|rows| rows[0].latency_ns = 216),
            "loop 3: end 1 ns too large"
        );
        assert_eq!(
            fault(|rows| rows[1].queued_ns = 31),
            "pool 3: queued 1 ns too large"
        );
        assert_eq!(
            fault(|rows| _ = rows[0].places.insert("timer".to_owned(), 46)),
            "loop 3: timer 1 ns too large"
        );
        assert_eq!(
            fault(|rows| rows[0].parked_ns = 99),
            "loop 3: parked 1 ns too small"
        );
    }

    #[test]
    fn each_request_is_one_row() {
        assert_eq!(fault(|rows| _ = rows.pop()), "pool 3 was not traced");
        assert_eq!(
            fault(|rows| rows.push(rows[0].clone())),
            "loop 3 comes twice"
        );
        assert_eq!(
            fault(|rows| rows[0].complete = false),
            "loop 3: incomplete: "
        );
        let renamed =
            fault(|rows| rows[1].attributes = [("number".to_owned(), "4".to_owned())].into());
        assert_eq!(renamed, "pool 3 was not traced; pool 4 is in no log");
    }

    #[test]
    fn what_is_no_line_is_an_error() {
        for text in [
            "pool 3",
            &LOG.replace("20..30", "20-30"),
            &LOG.replace("timer", "sun"),
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
