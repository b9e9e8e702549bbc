//! The verdict: complete requests with the pieces of their waits in; at most three sentences' worth of causes out,
//! each with culprit, object, cadence and evidence, or why no cause is sure.
//!
//! What a piece of time means stands in a table, see [`patterns`]; whether it is enough for a verdict, in [`judge`], by the
//! numbers in [`numbers`].
//! Nothing here is decided before the end: of each type the slowest requests are kept with who held them up, and
//! of all others sums by latency, so that the excess over a typical request is exact.

mod behind;
mod collect;
mod contended;
mod episodes;
mod facts;
mod judge;
mod measured;
mod named;
mod numbers;
mod of_type;
mod patterns;
mod periods;
mod random;
mod shares;
mod slow;
mod stood;
mod tail;
#[cfg(test)]
mod tests;
mod texts;
mod whose;

pub(crate) use collect::Collector;
pub(crate) use facts::{Facts, OfName};
pub(crate) use judge::findings;
pub(crate) use numbers::mille;
