//! The events of a trace, and the file that holds them.
//!
//! In: what capture saw, as plain [`Event`]s. Out: the same events, in the same order, for the
//! analysis: straight away while tracing, or later from memory or a file.
//!
//! ```text
//! capture ──► Event ──► analysis
//!               │          ▲
//!               ▼          │
//!        Recorder ───► Reader
//!         Feeder ───► Deferred
//! ```
//!
//! This crate knows nothing of kernel maps, `/proc`, ELF files or reports. docs/recording.md has the
//! format for those who want to read a file without it.

mod deferred;
mod dictionary;
mod error;
mod event;
mod file;
pub mod losses;
mod recorder;
mod wire;

pub use deferred::{Deferred, Feeder, deferred};
pub use error::{Error, Result};
pub use event::{
    Address, AddressSpace, Attribute, Away, AwayIn, AwayInterval, BlockSite, BlockedIn, ClockStep,
    Comm, Cost, CpuWait, DiskUse, End, Event, File, Futex, Header, Holder, Incomplete, Interval,
    IntervalKind, KERNEL, LateChildren, LengthHistogram, LengthsOf, LongBlock, Loss, LostCpu,
    Mapping, Marker, MarkerCount, MarkerCounts, NOWHERE, Name, NumberOf, Object, Open, Options,
    Origin, Overhead, PARKED, Park, Part, Process, ProcessChange, ProgramCost, QUEUED, Request,
    RequestOf, Runner, SYSCALLS, Sample, Sender, Sent, ShedSpan, Slot, Stack, StackSum,
    StackSumKey, SumOf, TextOf, Thread, TypeTotals, UnmatchedWait, Unrecorded, Untraced, Value,
    Waker, WakerContext, WakerIs, WalkCost, Window, WokenFrom, range_ns,
};
#[doc(hidden)]
pub use file::fuzz;
pub use file::{Ending, MAJOR, Reader, Series, Writer};
pub use recorder::{Files, Recorded, Recorder, Removed, Roll};
