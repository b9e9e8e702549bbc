//! Statements: labels in, each once and by number, out.

use reqtrace_base::plain::Plain;
use rustc_hash::FxHashMap;

use crate::fingerprint::statement;
use crate::report::OfText;

/// Statements that are distinguished.
const MAX_STATEMENTS: usize = 4_096;
/// Labels whose number is remembered.
const MAX_LABELS: usize = 1 << 13;
/// The number of all others.
const OTHERS: u32 = 1;

/// Statements so far.
#[derive(Debug)]
pub(super) struct Statements {
    grouping: Option<OfText>,
    texts: Vec<Plain>,
    numbers: FxHashMap<Plain, u32>,
    labels: FxHashMap<Box<[u8]>, u32>,
    /// Requests whose statement found no room.
    pub(super) merged: u64,
}

impl Statements {
    pub(super) fn new(grouping: Option<OfText>) -> Self {
        Self {
            grouping,
            texts: vec![Plain::default(), Plain::of("[other statements]")],
            numbers: FxHashMap::default(),
            labels: FxHashMap::default(),
            merged: 0,
        }
    }

    /// The number of the statement of a label.
    pub(super) fn number(&mut self, label: &[u8]) -> u32 {
        if label.is_empty() {
            return 0;
        }
        let number = match self.labels.get(label) {
            Some(number) => *number,
            None => self.new_label(label),
        };
        self.merged += u64::from(number == OTHERS);
        number
    }

    fn new_label(&mut self, label: &[u8]) -> u32 {
        let statement = statement(label, self.grouping);
        let number = match self.numbers.get(&statement) {
            Some(number) => *number,
            None if self.texts.len() >= MAX_STATEMENTS => OTHERS,
            None => {
                let number = self.texts.len() as u32;
                self.texts.push(statement.clone());
                self.numbers.insert(statement, number);
                number
            }
        };
        if self.labels.len() >= MAX_LABELS {
            self.labels.clear();
        }
        self.labels.insert(label.into(), number);
        number
    }

    pub(super) fn finish(self) -> Vec<Plain> {
        self.texts
    }
}

/// The number of all others; `None` for them, and for requests without a statement.
pub(super) fn other(statement: u32) -> Option<u32> {
    (statement > OTHERS).then_some(OTHERS)
}
