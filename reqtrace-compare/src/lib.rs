//! Comparing: the requests of two sides in, a [`Comparison`] out.
//!
//! A [`Side`] takes requests one by one, of one recording or of several, and keeps sums: for each request type and block of
//! time the count, the sum of each part of the ledger and a histogram, and apart from them the slowest requests. Nothing
//! here knows of files, of a command line or of an output.
//!
//! Differences of means add up: that of the latency is the sum of those of its parts, as a ledger closes. Which of them are
//! more than noise is found out by drawing blocks of time, never single requests: those near each other have much in common.

mod bootstrap;
mod chance;
mod changed;
mod columns;
mod compare;
mod estimate;
mod facts;
pub mod gate;
mod groups;
mod items;
mod judge;
mod metrics;
mod mix;
mod model;
mod rounding;
mod side;
mod slowest;
mod sums;
mod waterfall;

pub use columns::Columns;
pub use compare::{Options, compare};
pub use facts::{Facts, Known, Unlike};
pub use items::ItemKind;
pub use model::{
    Bar, Comparison, Estimate, Fate, GroupRow, HEAT_BITS, Heat, ItemRow, Measure, Metric, Mix,
    Rows, SideSummary, StackChange, Tail, TypeComparison, Value, Waterfall,
};
pub use rounding::add_up;
pub use side::{One, Side};

#[cfg(test)]
mod tests;
