//! What kernels differ in: the one table, with what each lack costs.

/// What a kernel may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Tracepoints of threads.
    TaskTracepoints,
    /// `sched_switch` has the state in which a thread leaves its CPU.
    SwitchStates,
    /// Functions for programs to call.
    Helpers,
    /// What is read of threads is where it is known to be.
    TaskMembers,
    /// The same of what uprobes keep.
    ProbeMembers,
    /// The same of files.
    FileMembers,
    /// Page faults have a tracepoint.
    PageFaults,
    /// TCP sockets have tracepoints, and members that are known.
    TcpSockets,
    /// So have Unix sockets.
    UnixSockets,
    /// Block devices have tracepoints, and members that are known.
    BlockDevices,
    /// Interrupts and softirqs have tracepoints.
    Interrupts,
    /// What the hypervisor takes can be read.
    Steal,
    /// One link for many probes.
    UprobeMulti,
    /// Such a link hits all threads of its process, and its process only.
    ProcessFilter,
    /// A map can be used by whoever has its descriptor.
    MapsByDescriptor,
    /// CPUs that hit probes at the same time do not wait for each other.
    LocklessHits,
}

/// What the lack of a feature does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// Ledgers would be wrong: no trace.
    Refuses,
    /// Something is left out of the trace.
    LeavesOut,
    /// The trace has all; it takes more.
    TakesMore,
}

/// One feature.
pub(super) struct Row {
    pub(super) feature: Feature,
    /// In the doctor's list, and, with hyphens, to hide it.
    pub(super) name: &'static str,
    /// What it is.
    pub(super) what: &'static str,
    /// What follows where it lacks.
    pub(super) then: &'static str,
    pub(super) lack: Lack,
    /// The first Linux that has it.
    pub(super) since: &'static str,
}

pub(super) const TABLE: [Row; 16] = [
    Row {
        feature: Feature::TaskTracepoints,
        name: "tracepoints",
        what: "tracepoints of threads",
        then: "threads cannot be followed",
        lack: Lack::Refuses,
        since: "5.8",
    },
    Row {
        feature: Feature::SwitchStates,
        name: "switch states",
        what: "state of the leaving thread in sched_switch",
        then: "blocked threads cannot be distinguished from preempted ones",
        lack: Lack::Refuses,
        since: "5.18",
    },
    Row {
        feature: Feature::Helpers,
        name: "helpers",
        what: "functions that the kernel programs call",
        then: "they cannot be loaded",
        lack: Lack::Refuses,
        since: "5.17",
    },
    Row {
        feature: Feature::TaskMembers,
        name: "task members",
        what: "members of threads that are read",
        then: "threads cannot be known and their CPU time not be read",
        lack: Lack::Refuses,
        since: "4.18",
    },
    Row {
        feature: Feature::ProbeMembers,
        name: "probe members",
        what: "members of uprobes that are read",
        then: "requests behind a uretprobe would be taken for left by an exception",
        lack: Lack::Refuses,
        since: "4.18",
    },
    Row {
        feature: Feature::FileMembers,
        name: "file members",
        what: "members of files that are read",
        then: "the files that threads wait for are missing: waits are classed by system call and stack",
        lack: Lack::LeavesOut,
        since: "4.18",
    },
    Row {
        feature: Feature::PageFaults,
        name: "page faults",
        what: "tracepoint of page faults",
        then: "the files of page faults are missing, with --blame",
        lack: Lack::LeavesOut,
        since: "3.13",
    },
    Row {
        feature: Feature::TcpSockets,
        name: "TCP sockets",
        what: "tracepoints and members of TCP sockets",
        then: "--before is missing, and with --blame who sent what parked requests went on with",
        lack: Lack::LeavesOut,
        since: "4.16",
    },
    Row {
        feature: Feature::UnixSockets,
        name: "Unix sockets",
        what: "tracepoints of what comes to sockets and is read",
        then: "with --before only TCP connections have a time before the begin, and with --blame no \
               sender is known by a Unix socket",
        lack: Lack::LeavesOut,
        since: "6.3",
    },
    Row {
        feature: Feature::BlockDevices,
        name: "block devices",
        what: "tracepoints and members of block devices",
        then: "with --blame nothing is known of what disks did while requests waited for them",
        lack: Lack::LeavesOut,
        since: "5.12",
    },
    Row {
        feature: Feature::Interrupts,
        name: "interrupts",
        what: "tracepoints of interrupts and softirqs",
        then: "--interrupts is missing",
        lack: Lack::LeavesOut,
        since: "3.11",
    },
    Row {
        feature: Feature::Steal,
        name: "steal",
        what: "clock of what KVM takes of a CPU",
        then: "with --interrupts that is not known, and counts as on CPU",
        lack: Lack::LeavesOut,
        since: "5.2",
    },
    Row {
        feature: Feature::UprobeMulti,
        name: "uprobe_multi",
        what: "links of many probes",
        then: "each probe is a perf event of its own: they are taken out more slowly, and some kernels want \
               CAP_SYS_ADMIN for them",
        lack: Lack::TakesMore,
        since: "6.6",
    },
    Row {
        feature: Feature::ProcessFilter,
        name: "process filter",
        what: "uprobe_multi that goes by process",
        then: "each probe in a shared library is a perf event of its own",
        lack: Lack::TakesMore,
        since: "6.12",
    },
    Row {
        feature: Feature::MapsByDescriptor,
        name: "maps by descriptor",
        what: "use of a map by whoever has its descriptor",
        then: "CAP_BPF is kept while a trace runs",
        lack: Lack::TakesMore,
        since: "5.19",
    },
    Row {
        feature: Feature::LocklessHits,
        name: "lockless hits",
        what: "hits of probes without a lock",
        then: "CPUs that hit probes at once wait for each other, and what a hit costs is measured on all of them",
        lack: Lack::TakesMore,
        since: "6.14",
    },
];
