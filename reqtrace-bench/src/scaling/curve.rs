//! Small charts of a value over a logarithmic axis, beside each other.
//!
//! In: points. Out: an SVG, legible on a light and on a dark page.

use std::fmt::Write as _;

const PANEL: [f64; 2] = [250.0, 150.0];
const LEFT: f64 = 46.0;
const TOP: f64 = 30.0;
const BETWEEN: f64 = 56.0;

const STYLE: &str = "\
text { font: 11px system-ui, sans-serif; fill: #24292f }
.title { font-size: 13px; font-weight: 600 }
.axis { stroke: #8c959f; fill: none }
.curve { stroke: #1f6feb; stroke-width: 2; fill: none }
.point { fill: #1f6feb }
.spread { stroke: #6e7781; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .spread { stroke: #c9d1d9 } }";

/// A panel.
pub(super) struct Curve<'a> {
    pub(super) title: &'a str,
    pub(super) axis: &'a str,
    /// x, and least, median and most of the share there.
    pub(super) points: Vec<(f64, [f64; 3])>,
}

/// Draws them.
pub(super) fn draw(curves: &[Curve<'_>]) -> String {
    let width = curves.len() as f64 * (PANEL[0] + BETWEEN) + LEFT - BETWEEN + 20.0;
    let height = TOP + PANEL[1] + 44.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"How the cost grows\">\n<style>\n{STYLE}\n</style>\n"
    );
    for (index, curve) in curves.iter().enumerate() {
        let left = LEFT + index as f64 * (PANEL[0] + BETWEEN);
        panel(&mut text, curve, left);
    }
    text.push_str("</svg>\n");
    text
}

fn panel(text: &mut String, curve: &Curve<'_>, left: f64) {
    let values = || curve.points.iter().flat_map(|(_, spread)| spread);
    let most = values().copied().fold(0.1, f64::max);
    let (first, last) = match (curve.points.first(), curve.points.last()) {
        (Some(first), Some(last)) => (first.0.log10(), last.0.log10()),
        _ => return,
    };
    let at = |x: f64, value: f64| {
        let along = (x.log10() - first) / (last - first).max(f64::MIN_POSITIVE);
        let up = (value / most).clamp(0.0, 1.0);
        (left + along * PANEL[0], TOP + (1.0 - up) * PANEL[1])
    };
    let bottom = TOP + PANEL[1];
    let right = left + PANEL[0];
    let _ = writeln!(
        text,
        "<text class=\"title\" x=\"{left}\" y=\"18\">{}</text>\
         <path class=\"axis\" d=\"M{left} {TOP}V{bottom}H{right}\"/>\
         <text x=\"{left}\" y=\"{}\">{}</text>",
        curve.title,
        bottom + 34.0,
        curve.axis
    );
    for part in [0.0, 0.5, 1.0] {
        let y = bottom - part * PANEL[1] + 4.0;
        let x = left - 6.0;
        let _ = writeln!(
            text,
            "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{:.0} %</text>",
            part * most * 100.0
        );
    }
    let mut line = String::new();
    for (x, [least, median, most]) in &curve.points {
        let (px, py) = at(*x, *median);
        let _ = write!(
            line,
            "{}{px:.1} {py:.1}",
            if line.is_empty() { "M" } else { "L" }
        );
        let (low, high) = (at(*x, *least).1, at(*x, *most).1);
        let _ = writeln!(
            text,
            "<line class=\"spread\" x1=\"{px:.1}\" x2=\"{px:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>\
             <circle class=\"point\" cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3\"/>\
             <text x=\"{px:.1}\" y=\"{}\" text-anchor=\"middle\">{x}</text>",
            bottom + 16.0
        );
    }
    let _ = writeln!(text, "<path class=\"curve\" d=\"{line}\"/>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_where_their_values_are() {
        let curve = Curve {
            title: "t",
            axis: "a",
            points: vec![(1.0, [0.4, 0.5, 0.6]), (100.0, [1.0, 1.0, 1.0])],
        };
        let text = draw(&[curve]);
        // Half of the greatest value is half of the way up.
        let half = format!("M{LEFT:.1} {:.1}", TOP + PANEL[1] / 2.0);
        let top = format!("L{:.1} {TOP:.1}", LEFT + PANEL[0]);
        assert!(text.contains(&format!("{half}{top}")), "{text}");
        assert_eq!(text.matches("<circle").count(), 2);
        assert!(draw(&[]).ends_with("</svg>\n"));
    }
}
