//! What functions have as arguments and results: their calls in, the pointers of each [`Source`] out.

use std::collections::{BTreeMap, BTreeSet};

use reqtrace_common::call::{CallRecord, NOTED_ARGUMENTS, is_pointer};

/// A pointer of one process: its number, and the address.
pub(super) type Value = (u32, u64);

/// Where a function has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cli::functions) enum Slot {
    /// This argument, from 0.
    Argument(usize),
    /// What it returns.
    Result,
}

/// What a function has there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cli::functions) struct Source {
    /// Number of the function.
    pub(in crate::cli::functions) function: usize,
    /// Where.
    pub(in crate::cli::functions) slot: Slot,
}

impl Source {
    /// What a call has there; `None` when it is another function's, or no pointer.
    pub(super) fn of(self, call: &CallRecord) -> Option<Value> {
        let value = match self.slot {
            Slot::Argument(at) if !call.is_return() => *call.values.get(at)?,
            Slot::Result if call.is_return() => call.values[0],
            _ => return None,
        };
        (call.number() as usize == self.function && is_pointer(value)).then_some((call.tgid, value))
    }
}

/// Sources that mostly have pointers, with all that they have.
pub(super) fn sources(calls: &[CallRecord]) -> BTreeMap<Source, BTreeSet<Value>> {
    let mut seen: BTreeMap<Source, (u64, u64, BTreeSet<Value>)> = BTreeMap::new();
    for call in calls {
        let function = call.number() as usize;
        let slots = match call.is_return() {
            true => vec![Slot::Result],
            false => (0..NOTED_ARGUMENTS).map(Slot::Argument).collect(),
        };
        for slot in slots {
            let source = Source { function, slot };
            let (all, pointers, values) = seen.entry(source).or_default();
            *all += 1;
            if let Some(value) = source.of(call) {
                *pointers += 1;
                values.insert(value);
            }
        }
    }
    let mostly = seen
        .into_iter()
        .filter(|(_, (all, pointers, _))| pointers * 2 > *all);
    mostly
        .map(|(source, (.., values))| (source, values))
        .collect()
}
