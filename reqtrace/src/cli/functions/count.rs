//! `--count`: findings in, how often each match is hit out.

use super::Search;
use super::find::Findings;
use super::measure::{Counted, Limits, Measured, Plan};
use crate::cli::profiles::print;
use reqtrace_base::error::Result;
use reqtrace_base::figures::number;

/// Counts, and prints the result.
///
/// # Errors
///
/// As [`Plan::count`]; and, with what was counted so far printed, that counting took too much.
pub(super) fn run(
    search: &Search,
    findings: &Findings,
    limits: Limits<'_>,
    limit: usize,
) -> Result<()> {
    let mut measured = Plan::of(findings).count(search, findings, limits)?;
    // Taking probes out may wait for the kernel.
    print(&text(&measured, findings, limit))?;
    measured.counter.detach();
    measured.stopped.map_or(Ok(()), Err)
}

fn text(measured: &Measured, findings: &Findings, limit: usize) -> String {
    let seconds = measured.elapsed.as_secs_f64().max(0.001);
    let counted = measured.counted.iter();
    let mut rows: Vec<(u64, &Counted)> = counted.map(|one| (measured.hits(one), one)).collect();
    rows.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.name.cmp(&b.1.name)));
    let silent = rows.iter().filter(|(hits, _)| *hits == 0).count();
    let several = findings.objects.len() > 1;
    let mut text = String::from("        HITS        PER S  NAME\n");
    let hit = rows.iter().filter(|(hits, _)| *hits > 0);
    for (hits, one) in hit.take(limit) {
        let object = if several {
            format!("  [{}]", one.object.rsplit('/').next().unwrap_or_default())
        } else {
            String::new()
        };
        text.push_str(&format!(
            "{:>12} {:>12}  {}{object}\n",
            number(*hits),
            number((*hits as f64 / seconds).round() as u64),
            one.name
        ));
    }
    let left_out = (rows.len() - silent).saturating_sub(limit);
    if left_out > 0 {
        text.push_str(&format!(
            "{} more were hit and are not listed: give --limit {}\n",
            number(left_out as u64),
            rows.len() - silent
        ));
    }
    let early = match measured.stopped {
        Some(_) => ": counting was stopped there, because it took too much",
        None => "",
    };
    text.push_str(&format!(
        "\n{} of {} were hit in {seconds:.1} s{early}\n",
        rows.len() - silent,
        rows.len()
    ));
    text
}
