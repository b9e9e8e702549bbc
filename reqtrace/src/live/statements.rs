//! Statements of the last minute: requests in as they end, sums by statement out.
//!
//! Time is cut into slices, which are forgotten whole: memory grows neither with the load nor with time.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use reqtrace_analysis::aggregate::Aggregator;
use reqtrace_recording::Request;

use super::recent::parts;
use super::snapshot::StatementLine;
use reqtrace_analysis::report::{Ledger, Places};
use reqtrace_base::plain::Plain;

/// Length of a slice.
const SLICE: Duration = Duration::from_secs(10);
/// What began so long ago is forgotten.
const FORGET: Duration = Duration::from_secs(60);
/// Statements of a slice that are told apart.
const MAX_STATEMENTS: usize = 512;
/// The name of all others.
const OTHERS: &str = "[other statements]";
/// Lines that a screen is given.
const MAX_SHOWN: usize = 100;

/// Requests of one type with one statement.
type Key = (u32, Plain);

/// The last minute.
pub(super) struct Statements {
    slices: VecDeque<Slice>,
}

struct Slice {
    begun: Instant,
    sums: HashMap<Key, Sum>,
}

#[derive(Clone, Default)]
struct Sum {
    count: u64,
    max_ns: u64,
    ledger: Ledger,
}

impl Sum {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.ledger.add(&other.ledger);
    }
}

impl Statements {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            slices: VecDeque::from([Slice {
                begun: now,
                sums: HashMap::new(),
            }]),
        }
    }

    /// Takes a complete request.
    pub(super) fn request(&mut self, request: &Request<'_>, model: &Aggregator) {
        let ledger = model.ledger(request);
        let statement = model.statement(request);
        self.add(
            (request.request_type, statement),
            &ledger,
            u64::from(request.weight),
        );
    }

    fn add(&mut self, mut key: Key, ledger: &Ledger, weight: u64) {
        let Some(slice) = self.slices.back_mut() else {
            return;
        };
        if slice.sums.len() >= MAX_STATEMENTS && !slice.sums.contains_key(&key) {
            key.1 = Plain::of(OTHERS);
        }
        let sum = slice.sums.entry(key).or_default();
        sum.count += weight;
        sum.max_ns = sum.max_ns.max(ledger.latency_ns);
        sum.ledger.add_times(ledger, weight);
    }

    /// A second is over.
    pub(super) fn turn(&mut self, now: Instant) {
        let age = |slice: &Slice| now.duration_since(slice.begun);
        if self.slices.back().is_none_or(|last| age(last) >= SLICE) {
            self.slices.push_back(Slice {
                begun: now,
                sums: HashMap::new(),
            });
        }
        while self
            .slices
            .front()
            .is_some_and(|first| age(first) >= FORGET)
        {
            self.slices.pop_front();
        }
    }

    /// Those with the most time first. `name` is that of a request type.
    pub(super) fn lines(
        &self,
        name: impl Fn(u32) -> String,
        classes: &[String],
        places: &Places,
    ) -> Vec<StatementLine> {
        let mut all: HashMap<&Key, Sum> = HashMap::new();
        for (key, sum) in self.slices.iter().flat_map(|slice| &slice.sums) {
            all.entry(key).or_default().add(sum);
        }
        let mut all: Vec<(&Key, Sum)> = all.into_iter().collect();
        all.sort_by(|(one_key, one), (two_key, two)| {
            let most = two.ledger.latency_ns.cmp(&one.ledger.latency_ns);
            most.then_with(|| (one_key.0, &*one_key.1).cmp(&(two_key.0, &*two_key.1)))
        });
        let shown = all.into_iter().take(MAX_SHOWN);
        let line = |((request_type, statement), sum): (&Key, Sum)| StatementLine {
            request: name(*request_type),
            statement: statement.clone(),
            count: sum.count,
            latency_ns: sum.ledger.latency_ns,
            max_ns: sum.max_ns,
            parts: parts(&sum.ledger, classes, places),
        };
        shown.map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(on_cpu_ns: u64, disk_ns: u64) -> Ledger {
        Ledger {
            latency_ns: on_cpu_ns + disk_ns,
            on_cpu_ns,
            classes: vec![disk_ns],
            ..Ledger::default()
        }
    }

    fn lines(statements: &Statements) -> Vec<(String, u64, u64, u64)> {
        let lines = statements.lines(
            |_| "query".to_owned(),
            &["disk".to_owned()],
            &Places::default(),
        );
        let line = |line: StatementLine| {
            let statement = line.statement.to_string();
            assert_eq!(
                line.parts.iter().map(|(_, ns)| ns).sum::<u64>(),
                line.latency_ns
            );
            (statement, line.count, line.latency_ns, line.max_ns)
        };
        lines.into_iter().map(line).collect()
    }

    #[test]
    fn statements_are_added_up_and_forgotten() {
        let start = Instant::now();
        let mut statements = Statements::new(start);
        let (select, update) = (Plain::of("select ?"), Plain::of("update ?"));
        statements.add((0, select.clone()), &ledger(10, 0), 1);
        statements.add((0, update.clone()), &ledger(5, 100), 1);
        for second in 1..=30 {
            statements.turn(start + Duration::from_secs(second));
        }
        statements.add((0, select.clone()), &ledger(20, 30), 2);
        let (select, update) = (select.to_string(), update.to_string());
        let both = [(select.clone(), 3, 110, 50), (update, 1, 105, 105)];
        assert_eq!(lines(&statements), both);
        // The first ones were a minute ago.
        for second in 31..=60 {
            statements.turn(start + Duration::from_secs(second));
        }
        assert_eq!(lines(&statements), [(select, 2, 100, 50)]);
        for second in 61..=90 {
            statements.turn(start + Duration::from_secs(second));
        }
        assert_eq!(lines(&statements), []);
        assert!(statements.slices.len() <= 7);
    }

    #[test]
    fn too_many_statements_lose_their_names_and_no_time() {
        let mut statements = Statements::new(Instant::now());
        for number in 0..2 * MAX_STATEMENTS {
            let statement = Plain::of(&format!("select {number}"));
            statements.add((0, statement), &ledger(1, 1), 1);
        }
        let lines = lines(&statements);
        assert_eq!(lines.len(), MAX_SHOWN);
        assert_eq!(lines[0].0, OTHERS);
        assert_eq!(lines[0].1, MAX_STATEMENTS as u64);
    }
}
