//! Built-in wait classes: what a block was for in, its name out.

/// A built-in wait class, in the order of the CSV's columns.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitClass {
    /// File systems and block devices.
    Disk,
    /// Sockets.
    Network,
    /// Futexes, and locks inside the kernel.
    Lock,
    /// Sleeping for a time.
    Sleep,
    /// Waiting for any of several descriptors.
    Poll,
    /// Pipes, terminals, eventfds and message queues.
    Pipe,
    /// Memory that is not there yet.
    PageFault,
    /// Other processes: children, debuggers, signals that stop.
    Process,
    /// Probes, of this tracer or another: what tracing costs, and nothing that the program waited for.
    Tracing,
    /// The stack is known and in no line of the table.
    Other,
}

impl WaitClass {
    /// All classes, in order.
    pub const ALL: [Self; 10] = [
        Self::Disk,
        Self::Network,
        Self::Lock,
        Self::Sleep,
        Self::Poll,
        Self::Pipe,
        Self::PageFault,
        Self::Process,
        Self::Tracing,
        Self::Other,
    ];

    /// Its name in reports and columns.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Lock => "lock",
            Self::Sleep => "sleep",
            Self::Poll => "poll",
            Self::Pipe => "pipe",
            Self::PageFault => "page-fault",
            Self::Process => "process",
            Self::Tracing => "tracing",
            Self::Other => "other",
        }
    }
}
