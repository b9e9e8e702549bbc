//! The log of the example `truth`: its text in, the measured intervals of each request out. Its form is
//! described in `examples/truth/src/log.rs`.

use anyhow::{Context, Result, bail};

/// What the service could find out about a number: it lies between these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// At least.
    pub least: i128,
    /// At most.
    pub most: i128,
}

impl Interval {
    /// How far a value is outside: negative below, positive above, 0 inside.
    #[must_use]
    pub fn outside(&self, value: u64) -> i128 {
        let value = i128::from(value);
        (value - self.most).max(0) + (value - self.least).min(0)
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its thread.
    pub tid: u32,
    /// Its number on that thread.
    pub seq: u64,
    /// Clock before the call, first inside, last inside, and after it, ns.
    pub clocks: [u64; 4],
    /// What kind of request it is.
    pub kind: String,
    /// On the thread's CPU clock, ns.
    pub cpu: Interval,
    /// Runnable without running, ns.
    pub run_delay: Interval,
    /// Voluntary switches.
    pub blocks: Interval,
    /// Involuntary switches.
    pub preemptions: Interval,
    /// What it waited for, in order.
    pub waits: Vec<Wait>,
}

/// One wait of a request.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The class that it should be in.
    pub class: String,
    /// Clock before it, ns.
    pub begin_ns: u64,
    /// It was not ended before this.
    pub earliest_ns: u64,
    /// It was ended before this.
    pub latest_ns: u64,
    /// Clock after it.
    pub end_ns: u64,
}

impl Line {
    /// From begin to end, ns.
    #[must_use]
    pub fn latency(&self) -> Interval {
        let [outer_begin, inner_begin, inner_end, outer_end] = self.clocks.map(i128::from);
        Interval {
            least: inner_end - inner_begin,
            most: outer_end - outer_begin,
        }
    }

    /// All that has an inner and an outer reading.
    #[must_use]
    pub fn counters(&self) -> [Interval; 5] {
        [
            self.latency(),
            self.cpu,
            self.run_delay,
            self.blocks,
            self.preemptions,
        ]
    }

    /// The classes of its waits, each once.
    #[must_use]
    pub fn classes(&self) -> Vec<&str> {
        let mut classes: Vec<_> = self.waits.iter().map(|wait| wait.class.as_str()).collect();
        classes.sort_unstable();
        classes.dedup();
        classes
    }
}

/// Reads all lines.
///
/// # Errors
///
/// When one is not as described.
pub fn read(log: &str) -> Result<Vec<Line>> {
    each_line(log, read_line)
}

/// Reads each line with its own reader; an error names the line.
pub(crate) fn each_line<T>(log: &str, read_line: fn(&str) -> Result<T>) -> Result<Vec<T>> {
    let lines = log.lines();
    lines
        .map(|line| read_line(line).with_context(|| format!("log line {line:?}")))
        .collect()
}

fn read_line(line: &str) -> Result<Line> {
    let words: Vec<_> = line.split(' ').collect();
    let [
        tid,
        seq,
        ob,
        ib,
        ie,
        oe,
        kind,
        cpu,
        delay,
        blocks,
        preemptions,
        waits @ ..,
    ] = words.as_slice()
    else {
        bail!("{} words are too few", words.len());
    };
    Ok(Line {
        tid: tid.parse()?,
        seq: seq.parse()?,
        clocks: [ob.parse()?, ib.parse()?, ie.parse()?, oe.parse()?],
        kind: (*kind).to_owned(),
        cpu: interval(cpu)?,
        run_delay: interval(delay)?,
        blocks: interval(blocks)?,
        preemptions: interval(preemptions)?,
        waits: waits.iter().map(|text| wait(text)).collect::<Result<_>>()?,
    })
}

pub(crate) fn interval(text: &str) -> Result<Interval> {
    let (least, most) = text.split_once("..").context("not least..most")?;
    Ok(Interval {
        least: least.parse()?,
        most: most.parse()?,
    })
}

fn wait(text: &str) -> Result<Wait> {
    let parts: Vec<_> = text.split(':').collect();
    let [class, begin, earliest, latest, end] = parts.as_slice() else {
        bail!("{text:?} is no wait");
    };
    Ok(Wait {
        class: (*class).to_owned(),
        begin_ns: begin.parse()?,
        earliest_ns: earliest.parse()?,
        latest_ns: latest.parse()?,
        end_ns: end.parse()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "7 1 100 110 190 200 pipe 5..9 0..1 1..1 0..0 pipe:120:150:155:180";

    #[test]
    fn a_line_is_read() {
        let line = &read(LINE).unwrap()[0];
        assert_eq!((line.tid, line.kind.as_str()), (7, "pipe"));
        assert_eq!(
            line.latency(),
            Interval {
                least: 80,
                most: 100
            }
        );
        assert_eq!(line.cpu, Interval { least: 5, most: 9 });
        assert_eq!(line.waits[0].latest_ns, 155);
        assert_eq!(line.classes(), ["pipe"]);
    }

    #[test]
    fn what_is_no_line_is_an_error() {
        for text in [
            "7 1 100",
            &LINE.replace("..", "-"),
            &LINE.replace(":180", ""),
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn outside_is_the_distance_to_the_nearer_end() {
        let interval = Interval {
            least: 10,
            most: 20,
        };
        let outside = [8, 10, 15, 20, 23].map(|value| interval.outside(value));
        assert_eq!(outside, [-2, 0, 0, 0, 3]);
    }
}
