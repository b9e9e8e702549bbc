//! Where threads block.

use reqtrace_common::record::{FILE_NONE, FileId, STACK_NONE, StackId};
use serde::{Deserialize, Serialize};

/// Where a block happened: all that a wait class or a named wait is decided from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlockSite {
    /// User stack at switch-out; [`STACK_NONE`] and [`reqtrace_common::record::STACK_LOST`] stand for none.
    pub user_stack: StackId,
    /// Kernel stack at switch-out.
    pub kernel_stack: StackId,
    /// System call the thread was in, by [`super::Header::syscalls`]; −1 outside any (page fault, preemption).
    pub syscall: i32,
    /// The file behind the descriptor of that system call, or [`FILE_NONE`] or
    /// [`reqtrace_common::record::FILE_UNKNOWN`].
    pub file: FileId,
}

impl BlockSite {
    /// Where a preemption happened whose stacks were not asked for: anywhere.
    pub const PREEMPTED: Self = Self {
        user_stack: STACK_NONE,
        kernel_stack: STACK_NONE,
        syscall: -1,
        file: FILE_NONE,
    };
}

/// Blocked time of one request at one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Where.
    pub site: BlockSite,
    /// Nanoseconds blocked, without the run queue part.
    pub blocked_ns: u64,
}

/// One of the longest blocks of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongBlock {
    /// Where.
    pub site: BlockSite,
    /// Switch-out, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// Nanoseconds blocked, until the wakeup.
    pub blocked_ns: u64,
    /// Nanoseconds on the run queue, from the wakeup until the thread ran.
    pub run_queue_ns: u64,
    /// Thread that woke this one, 0 when it is not known (an interrupt, or no wakeup seen).
    pub waker_tid: u32,
    /// Process of that thread, 0 when not known.
    pub waker_tgid: u32,
}
