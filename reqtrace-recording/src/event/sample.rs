//! Samples: what a thread did on its CPU at one moment.

use reqtrace_common::record::{FILE_NONE, StackId};
use serde::{Deserialize, Serialize};

use super::{AddressSpace, BlockSite, RequestOf};

/// A thread in a request was on a CPU when the sampling clock ticked there, [`super::Header::cpu_rate`] times a
/// second. It comes before the request that it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The process.
    pub space: AddressSpace,
    /// The thread.
    pub tid: u32,
    /// The request that the thread was in.
    pub request: RequestOf,
    /// How many requests that one stands for.
    pub weight: u32,
    /// When, `CLOCK_MONOTONIC` ns.
    pub at_ns: u64,
    /// User stack.
    pub user_stack: StackId,
    /// Kernel stack; [`reqtrace_common::record::STACK_NONE`] when the thread ran in user space.
    pub kernel_stack: StackId,
}

impl Sample {
    /// The place of code, which is no place of blocking.
    #[must_use]
    pub fn site(&self) -> BlockSite {
        BlockSite {
            kernel_stack: self.kernel_stack,
            user_stack: self.user_stack,
            syscall: -1,
            file: FILE_NONE,
        }
    }
}
