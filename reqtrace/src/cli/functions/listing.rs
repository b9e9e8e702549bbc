//! The list: findings in, one line a match out.

use super::find::{Finding, Findings};
use reqtrace_base::figures::number;
use reqtrace_resolve::search::{Match, Probing};
use reqtrace_resolve::usdt::UsdtProbe;

/// The text, with at most `limit` matches.
pub(super) fn text(findings: &Findings, limit: usize) -> String {
    let mut text = String::new();
    let mut left = limit;
    for found in &findings.objects {
        let shown = found.functions.len().min(left);
        left -= shown;
        let probes = found.probes.len().min(left);
        left -= probes;
        if shown + probes == 0 {
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&format!("{}\n", found.file.shown));
        if shown > 0 {
            text.push_str("       OFFSET       SIZE  RETURNS  FUNCTION\n");
        }
        for function in &found.functions[..shown] {
            text.push_str(&function_line(found, function));
        }
        if probes > 0 {
            text.push_str("       OFFSET     PLACES     ARGS  USDT PROBE\n");
        }
        for probe in &found.probes[..probes] {
            text.push_str(&probe_line(probe));
        }
    }
    text.push('\n');
    text.push_str(&totals(findings));
    let rest = findings.count() - (limit - left);
    if rest > 0 {
        text.push_str(&format!(
            "{} more are not listed: give a longer pattern, --object, or --limit {}\n",
            number(rest as u64),
            findings.count()
        ));
    }
    for found in findings.objects.iter().filter(|f| f.malformed_notes > 0) {
        text.push_str(&format!(
            "note: {} USDT notes of {} are malformed and left out\n",
            found.malformed_notes, found.file.shown
        ));
    }
    for what in &findings.unused {
        text.push_str(&format!("note: {what}\n"));
    }
    for what in &findings.unreadable {
        text.push_str(&format!("note: not searched: {what}\n"));
    }
    text
}

fn function_line(found: &Finding, function: &Match) -> String {
    let offset = function
        .bodies
        .first()
        .and_then(|body| found.object.file_offset(body.start))
        .map_or_else(|| "-".to_owned(), |offset| format!("{offset:#x}"));
    let (returns, note) = match function.probing(&found.object) {
        Probing::Sites(count) => (count.to_string(), ""),
        Probing::NeverReturns => (
            "none".to_owned(),
            "  (never returns, or cannot be decoded: needs an `end`)",
        ),
        Probing::PiecesOnly => (
            "-".to_owned(),
            "  (cannot be probed: inlined, only pieces are left)",
        ),
    };
    let copies = match function.bodies.len() {
        0 | 1 => String::new(),
        many => format!("  ({many} copies)"),
    };
    format!(
        "{offset:>13} {:>10} {returns:>8}  {}{copies}{note}\n",
        number(function.size()),
        function.signature
    )
}

fn probe_line(probe: &UsdtProbe) -> String {
    let site = probe.sites.first();
    let offset = site.map_or(0, |site| site.file_offset);
    let arguments = site.map_or(0, |site| site.arguments.len());
    let guarded = probe.sites.iter().any(|site| site.semaphore.is_some());
    format!(
        "{offset:>#13x} {:>10} {arguments:>8}  {}{}\n",
        probe.sites.len(),
        probe.full_name(),
        if guarded { "  (semaphore)" } else { "" }
    )
}

fn totals(findings: &Findings) -> String {
    let functions: usize = findings.objects.iter().map(|f| f.functions.len()).sum();
    let probes: usize = findings.objects.iter().map(|f| f.probes.len()).sum();
    let mut parts = Vec::new();
    if functions > 0 {
        parts.push(plural(functions, "function"));
    }
    if probes > 0 {
        parts.push(plural(probes, "USDT probe"));
    }
    if findings.searched == 1 {
        return format!("{}\n", parts.join(" and "));
    }
    format!(
        "{} in {} of {} searched\n",
        parts.join(" and "),
        findings.objects.len(),
        plural(findings.searched, "object")
    )
}

fn plural(count: usize, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {what}{s}", number(count as u64))
}
