//! Processes, what they have mapped and opened, and their threads.

use reqtrace_base::frame::AddressSpace;
use reqtrace_common::record::FileId;
use serde::{Deserialize, Serialize};

/// A traced process appeared, changed or left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process, after the event.
    pub space: AddressSpace,
    /// What happened.
    pub change: ProcessChange,
    /// Its parent, for a fork; otherwise 0.
    pub parent: u32,
    /// When, `CLOCK_MONOTONIC` ns; 0 when it was there before the trace.
    pub time_ns: u64,
    /// Its name; empty when it is not known.
    pub name: String,
}

/// What happened to a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessChange {
    /// It was there when tracing started.
    #[default]
    Start,
    /// A traced process forked it.
    Fork,
    /// It called exec.
    Exec,
    /// It left.
    Exit,
}

/// Something that addresses lie in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its number in this recording, above [`crate::KERNEL`].
    pub id: u32,
    /// Its path as the process sees it; `[vdso]` and the like, or empty for memory without a file.
    pub path: String,
    /// Build id of an ELF file; empty when it has none, or when it was not looked for.
    pub build_id: Vec<u8>,
}

/// A part of an object in an address space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// The address space.
    pub space: AddressSpace,
    /// First address.
    pub start: u64,
    /// Behind the last address.
    pub end: u64,
    /// Offset of `start` in the object.
    pub offset: u64,
    /// The object.
    pub object: u32,
}

/// A file that was blocked on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its id in places of blocking.
    pub file: FileId,
    /// Its path; the last part of it behind `…/` when that is all that is known; the kernel's name
    /// for what is no file: `socket:[]`, `pipe:[]`, `anon_inode:[eventfd]`.
    pub path: String,
    /// Device: major number << 20 | minor number.
    pub device: u32,
    /// Inode number.
    pub inode: u64,
}

/// The name of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its process.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub name: String,
}
