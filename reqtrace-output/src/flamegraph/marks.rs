//! Marks of colours: sums with their kinds of time in, lines whose frames are marked out.
//!
//! A mark is one control character behind a frame's name. No name has any: they are taken out of names when a
//! line is made.

use std::collections::BTreeMap;

use crate::folded::{Sum, Sums, micros};
use reqtrace_analysis::report::palette::{Colour, RUN_QUEUE, SHARED};

/// Control characters that mean nothing to who reads lines, and are no white space.
const MARKS: [char; 27] = [
    '\u{01}', '\u{02}', '\u{03}', '\u{04}', '\u{05}', '\u{06}', '\u{07}', '\u{08}', '\u{0e}',
    '\u{0f}', '\u{10}', '\u{11}', '\u{12}', '\u{13}', '\u{14}', '\u{15}', '\u{16}', '\u{17}',
    '\u{18}', '\u{19}', '\u{1a}', '\u{1b}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{1f}', '\u{7f}',
];

/// A frame has a colour of its own if so much of the time above it is of that kind, percent. What a thread was on
/// the run queue after a block does not count beside the block.
const MOST: u128 = 90;

/// Lines for inferno.
#[derive(Debug, Default)]
pub(super) struct Marked {
    /// Frames with their marks, and the number behind.
    pub(super) lines: Vec<String>,
    /// The colour of each marked name.
    pub(super) colours: BTreeMap<String, Colour>,
}

/// One line under way.
struct Line<'a> {
    frames: Vec<&'a str>,
    marked: String,
    /// What it is, ns.
    colours: BTreeMap<Colour, u64>,
    micros: u64,
}

/// Marks all frames.
pub(super) fn mark(sums: &Sums) -> Marked {
    let mut lines: Vec<Line<'_>> = sums
        .iter()
        .map(|(text, sum)| Line {
            frames: text.split(';').collect(),
            marked: String::with_capacity(text.len() + text.len() / 4),
            colours: colours(sum),
            micros: micros(sum.ns),
        })
        .collect();
    lines.sort_by(|a, b| a.frames.cmp(&b.frames));
    let mut marks = Marks::default();
    // The frame below all.
    marks.names.insert(String::new(), SHARED);
    marks.mark(&mut lines, 0);
    Marked {
        lines: lines
            .iter()
            .map(|line| format!("{} {}", line.marked, line.micros))
            .collect(),
        colours: marks.names,
    }
}

/// Takes the marks out.
pub(super) fn strip(svg: &str) -> String {
    svg.replace(MARKS, "")
}

fn colours(sum: &Sum) -> BTreeMap<Colour, u64> {
    let mut colours = BTreeMap::new();
    for ((_, colour), ns) in &sum.hues {
        *colours.entry(*colour).or_default() += ns;
    }
    colours
}

/// The colour of what all these lines have in common.
fn colour(lines: &[Line<'_>]) -> Colour {
    let mut sums: BTreeMap<Colour, u64> = BTreeMap::new();
    for (colour, ns) in lines.iter().flat_map(|line| &line.colours) {
        *sums.entry(*colour).or_default() += ns;
    }
    if sums.len() > 1 {
        sums.remove(&RUN_QUEUE);
    }
    let all: u64 = sums.values().sum();
    let most = sums.into_iter().max_by_key(|(colour, ns)| (*ns, *colour));
    let is_most = |ns: u64| u128::from(ns) * 100 >= u128::from(all) * MOST;
    most.filter(|(_, ns)| is_most(*ns))
        .map_or(SHARED, |(colour, _)| colour)
}

#[derive(Debug, Default)]
struct Marks {
    /// By colour, in the order in which they were met.
    colours: Vec<Colour>,
    names: BTreeMap<String, Colour>,
}

impl Marks {
    /// Marks the frames at this depth and above of lines that are alike below it.
    fn mark(&mut self, lines: &mut [Line<'_>], depth: usize) {
        let mut rest = lines;
        while let Some(first) = rest.first() {
            let Some(&frame) = first.frames.get(depth) else {
                // It ends here; those that go on come behind.
                rest = &mut rest[1..];
                continue;
            };
            let alike = rest
                .iter()
                .take_while(|line| line.frames.get(depth) == Some(&frame))
                .count();
            let (group, behind) = rest.split_at_mut(alike);
            let name = self.name(frame, colour(group));
            for line in &mut *group {
                if depth > 0 {
                    line.marked.push(';');
                }
                line.marked.push_str(&name);
            }
            self.mark(group, depth + 1);
            rest = behind;
        }
    }

    /// A frame's name with the mark of a colour. Colours beyond the last mark share the neutral one, which comes
    /// first.
    fn name(&mut self, frame: &str, colour: Colour) -> String {
        if self.colours.is_empty() {
            self.colours.push(SHARED);
        }
        let known = self.colours.iter().position(|known| *known == colour);
        let mark = match known {
            Some(mark) => mark,
            None if self.colours.len() < MARKS.len() => {
                self.colours.push(colour);
                self.colours.len() - 1
            }
            None => 0,
        };
        if frame.bytes().all(|byte| byte == b'-') {
            // inferno draws these in grey.
            return frame.to_owned();
        }
        let name = format!("{frame}{}", MARKS[mark]);
        let shade = match mark {
            0 => SHARED,
            _ => colour.shade(frame),
        };
        self.names.insert(name.clone(), shade);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(lines: &[(&str, &[(&str, Colour)])]) -> Sums {
        let sum = |hues: &[(&str, Colour)]| Sum {
            ns: 1_000_000,
            hues: hues
                .iter()
                .map(|(name, colour)| (((*name).to_owned(), *colour), 1_000_000))
                .collect(),
        };
        lines
            .iter()
            .map(|(text, hues)| ((*text).to_owned(), sum(hues)))
            .collect()
    }

    #[test]
    fn a_frame_has_the_colour_of_what_is_above_it() {
        let (hot, cold) = (
            Colour {
                red: 200,
                green: 100,
                blue: 80,
            },
            Colour {
                red: 80,
                green: 100,
                blue: 200,
            },
        );
        let sums = sums(&[
            ("p;main;compute", &[("on CPU", hot)]),
            ("p;main;compute;read", &[("disk", cold)]),
            ("p;main;wait;read", &[("disk", cold)]),
        ]);
        let marked = mark(&sums);
        assert_eq!(
            marked
                .lines
                .iter()
                .map(|line| strip(line))
                .collect::<Vec<_>>(),
            [
                "p;main;compute 1000",
                "p;main;compute;read 1000",
                "p;main;wait;read 1000"
            ]
        );
        let colour = |name: &str, line: usize| {
            let line = marked.lines[line].rsplit_once(' ').unwrap().0;
            let frame = line.split(';').find(|frame| strip(frame) == name).unwrap();
            marked.colours[frame]
        };
        assert_eq!(colour("p", 0), SHARED);
        assert_eq!(colour("main", 2), SHARED);
        // It computes, and waits.
        assert_eq!(colour("compute", 0), SHARED);
        assert_eq!(colour("compute", 1), SHARED);
        assert_eq!(colour("wait", 2), cold.shade("wait"));
        assert_eq!(colour("read", 1), cold.shade("read"));
    }

    #[test]
    fn a_little_of_another_kind_and_the_run_queue_do_not_count() {
        let [most, little] = [1, 2].map(|red| Colour {
            red,
            green: 0,
            blue: 0,
        });
        let mut sums = sums(&[
            ("p;f", &[("most", most)]),
            ("p;f;[run queue]", &[("run queue", RUN_QUEUE)]),
            ("p;f;g", &[("little", little)]),
        ]);
        let colour_of = |sums: &Sums, name: &str| {
            let colours = mark(sums).colours;
            let found = colours.iter().find(|(marked, _)| strip(marked) == name);
            *found.unwrap().1
        };
        assert_eq!(colour_of(&sums, "f"), SHARED);
        assert_eq!(
            colour_of(&sums, "[run queue]"),
            RUN_QUEUE.shade("[run queue]")
        );
        for sum in sums.get_mut("p;f").unwrap().hues.values_mut() {
            *sum *= 9;
        }
        assert_eq!(colour_of(&sums, "f"), most.shade("f"));
        assert_eq!(colour_of(&sums, "g"), little.shade("g"));
    }

    #[test]
    fn more_colours_than_marks_share_the_neutral_one() {
        let names: Vec<String> = (0..40_u8).map(|n| format!("p;f{n}")).collect();
        let colours: Vec<[(&str, Colour); 1]> = (0..40)
            .map(|red| {
                [(
                    "x",
                    Colour {
                        red,
                        green: 200,
                        blue: 0,
                    },
                )]
            })
            .collect();
        let lines: Vec<(&str, &[(&str, Colour)])> = names
            .iter()
            .zip(&colours)
            .map(|(name, hues)| (name.as_str(), hues.as_slice()))
            .collect();
        let marked = mark(&sums(&lines));
        assert_eq!(marked.lines.len(), 40);
        let neutral = marked.colours.values().filter(|colour| **colour == SHARED);
        // The frame below all, `p`, and those that found no mark.
        assert_eq!(neutral.count(), 2 + 40 - (MARKS.len() - 1));
    }
}
