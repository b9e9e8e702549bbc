//! Blame: intervals and requests of threads in; for each request, because of whom it was blocked or parked out.
//!
//! A block of a request, and a time in which it was parked, is split by what the thread did meanwhile that ended it. That thread's own blocks are
//! split again, by the threads that ended them. So each nanosecond ends in one root cause: a CPU that
//! somebody computed on, a run queue, a preemption, a device, a timer, a thread between its requests, or
//! not known, with the reason.

mod again;
mod at_disks;
mod cause;
mod chains;
mod disk;
mod fitting;
mod gather;
mod interrupt;
mod kept;
mod keyed;
mod labels;
mod locks;
mod names;
mod of_thread;
mod pieces;
mod queue;
mod recent;
mod servers;
mod shown;
mod slowest;
mod split;
mod sums;
mod table;
mod taken;
mod texts;
mod timeline;
mod waited;

#[cfg(test)]
mod tests;

pub(crate) use at_disks::stalls;
pub use cause::{Cause, Causes, Reason};
pub(crate) use gather::Gatherer;
pub(crate) use interrupt::{WokenBy, of_stack, woken_by};
pub(crate) use kept::{Away, By, Kept, Place, Ready, Sender, Source, ThreadId, WentOn};
pub(crate) use names::{Names, Naming};
pub(crate) use pieces::{Culprit, Outcome, Parts, Piece, Taken, Victim, Wait};
pub(crate) use split::split;
pub(crate) use table::Key as HeldKey;
pub(crate) use timeline::{Few, Timelines, Unseen};
pub(crate) use waited::Taker;

/// Threads that wait for each other, at most: those that wait for one lock in a row are as many as a service has connections.
pub const MAX_DEPTH: u8 = 64;
/// Steps of the split of one request: intervals and requests that are looked at.
pub const MAX_PIECES: usize = 10_000;
