//! The trace itself: how it began and how it ended.

use serde::{Deserialize, Serialize};

/// What is traced, where and how. It comes first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of reqtrace.
    pub version: String,
    /// Name of the machine.
    pub host: String,
    /// `uname -r`.
    pub kernel: String,
    /// When all probes were set, or in a later file of a trace the file began, `CLOCK_MONOTONIC` ns.
    pub start_ns: u64,
    /// Add to `CLOCK_MONOTONIC` ns to get Unix ns, until a [`super::ClockStep`].
    pub monotonic_to_unix_ns: i64,
    /// Name of the profile; of several services the names of all, with a comma between.
    pub profile: String,
    /// The text of the first profile, word for word.
    pub profile_text: String,
    /// What was recorded.
    pub options: Options,
    /// Markers that were probed.
    pub markers: Vec<Marker>,
    /// Named waits that match nothing because the executable has no symbol table.
    pub unmatched_waits: Vec<UnmatchedWait>,
    /// Whether intervals are recorded, for blame.
    pub blame: bool,
    /// The texts of the other profiles, word for word: there is one for each service. Request types are
    /// numbered through all of them.
    pub more_profile_texts: Vec<String>,
    /// Samples a second and CPU; 0: none are taken.
    pub cpu_rate: u32,
    /// What takes the samples: `cpu-clock` or `cycles`; empty when none are taken.
    pub cpu_engine: String,
    /// Whether it is recorded how long data had been waiting when a request began.
    pub before: bool,
    /// Kinds of the sockets that the processes had at the start: `TCP`, `UDP`, `Unix`; empty unless `before`.
    pub sockets: Vec<String>,
    /// The machine's architecture, as `uname -m` has it: registers and addresses are its.
    #[serde(skip)]
    pub architecture: String,
    /// The table that numbers of system calls are of; see [`SYSCALLS`].
    #[serde(skip)]
    pub syscalls: String,
    /// What the kernel lacked, a sentence each.
    #[serde(skip)]
    pub lacks: Vec<String>,
    /// Which of the files of its trace this is.
    #[serde(skip)]
    pub part: Part,
    /// CPUs that are online; 0: not known.
    #[serde(skip)]
    pub cpus: u32,
    /// The model of the first of them, as the kernel has it; empty: not known.
    #[serde(skip)]
    pub cpu_model: String,
    /// Whether it is known when requests were that are not recorded, because only some are ([`super::Unrecorded`]).
    #[serde(skip)]
    pub holders: bool,
    /// Whether it is recorded what took the CPU from requests: interrupts and softirqs.
    #[serde(skip)]
    pub interrupts: bool,
    /// The same of what the hypervisor took.
    #[serde(skip)]
    pub steal: bool,
}

/// Which of the files of a trace a recording is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its number, from 1 on; 0 where the trace has one file only.
    pub number: u32,
    /// [`Header::start_ns`] of the first file: with the machine's name, which trace it is.
    pub trace_start_ns: u64,
    /// Blocks with a smaller number repeat what files before have: who has read those leaves them out.
    pub head_until: u32,
    /// Blocks of events that could not be written since the file before: they are in no file.
    pub unwritten: u64,
}

impl Part {
    /// What [`End::ended_by`] is in a file that another one follows.
    pub const GOES_ON: &str = "the recording goes on in the next file";
}

/// The table of system calls that this version of reqtrace knows: Linux on x86-64.
pub const SYSCALLS: &str = "x86_64";

/// A named wait that matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmatchedWait {
    /// Its name.
    pub wait: String,
    /// Patterns of its functions.
    pub functions: Vec<String>,
}

impl Header {
    /// The texts of all profiles, in the order in which request types are numbered.
    pub fn profile_texts(&self) -> impl Iterator<Item = &str> {
        let more = self.more_profile_texts.iter();
        std::iter::once(&self.profile_text)
            .chain(more)
            .map(String::as_str)
    }
}

/// What a trace recorded, and what it left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Labels of requests.
    pub labels: bool,
    /// Lengths of intervals.
    pub histogram: bool,
    /// User stacks were left out.
    pub no_user_stacks: bool,
    /// Kernel stacks were left out.
    pub no_kernel_stacks: bool,
    /// Which blocks the stacks hold, empty for all: `of at least 100 µs`.
    pub stack_filter: String,
    /// Stacks of preemptions; without them a preemption is only timed.
    pub preempted_stacks: bool,
    /// From this latency on each request has a record, ns; 0: all have.
    #[serde(skip)]
    pub keep_slow_ns: u64,
    /// Of the others one in so many has, with a weight.
    #[serde(skip)]
    pub one_in: u32,
}

/// One probed marker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// Request type.
    pub request: String,
    /// `begin` or `end`, or another marker of the profile: `resume`, `park`, `idle`, `ready`, `adopt`,
    /// `attribute`.
    pub marker: String,
    /// Function or offset, with `entry` or `return`.
    pub place: String,
    /// Object as the process sees it.
    pub object: String,
    /// Number of probes it needed.
    pub probes: u64,
}

/// Tracing stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When, `CLOCK_MONOTONIC` ns.
    pub stop_ns: u64,
    /// Why: `duration`, `interrupted`, `target exited`; or [`Part::GOES_ON`].
    pub ended_by: String,
    /// Processes that got some of their probes only after the start of their program.
    pub late_children: LateChildren,
}

/// Processes that got some of their probes only after the start of their program: what they did before is not
/// in the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateChildren {
    /// How many.
    pub count: u64,
    /// How long after its start the slowest had its probes, ns.
    pub slowest_ns: u64,
}

impl LateChildren {
    /// Whether there was none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.count == 0
    }
}
