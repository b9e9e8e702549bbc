//! Words of blame: root causes, and reasons why one is not known.

use serde::{Deserialize, Serialize};

/// What a nanosecond of blocked time ended in, in the order of the columns of `requests.csv`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[repr(usize)]
pub enum Cause {
    /// Somebody computed.
    OnCpu,
    /// Somebody was woken, and waited for a CPU.
    RunQueue,
    /// Somebody was runnable, and another thread had its CPU.
    Preempted,
    /// A block device.
    Disk,
    /// A time that had to pass.
    Timer,
    /// A packet that had to come.
    Network,
    /// An interrupt of none of these kinds.
    OtherInterrupt,
    /// A thread that serves requests, and was in none: it waited for its own client.
    BetweenRequests,
    /// Not known, see [`Reason`].
    #[default]
    Unknown,
}

impl Cause {
    /// How many there are.
    pub const COUNT: usize = 9;

    /// All, in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::OnCpu,
        Self::RunQueue,
        Self::Preempted,
        Self::Disk,
        Self::Timer,
        Self::Network,
        Self::OtherInterrupt,
        Self::BetweenRequests,
        Self::Unknown,
    ];

    /// In words, for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::OnCpu => "on CPU",
            Self::RunQueue => "run queue",
            Self::Preempted => "preempted",
            Self::Disk => "disk",
            Self::Timer => "timer",
            Self::Network => "network",
            Self::OtherInterrupt => "other interrupt",
            Self::BetweenRequests => "between requests",
            Self::Unknown => "not known",
        }
    }

    /// Its name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnCpu => "on_cpu",
            Self::RunQueue => "run_queue",
            Self::Preempted => "preempted",
            Self::Disk => "disk",
            Self::Timer => "timer",
            Self::Network => "network",
            Self::OtherInterrupt => "other_interrupt",
            Self::BetweenRequests => "between_requests",
            Self::Unknown => "unknown",
        }
    }
}

/// Why a root cause is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(usize)]
pub enum Reason {
    /// No wakeup was seen, or the kernel does not tell what ran.
    NoWakeup,
    /// An interrupt without a stack, or with one of no known name.
    InterruptNotNamed,
    /// A thread ended the wait of which nothing is known.
    WakerNotKnown,
    /// The waker is watched only since then: it had woken no request before.
    NotYetWatched,
    /// The waker's request is not in the trace: requests were sampled, or it ran when tracing started.
    NotRecorded,
    /// Intervals or requests of this time were lost, or the request is incomplete.
    Lost,
    /// It is so long ago that it was forgotten.
    Forgotten,
    /// More than [`super::MAX_DEPTH`] threads waited for each other.
    TooDeep,
    /// The request has more than [`super::MAX_PIECES`] pieces.
    TooMany,
    /// Nobody saw what a parked request went on with: the trace has no reads.
    SourceNotKnown,
    /// No read of a socket came before a parked request went on, or in it, of data that came meanwhile.
    NoRead,
    /// Data of several sockets came meanwhile, and nothing tells which of them it went on with.
    SeveralReads,
    /// Nobody saw who sent what it went on with.
    SenderNotSeen,
    /// TLS in the kernel, or another layer that reads by itself.
    LayeredSocket,
    /// A thread slept that waits for many things at once: what ended the sleep may be any of them.
    WaitsForMany,
    /// A task or a goroutine has made it ready that is no request: what that did before is not followed.
    NoRequest,
}

impl Reason {
    /// How many there are.
    pub const COUNT: usize = 16;

    /// All, in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::NoWakeup,
        Self::InterruptNotNamed,
        Self::WakerNotKnown,
        Self::NotYetWatched,
        Self::NotRecorded,
        Self::Lost,
        Self::Forgotten,
        Self::TooDeep,
        Self::TooMany,
        Self::SourceNotKnown,
        Self::NoRead,
        Self::SeveralReads,
        Self::SenderNotSeen,
        Self::LayeredSocket,
        Self::WaitsForMany,
        Self::NoRequest,
    ];

    /// Its name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoWakeup => "no_wakeup",
            Self::InterruptNotNamed => "interrupt_not_named",
            Self::WakerNotKnown => "waker_not_known",
            Self::NotYetWatched => "not_yet_watched",
            Self::NotRecorded => "not_recorded",
            Self::Lost => "lost",
            Self::Forgotten => "forgotten",
            Self::TooDeep => "too_deep",
            Self::TooMany => "too_many",
            Self::SourceNotKnown => "source_not_known",
            Self::NoRead => "no_read",
            Self::SeveralReads => "several_reads",
            Self::SenderNotSeen => "sender_not_seen",
            Self::LayeredSocket => "layered_socket",
            Self::WaitsForMany => "waits_for_many",
            Self::NoRequest => "no_request",
        }
    }

    /// In words, for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::NoWakeup => "no wakeup seen",
            Self::InterruptNotNamed => "interrupt not named",
            Self::WakerNotKnown => "waker not known",
            Self::NotYetWatched => "waker not yet watched",
            Self::NotRecorded => "waker's request not recorded",
            Self::Lost => "intervals lost",
            Self::Forgotten => "too long ago",
            Self::TooDeep => "chain too deep",
            Self::TooMany => "too many pieces",
            Self::SourceNotKnown => "what it went on with not recorded",
            Self::NoRead => "no read before it went on",
            Self::SeveralReads => "several reads before it went on",
            Self::SenderNotSeen => "sender not seen",
            Self::LayeredSocket => "TLS in the kernel",
            Self::WaitsForMany => "event loop slept",
            Self::NoRequest => "by a task or goroutine that is no request",
        }
    }
}

/// Nanoseconds by root cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Causes([u64; Cause::COUNT]);

impl Causes {
    /// Those of one cause.
    #[must_use]
    pub const fn get(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }

    /// Adds some.
    pub fn add(&mut self, cause: Cause, ns: u64) {
        self.0[cause as usize] += ns;
    }

    /// Adds those of requests that stand for so many.
    pub fn add_times(&mut self, other: &Self, weight: u64) {
        for (sum, ns) in self.0.iter_mut().zip(other.0) {
            *sum += ns * weight;
        }
    }

    /// All of them: blocked time.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }
}
