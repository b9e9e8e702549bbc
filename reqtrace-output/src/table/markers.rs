//! How often each marker was hit, and what of that fits no request.

use super::NARROW;
use super::page::Page;
use crate::words::NAME;
use reqtrace_analysis::report::Report;
use reqtrace_base::figures::{cut, number};

/// Widest place.
const PLACE: usize = 28;

/// Draws nothing where it was not counted.
pub(super) fn draw(page: &mut Page, report: &Report) {
    let markers = report.trace.markers.iter();
    let counted: Vec<_> = markers
        .filter_map(|info| Some((info, info.counts?)))
        .collect();
    if counted.is_empty() {
        return;
    }
    page.line("");
    let is_wide = page.width >= NARROW;
    let line = |name: &str, place: &str, numbers: [String; 5]| {
        let [hits, condition, key, elsewhere, parked] = numbers;
        let place = if is_wide {
            format!(" {:<PLACE$}", cut(place, PLACE))
        } else {
            String::new()
        };
        format!(
            "{:<NAME$}{place} {hits:>10} {condition:>9} {key:>8} {elsewhere:>9} {parked:>6}",
            cut(name, NAME)
        )
    };
    let head = ["HITS", "NOT MET", "NO KEY", "ELSEWHERE", "PARKED"];
    page.line(&line("MARKER", "PLACE", head.map(str::to_owned)));
    for (info, counts) in counted {
        let numbers = [
            counts.hits,
            counts.condition_false,
            counts.unknown_keys,
            counts.elsewhere,
            counts.parked_already,
        ];
        let name = format!("{} {}", info.request, info.marker);
        page.line(&line(&name, &info.place, numbers.map(number)));
    }
}
