//! Intervals: when a thread was off the CPU, and who ended it.

use std::net::SocketAddr;

use reqtrace_common::record::{STACK_NONE, StackId, waker_context, waker_is};
use serde::{Deserialize, Serialize};

use super::{AddressSpace, BlockSite};

/// A thread was off the CPU: one in a request, or a helper, which is a thread in no request that has woken
/// one. Only traces with blame have them, and then all of them.
///
/// Intervals of one thread come in order. They come when they are over, before the request that they
/// are in, and before the end of an interval that their thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The process.
    pub space: AddressSpace,
    /// The thread.
    pub tid: u32,
    /// Counts the intervals of this thread, wrapping: where numbers are missing, intervals were lost.
    pub sequence: u32,
    /// The request that the thread was in; `None` for a helper.
    pub request: Option<RequestOf>,
    /// Where; without stacks for a preemption and for a helper.
    pub site: BlockSite,
    /// When the thread left its CPU, `CLOCK_MONOTONIC` ns.
    pub out_ns: u64,
    /// What it was.
    pub kind: IntervalKind,
    /// When it had a CPU again, `CLOCK_MONOTONIC` ns.
    pub in_ns: u64,
    /// Address of the futex that it waited on; 0 for other waits.
    pub futex: u64,
    /// Who held the lock behind that futex when the wait began.
    pub holder: Holder,
    /// Where its waker was when it ended the wait: a thread of a traced process that ran on its own behalf.
    pub woken_from: Option<WokenFrom>,
}

/// What a futex lies in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Futex {
    /// The process.
    pub space: AddressSpace,
    /// Its address.
    pub address: u64,
    /// A variable, a file and a place in it, or a kind of memory: `libc.so.6 main_arena`, `shop+0x4040`,
    /// `/dev/shm/cache@0x40`, `[heap]`, `anonymous memory`.
    pub lies_in: String,
}

/// Where a thread was when it woke another.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct WokenFrom {
    /// Its process.
    pub space: AddressSpace,
    /// Its user stack.
    pub user_stack: StackId,
}

/// Who holds a lock. It is not always who wakes: a lock may be given back to another first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub enum Holder {
    /// It was no wait on a futex.
    #[default]
    NoFutex,
    /// This thread of the same process, in the initial PID namespace.
    Thread(u32),
    /// It is no lock that says who holds it: a condition variable, a semaphore, or a lock that is not
    /// glibc's.
    NotTold,
    /// The lock changed hands just then.
    Changing,
    /// The memory could not be read.
    Unreadable,
    /// It names a thread that the process does not have.
    NoThread,
}

/// A request by what the kernel knows of it while it runs: with its thread, this is unique.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct RequestOf {
    /// When it began, `CLOCK_MONOTONIC` ns.
    pub begin_ns: u64,
    /// Index of its type in the profile.
    pub request_type: u32,
}

/// A request of a type with a key was parked or queued, and is no more. Only traces with blame have these.
///
/// It comes before the request, and before the intervals of the thread that went on with it. Among requests
/// of types with a key [`RequestOf::begin_ns`] is unique in a process, whatever thread they run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwayInterval {
    /// The process.
    pub space: AddressSpace,
    /// The request.
    pub request: RequestOf,
    /// The thread that ran it before.
    pub from_tid: u32,
    /// The place; see [`super::Away::place`].
    pub place: u32,
    /// Whether it was queued: ready, and waiting for a thread.
    pub is_queued: bool,
    /// Since when, `CLOCK_MONOTONIC` ns.
    pub since_ns: u64,
    /// Until when, `CLOCK_MONOTONIC` ns.
    pub until_ns: u64,
    /// The thread that ended it: the one that goes on with the request, or that has made it ready, or that has
    /// ended it.
    pub by_tid: u32,
    /// The request that this thread was in then.
    pub by_request: Option<RequestOf>,
    /// That thread has made it ready.
    pub is_ready: bool,
    /// Where it was then.
    pub woken_from: Option<WokenFrom>,
    /// Since when the intervals of that thread are recorded although it runs no request, `CLOCK_MONOTONIC` ns; 0: they are not.
    pub by_helper_since_ns: u64,
    /// That thread goes on with it.
    pub goes_on: bool,
    /// The request that this thread ran last and left, if it goes on with this one, which was queued.
    pub ran: Option<RequestOf>,
    /// When it left that, `CLOCK_MONOTONIC` ns.
    pub ran_until_ns: u64,
}

/// What a parked request went on with. It comes after the [`AwayInterval`] that it is about, and before the
/// request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The process of the request.
    pub space: AddressSpace,
    /// The request.
    pub request: RequestOf,
    /// [`AwayInterval::until_ns`].
    pub until_ns: u64,
    /// When the data came, `CLOCK_MONOTONIC` ns; 0: it is not known.
    pub arrived_ns: u64,
    /// Who sent it.
    pub sender: Sender,
    /// When the sender had sent it, if that was before it came, `CLOCK_MONOTONIC` ns; 0: it came while it was
    /// being sent, or that is not known.
    pub sent_ns: u64,
}

/// Who sent what a parked request went on with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sender {
    /// It went on without a read of data that had come meanwhile.
    #[default]
    NoRead,
    /// Data of several sockets was read, and nothing tells which of them it went on with.
    SeveralReads,
    /// Data was read, and nobody saw who sent it.
    NotSeen,
    /// Data was read from a socket with a layer of its own: TLS in the kernel, for example.
    LayeredSocket,
    /// This thread.
    Thread {
        /// Its process.
        tgid: u32,
        /// The thread.
        tid: u32,
        /// What it was doing.
        is: WakerIs,
    },
    /// Another machine.
    Peer(SocketAddr),
}

/// What an interval was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalKind {
    /// Switched out while runnable, until it had a CPU again.
    Preempted,
    /// It waited until it was woken, and then for a CPU.
    Blocked {
        /// When it was woken, `CLOCK_MONOTONIC` ns; `out_ns` when it was woken before it had left its
        /// CPU.
        wake_ns: u64,
        /// Who woke it.
        waker: Waker,
    },
}

/// Who woke a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waker {
    /// What ran when the thread was woken.
    pub context: WakerContext,
    /// What the thread was doing that ran then, or that the interrupt came upon.
    pub is: WakerIs,
    /// That thread; 0 when it is not known, or the CPU was idle.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// Kernel stack, where the context is unclear; otherwise [`STACK_NONE`].
    pub stack: StackId,
}

/// What ran when a thread was woken.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub enum WakerContext {
    /// No wakeup was seen, or the kernel does not tell what ran.
    #[default]
    Unknown,
    /// The thread itself, in a system call.
    Task,
    /// An interrupt that came upon the thread, or the thread itself, in an exception or through a softirq
    /// that it runs, as for what it sends to its own machine: the kernel stack tells.
    Unclear,
    /// As [`Self::Unclear`]; but if that was by a segment of TCP, the thread has not sent it: it took it out of
    /// a queue.
    Delivers,
}

/// What a waker was doing.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub enum WakerIs {
    /// Not known.
    #[default]
    Unknown,
    /// It served this request.
    InRequest(RequestOf),
    /// It has served a request before, and was in none.
    BetweenRequests,
    /// It has served no request. All of its intervals are recorded from this time on,
    /// `CLOCK_MONOTONIC` ns.
    Helper(u64),
    /// It served a request that is not recorded, because requests were sampled.
    NotRecorded,
}

impl Waker {
    /// The waker with these numbers of [`waker_context`] and [`waker_is`]. `since_ns` is the begin of its
    /// request, or since when it is a helper.
    ///
    /// # Errors
    ///
    /// The number that is none.
    pub fn of(
        context: u32,
        is: u32,
        since_ns: u64,
        request_type: u32,
    ) -> Result<(WakerContext, WakerIs), u32> {
        let context = match context {
            waker_context::UNKNOWN => WakerContext::Unknown,
            waker_context::TASK => WakerContext::Task,
            waker_context::UNCLEAR => WakerContext::Unclear,
            waker_context::DELIVERS => WakerContext::Delivers,
            other => return Err(other),
        };
        let is = match is {
            waker_is::UNKNOWN => WakerIs::Unknown,
            waker_is::IN_REQUEST => WakerIs::InRequest(RequestOf {
                begin_ns: since_ns,
                request_type,
            }),
            waker_is::BETWEEN_REQUESTS => WakerIs::BetweenRequests,
            waker_is::HELPER => WakerIs::Helper(since_ns),
            waker_is::NOT_RECORDED => WakerIs::NotRecorded,
            other => return Err(other),
        };
        Ok((context, is))
    }

    /// Nobody, as far as was seen.
    pub const UNKNOWN: Self = Self {
        context: WakerContext::Unknown,
        is: WakerIs::Unknown,
        tid: 0,
        tgid: 0,
        stack: STACK_NONE,
    };
}

impl Interval {
    /// When it was over as a wait: a blocked thread when it was woken, a preempted one when it had a CPU.
    #[must_use]
    pub fn until_ns(&self) -> u64 {
        match self.kind {
            IntervalKind::Preempted => self.in_ns,
            IntervalKind::Blocked { wake_ns, .. } => wake_ns,
        }
    }

    /// Nanoseconds blocked; 0 for a preemption.
    #[must_use]
    pub fn blocked_ns(&self) -> u64 {
        match self.kind {
            IntervalKind::Preempted => 0,
            IntervalKind::Blocked { wake_ns, .. } => wake_ns.saturating_sub(self.out_ns),
        }
    }
}
