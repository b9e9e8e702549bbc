//! Requests.

use reqtrace_base::plain::Plain;
use reqtrace_common::limits::COMM_LEN;
use reqtrace_common::marker::MAX_PLACES;
use reqtrace_common::record::{StackId, reason};

use serde::{Deserialize, Serialize};

use super::{AddressSpace, BlockSite, LongBlock, Slot};

/// The name of a thread as the kernel has it, padded with NUL.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Comm(pub [u8; COMM_LEN]);

impl Comm {
    /// Whether there is no name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }

    /// The name up to the first NUL.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&byte| byte == 0);
        &self.0[..end.unwrap_or(COMM_LEN)]
    }

    /// The name as text; what is not UTF-8 is replaced.
    #[must_use]
    pub fn text(&self) -> Plain {
        Plain::of_bytes(self.bytes())
    }
}

impl From<&str> for Comm {
    /// What does not fit is cut off.
    fn from(text: &str) -> Self {
        let mut comm = [0; COMM_LEN];
        for (to, from) in comm.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        Self(comm)
    }
}

/// A request: numbers and ids, no names. Plain and without memory of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// Unique in the trace, from 1 on.
    pub id: u64,
    /// Index of the request type in the profile.
    pub request_type: u32,
    /// The process.
    pub space: AddressSpace,
    /// The thread.
    pub tid: u32,
    /// Why it is incomplete, if it is.
    pub incomplete: Option<Incomplete>,
    /// Name of the thread.
    pub comm: Comm,
    /// The label, as the traced program had it; empty when none was recorded.
    pub label: &'a [u8],
    /// Begin, `CLOCK_MONOTONIC` ns.
    pub begin_ns: u64,
    /// End, `CLOCK_MONOTONIC` ns.
    pub end_ns: u64,
    /// Nanoseconds on the run queue.
    pub run_queue_ns: u64,
    /// Nanoseconds preempted.
    pub preempted_ns: u64,
    /// Nanoseconds blocked, the sum of `slots`.
    pub blocked_ns: u64,
    /// Nanoseconds blocked that found no slot.
    pub unattributed_ns: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Number of preemptions.
    pub preemptions: u32,
    /// How deep begins nested at most; 1 when they did not.
    pub max_depth: u32,
    /// How many requests it stands for; 1 unless requests were sampled.
    pub weight: u32,
    /// Blocked time per site.
    pub slots: &'a [Slot],
    /// The longest blocks, the longest first.
    pub longest: &'a [LongBlock],
    /// Time in which no thread ran it, by place; only of a type with a key.
    pub away: &'a [Away],
    /// Where it decided to wait: of the parked time in `away` what has a stack.
    pub parks: &'a [Park],
    /// How often another thread went on with it than the one before.
    pub moves: u32,
    /// What it was about, by the order of its type's attributes in the profile; what was not read is left out.
    pub attributes: &'a [Attribute<'a>],
    /// How long its data, or its connection, had been waiting at the socket when it began, ns; no part of its
    /// latency. `None`: not known. Only of a trace with [`super::Header::before`].
    pub waited_before_ns: Option<u64>,
    /// What took its CPU from it while it ran; a part of its time on CPU. Only of a trace with [`super::Header::interrupts`].
    pub lost: LostCpu,
}

/// CPU time of a request that went elsewhere without a switch, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostCpu {
    /// To interrupts.
    pub interrupts_ns: u64,
    /// To softirqs, also those that its threads ran by themselves.
    pub softirqs_ns: u64,
    /// To what the hypervisor ran; only of a trace with [`super::Header::steal`].
    pub steal_ns: u64,
}

/// A request that is not recorded, because only some are: it is in no count and no sum. With blame it is known when it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unrecorded {
    /// Index of the request type in the profile.
    pub request_type: u32,
    /// The process.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// Name of the thread.
    pub comm: Comm,
    /// Begin, `CLOCK_MONOTONIC` ns.
    pub begin_ns: u64,
    /// End, `CLOCK_MONOTONIC` ns.
    pub end_ns: u64,
}

/// Time in which no thread ran a request: it was parked, or queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Away {
    /// The number of the place in the request type ([`reqtrace_common::marker::place_number`]); [`PARKED`] and [`QUEUED`] have no
    /// name.
    pub place: u32,
    /// How often.
    pub count: u32,
    /// Nanoseconds.
    pub ns: u64,
}

/// Parked time of a request at one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Park {
    /// The user stack of its unit.
    pub stack: StackId,
    /// As [`Away::place`].
    pub place: u32,
    /// How often.
    pub count: u32,
    /// Nanoseconds.
    pub ns: u64,
}

/// The place of a request that is parked where the profile gives no name.
pub const PARKED: u32 = MAX_PLACES as u32;

/// The place of a request that is queued where the profile gives no name.
pub const QUEUED: u32 = MAX_PLACES as u32 + 1;

/// An attribute of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Which one of its request type.
    pub index: u32,
    /// Its value.
    pub value: Value<'a>,
}

/// The value of an attribute, as the traced program had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number of 64 bits; whether it is signed, and what its values are called, says the profile.
    Number(u64),
    /// A text.
    Text {
        /// Its bytes, as far as they were read.
        bytes: &'a [u8],
        /// Whether it goes on.
        is_cut: bool,
    },
}

impl Request<'_> {
    /// Nanoseconds from begin to end.
    #[must_use]
    pub fn latency_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }

    /// Nanoseconds off the CPU, whatever the reason.
    #[must_use]
    pub fn off_cpu_ns(&self) -> u64 {
        self.run_queue_ns
            .saturating_add(self.preempted_ns)
            .saturating_add(self.blocked_ns)
            .saturating_add(self.unattributed_ns)
    }

    /// Nanoseconds in which no thread ran it: parked or queued.
    #[must_use]
    pub fn away_ns(&self) -> u64 {
        let ns = self.away.iter().map(|away| away.ns);
        ns.fold(0, u64::saturating_add)
    }

    /// Nanoseconds on a CPU: what closes the ledger.
    #[must_use]
    pub fn on_cpu_ns(&self) -> u64 {
        let off_cpu_ns = self.off_cpu_ns().saturating_add(self.away_ns());
        self.latency_ns().saturating_sub(off_cpu_ns)
    }
}

/// A request that was open when tracing stopped, as if it had ended then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// The request, but for its label, slots and longest blocks.
    pub request: Request<'static>,
    /// Its label.
    pub label: Vec<u8>,
    /// Its slots.
    pub slots: Vec<Slot>,
    /// Its longest blocks.
    pub longest: Vec<LongBlock>,
    /// Where it is blocked and since when, if it is.
    pub blocked_in: Option<BlockedIn>,
    /// Its time in which no thread ran it. Where it is parked or queued now, that is in it.
    pub away: Vec<Away>,
    /// Of its parked time what has a stack.
    pub parks: Vec<Park>,
    /// Where it is parked or queued and since when, if it is.
    pub away_in: Option<AwayIn>,
    /// Its attributes that are numbers.
    pub numbers: Vec<NumberOf>,
    /// Its attributes that are texts.
    pub texts: Vec<TextOf>,
}

/// Where an open request is blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedIn {
    /// Where.
    pub site: BlockSite,
    /// Since when, `CLOCK_MONOTONIC` ns.
    pub since_ns: u64,
}

/// Where an open request is parked or queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwayIn {
    /// As [`Away::place`].
    pub place: u32,
    /// Since when, `CLOCK_MONOTONIC` ns.
    pub since_ns: u64,
}

/// An attribute of an open request that is a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberOf {
    /// As [`Attribute::index`].
    pub index: u32,
    /// Its value.
    pub number: u64,
}

/// An attribute of an open request that is a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextOf {
    /// As [`Attribute::index`].
    pub index: u32,
    /// Its bytes, as far as they were read.
    pub bytes: Vec<u8>,
    /// Whether it goes on.
    pub is_cut: bool,
}

impl Open {
    /// The request with everything.
    #[must_use]
    pub fn request(&self) -> Request<'_> {
        Request {
            label: &self.label,
            slots: &self.slots,
            longest: &self.longest,
            away: &self.away,
            parks: &self.parks,
            ..self.request
        }
    }

    /// The attributes, which [`Open::request`] does not have.
    #[must_use]
    pub fn attributes(&self) -> Vec<Attribute<'_>> {
        let numbers = self.numbers.iter().map(|of| Attribute {
            index: of.index,
            value: Value::Number(of.number),
        });
        let texts = self.texts.iter().map(|text| Attribute {
            index: text.index,
            value: Value::Text {
                bytes: &text.bytes,
                is_cut: text.is_cut,
            },
        });
        numbers.chain(texts).collect()
    }
}

/// Why a request is incomplete.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Incomplete {
    /// Its end never came.
    NoEnd,
    /// Its thread died.
    ThreadDied,
    /// Its process called exec.
    Exec,
    /// It ran when tracing started.
    RunningAtStart,
    /// It ran when tracing stopped.
    RunningAtStop,
    /// It was blocked when tracing stopped.
    BlockedAtStop,
    /// It was parked or queued when tracing stopped.
    ParkedAtStop,
    /// More requests with keys were open than the tables hold, and it had been left for longest.
    NoRoom,
}

impl Incomplete {
    /// The reason with this number of [`reason`]; `None` for a complete request.
    ///
    /// # Errors
    ///
    /// The number, when it is no reason.
    pub fn of(number: u32) -> Result<Option<Self>, u32> {
        Ok(Some(match number {
            reason::COMPLETE => return Ok(None),
            reason::NO_END => Self::NoEnd,
            reason::THREAD_DIED => Self::ThreadDied,
            reason::EXEC => Self::Exec,
            reason::RUNNING_AT_START => Self::RunningAtStart,
            reason::RUNNING_AT_STOP => Self::RunningAtStop,
            reason::BLOCKED_AT_STOP => Self::BlockedAtStop,
            reason::PARKED_AT_STOP => Self::ParkedAtStop,
            reason::NO_ROOM => Self::NoRoom,
            other => return Err(other),
        }))
    }

    /// Its number; that of a complete request is [`reason::COMPLETE`].
    #[must_use]
    pub fn number(why: Option<Self>) -> u32 {
        match why {
            None => reason::COMPLETE,
            Some(Self::NoEnd) => reason::NO_END,
            Some(Self::ThreadDied) => reason::THREAD_DIED,
            Some(Self::Exec) => reason::EXEC,
            Some(Self::RunningAtStart) => reason::RUNNING_AT_START,
            Some(Self::RunningAtStop) => reason::RUNNING_AT_STOP,
            Some(Self::BlockedAtStop) => reason::BLOCKED_AT_STOP,
            Some(Self::ParkedAtStop) => reason::PARKED_AT_STOP,
            Some(Self::NoRoom) => reason::NO_ROOM,
        }
    }

    /// The word for it in the CSV's `reason` column.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoEnd => "no end",
            Self::ThreadDied => "thread died",
            Self::Exec => "exec",
            Self::RunningAtStart => "running at start",
            Self::RunningAtStop => "running at stop",
            Self::BlockedAtStop => "blocked at stop",
            Self::ParkedAtStop => "parked at stop",
            Self::NoRoom => "no room",
        }
    }
}
