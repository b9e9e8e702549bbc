//! What requests did on their CPUs: the part of the model that samples make.

use super::StackLine;

/// The frame of on-CPU time of a request type that no sample has met.
pub const NOT_SAMPLED: &str = "[on CPU, not sampled]";

/// What requests did on their CPUs, by samples.
///
/// How much time that was is the ledger's, which is exact. How it is split among functions is an estimate: of a
/// function with n samples, about √n may be chance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnCpu {
    /// What took the samples: `cpu-clock` or `cycles`.
    pub engine: String,
    /// How many a second and CPU.
    pub rate_hz: u32,
    /// One entry per request type, in profile order.
    pub types: Vec<OnCpuType>,
    /// Stacks, `ns` scaled from their number of samples (`count`): those of a type add up to its on-CPU time.
    pub stacks: Vec<StackLine>,
    /// Run queue and preempted time that [`super::Report::stacks`] has not: of a report of some requests,
    /// whose records have no stacks for it.
    pub beside: Vec<StackLine>,
}

/// One request type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnCpuType {
    /// Samples in its complete requests, each as often as its request's weight.
    pub samples: u64,
    /// On-CPU time of these requests, ns: the sum of its stacks.
    pub ns: u64,
    /// The functions that ran most, without what they called, the most first.
    pub hottest: Vec<HotFunction>,
}

/// A function that ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotFunction {
    /// Its name.
    pub name: String,
    /// Nanoseconds in it, without what it called.
    pub ns: u64,
    /// Samples in it.
    pub samples: u64,
    /// Who called it where it took most, innermost first.
    pub callers: Vec<String>,
}
