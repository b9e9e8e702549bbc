//! The patterns: what a piece of a request's time is in; which class it speaks for out. A table, no code: each pattern has
//! what fits it, whom it names, and what refutes it although it fits.

use std::sync::LazyLock;

use crate::blame::{Cause, Outcome};
use crate::report::TakerKind;
use crate::report::blame::CulpritKind;
use crate::report::verdict::Class;

/// A part of the latency of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// The request's own, off no chain.
    OnCpu,
    RunQueue,
    Preempted,
    Queued,
    /// Of run queues and preemptions, its own or of whoever it waited for: what had the CPU.
    Taken(TakerKind),
    /// Blocked or parked, and what that ended in.
    Ended(Cause, CulpritKind),
}

/// Patterns are judged together when they are the same incident in several states: a connection holds a lock while it
/// works, and while it idles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Held,
    Cpu,
    Disk,
    Network,
    Timer,
    OnCpu,
    Queued,
    Interrupt,
    NotKnown,
}

/// Whom a pattern names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// The thread whose time it was: without one that has enough of it there is no verdict.
    Thread,
    /// Another machine, if it is known.
    Peer,
    /// A process or a cgroup, if one has enough of it; otherwise it is as if nobody knew who had the CPU.
    Taker,
    /// Nobody: the events have no more.
    Nobody,
}

/// What refutes a pattern that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refuted {
    /// All slow requests together have so little of the time of their type that it is the tail of a healthy service.
    ByItsWeight,
    /// There are slow requests all the time, and without a period: it is the load, not an incident.
    AllTheTime,
    /// The longest wait of an episode is about as long as a few others' turns: that is how a CPU is shared.
    ByShortTurns,
    /// They have so little of the time of their type, come without a period, and who took the CPU has no real-time
    /// priority: on a busy machine somebody always runs first.
    ByItsTurn,
}

/// One line of the table.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) class: Class,
    pub(super) family: Family,
    fits: &'static [Fits],
    pub(super) names: Names,
    pub(super) refuted: &'static [Refuted],
}

/// Times that fit.
#[derive(Debug)]
enum Fits {
    This(Time),
    /// A wait that ended in one of these causes, by one of these.
    Ended(&'static [Cause], &'static [CulpritKind]),
}

use Cause::{
    BetweenRequests, Disk, Network, OnCpu, OtherInterrupt, Preempted, RunQueue, Timer, Unknown,
};
use CulpritKind::{Interrupt, Itself, Others, Peer, Request, Thread, Unknown as Nobody};

const ANYBODY: &[CulpritKind] = &[Interrupt, Itself, Request, Thread, Peer, Nobody, Others];
const NOT_ANOTHER: &[CulpritKind] = &[Interrupt, Itself, Nobody, Others, Peer];

/// Of patterns that name nobody who could be stopped.
const TAIL_OR_LOAD: &[Refuted] = &[Refuted::ByItsWeight, Refuted::AllTheTime];

/// How many patterns there are.
pub(super) const COUNT: usize = 13;

/// Nanoseconds by pattern.
pub(super) type Times = [u64; COUNT];

/// All. A time fits exactly one.
pub(super) const PATTERNS: [Pattern; COUNT] = [
    Pattern {
        class: Class::HeldBetweenRequests,
        family: Family::Held,
        fits: &[Fits::Ended(&[BetweenRequests], ANYBODY)],
        names: Names::Thread,
        refuted: &[],
    },
    Pattern {
        class: Class::HeldByRequest,
        family: Family::Held,
        fits: &[Fits::Ended(&[OnCpu, Timer, OtherInterrupt], &[Request])],
        names: Names::Thread,
        refuted: &[],
    },
    Pattern {
        class: Class::HeldByThread,
        family: Family::Held,
        fits: &[Fits::Ended(&[OnCpu, Timer, OtherInterrupt], &[Thread])],
        names: Names::Thread,
        refuted: &[],
    },
    Pattern {
        class: Class::WaitsForCpu,
        family: Family::Cpu,
        fits: &[
            Fits::This(Time::RunQueue),
            Fits::This(Time::Preempted),
            Fits::This(Time::Taken(TakerKind::Service)),
            Fits::This(Time::Taken(TakerKind::Idle)),
            Fits::This(Time::Taken(TakerKind::Others)),
            Fits::Ended(&[RunQueue, Preempted], ANYBODY),
        ],
        names: Names::Nobody,
        refuted: &[
            Refuted::ByItsWeight,
            Refuted::AllTheTime,
            Refuted::ByShortTurns,
        ],
    },
    Pattern {
        class: Class::CpuTaken,
        family: Family::Cpu,
        fits: &[Fits::This(Time::Taken(TakerKind::Process))],
        names: Names::Taker,
        refuted: &[Refuted::ByItsTurn],
    },
    Pattern {
        class: Class::CpuLimited,
        family: Family::Cpu,
        fits: &[Fits::This(Time::Taken(TakerKind::Limit))],
        names: Names::Taker,
        refuted: &[],
    },
    Pattern {
        class: Class::Disk,
        family: Family::Disk,
        fits: &[Fits::Ended(&[Disk], ANYBODY)],
        names: Names::Nobody,
        refuted: TAIL_OR_LOAD,
    },
    Pattern {
        class: Class::Network,
        family: Family::Network,
        fits: &[Fits::Ended(&[Network], ANYBODY)],
        names: Names::Peer,
        refuted: TAIL_OR_LOAD,
    },
    Pattern {
        class: Class::Timer,
        family: Family::Timer,
        fits: &[Fits::Ended(&[Timer], NOT_ANOTHER)],
        names: Names::Nobody,
        refuted: TAIL_OR_LOAD,
    },
    Pattern {
        class: Class::OnCpu,
        family: Family::OnCpu,
        fits: &[Fits::This(Time::OnCpu), Fits::Ended(&[OnCpu], NOT_ANOTHER)],
        names: Names::Nobody,
        refuted: TAIL_OR_LOAD,
    },
    Pattern {
        class: Class::Queued,
        family: Family::Queued,
        fits: &[Fits::This(Time::Queued)],
        names: Names::Nobody,
        refuted: TAIL_OR_LOAD,
    },
    Pattern {
        class: Class::OtherInterrupt,
        family: Family::Interrupt,
        fits: &[Fits::Ended(&[OtherInterrupt], NOT_ANOTHER)],
        names: Names::Nobody,
        refuted: TAIL_OR_LOAD,
    },
    Pattern {
        class: Class::NotKnown,
        family: Family::NotKnown,
        fits: &[Fits::Ended(&[Unknown], ANYBODY)],
        names: Names::Nobody,
        refuted: &[],
    },
];

/// How many times there are.
const TIMES: usize = OWN + Cause::ALL.len() * ANYBODY.len();

/// How many of them are no end of a wait.
const OWN: usize = 4 + TakerKind::COUNT;

/// What waits for CPUs are where nothing says who had them.
pub(super) static WAITS_FOR_CPU: LazyLock<usize> = LazyLock::new(|| of(Time::RunQueue));

/// The last pattern.
pub(super) const NOT_KNOWN: usize = COUNT - 1;

impl Pattern {
    fn has(&self, time: Time) -> bool {
        self.fits.iter().any(|fits| match fits {
            Fits::This(this) => *this == time,
            Fits::Ended(causes, kinds) => {
                matches!(time, Time::Ended(cause, kind) if causes.contains(&cause) && kinds.contains(&kind))
            }
        })
    }
}

/// Each time once.
fn all() -> impl Iterator<Item = Time> {
    let kinds = |cause| ANYBODY.iter().map(move |&kind| Time::Ended(cause, kind));
    let ended = Cause::ALL.into_iter().flat_map(kinds);
    let taken = TakerKind::ALL.into_iter().map(Time::Taken);
    [Time::OnCpu, Time::RunQueue, Time::Preempted, Time::Queued]
        .into_iter()
        .chain(taken)
        .chain(ended)
}

impl Time {
    /// Its place in a table of all times.
    fn index(self) -> usize {
        match self {
            Self::OnCpu => 0,
            Self::RunQueue => 1,
            Self::Preempted => 2,
            Self::Queued => 3,
            Self::Taken(kind) => 4 + kind as usize,
            Self::Ended(cause, kind) => OWN + cause as usize * ANYBODY.len() + kind as usize,
        }
    }
}

/// The number of the pattern that a time fits: looked up, as it is asked of each piece of each wait.
pub(super) fn of(time: Time) -> usize {
    static TABLE: LazyLock<[u8; TIMES]> = LazyLock::new(|| {
        let mut table = [NOT_KNOWN as u8; TIMES];
        for time in all() {
            let fitting = PATTERNS.iter().position(|pattern| pattern.has(time));
            table[time.index()] = fitting.unwrap_or(NOT_KNOWN) as u8;
        }
        table
    });
    TABLE[time.index()].into()
}

/// The same of a piece of a wait.
pub(super) fn of_piece(outcome: &Outcome) -> usize {
    of(Time::Ended(outcome.cause, outcome.culprit.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_fits_exactly_one_pattern() {
        let mut indices: Vec<usize> = all().map(Time::index).collect();
        indices.sort_unstable();
        assert_eq!(indices, (0..TIMES).collect::<Vec<_>>());
        for time in all() {
            let fitting = PATTERNS.iter().filter(|pattern| pattern.has(time));
            assert_eq!(fitting.count(), 1, "{time:?}");
            assert!(PATTERNS[of(time)].has(time), "{time:?}");
        }
        assert_eq!(PATTERNS[NOT_KNOWN].class, Class::NotKnown);
    }
}
