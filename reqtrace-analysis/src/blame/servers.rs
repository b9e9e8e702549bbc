//! Processes that serve requests of the trace: requests, and when processes began and left, in; whether a process was one of them
//! at a time, out.
//!
//! A server may fork for each connection, and the number of one that has left is given again. So those that have left are kept for a
//! while: their requests come later, as do waits for the CPUs that they had.

use std::collections::BTreeSet;

use reqtrace_recording::{Process, ProcessChange};
use rustc_hash::FxHashMap;

/// Processes that are known: some 2 MB. The one that left longest ago goes.
const MAX_PROCESSES: usize = 1 << 15;
/// A process that has left still frees its memory; its number is not given again so soon.
const LEAVES_NS: u64 = 1_000_000_000;
/// When one leaves that has not.
const NEVER: u64 = u64::MAX;

/// What is known of a process.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Whether it has served a request: of one that leaves soon that is known after it has left.
    serves: bool,
    /// When it left, `CLOCK_MONOTONIC` ns.
    left_ns: u64,
}

/// All processes that are known.
#[derive(Debug, Default)]
pub(super) struct Servers {
    known: FxHashMap<u32, Known>,
    /// Those that have left, with when.
    left: BTreeSet<(u64, u32)>,
}

impl Servers {
    /// Takes a change of a process.
    pub(super) fn change(&mut self, process: &Process) {
        let pid = process.space.tgid;
        match process.change {
            ProcessChange::Start | ProcessChange::Fork => self.begins(pid),
            ProcessChange::Exit => self.leaves(pid, process.time_ns),
            ProcessChange::Exec => {}
        }
    }

    /// A process has served a request that began then.
    pub(super) fn serves(&mut self, pid: u32, begin_ns: u64) {
        let Some(known) = self.known.get_mut(&pid) else {
            let known = Known {
                serves: true,
                left_ns: NEVER,
            };
            return self.insert(pid, known);
        };
        known.serves = true;
        // Only its leader had left, or no record came of the one that has its number now.
        if begin_ns > known.left_ns {
            self.left.remove(&(known.left_ns, pid));
            known.left_ns = NEVER;
        }
    }

    /// Whether a process was one that serves requests at that time.
    pub(super) fn has(&self, pid: u32, at_ns: u64) -> bool {
        let known = self.known.get(&pid).filter(|known| known.serves);
        known.is_some_and(|known| at_ns <= known.left_ns.saturating_add(LEAVES_NS))
    }

    /// Another process may have that number. One that is not known to have left is this one: its first request came before.
    fn begins(&mut self, pid: u32) {
        let has_left = |known: &Known| known.left_ns != NEVER;
        if self.known.get(&pid).is_some_and(has_left) {
            self.forget(pid);
        }
    }

    fn leaves(&mut self, pid: u32, left_ns: u64) {
        let serves = self.forget(pid).is_some_and(|known| known.serves);
        self.insert(pid, Known { serves, left_ns });
    }

    fn forget(&mut self, pid: u32) -> Option<Known> {
        let known = self.known.remove(&pid)?;
        self.left.remove(&(known.left_ns, pid));
        Some(known)
    }

    /// Adds one that is not known. While none of too many has left there is no room.
    fn insert(&mut self, pid: u32, known: Known) {
        if self.known.len() >= MAX_PROCESSES {
            let Some((_, gone)) = self.left.pop_first() else {
                return;
            };
            self.known.remove(&gone);
        }
        if known.left_ns != NEVER {
            self.left.insert((known.left_ns, pid));
        }
        self.known.insert(pid, known);
    }
}

#[cfg(test)]
mod tests {
    use reqtrace_recording::{AddressSpace, Request, Runner};

    use super::*;
    use crate::blame::tests::Recorded;
    use crate::blame::{Taker, Timelines};
    use crate::report::TakerKind;

    const SECOND_NS: u64 = 1_000_000_000;

    fn space(pid: u32) -> AddressSpace {
        AddressSpace {
            tgid: pid,
            exec_generation: 0,
        }
    }

    fn change(timelines: &mut Timelines, pid: u32, change: ProcessChange, second: u64) {
        timelines.process(&Process {
            space: space(pid),
            change,
            time_ns: second * SECOND_NS,
            ..Process::default()
        });
    }

    /// A request of half a second.
    fn request(timelines: &mut Timelines, pid: u32, second: u64) {
        let begin_ns = second * SECOND_NS;
        timelines.request(&Request {
            space: space(pid),
            tid: pid,
            begin_ns,
            end_ns: begin_ns + SECOND_NS / 2,
            weight: 1,
            ..Request::default()
        });
    }

    /// What a process is that has a CPU then.
    fn kind(timelines: &Timelines, pid: u32, second: u64) -> TakerKind {
        let runner = Runner {
            tgid: pid,
            ..Runner::default()
        };
        timelines.kind_of(Taker::Runner(&runner), second * SECOND_NS)
    }

    #[test]
    fn processes_of_connections_are_the_service_however_many_there_were() {
        let mut timelines = Recorded::new().timelines;
        request(&mut timelines, 1, 1);
        let last = 2 * MAX_PROCESSES as u32;
        for pid in 2..=last {
            let second = u64::from(pid);
            change(&mut timelines, pid, ProcessChange::Fork, second);
            // A record may come later than the word that its process has left.
            let is_late = pid.is_multiple_of(2);
            if !is_late {
                request(&mut timelines, pid, second);
            }
            change(&mut timelines, pid, ProcessChange::Exit, second + 1);
            if is_late {
                request(&mut timelines, pid, second);
            }
            assert_eq!(kind(&timelines, pid, second), TakerKind::Service, "{pid}");
        }
        let servers = timelines.servers();
        assert_eq!(servers.known.len(), MAX_PROCESSES);
        assert_eq!(servers.left.len(), MAX_PROCESSES - 1);
        let end = u64::from(last) + 10;
        assert_eq!(kind(&timelines, 1, end), TakerKind::Service);
        assert_eq!(kind(&timelines, last, end), TakerKind::Process);
    }

    #[test]
    fn a_number_that_is_given_again_is_another_process() {
        let mut timelines = Recorded::new().timelines;
        request(&mut timelines, 7, 1);
        change(&mut timelines, 7, ProcessChange::Exit, 2);
        assert_eq!(kind(&timelines, 7, 1), TakerKind::Service);
        assert_eq!(kind(&timelines, 7, 10), TakerKind::Process);
        change(&mut timelines, 7, ProcessChange::Fork, 20);
        assert_eq!(kind(&timelines, 7, 21), TakerKind::Process);
        request(&mut timelines, 7, 22);
        assert_eq!(kind(&timelines, 7, 23), TakerKind::Service);
    }

    #[test]
    fn a_process_whose_leader_alone_has_left_goes_on() {
        let mut timelines = Recorded::new().timelines;
        request(&mut timelines, 7, 1);
        change(&mut timelines, 7, ProcessChange::Exit, 2);
        request(&mut timelines, 7, 5);
        assert_eq!(kind(&timelines, 7, 10), TakerKind::Service);
        assert!(timelines.servers().left.is_empty());
    }
}
