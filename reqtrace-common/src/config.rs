//! Settings that user space hands to the kernel programs.

/// Instead of an offset in a structure of the kernel: the running kernel does not have the member, or one that is
/// of use only with it.
pub const NOT_IN_THIS_KERNEL: u32 = u32::MAX;

/// Values of the table with one byte per thread id.
pub mod tid_flag {
    /// Not known, or not traced.
    pub const NONE: u8 = 0;
    /// Has met a marker, is in no request: its state has none either.
    pub const KNOWN: u8 = 1;
    /// Is in a request: the scheduler programs look at it.
    pub const IN_REQUEST: u8 = 2;
    /// Born while it was traced, and has met no marker yet: it cannot have been in a request when
    /// tracing started.
    pub const BORN: u8 = 3;
    /// Is in a request that is not recorded: it is counted, and the scheduler programs pass it by.
    pub const UNSAMPLED: u8 = 4;
    /// With blame: has met no marker, but has woken a thread in a request. The scheduler programs look at it.
    pub const HELPER: u8 = 5;
    /// The same, born while it was traced: see [`BORN`].
    pub const BORN_HELPER: u8 = 6;
    /// As [`UNSAMPLED`], and what is known of the request is in the table of [`crate::passed`].
    pub const PASSED: u8 = 7;
    /// As [`KNOWN`], but its state still has a request that it left, or that another thread has taken.
    pub const LEFT: u8 = 8;
}

/// The one entry of the control map, changed while tracing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// 0 while probes are being set; then the start time (`CLOCK_MONOTONIC` ns). Markers hit before
    /// are ignored: some probes are there and some are not.
    pub start_ns: u64,
    /// 0 while tracing; the stop time (`CLOCK_MONOTONIC` ns) once it is fixed. From then on no
    /// program changes anything.
    pub stop_ns: u64,
    /// How many requests one is recorded of: 0 and 1 record all, N about each N-th, picked at
    /// random at its begin. May change at any time; a request keeps the value of its begin, which is
    /// in its record as its weight.
    pub sample_every: u64,
    /// Not 0: no stacks are recorded from now on, neither user nor kernel. May change at any time.
    /// Times stay exact; blocks without stacks keep their system call and descriptor.
    pub shed_stacks: u64,
    /// Number of the window. Its lowest bit says which entries of the tables of stacks and sums are
    /// written now. User space takes out those of the window before, once no program can still be about
    /// to write to them.
    pub window: u64,
    /// Number of the period of file names: a file that is blocked on for the first time in it sends its
    /// name, again if need be, so that user space may forget names.
    pub file_period: u64,
}

/// Entries made since the start, in all windows: how user space knows that tables fill up.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Of the table of stacks.
    pub stacks: u64,
    /// Of the table of sums per stack pair. That of histograms has the same keys.
    pub sums: u64,
}

/// What is known of a traced process; keyed by tgid.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// How often it called exec since tracing began.
    pub exec_generation: u32,
    /// Bits of [`follow`].
    pub follow: u32,
    /// Address space (`tgid << 32 | generation`) whose unwind tables hold until user space has
    /// stored the process's own: that of its parent. 0 after an exec.
    pub inherited: u64,
    /// When user space was last asked to look at its mappings, `CLOCK_MONOTONIC` nanoseconds.
    pub asked_ns: u64,
    /// CPU time of its threads that have ended while it was traced, nanoseconds, as the scheduler had
    /// accounted for it at their last tick or switch.
    pub ended_ns: u64,
}

/// Bits of [`Process::follow`].
pub mod follow {
    /// Children are traced.
    pub const CHILDREN: u32 = 1;
    /// Children get some of their probes only when user space has heard of them.
    pub const LATE: u32 = 2;
    /// This process is such a child: its threads may be in a request that began unseen.
    pub const WAS_LATE: u32 = 4;
}

/// Bits of the `STACKS_WANTED` global.
pub mod stacks_wanted {
    /// Record kernel stacks.
    pub const KERNEL: u32 = 1;
    /// Record user stacks.
    pub const USER: u32 = 2;
    /// Record them of preemptions too.
    pub const PREEMPTED: u32 = 4;
}
