//! Tracer: profiles, targets and options in; a trace that runs, and its events to a sink, out.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use std::path::Path;
//! use std::time::Duration;
//!
//! use reqtrace_base::error::Result;
//! use reqtrace_capture::events::EventSink;
//! use reqtrace_capture::tracer::Tracer;
//! use reqtrace_profile::builtin;
//! use reqtrace_recording::Event;
//!
//! struct Slow;
//!
//! impl EventSink for Slow {
//!     fn event(&mut self, event: &Event<'_>) -> Result<ControlFlow<()>> {
//!         if let Event::Request(request) = event
//!             && request.latency_ns() > 10_000_000
//!         {
//!             println!("request {} took {} ns", request.id, request.latency_ns());
//!         }
//!         Ok(ControlFlow::Continue(()))
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let profile = builtin::from_file(Path::new("shop.toml"))?;
//! let trace = Tracer::new(profile)
//!     .pid(4711)
//!     .duration(Duration::from_secs(30))
//!     .start()?;
//! trace.run(&mut Slow)?;
//! # Ok(())
//! # }
//! ```

mod ahead;
mod backlog;
mod follow;
mod gate;
mod guarding;
mod header;
mod latecomers;
mod processes;
mod resolved;
mod roster;
mod start;
mod stopper;
mod trace;
mod watched;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqtrace_common::filter::{KeepSlow, StackFilter};

use crate::attach::{CpuEngine, SamplingPlan};
use crate::events::{Notice, Notices};
use reqtrace_base::error::Result;
use reqtrace_profile::Profiles;
use reqtrace_resolve::Process;

pub use follow::EndedBy;
pub use roster::{Answer, Roster};
pub use stopper::Stopper;
pub use trace::{Finished, Trace};

/// Samples a second and CPU, if nothing else is asked for: a prime number, so that no rhythm of a program is
/// in step with it.
pub const CPU_RATE: u32 = 199;

/// How to unwind user stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unwind {
    /// By .eh_frame, and by frame pointers through code that has none.
    #[default]
    Auto,
    /// By frame pointers, for programs built with them.
    Fp,
    /// By .eh_frame only: a stack ends at code that has none.
    Dwarf,
}

/// What to trace and how. Nothing happens before [`Tracer::start`].
pub struct Tracer {
    profiles: Profiles,
    pids: Vec<u32>,
    processes: Vec<Process>,
    programs: Vec<PathBuf>,
    /// The processes wait before their first instruction.
    has_begun: bool,
    options: Options,
    notices: Notices,
}

#[derive(Clone, Debug)]
struct Options {
    follow: bool,
    duration: Option<Duration>,
    labels: bool,
    histogram: bool,
    blame: bool,
    before: bool,
    interrupts: bool,
    samples: Option<SamplingPlan>,
    user_stacks: bool,
    preempted_stacks: bool,
    stack_filter: StackFilter,
    unwind: Unwind,
    sample_every: u64,
    keep_slow: KeepSlow,
    max_probe_rate: f64,
    max_overhead: f64,
    may_leave_out: Option<Duration>,
    is_one_of_many: bool,
    memory: Option<u64>,
    file_memory: Option<u64>,
    accept_risk: bool,
    measure_programs: bool,
}

impl Options {
    /// Whether all requests of threads that hold others up are recorded, though others are drawn.
    fn records_holders(&self) -> bool {
        self.blame && self.sample_every > 1
    }

    /// Whether it is known when requests were that have no record.
    fn knows_unrecorded(&self) -> bool {
        self.blame && (self.sample_every > 1 || self.keep_slow.slow_ns > 0)
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer")
            .field("profiles", &self.profiles.names())
            .field("pids", &self.pids)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Tracer {
    /// A trace of requests of this profile, or of those of several services, with the defaults of the
    /// command line: children are traced too, it lasts until it is stopped or the processes have left,
    /// and it refuses to take more than half of the CPU time.
    #[must_use]
    pub fn new(profiles: impl Into<Profiles>) -> Self {
        Self {
            profiles: profiles.into(),
            pids: Vec::new(),
            processes: Vec::new(),
            programs: Vec::new(),
            has_begun: true,
            options: Options {
                follow: true,
                duration: None,
                labels: false,
                histogram: false,
                blame: false,
                before: false,
                interrupts: false,
                samples: Some(SamplingPlan {
                    rate_hz: CPU_RATE,
                    engine: CpuEngine::CpuClock,
                    is_required: false,
                }),
                user_stacks: true,
                preempted_stacks: false,
                stack_filter: StackFilter::ALL,
                unwind: Unwind::default(),
                sample_every: 1,
                keep_slow: KeepSlow::ALL,
                max_probe_rate: 50.0,
                max_overhead: 50.0,
                may_leave_out: None,
                is_one_of_many: false,
                memory: None,
                file_memory: None,
                accept_risk: false,
                measure_programs: false,
            },
            notices: Notices::default(),
        }
    }

    /// Traces this process; several when it is called again.
    #[must_use]
    pub fn pid(mut self, pid: u32) -> Self {
        self.pids.push(pid);
        self
    }

    /// Traces processes that were opened before.
    #[must_use]
    pub fn processes(mut self, processes: impl IntoIterator<Item = Process>) -> Self {
        self.processes.extend(processes);
        self
    }

    /// Traces every process that begins to run this program while the trace runs, from its first instruction on,
    /// whoever starts it; several when it is called again. One that is installed at the path later is the
    /// program from then on. The trace does not end when the last process leaves.
    ///
    /// Of the processes that run it already some have to be named too: in them the markers are found.
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.programs.push(path.into());
        self
    }

    /// The processes wait before their first instruction: their load is not measured, and their files
    /// are those that they will have.
    #[must_use]
    pub fn not_begun(mut self) -> Self {
        self.has_begun = false;
        self
    }

    /// Whether the children that traced processes start are traced too; they are by default.
    #[must_use]
    pub fn follow(mut self, follow: bool) -> Self {
        self.options.follow = follow;
        self
    }

    /// Traces so long, from when all probes are set.
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Self {
        self.options.duration = Some(duration);
        self
    }

    /// Records the labels that the profile names. They may hold secrets.
    #[must_use]
    pub fn labels(mut self, labels: bool) -> Self {
        self.options.labels |= labels;
        self
    }

    /// Finds out who requests waited for: every interval off the CPU of their threads, and of those
    /// that woke them, is an event.
    #[must_use]
    pub fn blame(mut self, blame: bool) -> Self {
        self.options.blame = blame;
        self
    }

    /// Finds out how long the data of each request, or its connection, had been waiting at a socket when the
    /// request began.
    #[must_use]
    pub fn before(mut self, before: bool) -> Self {
        self.options.before = before;
        self
    }

    /// Finds out how much CPU time interrupts, softirqs and the hypervisor took from each request.
    #[must_use]
    pub fn interrupts(mut self, interrupts: bool) -> Self {
        self.options.interrupts = interrupts;
        self
    }

    /// How samples of requests on their CPUs are taken, [`CPU_RATE`] a second by the kernel's timer if
    /// this is not called; `None`: not at all.
    #[must_use]
    pub fn samples(mut self, samples: Option<SamplingPlan>) -> Self {
        self.options.samples = samples;
        self
    }

    /// Counts the lengths of blocks.
    #[must_use]
    pub fn histogram(mut self, histogram: bool) -> Self {
        self.options.histogram = histogram;
        self
    }

    /// Whether user stacks are recorded; they are by default, and always when the profile's waits need
    /// them.
    #[must_use]
    pub fn user_stacks(mut self, user_stacks: bool) -> Self {
        self.options.user_stacks = user_stacks;
        self
    }

    /// Records the stacks of preemptions too.
    #[must_use]
    pub fn preempted_stacks(mut self, preempted_stacks: bool) -> Self {
        self.options.preempted_stacks = preempted_stacks;
        self
    }

    /// Which blocks go into the stacks.
    #[must_use]
    pub fn stack_filter(mut self, filter: StackFilter) -> Self {
        self.options.stack_filter = filter;
        self
    }

    /// How user stacks are unwound.
    #[must_use]
    pub fn unwind(mut self, unwind: Unwind) -> Self {
        self.options.unwind = unwind;
        self
    }

    /// Records one of so many requests, drawn at random; 1: all.
    #[must_use]
    pub fn sample_every(mut self, requests: u64) -> Self {
        self.options.sample_every = requests;
        self
    }

    /// Sends each request from a latency on, and one in so many of the others. Totals and stacks are of all of them.
    #[must_use]
    pub fn keep_slow(mut self, keep: KeepSlow) -> Self {
        self.options.keep_slow = keep;
        self
    }

    /// Refuses to start when the probes would take more than this share of the processes' CPU time, in
    /// percent; 100 measures nothing.
    #[must_use]
    pub fn max_probe_rate(mut self, percent: f64) -> Self {
        self.options.max_probe_rate = percent;
        self
    }

    /// Records less while tracing takes more than this share of the CPU time, in percent; 100: never.
    #[must_use]
    pub fn max_overhead(mut self, percent: f64) -> Self {
        self.options.max_overhead = percent;
        self
    }

    /// Above [`Self::max_overhead`], when recording fewer requests does not help, traces one window of this length in 2 to 16,
    /// drawn at random: the probes are out between them, and requests of a window stand for those of the others. When that
    /// does not help either, the trace ends as [`EndedBy::Dear`].
    ///
    /// Requests that are open at the end of a window are incomplete ones. The trace must not have given up its privileges.
    #[must_use]
    pub fn may_leave_out(mut self, window: Duration) -> Self {
        self.options.may_leave_out = Some(window);
        self
    }

    /// Other threads of this process run other traces: what reqtrace takes itself is what the thread takes that runs this one.
    #[must_use]
    pub fn one_of_many(mut self) -> Self {
        self.options.is_one_of_many = true;
        self
    }

    /// Bytes of kernel memory for the tables of threads, processes, stacks and sums; `None`: what 4,096 threads
    /// take, some 50 MiB. See [`Sizes`](crate::attach::Sizes).
    #[must_use]
    pub fn memory(mut self, bytes: Option<u64>) -> Self {
        self.options.memory = bytes;
        self
    }

    /// Bytes that are made of what processes have mapped: unwind tables in the kernel, and copies of symbols and debug
    /// information, a half each; `None`: 4 million rows and 1 GiB. Above it files of which nothing was needed lately go
    /// first, and what finds no room is counted.
    #[must_use]
    pub fn file_memory(mut self, bytes: Option<u64>) -> Self {
        self.options.file_memory = bytes;
        self
    }

    /// Starts although it costs more than that, or may not fit the program.
    #[must_use]
    pub fn accept_risk(mut self, accept: bool) -> Self {
        self.options.accept_risk = accept;
        self
    }

    /// Measures what the kernel programs take, and shows their messages in the log; some 40 ns a run.
    #[must_use]
    pub fn measure_programs(mut self, measure: bool) -> Self {
        self.options.measure_programs = measure;
        self
    }

    /// Where notices go; by default to the log.
    #[must_use]
    pub fn on_notice(mut self, tell: impl Fn(Notice<'_>) + Send + Sync + 'static) -> Self {
        self.notices = Notices::to(tell);
        self
    }

    /// Whose requests are traced.
    #[must_use]
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// Whether [`Tracer::labels`] was asked for.
    #[must_use]
    pub fn has_labels(&self) -> bool {
        self.options.labels
    }

    /// Whether [`Tracer::before`] was asked for.
    #[must_use]
    pub fn has_before(&self) -> bool {
        self.options.before
    }

    /// Whether [`Tracer::interrupts`] was asked for.
    #[must_use]
    pub fn has_interrupts(&self) -> bool {
        self.options.interrupts
    }

    /// Attaches everything; the trace runs from then on. Needs root, or the capabilities that
    /// `reqtrace doctor` names.
    ///
    /// # Errors
    ///
    /// Whatever is wrong with the profile, the processes or the kernel, and a cost above
    /// [`Tracer::max_probe_rate`]; nothing is attached then.
    pub fn start(self) -> Result<Trace> {
        let (trace, ()) = self.start_with(|_| Ok(()))?;
        Ok(trace)
    }

    /// The same. `accepted` is given the profiles as they are used in these programs: this is what the events
    /// are of. It is called when the trace is not refused, and before anything is attached: what
    /// it opens is not opened for nothing, and what it refuses leaves nothing behind. Its result is given back.
    ///
    /// # Errors
    ///
    /// As [`Tracer::start`], and what `accepted` refuses.
    pub fn start_with<T>(
        self,
        accepted: impl FnOnce(&Profiles) -> Result<T>,
    ) -> Result<(Trace, T)> {
        start::start(self, accepted)
    }
}
