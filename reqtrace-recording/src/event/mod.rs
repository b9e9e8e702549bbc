//! The events. Names and stacks come before the first event that refers to them, and again
//! after [`Event::StacksAnew`].

mod cpu;
mod disk;
mod interval;
mod overhead;
mod process;
mod request;
mod sample;
mod site;
mod stack;
mod sums;
mod totals;
mod trace;

pub use reqtrace_base::frame::AddressSpace;

pub use cpu::{CpuWait, Runner};
pub use disk::DiskUse;
pub use interval::{
    AwayInterval, Futex, Holder, Interval, IntervalKind, Origin, RequestOf, Sender, Waker,
    WakerContext, WakerIs, WokenFrom,
};
pub use overhead::{Overhead, ShedSpan, Untraced, range_ns};
pub use process::{File, Mapping, Object, Process, ProcessChange, Thread};
pub use request::{
    Attribute, Away, AwayIn, BlockedIn, Comm, Incomplete, LostCpu, NumberOf, Open, PARKED, Park,
    QUEUED, Request, TextOf, Unrecorded, Value,
};
pub use sample::Sample;
pub use site::{BlockSite, LongBlock, Slot};
pub use stack::{Address, KERNEL, NOWHERE, Name, Stack};
pub use sums::{LengthHistogram, LengthsOf, StackSum, StackSumKey, SumOf, TypeTotals};
pub use totals::{
    ClockStep, Cost, Loss, MarkerCount, MarkerCounts, ProgramCost, Sent, WalkCost, Window,
};
pub use trace::{End, Header, LateChildren, Marker, Options, Part, SYSCALLS, UnmatchedWait};

/// One event of a trace.
///
/// Times are `CLOCK_MONOTONIC` nanoseconds of the traced machine. The order of events is the order in
/// which the tracer saw them; requests are nearly, but not exactly, in order of their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all events are requests, and are made where they are sent"
)]
pub enum Event<'a> {
    /// A traced process appeared, changed or left.
    Process(&'a Process),
    /// A file, or another thing that is mapped, that addresses refer to.
    Object(&'a Object),
    /// A part of an object in an address space.
    Mapping(&'a Mapping),
    /// The name of a file that was blocked on.
    File(&'a File),
    /// The name of a thread that woke one in a request.
    Thread(&'a Thread),
    /// The functions at an address.
    Name(&'a Name),
    /// The addresses of a stack.
    Stack(&'a Stack),
    /// What was sent of stacks, names, objects, mappings, threads and futexes is not referred to from here on, unless it
    /// is sent again. Files that were sent are referred to until this event comes once more. A trace with ever new
    /// stacks or files has it now and then, so that nobody needs to keep them all. In recordings of before there were
    /// many files of one trace it is about stacks and files only.
    StacksAnew,
    /// A request that ended.
    Request(Request<'a>),
    /// A request that was open when tracing stopped.
    Open(&'a Open),
    /// A thread was off the CPU; only with blame.
    Interval(&'a Interval),
    /// A thread waited for a CPU that others had; only with blame.
    CpuWait(&'a CpuWait),
    /// A block device did something; only with blame.
    Disk(&'a DiskUse),
    /// A request that is not recorded; only with blame, and only where some are not.
    Unrecorded(&'a Unrecorded),
    /// A request was parked or queued; only with blame.
    Away(&'a AwayInterval),
    /// What a parked request went on with; only with blame.
    Origin(&'a Origin),
    /// What a futex lies in that intervals refer to.
    Futex(&'a Futex),
    /// A thread in a request was on a CPU; only when samples are taken.
    Sample(&'a Sample),
    /// All records of before this time, but for some milliseconds, have been seen.
    Tick(u64),
    /// What the kernel has sent of the requests that ended in a second, when all of them have come.
    Sent(&'a Sent),
    /// The wall clock differs from `CLOCK_MONOTONIC` by something else from now on.
    Clock(&'a ClockStep),
    /// Exact sums of the kernel since the window before.
    Window(&'a Window),
    /// Something was lost since the last such event.
    Loss(&'a Loss),
    /// What the tracer itself has cost since its start.
    Cost(&'a Cost),
    /// Tracing stopped: the last event of a whole recording.
    End(&'a End),
}
