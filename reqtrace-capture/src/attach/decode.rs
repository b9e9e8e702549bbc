//! Records of the ring: bytes in, checked plain types out.
//!
//! Nothing in a record is trusted: sizes, kinds, counts and reasons are checked, and what does not
//! fit is a [`Malformed`], which the caller counts. Fields are read by their offsets, so a record
//! needs no alignment.

use std::fmt;
use std::mem::{offset_of, size_of};

use reqtrace_common::limits::{MAX_LABEL, MAX_LONGEST, MAX_PATH, MAX_REQUEST_TYPES, MAX_SLOTS};
use reqtrace_common::record::{
    FileRecord, LongBlock as KernelLongBlock, ProcessRecord, RequestRecord, Slot as KernelSlot,
    kind, process_event, reason,
};
use reqtrace_common::thread::{self, RequestState, phase, status};
use reqtrace_recording::{
    AddressSpace, AwayIn, BlockedIn, Comm, File, Incomplete, LongBlock, Open, Request, Slot, Thread,
};

mod cpu_waits;
mod disk;
mod extras;
mod fields;
mod intervals;
pub(super) mod own;
mod samples;

use super::file::file_path;

pub(crate) use cpu_waits::cpu_wait;
pub(crate) use disk::disk;
pub(super) use disk::disk_users;
pub(crate) use extras::{Ends, Extra, Extras, Stamp, away, origin};
use fields::Fields;
use intervals::helper;
pub(crate) use intervals::{holder, interval, unrecorded};
pub(crate) use samples::sample;

/// Why a record could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Fewer bytes than its kind and counts need.
    Short {
        /// Bytes it needs.
        needed: usize,
        /// Bytes it has.
        got: usize,
    },
    /// Its kind is not known.
    Kind(u32),
    /// One of its counts is greater than the record has room for.
    Count(u32),
    /// Its reason is not known.
    Reason(u32),
    /// Its request type cannot exist.
    RequestType(u32),
    /// Its process event is not known.
    ProcessEvent(u32),
    /// The kind of a file's name is not known.
    FileName(u32),
    /// It stands for no request.
    Weight,
    /// Its times do not close the ledger.
    Ledger,
    /// What a waker ran in, or did, is not known.
    Waker(u32),
    /// What is known of the holder of a lock is not known here.
    Holder(u32),
    /// An interval whose times are not in order.
    Interval,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { needed, got } => write!(f, "{got} bytes where {needed} are needed"),
            Self::Kind(value) => write!(f, "unknown kind {value}"),
            Self::Count(value) => write!(f, "count {value} is out of range"),
            Self::Reason(value) => write!(f, "unknown reason {value}"),
            Self::RequestType(value) => write!(f, "request type {value} is out of range"),
            Self::ProcessEvent(value) => write!(f, "unknown process event {value}"),
            Self::FileName(value) => write!(f, "unknown kind of file name {value}"),
            Self::Weight => f.write_str("a request that stands for none"),
            Self::Ledger => f.write_str("times that do not close the ledger"),
            Self::Waker(value) => write!(f, "unknown number {value} of a waker"),
            Self::Holder(value) => write!(f, "unknown number {value} of a holder"),
            Self::Interval => f.write_str("an interval whose times are not in order"),
        }
    }
}

impl std::error::Error for Malformed {}

/// One record of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// The bytes of a finished request: see [`Decoder::request`].
    Request(&'a [u8]),
    /// The bytes of an interval: see [`interval`].
    Interval(&'a [u8]),
    /// The bytes of a sample: see [`sample`].
    Sample(&'a [u8]),
    /// The bytes of what a request has beside its record: see [`Extras::extra`].
    Extra(&'a [u8]),
    /// The bytes of a text: see [`Extras::text`].
    Text(&'a [u8]),
    /// The bytes of a time in which no thread ran a request: see [`away`].
    Away(&'a [u8]),
    /// The bytes of a wait for a CPU: see [`cpu_wait`].
    CpuWait(&'a [u8]),
    /// The bytes of what a block device did: see [`disk`].
    Disk(&'a [u8]),
    /// The bytes of a request that is not recorded: see [`unrecorded`].
    Unrecorded(&'a [u8]),
    /// What a parked request went on with.
    Origin(&'a [u8]),
    /// Another record.
    Other(Other),
}

/// One record of the ring that is news of the surroundings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    /// A traced process came, changed or went.
    Process(ProcessRecord),
    /// A file that was blocked on has this name.
    File(File),
    /// A helper has this name.
    Thread(Thread),
}

/// Tells what a record is, and decodes it, unless it is a request, an interval or a sample.
///
/// # Errors
///
/// [`Malformed`] when the bytes are not a record of this version.
pub(crate) fn record(bytes: &[u8]) -> Result<Record<'_>, Malformed> {
    match Fields(bytes).u32(0)? {
        kind::REQUEST if Fields(bytes).u32(offset_of!(RequestRecord, weight))? == 0 => {
            Ok(Record::Unrecorded(bytes))
        }
        kind::REQUEST => Ok(Record::Request(bytes)),
        kind::PROCESS => Ok(Record::Other(Other::Process(process(bytes)?))),
        kind::FILE => Ok(Record::Other(Other::File(file(bytes)?))),
        kind::INTERVAL => Ok(Record::Interval(bytes)),
        kind::SAMPLE => Ok(Record::Sample(bytes)),
        kind::EXTRA => Ok(Record::Extra(bytes)),
        kind::TEXT => Ok(Record::Text(bytes)),
        kind::AWAY => Ok(Record::Away(bytes)),
        kind::CPU_WAIT => Ok(Record::CpuWait(bytes)),
        kind::DISK => Ok(Record::Disk(bytes)),
        kind::ORIGIN => Ok(Record::Origin(bytes)),
        kind::HELPER => Ok(Record::Other(Other::Thread(helper(bytes)?))),
        other => Err(Malformed::Kind(other)),
    }
}

/// Decodes requests, one after the other, in the same memory.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    slots: Vec<Slot>,
    longest: Vec<LongBlock>,
}

impl Decoder {
    /// Decodes a request; its id is 0.
    ///
    /// # Errors
    ///
    /// [`Malformed`] when the bytes are not a request of this version.
    pub(crate) fn request<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Request<'a>, Malformed> {
        macro_rules! at {
            ($field:ident) => {
                offset_of!(RequestRecord, $field)
            };
        }
        let fields = Fields(bytes);
        let slots_used = fields.count(at!(slots_used), MAX_SLOTS)?;
        let longest_used = fields.count(at!(longest_used), MAX_LONGEST)?;
        let label_len = fields.count(at!(label_len), MAX_LABEL)?;
        self.slots.clear();
        for index in 0..slots_used {
            let slot = fields.slot(at!(slots) + index * size_of::<KernelSlot>())?;
            self.slots.push(slot);
        }
        self.longest.clear();
        for index in 0..longest_used {
            let block = fields.long_block(at!(longest) + index * size_of::<KernelLongBlock>())?;
            self.longest.push(block);
        }
        sort(&mut self.longest);
        checked(Request {
            id: 0,
            request_type: request_type(fields.u32(at!(request_type))?)?,
            space: fields.space(at!(tgid), at!(exec_generation))?,
            tid: fields.u32(at!(tid))?,
            incomplete: incomplete(fields.u32(at!(reason))?)?,
            comm: Comm(fields.array(at!(comm))?),
            label: match label_len {
                0 => &[],
                len => fields.bytes(at!(label), len)?,
            },
            begin_ns: fields.u64(at!(begin_ns))?,
            end_ns: fields.u64(at!(end_ns))?,
            run_queue_ns: fields.u64(at!(run_queue_ns))?,
            preempted_ns: fields.u64(at!(preempted_ns))?,
            blocked_ns: fields.u64(at!(blocked_ns))?,
            unattributed_ns: fields.u64(at!(unattributed_ns))?,
            blocks: fields.u32(at!(blocks))?,
            preemptions: fields.u32(at!(preemptions))?,
            max_depth: fields.u32(at!(max_depth))?,
            weight: fields.u32(at!(weight))?,
            slots: &self.slots,
            longest: &self.longest,
            ..Request::default()
        })
    }
}

/// An open request, and what its texts are found by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Still {
    /// The request, without its texts.
    pub open: Open,
    /// What [`Extras::texts_of`] takes.
    pub stamp: Stamp,
}

/// The open request of a thread, as if it ended at `stop_ns`; `None` when none is open.
///
/// # Errors
///
/// [`Malformed`] as for a ring record.
pub(crate) fn still_open(
    thread: &thread::Thread,
    stop_ns: u64,
) -> Result<Option<Still>, Malformed> {
    if !thread.request.is_sampled() || thread.request.status == status::NONE {
        return Ok(None);
    }
    let mut thread = *thread;
    let thread::Thread { state, request, .. } = &mut thread;
    // Programs go on until the stop time is in their map, and one that a preemption interrupts even
    // after that: what they saw last is then later than the stop.
    let begin_ns = request.record.begin_ns;
    let seen_ns = begin_ns.saturating_add(request.record.off_cpu_ns());
    let stop_ns = stop_ns.max(seen_ns).max(state.out_ns);
    let mut blocked_in = None;
    let why = if request.status == status::ABANDONED {
        reason::NO_END
    } else if state.phase == phase::BLOCKED
        && (state.wake_ns <= state.out_ns || state.wake_ns >= stop_ns)
    {
        // Nobody has woken it, so all of the open interval is blocked time.
        state.wake_ns = stop_ns;
        blocked_in = Some(BlockedIn {
            site: own::site(&state.open_site),
            since_ns: state.out_ns,
        });
        reason::BLOCKED_AT_STOP
    } else {
        reason::RUNNING_AT_STOP
    };
    if request.status == status::OPEN {
        thread.switch_in(stop_ns);
    }
    thread.close(stop_ns, why);
    let mut still = from_state(&thread.request)?;
    still.open.blocked_in = blocked_in;
    Ok(Some(still))
}

/// The request that no thread runs, as if it ended at `stop_ns`; `None` when it is not recorded.
///
/// # Errors
///
/// [`Malformed`] as for a ring record.
pub(crate) fn still_parked(
    request: &RequestState,
    stop_ns: u64,
    why: u32,
) -> Result<Option<Still>, Malformed> {
    if !request.is_sampled() {
        return Ok(None);
    }
    let mut request = *request;
    let since_ns = request.keyed.since_ns;
    let stop_ns = stop_ns.max(since_ns);
    let (_, place) = request.keyed.count_away(stop_ns, 0);
    request.close(stop_ns, why);
    let mut still = from_state(&request)?;
    still.open.away_in = Some(AwayIn { place, since_ns });
    Ok(Some(still))
}

/// A closed request with what it has beside its record.
fn from_state(request: &RequestState) -> Result<Still, Malformed> {
    let mut open = from_record(&request.record)?;
    let extra = Extra::of_state(request);
    extras::closes(&open.request(), &extra.away)?;
    open.request.moves = extra.moves;
    open.request.waited_before_ns = extra.waited_before_ns(open.request.begin_ns);
    open.request.lost = extra.lost;
    open.away = extra.away;
    open.parks = extra.parks;
    open.numbers = extra.numbers;
    let stamp = (request.record.tgid, request.keyed.extra.stamp_ns);
    Ok(Still { open, stamp })
}

/// A whole request record.
///
/// # Errors
///
/// [`Malformed`] as for a ring record.
fn from_record(record: &RequestRecord) -> Result<Open, Malformed> {
    let slots = record
        .slots
        .get(..record.slots_used as usize)
        .ok_or(Malformed::Count(record.slots_used))?;
    let longest = record
        .longest
        .get(..record.longest_used as usize)
        .ok_or(Malformed::Count(record.longest_used))?;
    let label = record
        .label
        .get(..record.label_len as usize)
        .ok_or(Malformed::Count(record.label_len))?;
    let mut open = Open {
        request: Request {
            request_type: request_type(record.request_type)?,
            space: AddressSpace {
                tgid: record.tgid,
                exec_generation: record.exec_generation,
            },
            tid: record.tid,
            incomplete: incomplete(record.reason)?,
            comm: Comm(record.comm),
            begin_ns: record.begin_ns,
            end_ns: record.end_ns,
            run_queue_ns: record.run_queue_ns,
            preempted_ns: record.preempted_ns,
            blocked_ns: record.blocked_ns,
            unattributed_ns: record.unattributed_ns,
            blocks: record.blocks,
            preemptions: record.preemptions,
            max_depth: record.max_depth,
            weight: record.weight,
            ..Request::default()
        },
        label: label.to_vec(),
        slots: slots.iter().map(own::slot).collect(),
        longest: longest.iter().map(own::long_block).collect(),
        ..Open::default()
    };
    sort(&mut open.longest);
    checked(open.request())?;
    Ok(open)
}

/// Longest first.
fn sort(longest: &mut [LongBlock]) {
    longest.sort_by_key(|block| {
        std::cmp::Reverse(block.blocked_ns.saturating_add(block.run_queue_ns))
    });
}

/// Checks the sums.
fn checked(request: Request<'_>) -> Result<Request<'_>, Malformed> {
    let slots = request
        .slots
        .iter()
        .try_fold(0_u64, |sum, slot| sum.checked_add(slot.blocked_ns));
    let off_cpu = [
        request.run_queue_ns,
        request.preempted_ns,
        request.blocked_ns,
        request.unattributed_ns,
    ]
    .into_iter()
    .try_fold(0_u64, u64::checked_add);
    let latency = request.end_ns.checked_sub(request.begin_ns);
    if request.weight == 0 {
        return Err(Malformed::Weight);
    }
    match (slots, off_cpu, latency) {
        (Some(slots), Some(off), Some(latency))
            if slots == request.blocked_ns && off <= latency =>
        {
            Ok(request)
        }
        _ => Err(Malformed::Ledger),
    }
}

fn process(bytes: &[u8]) -> Result<ProcessRecord, Malformed> {
    let fields = Fields(bytes);
    fields.bytes(0, size_of::<ProcessRecord>())?;
    let event = fields.u32(offset_of!(ProcessRecord, event))?;
    if !matches!(
        event,
        process_event::FORK
            | process_event::EXEC
            | process_event::EXIT
            | process_event::MAPPED
            | process_event::PROGRAM
    ) {
        return Err(Malformed::ProcessEvent(event));
    }
    Ok(ProcessRecord {
        kind: kind::PROCESS,
        event,
        tgid: fields.u32(offset_of!(ProcessRecord, tgid))?,
        parent: fields.u32(offset_of!(ProcessRecord, parent))?,
        exec_generation: fields.u32(offset_of!(ProcessRecord, exec_generation))?,
        pad: 0,
        time_ns: fields.u64(offset_of!(ProcessRecord, time_ns))?,
        comm: fields.array(offset_of!(ProcessRecord, comm))?,
    })
}

fn file(bytes: &[u8]) -> Result<File, Malformed> {
    let fields = Fields(bytes);
    let len = fields.count(offset_of!(FileRecord, len), MAX_PATH)?;
    let names = fields.bytes(offset_of!(FileRecord, names), len)?;
    let name = fields.u32(offset_of!(FileRecord, name))?;
    let mode = fields.u32(offset_of!(FileRecord, mode))?;
    let magic = fields.u32(offset_of!(FileRecord, magic))?;
    Ok(File {
        file: fields.u32(offset_of!(FileRecord, file))?,
        path: file_path(name, mode, magic, names).ok_or(Malformed::FileName(name))?,
        device: fields.u32(offset_of!(FileRecord, device))?,
        inode: fields.u64(offset_of!(FileRecord, inode))?,
    })
}

fn request_type(value: u32) -> Result<u32, Malformed> {
    ((value as usize) < MAX_REQUEST_TYPES)
        .then_some(value)
        .ok_or(Malformed::RequestType(value))
}

fn incomplete(value: u32) -> Result<Option<Incomplete>, Malformed> {
    Incomplete::of(value).map_err(Malformed::Reason)
}

#[cfg(test)]
mod tests;
