//! A trace beside what the service measured itself, request by request.
//!
//! In: the log, `requests.csv` and the trace's clock offset. Out: a [`Comparison`]: per kind of
//! request, how far each number is outside what the service says it must be.
//!
//! | number of the trace | the service says | the two clocks |
//! | --- | --- | --- |
//! | latency | between the inner and the outer readings | the same |
//! | blocks, preemptions | between the counts of switches at the inner and the outer readings | exact counts |
//! | blocked in a class, at most | Σ over its waits of (latest wakeup − begin) | the same |
//! | blocked in a class, at least | Σ (earliest wakeup − begin), less all time on or queued for a CPU | the same, but for the CPU clock |
//! | run queue | Σ over all waits of (end − earliest wakeup) | the same |
//! | on CPU | between the inner and the outer readings of the CPU clock | two places of a switch |
//! | run queue + preempted | between the inner and the outer readings of the run delay | two places of a switch |

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::log::{self, Interval, Line};
use crate::rows::{self, Row};
use crate::{brackets, ledger};

/// A number that the service measured too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Number {
    /// From begin to end, ns.
    Latency,
    /// How often it blocked.
    Blocks,
    /// How often it was preempted.
    Preemptions,
    /// Blocked in the class of its waits, ns; of several classes the worst.
    Class,
    /// Runnable after a wakeup, ns.
    RunQueue,
    /// On a CPU, ns.
    OnCpu,
    /// Runnable without running, ns.
    RunDelay,
}

impl Number {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Latency,
        Self::Blocks,
        Self::Preemptions,
        Self::Class,
        Self::RunQueue,
        Self::OnCpu,
        Self::RunDelay,
    ];
}

/// How far one number of one request is outside.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// Negative below, positive above, 0 inside.
    pub outside: i128,
    /// How wide inside is.
    pub width: i128,
}

/// All requests of one kind.
#[derive(Clone, Debug, Default)]
pub struct Kind {
    /// How many.
    pub requests: usize,
    /// The classes that its waits should be in.
    pub classes: Vec<String>,
    /// Σ latency, ns.
    pub latency_ns: u64,
    /// Σ blocked, ns, with what was not attributed.
    pub blocked_ns: u64,
    /// Σ blocked in those classes, ns.
    pub in_class_ns: u64,
    /// Σ blocked by class, where it is not 0, ns.
    pub by_class_ns: BTreeMap<String, u64>,
    /// Requests that blocked in any of those classes.
    pub waited: usize,
    /// Requests in which the service's own count of voluntary switches says that it waited.
    pub switched: usize,
    /// Σ run queue, ns.
    pub run_queue_ns: u64,
    /// Σ preempted, ns.
    pub preempted_ns: u64,
    /// One distance a request.
    distances: BTreeMap<Number, Vec<Distance>>,
}

/// All kinds, in the order in which they were done.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Name and requests.
    pub kinds: Vec<(String, Kind)>,
}

impl Comparison {
    /// Compares. Every request has then been seen to be within its brackets and to have a closed
    /// ledger.
    ///
    /// # Errors
    ///
    /// When the texts cannot be read, do not belong together, a latency is outside its brackets,
    /// or a ledger does not close.
    pub fn of(log: &str, csv: &str, monotonic_to_unix_ns: i64) -> Result<Self> {
        ledger::check(csv)?;
        let checked = brackets::check(log, csv, monotonic_to_unix_ns)?;
        let lines = log::read(log)?;
        let mut rows = rows::read(csv)?;
        ensure!(rows.iter().all(|row| row.complete), "incomplete requests");
        ensure!(
            checked == lines.len() && checked == rows.len(),
            "{} lines, {} rows",
            lines.len(),
            rows.len()
        );
        // A thread is one kind, and writes its lines in order.
        rows.sort_by_key(|row| row.start_unix_ns);
        let mut by_thread: BTreeMap<u32, std::vec::IntoIter<Row>> = BTreeMap::new();
        for tid in lines.iter().map(|line| line.tid) {
            by_thread.entry(tid).or_insert_with(|| {
                let of_thread = rows.iter().filter(|row| row.tid == tid).cloned();
                of_thread.collect::<Vec<_>>().into_iter()
            });
        }
        let mut kinds: Vec<(String, Kind)> = Vec::new();
        for line in &lines {
            let row = by_thread.get_mut(&line.tid).and_then(Iterator::next);
            let row = row.with_context(|| format!("{} {} has no row", line.tid, line.seq))?;
            let at = kinds.iter().position(|(name, _)| *name == line.kind);
            let at = at.unwrap_or_else(|| {
                kinds.push((line.kind.clone(), Kind::default()));
                kinds.len() - 1
            });
            kinds[at].1.add(line, &row);
        }
        Ok(Self { kinds })
    }

    /// The kind of that name.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn kind(&self, name: &str) -> Result<&Kind> {
        let found = self.kinds.iter().find(|(known, _)| known == name);
        found
            .map(|(_, kind)| kind)
            .with_context(|| format!("no kind {name}"))
    }
}

impl Kind {
    fn add(&mut self, line: &Line, row: &Row) {
        self.requests += 1;
        self.latency_ns += row.latency_ns;
        self.blocked_ns += row.blocked_ns + row.unattributed_ns;
        self.run_queue_ns += row.run_queue_ns;
        self.preempted_ns += row.preempted_ns;
        for (class, ns) in row.classes.iter().filter(|(_, ns)| **ns > 0) {
            *self.by_class_ns.entry(class.clone()).or_default() += ns;
        }
        let classes = line.classes();
        let in_class = |class: &&str| row.classes.get(*class).copied().unwrap_or(0);
        self.in_class_ns += classes.iter().map(in_class).sum::<u64>();
        self.waited += usize::from(classes.iter().any(|class| in_class(class) > 0));
        self.switched += usize::from(line.blocks.least > 0);
        for number in Number::ALL {
            let distance = match number {
                Number::Latency => distance(line.latency(), row.latency_ns),
                Number::Blocks => distance(line.blocks, row.blocks),
                Number::Preemptions => distance(line.preemptions, row.preemptions),
                Number::OnCpu => distance(line.cpu, row.on_cpu_ns),
                Number::RunDelay => distance(line.run_delay, row.run_queue_ns + row.preempted_ns),
                Number::RunQueue => distance(run_queue(line), row.run_queue_ns),
                Number::Class => {
                    let distances = classes
                        .iter()
                        .map(|class| distance(blocked_in(line, class), in_class(class)));
                    let worst = distances.max_by_key(|distance| distance.outside.abs());
                    let Some(worst) = worst else { continue };
                    worst
                }
            };
            self.distances.entry(number).or_default().push(distance);
        }
        if self.classes.is_empty() {
            self.classes = classes.into_iter().map(ToOwned::to_owned).collect();
        }
    }

    /// The distances of one number, one a request; none for the class of what does not wait.
    #[must_use]
    pub fn distances(&self, number: Number) -> &[Distance] {
        self.distances.get(&number).map_or(&[], Vec::as_slice)
    }

    /// How many requests are inside.
    #[must_use]
    pub fn inside(&self, number: Number) -> usize {
        let distances = self.distances(number).iter();
        distances.filter(|distance| distance.outside == 0).count()
    }

    /// The distance that a share of the requests does not exceed, negative below: 0 is the least,
    /// 0.5 the median, 1 the most.
    #[must_use]
    pub fn quantile(&self, number: Number, share: f64) -> i128 {
        let distances = self.distances(number).iter();
        quantile(distances.map(|distance| distance.outside).collect(), share)
    }

    /// The median distance, whichever way.
    #[must_use]
    pub fn median_error(&self, number: Number) -> i128 {
        let distances = self.distances(number).iter();
        let errors = distances.map(|distance| distance.outside.abs());
        quantile(errors.collect(), 0.5)
    }

    /// Median width of inside.
    #[must_use]
    pub fn width(&self, number: Number) -> i128 {
        let distances = self.distances(number).iter();
        quantile(distances.map(|distance| distance.width).collect(), 0.5)
    }

    /// Mean latency, ns.
    #[must_use]
    pub fn mean_latency_ns(&self) -> u64 {
        self.latency_ns / (self.requests as u64).max(1)
    }
}

fn distance(truth: Interval, value: u64) -> Distance {
    Distance {
        outside: truth.outside(value),
        width: truth.most - truth.least,
    }
}

/// What the waits of one class can have been.
///
/// At most from their begins to their latest wakeups. At least from their begins to their earliest
/// wakeups, unless the thread was on a CPU or waited for one meanwhile.
fn blocked_in(line: &Line, class: &str) -> Interval {
    let waits = line.waits.iter().filter(|wait| wait.class == class);
    let (mut least, mut most) = (-line.cpu.most - line.run_delay.most, 0);
    for wait in waits {
        let until = |wakeup: u64| i128::from(wakeup.clamp(wait.begin_ns, wait.end_ns));
        least += until(wait.earliest_ns) - i128::from(wait.begin_ns);
        most += until(wait.latest_ns) - i128::from(wait.begin_ns);
    }
    Interval {
        least: least.max(0),
        most,
    }
}

/// What the time between wakeups and running again can have been, at most.
fn run_queue(line: &Line) -> Interval {
    let waits = line.waits.iter();
    let most = waits.map(|wait| wait.end_ns - wait.earliest_ns.clamp(wait.begin_ns, wait.end_ns));
    Interval {
        least: 0,
        most: most.map(i128::from).sum(),
    }
}

fn quantile(mut values: Vec<i128>, share: f64) -> i128 {
    values.sort_unstable();
    let rank = (values.len() as f64 * share).ceil() as usize;
    let at = rank.clamp(1, values.len().max(1)) - 1;
    values.get(at).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "7 1 100 110 390 400 mix 20..30 5..6 2..2 0..0 \
        pipe:120:150:155:180 sleep:200:260:300:300\n";
    const HEADER: &str = "id,start_unix_ns,request,pid,tid,comm,label,latency_ns,on_cpu_ns,\
        run_queue_ns,preempted_ns,blocked_ns,unattributed_ns,sleep_ns,pipe_ns,other_ns,\
        blocks,preemptions,complete,reason,weight\n";

    fn compared(row: &str) -> Kind {
        let csv = format!("{HEADER}1,105,request,1,7,t-mix,,{row},true,,1\n");
        let comparison = Comparison::of(LOG, &csv, 0).unwrap();
        comparison.kind("mix").unwrap().clone()
    }

    fn outside(kind: &Kind) -> [i128; 7] {
        Number::ALL.map(|number| kind.distances(number)[0].outside)
    }

    #[test]
    fn what_the_service_measured_is_inside() {
        let kind = compared("290,160,6,0,124,0,90,34,0,2,0");
        // Of 30 ns of CPU and 6 ns in the queue all may have been in either wait.
        assert_eq!(outside(&kind), [0, 0, 0, 0, 0, 130, 0]);
        assert_eq!((kind.in_class_ns, kind.waited), (124, 1));
        assert_eq!(kind.width(Number::OnCpu), 10);
        assert_eq!(kind.quantile(Number::OnCpu, 0.5), 130);
        assert_eq!(kind.median_error(Number::OnCpu), 130);
    }

    #[test]
    fn each_number_has_its_own_distance() {
        let kind = compared("290,10,80,40,160,0,103,50,7,4,1");
        assert_eq!(outside(&kind), [0, 2, 1, 15, 10, -10, 114]);
        let short = compared("290,280,0,0,10,0,10,0,0,1,0");
        assert_eq!(outside(&short), [0, -1, 0, -14, 0, 250, -5]);
        assert_eq!(short.waited, 1);
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<i128> = (1..=100).collect();
        let quantiles = [0.5, 0.99, 1.0].map(|share| quantile(values.clone(), share));
        assert_eq!(quantiles, [50, 99, 100]);
        assert_eq!(quantile(Vec::new(), 0.5), 0);
    }
}
