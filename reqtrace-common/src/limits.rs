//! Sizes of maps and records, each with its reason.

/// Request types in one profile. Totals are an array of this many entries, and the type travels
/// in eight bits of the attach cookie.
pub const MAX_REQUEST_TYPES: usize = 16;

/// One byte per thread id: Linux's `PID_MAX_LIMIT` on 64-bit machines is 4 Mi.
pub const TID_TABLE_SIZE: usize = 4 << 20;

/// Address spaces with unwind tables. One costs 8 KiB when it is used; those beyond are walked by
/// frame pointers, and the report says so.
pub const MAX_ADDRESS_SPACES: u32 = 1024;

/// Threads that have ever been in a request and are still alive. A thread costs about 2 KiB of
/// kernel memory; servers with more than this many worker threads are rare, and the loss is
/// counted ([`crate::loss::Loss::ThreadTableFull`]).
pub const MAX_THREADS: u32 = 4096;

/// Processes traced at once, children included.
pub const MAX_PROCESSES: u32 = 4096;

/// Files of programs whose processes are traced whoever starts them: a few that the user names, and for a
/// while those that they replaced.
pub const MAX_WATCHED_PROGRAMS: u32 = 256;

/// Distinct places of blocking kept per request. A query blocks in one to five, a CREATE TABLE of
/// MariaDB in up to thirty; what finds no room goes to `unattributed`.
pub const MAX_SLOTS: usize = 32;

/// The longest blocks kept per request, with both stacks.
pub const MAX_LONGEST: usize = 4;

/// Frames per stack: one more than what `perf` and the kernel keep by default
/// (`kernel.perf_event_max_stack`), so that a stored stack is a round kibibyte.
pub const MAX_FRAMES: usize = 128;

/// Where requests are drawn, a thread that ended a wait of a recorded one after this time has all its own
/// recorded, with their labels: what it is that holds others up for long.
pub const HELD_UP_NS: u64 = 10_000_000;

/// For so long from then on.
pub const HOLDER_NS: u64 = 30_000_000_000;

/// Distinct stacks of two windows, user and kernel together: the table is emptied while tracing. One costs about 1.1 KiB, so this is the greatest part
/// of the kernel memory; a busy database makes 16,000 in ten seconds, most of them by preemption.
pub const MAX_STACKS: u32 = 32768;

/// Distinct keys of [`crate::sums::StackSumKey`] in two windows.
pub const MAX_STACK_SUMS: u32 = 32768;

/// Ring buffer size in bytes; a power of two and a multiple of the page size. At 120 to 400 bytes a
/// request this is 20,000 to 70,000 requests between two reads, with labels (1.5 KiB) 5,600. Reads are 50 to 200 ms apart,
/// or less when a quarter is full.
pub const RING_BYTES: u32 = 8 << 20;

/// Places in code whose hits are counted at once, 8 bytes each and CPU. Each probe set and taken out
/// waits for a grace period of the kernel, so more would be no pleasure.
pub const MAX_COUNTED: u32 = 4096;

/// Functions whose calls are watched at once to find a key. A power of two, so that a mask bounds its number.
pub const MAX_WATCHED: u32 = 64;

/// Threads whose running calls of watched functions are known, some 200 bytes each. Of more, those that
/// called none for the longest time are forgotten.
pub const MAX_CALLERS: u32 = 16384;

/// Calls of watched functions, entries and returns, that are looked at: 48 bytes each in user space.
pub const MAX_CALLS: usize = 1 << 20;

/// Ring of the calls in bytes; a power of two and a multiple of the page size. At 56 bytes each it holds 150,000 calls
/// between two reads, which are 50 ms apart.
pub const CALL_RING_BYTES: u32 = 8 << 20;

/// Files that are remembered, 32 bytes each: of more, those that were not blocked on for the longest time are
/// forgotten, and send their names again. User space forgets names after as many.
pub const MAX_FILES: u32 = 16384;

/// Longest path of a file in bytes; of a longer one the last names are kept.
pub const MAX_PATH: usize = 512;

/// Sockets of the whole machine whose unread data is remembered with `--before`, some 80 bytes each. Of more, those
/// of which nothing was heard for the longest time are forgotten, and their next request has no time.
pub const MAX_SOCKETS: u32 = 65536;

/// The rarest sampling: one of so many requests. Sums of a trace times this stay far below 2^64.
pub const MAX_SAMPLE_EVERY: u64 = 1 << 20;

/// Most requests that one stands for which is sent although it is not slow: with that of [`MAX_SAMPLE_EVERY`] it fits 32 bits.
pub const MAX_ONE_IN: u32 = 4_000;

/// Samples a second and CPU at most: an interrupt each, also on CPUs that are idle.
pub const MAX_CPU_RATE: u32 = 999;

/// Longest label in bytes.
pub const MAX_LABEL: usize = 128;

/// Reads of memory for one number of a label: four that a profile can ask for, and one that an
/// argument of a USDT probe may need itself.
pub const MAX_READS: usize = 5;

/// Ways to read a label that one marker may have.
pub const MAX_LABEL_ALTERNATIVES: usize = 4;

/// Plans for labels in one trace; their index travels in 16 bits of the attach cookie. One is for
/// an alternative of a label at a place of a USDT probe, or at all places of another marker.
pub const MAX_LABEL_PLANS: usize = 4096;

/// Requests with a key that live at once: some 90 bytes each, taken if the profile has keys.
pub const MAX_KEYS: u32 = 65536;

/// Requests that no thread runs at once, parked or queued. One takes about 2 KiB, as long as it waits.
pub const MAX_PARKED: u32 = 16384;

/// Plans for markers in one trace, and as many for attributes; their index travels in 16 bits of the attach cookie.
pub const MAX_MARKER_PLANS: usize = 4096;

/// Stacks at markers of a runtime, or of an event loop, that the programs remember: a power of two. One takes about 2 KiB, taken if
/// the profile has keys.
pub const KNOWN_AT_MARKERS: u32 = 1024;

/// Length of a thread's name in the kernel (`TASK_COMM_LEN`), with its NUL.
pub const COMM_LEN: usize = 16;

/// How far above a request's frame, in bytes, the stack pointer may be seen and still be taken
/// for the same stack. Anything farther is another stack (a signal stack, a fiber), about which
/// nothing is known.
pub const SAME_STACK_WINDOW: u64 = 256 << 10;
