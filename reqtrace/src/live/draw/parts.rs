//! Parts of a screen: numbers in, characters out.

use reqtrace_base::figures::cut;

/// Eighths of a cell.
const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
/// Heights.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A bar: `part` of `whole` of so many cells. What is there is at least an eighth of a cell.
pub(super) fn bar(part: u64, whole: u64, cells: usize) -> String {
    if part == 0 || whole == 0 || cells == 0 {
        return String::new();
    }
    let eighths = (part as f64 / whole as f64 * (cells * 8) as f64).round() as usize;
    let eighths = eighths.clamp(1, cells * 8);
    let mut bar: String = std::iter::repeat_n('█', eighths / 8).collect();
    if let Some(rest) = (eighths % 8).checked_sub(1) {
        bar.push(EIGHTHS[rest]);
    }
    bar
}

/// The last of these numbers as heights, as many as there are cells; the greatest is the highest. What is
/// there is at least the lowest.
pub(super) fn sparkline(numbers: &[u64], cells: usize) -> String {
    let shown = &numbers[numbers.len().saturating_sub(cells)..];
    let most = shown.iter().copied().max().unwrap_or(0);
    let level = |number: &u64| match number {
        0 => ' ',
        number => LEVELS[(number * 7).div_ceil(most.max(1)).min(7) as usize],
    };
    shown.iter().map(level).collect()
}

/// A cell of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cell {
    /// Text at the left, so wide.
    Left(usize),
    /// Text at the right, so wide.
    Right(usize),
}

/// A row: texts in cells, with a space between. The last text has the rest.
pub(super) fn row(cells: &[Cell], texts: &[&str], rest: &str) -> String {
    let mut row = String::new();
    for (cell, text) in cells.iter().zip(texts) {
        match cell {
            Cell::Left(width) => row.push_str(&format!("{:<width$} ", cut(text, *width))),
            Cell::Right(width) => row.push_str(&format!("{:>width$} ", cut(text, *width))),
        }
    }
    row.push_str(rest);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_lines_show_what_is_there() {
        assert_eq!(bar(1, 2, 4), "██");
        assert_eq!(bar(9, 32, 4), "█▏");
        assert_eq!(bar(1, 1_000_000, 4), "▏");
        assert_eq!(bar(2, 1, 4), "████");
        assert_eq!(bar(0, 1, 4), "");
        assert_eq!(bar(1, 0, 4), "");
        assert_eq!(bar(1, 2, 0), "");
        assert_eq!(sparkline(&[0, 1, 50, 100], 8), " ▂▅█");
        assert_eq!(sparkline(&[9, 0, 0], 2), "  ");
        assert_eq!(sparkline(&[], 2), "");
        assert_eq!(sparkline(&[u64::from(u32::MAX)], 2), "█");
    }

    #[test]
    fn rows_have_columns() {
        let cells = [Cell::Left(4), Cell::Right(4)];
        assert_eq!(row(&cells, &["a", "1"], "x"), "a       1 x");
        assert_eq!(row(&cells, &["abcdef", "1"], "x"), "abc…    1 x");
    }
}
