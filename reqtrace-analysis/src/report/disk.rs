//! What disks did while requests waited for them.

use reqtrace_base::plain::Plain;

/// Waits of the requests of one type that ended at a disk. All times in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskWaits {
    /// All of it. What is neither own, nor the journal's, nor of others is not bound to any I/O: it was held back before the
    /// disk, or other threads wrote its pages.
    pub waited_ns: u64,
    /// For I/O of the request's own thread.
    pub own_ns: u64,
    /// For I/O of a thread of the kernel's, such as a journal's, on behalf of the request.
    pub journal_ns: u64,
    /// For I/O of another thread, such as that of another request.
    pub others_ns: u64,
    /// Of these until the device had the I/O.
    pub queued_ns: u64,
    /// Of these until the I/O was complete.
    pub served_ns: u64,
    /// How many I/Os were waited for.
    pub count: u64,
    /// The disks, the one with most of the time first.
    pub disks: Vec<Plain>,
    /// Who else used these disks in the tenths of a second with such waits, the most bytes first: a few.
    pub users: Vec<DiskUser>,
    /// How often at least two requests stood for the same time.
    pub stalls: u64,
    /// Of the longest how many requests stood, and for how long.
    pub longest_stall: Option<(u64, u64)>,
}

impl DiskWaits {
    /// What is bound to no I/O.
    #[must_use]
    pub fn not_bound_ns(&self) -> u64 {
        self.waited_ns
            .saturating_sub(self.own_ns + self.journal_ns + self.others_ns)
    }
}

/// A process that serves no request of the trace, and what it did with a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskUser {
    /// Process; 0: it is not known.
    pub pid: u32,
    /// Name of one of its threads.
    pub comm: Plain,
    /// Whether it is a thread of the kernel's own: it writes for others.
    pub is_kernel: bool,
    /// The disk.
    pub disk: Plain,
    /// Bytes that it read.
    pub read_bytes: u64,
    /// Bytes that it wrote.
    pub written_bytes: u64,
    /// How often it had the disk empty its cache.
    pub flushes: u64,
    /// How many I/Os it had.
    pub count: u64,
}
