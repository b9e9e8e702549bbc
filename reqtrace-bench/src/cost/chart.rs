//! The chart of costs.
//!
//! In: results. Out: an SVG of bars with their spread, throughput on the left and CPU time of the
//! server on the right, legible on a light and on a dark page.

use std::fmt::Write as _;

use super::model::{LoadRuns, Results, Spread, WatcherRuns};

/// Sizes, in pixels of the picture.
const WIDTH: f64 = 900.0;
const LABELS: f64 = 165.0;
const PANEL: f64 = 300.0;
const BETWEEN: f64 = 62.0;
const HEAD: f64 = 62.0;
const TITLE: f64 = 22.0;
const ROW: f64 = 16.0;
const BAR: f64 = 11.0;
/// Room for a number behind a bar.
const NUMBER: f64 = 36.0;

/// On a dark page the text becomes light; the colours of the bars serve both.
const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 }
.head { font-size: 15px; font-weight: 600 }
.small { fill: #57606a; font-size: 11px }
.line { stroke: #8c959f; stroke-dasharray: 3 3 }
.spread { stroke: #6e7781; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .small { fill: #9198a1 }
  .spread { stroke: #c9d1d9 }
}";

/// A panel: where it begins, and what its values go up to.
struct Panel {
    left: f64,
    most: f64,
}

impl Panel {
    fn x(&self, value: f64) -> f64 {
        self.left + (value / self.most).clamp(0.0, 1.0) * (PANEL - NUMBER)
    }
}

/// Draws it.
pub(super) fn draw(results: &Results) -> String {
    let mut rows = String::new();
    let most = |ratios: fn(&LoadRuns, &WatcherRuns) -> Spread| {
        let loads = results.loads.iter();
        let all = loads.flat_map(|load| watched(load).map(move |watcher| ratios(load, watcher)));
        all.map(|spread| spread.most()).fold(1.0, f64::max)
    };
    let left = Panel {
        left: LABELS,
        most: most(LoadRuns::shares),
    };
    let right = Panel {
        left: LABELS + PANEL + BETWEEN,
        most: most(LoadRuns::cpu_ratios),
    };
    let mut y = HEAD;
    for load in results
        .loads
        .iter()
        .filter(|load| watched(load).next().is_some())
    {
        y += TITLE;
        let _ = writeln!(
            rows,
            r#"<text class="title" x="8" y="{y}">{}</text>"#,
            escaped(&load.name)
        );
        y += 6.0;
        for watcher in watched(load) {
            let baseline = y + BAR - 1.0;
            let _ = writeln!(
                rows,
                r#"<text x="20" y="{baseline}">{}</text>"#,
                escaped(&watcher.name)
            );
            bar(&mut rows, &left, y, watcher, &load.shares(watcher));
            bar(&mut rows, &right, y, watcher, &load.cpu_ratios(watcher));
            y += ROW;
        }
    }
    let height = y + 12.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"What tracing costs\">\n<style>\n{STYLE}\n</style>\n"
    );
    heads(&mut text, results, &left, &right);
    for panel in [&left, &right] {
        let x = panel.x(1.0);
        let _ = writeln!(
            text,
            r#"<line class="line" x1="{x:.1}" x2="{x:.1}" y1="{HEAD}" y2="{y:.1}"/>"#
        );
    }
    text.push_str(&rows);
    text.push_str("</svg>\n");
    text
}

fn heads(text: &mut String, results: &Results, left: &Panel, right: &Panel) {
    for (panel, head, better) in [
        (left, "Throughput kept", "of the untraced, longer is better"),
        (
            right,
            "CPU time per request",
            "of the untraced, shorter is better",
        ),
    ] {
        let x = panel.left;
        let _ = writeln!(text, r#"<text class="head" x="{x}" y="22">{head}</text>"#);
        let _ = writeln!(
            text,
            r#"<text class="small" x="{x}" y="38">{better}</text>"#
        );
    }
    let _ = writeln!(
        text,
        r#"<text class="small" x="8" y="22">{} rounds, {} CPUs</text><text class="small" x="8" y="38">median, least–most</text>"#,
        results.rounds, results.cpus
    );
}

fn bar(text: &mut String, panel: &Panel, y: f64, watcher: &WatcherRuns, spread: &Spread) {
    let (from, to) = (panel.x(0.0), panel.x(spread.median()));
    let (least, most) = (panel.x(spread.least()), panel.x(spread.most()));
    let colour = colour(&watcher.name);
    let middle = y + BAR / 2.0;
    let width = to - from;
    let _ = writeln!(
        text,
        r#"<rect x="{from:.1}" y="{y:.1}" width="{width:.1}" height="{BAR}" fill="{colour}"/><line class="spread" x1="{least:.1}" x2="{most:.1}" y1="{middle:.1}" y2="{middle:.1}"/><text class="small" x="{:.1}" y="{:.1}">{:.2}</text>"#,
        most.max(to) + 5.0,
        y + BAR - 1.0,
        spread.median()
    );
}

/// Those that have been measured, nobody left out.
fn watched(load: &LoadRuns) -> impl Iterator<Item = &WatcherRuns> {
    let watchers = load.watchers.iter().skip(1);
    watchers.filter(|watcher| !watcher.runs.is_empty())
}

fn colour(watcher: &str) -> &'static str {
    match watcher {
        "empty probes" => "#8c959f",
        "reqtrace" => "#1f6feb",
        name if name.starts_with("reqtrace") => "#79b8ff",
        "offcputime" => "#d4823a",
        _ => "#b4534f",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::model::tests::example;

    #[test]
    fn every_watcher_has_its_two_bars() {
        let mut results = example(0.8);
        results.loads[0].name = "a < b".to_owned();
        let text = draw(&results);
        assert_eq!(text.matches("<rect").count(), 2);
        assert!(text.contains(">a &lt; b<"), "{text}");
        // 0.8 of the throughput, 1.2 of the CPU time, of scales that end at 1 and 1.2.
        let full = PANEL - NUMBER;
        let widths = [0.8 * full, full].map(|width| format!("width=\"{width:.1}\""));
        assert!(widths.iter().all(|width| text.contains(width)), "{text}");
        assert!(text.ends_with("</svg>\n"));
    }
}
