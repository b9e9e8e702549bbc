//! A [`Comparison`] as tables of Markdown: of a failing test, and of `docs/measured/accuracy.md`.

use std::fmt::Write as _;

use super::compare::{Comparison, Kind, Number};

/// The tables, each with a heading.
#[must_use]
pub fn tables(comparison: &Comparison) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write_tables(&mut text, comparison);
    text
}

fn write_tables(text: &mut String, comparison: &Comparison) -> std::fmt::Result {
    exact(text, comparison)?;
    classes(text, comparison)?;
    for (number, heading) in [
        (Number::Class, "Blocked, against the waits' own clocks"),
        (Number::RunQueue, "Run queue, against the waits' own clocks"),
        (Number::OnCpu, "On CPU, against the thread's CPU clock"),
        (
            Number::RunDelay,
            "Run queue + preempted, against the kernel's run delay",
        ),
    ] {
        distances(text, comparison, number, heading)?;
    }
    Ok(())
}

fn exact(text: &mut String, comparison: &Comparison) -> std::fmt::Result {
    writeln!(text, "## Every request\n")?;
    writeln!(
        text,
        "| kind | requests | mean latency | latency in brackets | blocks | preemptions |\n\
         | --- | ---: | ---: | ---: | ---: | ---: |"
    )?;
    for (name, kind) in &comparison.kinds {
        let inside = |number| percent(kind.inside(number) as u64, kind.requests as u64);
        writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} |",
            kind.requests,
            time(i128::from(kind.mean_latency_ns())),
            inside(Number::Latency),
            inside(Number::Blocks),
            inside(Number::Preemptions)
        )?;
    }
    writeln!(text)
}

fn classes(text: &mut String, comparison: &Comparison) -> std::fmt::Result {
    writeln!(text, "## Blocked, by wait class\n")?;
    writeln!(
        text,
        "| kind | waits for | blocked in it | all blocked time |\n| --- | --- | ---: | --- |"
    )?;
    for (name, kind) in comparison
        .kinds
        .iter()
        .filter(|(_, kind)| !kind.classes.is_empty())
    {
        let mut by_class: Vec<_> = kind.by_class_ns.iter().collect();
        by_class.sort_by_key(|(_, ns)| std::cmp::Reverse(**ns));
        let by_class = by_class.into_iter();
        let shares = by_class.map(|(class, ns)| format!("{class} {}", time(i128::from(*ns))));
        writeln!(
            text,
            "| {name} | {} | {} | {} |",
            kind.classes.join(", "),
            percent(kind.in_class_ns, kind.blocked_ns),
            shares.collect::<Vec<_>>().join(", ")
        )?;
    }
    writeln!(text)
}

fn distances(
    text: &mut String,
    comparison: &Comparison,
    number: Number,
    heading: &str,
) -> std::fmt::Result {
    writeln!(text, "## {heading}\n")?;
    writeln!(
        text,
        "| kind | median width | inside | outside: least | p50 | p99 | most | p50 of the latency |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )?;
    let measured = |kind: &&(String, Kind)| !kind.1.distances(number).is_empty();
    for (name, kind) in comparison.kinds.iter().filter(measured) {
        let [least, median, p99, most] =
            [0.0, 0.5, 0.99, 1.0].map(|share| time(kind.quantile(number, share)));
        let error = u64::try_from(kind.median_error(number)).unwrap_or(u64::MAX);
        writeln!(
            text,
            "| {name} | {} | {} | {least} | {median} | {p99} | {most} | {} |",
            time(kind.width(number)),
            percent(
                kind.inside(number) as u64,
                kind.distances(number).len() as u64
            ),
            percent(error, kind.mean_latency_ns())
        )?;
    }
    writeln!(text)
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    if part == whole {
        return "100 %".to_owned();
    }
    // Rounded down: what is not all is never shown as all.
    let share = (part as f64 / whole as f64 * 10_000.0).floor() / 100.0;
    format!("{share:.2} %")
}

fn time(ns: i128) -> String {
    let ns = ns as f64;
    let size = ns.abs();
    if size < 1000.0 {
        format!("{ns} ns")
    } else if size < 1e6 {
        format!("{:.1} µs", ns / 1e3)
    } else {
        format!("{:.2} ms", ns / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_all_is_never_100_percent() {
        assert_eq!(percent(99_999, 100_000), "99.99 %");
        assert_eq!(percent(100_000, 100_000), "100 %");
        assert_eq!(percent(0, 0), "-");
    }

    #[test]
    fn times_have_their_unit() {
        let times = [0, 999, -1500, 2_345_678].map(time);
        assert_eq!(times, ["0 ns", "999 ns", "-1.5 µs", "2.35 ms"]);
    }
}
