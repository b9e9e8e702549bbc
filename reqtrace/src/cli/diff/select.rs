//! Which requests of a side: words such as `type=order` and `b:time=10s..20s` in, a filter for each side out.

use std::str::FromStr;

use reqtrace_analysis::aggregate::FilterOptions;

use crate::cli::outputs::nanoseconds;
use crate::cli::report::time;

/// One word of `--select`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    /// 0 or 1; `None`: both.
    side: Option<usize>,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Types(Vec<String>),
    Label(String),
    Ranges(Vec<Range>),
    Attribute(String, String),
}

/// Times since the start of a trace: `10s..20s`, `..20s`, `10s..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from_ns: u64,
    /// Until before this; `u64::MAX`: to the end.
    pub(super) to_ns: u64,
}

impl FromStr for Range {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let (from, to) = word
            .split_once("..")
            .ok_or("give a range of times: 10s..20s, ..20s or 10s..")?;
        let at = |word: &str, missing: u64| match word {
            "" => Ok(missing),
            word => time(word).map(nanoseconds),
        };
        let range = Self {
            from_ns: at(from, 0)?,
            to_ns: at(to, u64::MAX)?,
        };
        match range.from_ns < range.to_ns {
            true => Ok(range),
            false => Err("the range ends before it begins".to_owned()),
        }
    }
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let (side, rest) = match word.get(..2) {
            Some("a:" | "A:") => (Some(0), &word[2..]),
            Some("b:" | "B:") => (Some(1), &word[2..]),
            _ => (None, word),
        };
        let (name, value) = rest
            .split_once('=')
            .filter(|(name, value)| !name.is_empty() && !value.is_empty())
            .ok_or("write it as type=NAME, label=GLOB, time=FROM..TO or ATTRIBUTE=GLOB, for one side with a: or b: before it")?;
        let what = match name {
            "type" => What::Types(value.split(',').map(str::to_owned).collect()),
            "label" => What::Label(value.to_owned()),
            "time" => {
                let mut ranges = value
                    .split(',')
                    .map(Range::from_str)
                    .collect::<Result<Vec<_>, _>>()?;
                ranges.sort_by_key(|range| range.from_ns);
                if ranges
                    .windows(2)
                    .any(|pair| pair[0].to_ns > pair[1].from_ns)
                {
                    return Err("two ranges of time overlap".to_owned());
                }
                What::Ranges(ranges)
            }
            name => What::Attribute(name.to_owned(), value.to_owned()),
        };
        Ok(Self { side, what })
    }
}

/// What is selected of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selected {
    pub(super) filter: FilterOptions,
    /// In order; empty for all.
    pub(super) ranges: Vec<Range>,
    /// In words; empty for all.
    pub(super) which: String,
}

impl Selected {
    /// What is selected of this side.
    ///
    /// # Errors
    ///
    /// What is given twice.
    pub(super) fn of(
        side: usize,
        words: &[Selection],
        range: Option<Range>,
    ) -> Result<Self, String> {
        let mut selected = Self::default();
        let own = words
            .iter()
            .filter(|word| word.side.is_none_or(|its| its == side));
        let mut which = Vec::new();
        for word in own {
            match &word.what {
                What::Types(types) => {
                    which.push(format!("type {}", types.join(" or ")));
                    selected.filter.requests.extend(types.iter().cloned());
                }
                What::Label(glob) => {
                    which.push(format!("label {glob}"));
                    if selected.filter.label.replace(glob.clone()).is_some() {
                        return Err("label= is given twice".to_owned());
                    }
                }
                What::Attribute(name, glob) => {
                    which.push(format!("{name} {glob}"));
                    selected
                        .filter
                        .attributes
                        .push((name.clone(), glob.clone()));
                }
                What::Ranges(ranges) => {
                    if !selected.ranges.is_empty() {
                        return Err(
                            "time= is given twice; write several ranges with commas".to_owned()
                        );
                    }
                    selected.ranges.clone_from(ranges);
                }
            }
        }
        if let Some(range) = range {
            if !selected.ranges.is_empty() {
                return Err("time= and --from or --against both select times".to_owned());
            }
            selected.ranges.push(range);
        }
        if !selected.ranges.is_empty() {
            let words: Vec<String> = selected.ranges.iter().map(words_of).collect();
            which.push(words.join(","));
        }
        selected.filter.ranges = selected
            .ranges
            .iter()
            .map(|range| (range.from_ns, range.to_ns))
            .collect();
        // Stacks are those of the requests, by their own records.
        selected.filter.from_ns = Some(0);
        selected.which = which.join(", ");
        Ok(selected)
    }

    /// Where a time since the start is in what is selected, and `None` where it is not.
    pub(super) fn position_ns(&self, at_ns: u64) -> Option<u64> {
        if self.ranges.is_empty() {
            return Some(at_ns);
        }
        let mut before = 0;
        for range in &self.ranges {
            if (range.from_ns..range.to_ns).contains(&at_ns) {
                return Some(before + at_ns - range.from_ns);
            }
            before += range.to_ns.saturating_sub(range.from_ns);
        }
        None
    }

    /// How long it is in a trace of this length.
    pub(super) fn length_ns(&self, trace_ns: u64) -> u64 {
        if self.ranges.is_empty() {
            return trace_ns;
        }
        let length = |range: &Range| range.to_ns.min(trace_ns).saturating_sub(range.from_ns);
        self.ranges.iter().map(length).sum()
    }
}

fn words_of(range: &Range) -> String {
    let words = |ns: u64| format!("{} s", ns as f64 / 1e9);
    match *range {
        Range {
            from_ns,
            to_ns: u64::MAX,
        } => format!("from {}", words(from_ns)),
        Range { from_ns, to_ns } => format!("{} to {}", words(from_ns), words(to_ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn words_select_of_one_side_or_both() {
        let words = [
            "type=order,pay",
            "b:label=SELECT*",
            "a:time=20s..,5s..10s",
            "status=5??",
        ];
        let words: Vec<Selection> = words.iter().map(|word| word.parse().unwrap()).collect();
        let a = Selected::of(0, &words, None).unwrap();
        assert_eq!(a.filter.requests, ["order", "pay"]);
        assert_eq!(
            (a.filter.label.as_ref(), a.filter.attributes.len()),
            (None, 1)
        );
        assert_eq!(
            a.which,
            "type order or pay, status 5??, 5 s to 10 s,from 20 s"
        );
        assert_eq!(a.position_ns(7 * SECOND), Some(2 * SECOND));
        assert_eq!(a.position_ns(12 * SECOND), None);
        assert_eq!(a.position_ns(21 * SECOND), Some(6 * SECOND));
        assert_eq!(a.length_ns(30 * SECOND), 15 * SECOND);
        let b = Selected::of(1, &words, Some("1s..2s".parse().unwrap())).unwrap();
        assert_eq!(b.filter.label.as_deref(), Some("SELECT*"));
        assert_eq!(b.length_ns(30 * SECOND), SECOND);
        assert!(Selected::of(0, &words, Some("1s..2s".parse().unwrap())).is_err());
    }

    #[test]
    fn what_is_no_selection_is_refused() {
        for word in [
            "order",
            "=x",
            "type=",
            "time=5",
            "time=5s..5s",
            "time=1s..3s,2s..4s",
            "time=x..y",
        ] {
            assert!(word.parse::<Selection>().is_err(), "{word}");
        }
        assert!("..5s".parse::<Range>().is_ok() && "5..6".parse::<Range>().is_ok());
    }
}
