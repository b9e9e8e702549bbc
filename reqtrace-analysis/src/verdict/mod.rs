//! The verdict: complete requests with the pieces of their waits in; at most three sentences' worth of causes out,
//! each with culprit, object, cadence and evidence, or why no cause is sure.
//!
//! What a piece of time means stands in a table, see [`patterns`]; whether it is enough for a verdict, in [`judge`].
//! Nothing here is decided before the end: of each type the slowest requests are kept with who held them up, and
//! of all others sums by latency, so that the excess over a typical request is exact.

mod behind;
mod collect;
mod contended;
mod episodes;
mod judge;
mod named;
mod patterns;
mod periods;
mod random;
mod slow;
mod tail;
#[cfg(test)]
mod tests;
mod whose;

pub(crate) use collect::Collector;
pub(crate) use judge::{Facts, OfName, findings, mille};
