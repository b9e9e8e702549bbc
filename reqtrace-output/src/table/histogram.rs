//! Histograms of the lengths of blocks: counts by powers of two in, bars as cpudist draws them out.

use reqtrace_common::filter::least_us;

use super::page::Page;
use reqtrace_analysis::report::{LengthCounts, TypeReport};

/// Cells of the longest bar.
const STARS: u64 = 40;
/// Columns of a line that no star is in.
const BEFORE_STARS: usize = 38;

pub(super) fn draw(page: &mut Page, request: &TypeReport) {
    for lengths in &request.lengths {
        page.line("");
        page.line(&format!(
            "Blocks of `{}`: {}",
            request.name,
            lengths.name.as_str()
        ));
        lines(lengths, page.width)
            .iter()
            .for_each(|line| page.line(line));
    }
}

/// One line per power of two, from the least to the greatest that has a block.
fn lines(lengths: &LengthCounts, width: usize) -> Vec<String> {
    let counted = |index: &usize| lengths.counts[*index] > 0;
    let all = 0..lengths.counts.len();
    let (Some(first), Some(last)) = (all.clone().find(counted), all.rev().find(counted)) else {
        return Vec::new();
    };
    let stars = STARS.min((width - BEFORE_STARS) as u64);
    let most = lengths.counts.iter().copied().max().unwrap_or(0).max(1);
    let head = "     usecs               : count     distribution".to_owned();
    let line = |power: usize| {
        let count = lengths.counts[power];
        let bar = "*".repeat((u128::from(count) * u128::from(stars) / u128::from(most)) as usize);
        format!(
            "{:>10} -> {:<10} : {count:<8} |{bar:<width$}|",
            least_us(power),
            least_us(power + 1) - 1,
            width = stars as usize
        )
    };
    std::iter::once(head)
        .chain((first..=last).map(line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_like_cpudist() {
        let mut counts = vec![0; 32];
        (counts[0], counts[2], counts[4]) = (5, 40, 10);
        let lengths = LengthCounts {
            name: "redo log".to_owned(),
            counts,
        };
        let wanted = "     usecs               : count     distribution
         0 -> 1          : 5        |*****                                   |
         2 -> 3          : 0        |                                        |
         4 -> 7          : 40       |****************************************|
         8 -> 15         : 0        |                                        |
        16 -> 31         : 10       |**********                              |";
        assert_eq!(lines(&lengths, 100).join("\n"), wanted);
    }

    #[test]
    fn a_narrow_terminal_has_shorter_bars() {
        let lengths = LengthCounts {
            name: "lock".to_owned(),
            counts: vec![9; 4],
        };
        for line in lines(&lengths, 60) {
            assert!(line.chars().count() <= 60, "{line}");
        }
    }

    #[test]
    fn nothing_has_no_lines() {
        let lengths = LengthCounts {
            name: "lock".to_owned(),
            counts: vec![0; 32],
        };
        assert!(lines(&lengths, 100).is_empty());
    }
}
