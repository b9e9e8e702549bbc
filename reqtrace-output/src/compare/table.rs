//! The table of a comparison: one screen, unless all is asked for.

use super::DELIMITER;
use reqtrace_base::figures::{cut, duration, number};
use reqtrace_base::names::telling;
use reqtrace_compare::{
    Bar, Comparison, Estimate, Fate, ItemKind, ItemRow, Measure, Metric, Rows, TypeComparison,
    Waterfall, add_up,
};

/// Lines of a waterfall, and rows of each other table.
const MOST: [usize; 2] = [8, 3];
/// A bar is a small one below this part of the mean, 1 of so many.
const SMALL: u64 = 200;
/// The widest that a table gets.
const WIDEST: usize = 110;
/// Characters of the longest bar.
const BAR: f64 = 12.0;

/// The comparison as text, in lines of at most `width` characters. `all`: everything of all request types.
#[must_use]
pub fn render(comparison: &Comparison, all: bool, width: usize) -> String {
    let mut page = Page {
        text: String::new(),
        width: width.min(WIDEST),
        most: if all { [usize::MAX; 2] } else { MOST },
    };
    head(&mut page, comparison);
    let mut types = comparison.types.iter();
    for of in types.by_ref().take(if all { usize::MAX } else { 1 }) {
        page.line("");
        whole_type(&mut page, comparison, of);
    }
    let others: Vec<&TypeComparison> = types.collect();
    if !others.is_empty() {
        page.line("");
        page.line("other request types (--all shows all of each)");
        for of in others {
            short_type(&mut page, of);
        }
    }
    for rows in &comparison.items {
        items(&mut page, comparison, rows);
    }
    for note in &comparison.notes {
        page.line("");
        page.wrapped(note);
    }
    page.text
}

struct Page {
    text: String,
    width: usize,
    most: [usize; 2],
}

impl Page {
    /// Whether nothing is left out.
    fn is_whole(&self) -> bool {
        self.most == [usize::MAX; 2]
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(cut(line, self.width).trim_end());
        self.text.push('\n');
    }

    fn wrapped(&mut self, text: &str) {
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > self.width {
                self.line(&line);
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.line(&line);
    }
}

fn head(page: &mut Page, comparison: &Comparison) {
    for (name, side) in ["A", "B"].into_iter().zip(&comparison.sides) {
        let mut words = vec![
            side.names.join(", "),
            duration(side.length_ns),
            format!("{} requests", number(side.requests)),
        ];
        words.extend(side.which.iter().cloned());
        for (count, what) in [
            (side.incomplete, "incomplete"),
            (side.open, "open at the end"),
        ] {
            if count > 0 {
                words.push(format!("{} {what}", number(count)));
            }
        }
        if side.drawn_together > 1 {
            let seconds = side.drawn_together * (side.block_ns / 1_000_000_000);
            words.push(format!("{seconds} s drawn together"));
        }
        page.line(&format!("{name}  {}", words.join(" · ")));
    }
    if !comparison.unlike.is_empty() {
        page.line("");
        page.line("unlike");
        for one in &comparison.unlike {
            page.line(&format!(
                "  {:<32} {:<32} {}",
                cut(&one.what, 32),
                cut(&one.a, 32),
                one.b
            ));
        }
    }
    if let Some(too_short) = &comparison.too_short {
        page.line("");
        page.wrapped(too_short);
    }
}

fn whole_type(page: &mut Page, comparison: &Comparison, of: &TypeComparison) {
    let [a, b] = of.count.map(number);
    page.line(&format!("{} · {a} → {b} requests", of.name));
    let objective = comparison
        .slo_ns
        .map_or_else(String::new, |ns| format!("; slow: above {}", duration(ns)));
    page.line(&format!(
        "  {:<8} {:>12} {:>12} {:>10}  95 %{objective}",
        "", "A", "B", "change"
    ));
    for metric in &of.metrics {
        page.line(&format!("  {}", metric_line(metric)));
    }
    if let Some(parts) = &of.parts {
        waterfall(page, "where the mean changed", parts);
    }
    if let Some(causes) = &of.causes {
        waterfall(page, "the same by root cause", causes);
    }
    if let Some(tail) = &of.tail {
        let title = format!("the slowest {} %", tail.share * 100.0);
        waterfall(page, &title, &tail.parts);
        if page.is_whole()
            && let Some(causes) = &tail.causes
        {
            waterfall(page, &format!("{title} by root cause"), causes);
        }
    }
    let is_mixed = of.groups.rows.len() as u64 + of.groups.noise > 1;
    if let Some(mix) = of.mix.as_ref().filter(|_| is_mixed) {
        page.line("");
        page.line(&format!(
            "  other requests came {} {}, the same ones changed {} {}",
            signed_ns(mix.mix.change),
            mark(&mix.mix),
            signed_ns(mix.inside.change),
            mark(&mix.inside)
        ));
    }
    let groups = &of.groups;
    if is_mixed {
        page.line(&format!("  fingerprints{}", left_out(groups, page.most[1])));
        for row in groups.rows.iter().take(page.most[1]) {
            let fate = Fate::of(row.count, row.part.change);
            let most = row
                .most
                .as_ref()
                .map_or_else(String::new, |most| format!(" ({most})"));
            page.line(&format!(
                "    {:>10} {:<6} {:>9} → {:<9} {}{most}",
                signed_ns(row.part.change),
                fate.word(),
                duration(row.mean_ns[0] as u64),
                duration(row.mean_ns[1] as u64),
                row.name
            ));
        }
    }
}

/// Only what says most.
fn short_type(page: &mut Page, of: &TypeComparison) {
    let [a, b] = of.count.map(number);
    let metrics = of
        .metrics
        .iter()
        .filter(|metric| matches!(metric.measure, Measure::Mean | Measure::P99));
    let metrics: Vec<String> = metrics
        .map(|metric| {
            let relative = metric.relative.unwrap_or_default();
            format!(
                "{} {} {}",
                metric.measure.name(),
                percent(relative.change),
                mark(&relative)
            )
        })
        .collect();
    page.line(&format!(
        "  {:<20} {a} → {b} requests   {}",
        of.name,
        metrics.join("   ")
    ));
}

fn metric_line(metric: &Metric) -> String {
    let show = |value: f64| match metric.measure {
        Measure::Rate => format!("{value:.1}/s"),
        Measure::Slow => format!("{:.3} %", value * 100.0),
        _ => duration(value as u64),
    };
    // A share changes by points. What was 0 has no share that could change.
    let (estimate, shown, unit): (_, fn(f64) -> String, _) = match (metric.measure, metric.relative)
    {
        (Measure::Slow, _) => (metric.absolute, |of| format!("{:+.3}", of * 100.0), " pt"),
        (_, Some(relative)) => (relative, percent, ""),
        (Measure::Rate, None) => (metric.absolute, |of| format!("{of:+.1}/s"), ""),
        (_, None) => (metric.absolute, signed_ns, ""),
    };
    let change = format!("{}{unit}", shown(estimate.change));
    let interval = estimate.interval.map_or_else(String::new, |[low, high]| {
        format!("{} to {}{unit}", shown(low), shown(high))
    });
    let [a, b] = metric.sides;
    format!(
        "{:<8} {:>12} {:>12} {change:>10}  {interval:<26} {}",
        metric.measure.name(),
        show(a.value),
        show(b.value),
        mark(&estimate)
    )
}

/// `~` is noise; without an interval nothing is known.
fn mark(estimate: &Estimate) -> &'static str {
    match estimate.is_clear {
        Some(true) => "",
        Some(false) => "~",
        None => "?",
    }
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        size if size >= 999.5 => format!("{percent:+.0} %"),
        _ => format!("{percent:+.1} %"),
    }
}

/// A unit in which the largest of these has four digits: its name, its length, and the last digit's.
fn unit(largest_ns: u64) -> (&'static str, f64, u64) {
    let (name, length) = match largest_ns {
        0..10_000 => ("ns", 1.0),
        10_000..10_000_000 => ("µs", 1e3),
        10_000_000..10_000_000_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    let digits = largest_ns.max(1).ilog10();
    (name, length, 10_u64.pow(digits.saturating_sub(3)))
}

/// Bars that are clear, and all others as one: numbers as they are printed add up.
fn waterfall(page: &mut Page, title: &str, of: &Waterfall) {
    let is_noise = |bar: &&Bar| bar.estimate.is_clear == Some(false);
    let (noise, clear): (Vec<&Bar>, Vec<&Bar>) = of.bars.iter().partition(is_noise);
    // The largest come first.
    let least_ns = of.total_ns[0].max(of.total_ns[1]) / SMALL;
    let large = clear.partition_point(|bar| bar.change_ns.unsigned_abs() >= least_ns);
    let most = if page.is_whole() {
        clear.len()
    } else {
        large.min(page.most[0])
    };
    let (shown, small) = clear.split_at(most);
    let mut lines: Vec<(String, [u64; 2], &'static str)> = shown
        .iter()
        .map(|bar| (bar.name.clone(), bar.sides_ns, mark(&bar.estimate)))
        .collect();
    for (bars, what, mark) in [
        (small, "smaller", ""),
        (noise.as_slice(), "in the noise", "~"),
    ] {
        if !bars.is_empty() {
            let sum = |side: usize| bars.iter().map(|bar| bar.sides_ns[side]).sum();
            lines.push((format!("{} {what}", bars.len()), [sum(0), sum(1)], mark));
        }
    }
    let (unit, length, quantum) = unit(of.total_ns[0].max(of.total_ns[1]));
    let rounded = [0, 1].map(|side: usize| {
        let values: Vec<u128> = lines
            .iter()
            .map(|(_, sides, _)| u128::from(sides[side]))
            .collect();
        add_up(&values, 1, quantum)
    });
    let decimals = (length / quantum as f64).log10().max(0.0) as usize;
    let shown = |ns: u64| format!("{:.decimals$}", ns as f64 / length);
    let change = |sides: [u64; 2]| {
        format!(
            "{:+.decimals$}",
            (sides[1] as f64 - sides[0] as f64) / length
        )
    };
    let sides_of = |at: usize| [rounded[0].1[at], rounded[1].1[at]];
    let most = (0..lines.len())
        .map(|at| sides_of(at)[0].abs_diff(sides_of(at)[1]))
        .max()
        .unwrap_or(0);
    page.line("");
    page.line(&format!(
        "  {:<32} {:>10} {:>10} {:>10}",
        format!("{title}, {unit}"),
        "A",
        "B",
        "change"
    ));
    for (at, (name, _, mark)) in lines.iter().enumerate() {
        let sides = sides_of(at);
        let share = sides[0].abs_diff(sides[1]) as f64 / most.max(1) as f64;
        let drawn = "█".repeat((share * BAR).round() as usize);
        let [a, b] = sides.map(shown);
        page.line(&format!(
            "    {:<30} {a:>10} {b:>10} {:>10} {mark:<1} {drawn}",
            cut(name, 30),
            change(sides)
        ));
    }
    let totals = [rounded[0].0, rounded[1].0];
    let [a, b] = totals.map(shown);
    page.line(&format!(
        "    {:<30} {a:>10} {b:>10} {:>10}",
        "= all",
        change(totals)
    ));
}

fn items(page: &mut Page, comparison: &Comparison, rows: &Rows<ItemRow>) {
    let most = page.most[1];
    page.line("");
    page.line(&format!("{}, a request{}", rows.what, left_out(rows, most)));
    for row in rows.rows.iter().take(most) {
        let fate = Fate::of(row.total_ns, row.estimate.change);
        let request = match comparison.types.len() {
            1 => String::new(),
            _ => format!("{}: ", row.request),
        };
        let name = match row.kind {
            ItemKind::Stack => innermost(&row.name),
            _ => row.name.clone(),
        };
        page.line(&format!(
            "  {:>10} {:<6} {:>9} → {:<9} {:<1} {request}{name}",
            signed_ns(row.estimate.change),
            fate.word(),
            duration(row.each_ns[0] as u64),
            duration(row.each_ns[1] as u64),
            mark(&row.estimate)
        ));
    }
}

/// What of a table is not here.
fn left_out<T>(rows: &Rows<T>, most: usize) -> String {
    let small = rows.small as usize + rows.rows.len().saturating_sub(most);
    let mut words = Vec::new();
    if small > 0 {
        words.push(format!("{small} smaller ones left out"));
    }
    if rows.noise > 0 {
        words.push(format!("{} in the noise", rows.noise));
    }
    match words.is_empty() {
        true => String::new(),
        false => format!(" ({})", words.join(", ")),
    }
}

/// The frames of a stack that say most, innermost first.
fn innermost(name: &str) -> String {
    let frames: Vec<&str> = name.split(';').skip(1).collect();
    let middle = frames
        .iter()
        .position(|frame| *frame == DELIMITER)
        .unwrap_or(frames.len());
    let (user, kernel) = frames.split_at(middle);
    let fields = telling(
        user.iter().rev().copied(),
        kernel.iter().skip(1).rev().copied(),
    );
    fields.join(" ← ")
}

fn signed_ns(ns: f64) -> String {
    let sign = if ns < 0.0 { "-" } else { "+" };
    format!("{sign}{}", duration(ns.abs() as u64))
}

#[cfg(test)]
mod tests {
    use reqtrace_compare::Value;

    use super::*;

    fn line(measure: Measure, sides: [f64; 2], relative: Option<Estimate>) -> String {
        let value = |value| Value {
            value,
            interval: None,
        };
        let metric = Metric {
            measure,
            sides: sides.map(value),
            relative,
            absolute: Estimate {
                change: sides[1] - sides[0],
                interval: Some([sides[1] - sides[0] - 2.0, sides[1] - sides[0] + 2.0]),
                ..Estimate::default()
            },
        };
        let line = metric_line(&metric);
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_new_changes_by_its_own_unit_and_the_rest_by_its_share() {
        let new = line(Measure::Rate, [0.0, 50.0], None);
        assert_eq!(new, "rate 0.0/s 50.0/s +50.0/s +48.0/s to +52.0/s ?");
        let share = Estimate {
            change: 0.5,
            interval: Some([0.25, 0.75]),
            is_clear: Some(true),
            ..Estimate::default()
        };
        let more = line(Measure::Rate, [50.0, 75.0], Some(share));
        assert_eq!(more, "rate 50.0/s 75.0/s +50.0 % +25.0 % to +75.0 %");
        let slow = line(Measure::Slow, [0.0, 0.5], None);
        assert_eq!(
            slow,
            "slow 0.000 % 50.000 % +50.000 pt -150.000 to +250.000 pt ?"
        );
    }
}
