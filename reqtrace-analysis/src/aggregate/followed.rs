//! Requests that end when the next one comes: complete requests of one type with a key in; whether their end is
//! mostly the begin of another out.
//!
//! Such an end is marked where the server finds the next request of a connection, so that the time in which its client
//! had nothing to ask counts as latency.

use std::collections::VecDeque;

use reqtrace_recording::Request;

/// A begin so long after an end, ns, is one step of a thread: two traps and some instructions.
const AT_ONCE: u64 = 50_000;
/// And it is so many times shorter than what ended: short requests follow each other as closely.
const SHORTER: u64 = 40;
/// Ends that are remembered: as many requests end while another one runs.
const REMEMBERED: usize = 4096;
/// Ends before a begin that are looked at: those of other threads come in between.
const LOOKED_AT: usize = 16;
/// Requests from which on a share says something.
const FEWEST: u64 = 10;
/// Of so many requests in a hundred the begin followed an end.
const MOST: u64 = 90;

/// A request that ended.
#[derive(Clone, Copy, Debug)]
struct End {
    end_ns: u64,
    latency_ns: u64,
    tid: u32,
}

/// The ends of the requests of one type, the latest last.
#[derive(Debug, Default)]
pub(super) struct Followed {
    ends: VecDeque<End>,
    seen: u64,
    followed: u64,
}

impl Followed {
    /// Takes a complete request.
    pub(super) fn add(&mut self, request: &Request<'_>) {
        let (tid, begin_ns) = (request.tid, request.begin_ns);
        self.seen += 1;
        // They come nearly in the order of their ends.
        let before = self
            .ends
            .partition_point(|before| before.end_ns <= begin_ns);
        let mut just_before = self.ends.range(before.saturating_sub(LOOKED_AT)..before);
        let is_followed = just_before.any(|before| {
            let gap_ns = begin_ns.saturating_sub(before.end_ns);
            before.tid == tid && gap_ns <= AT_ONCE && gap_ns <= before.latency_ns / SHORTER
        });
        self.followed += u64::from(is_followed);
        if self.ends.len() == REMEMBERED {
            self.ends.pop_front();
        }
        self.ends.push_back(End {
            end_ns: request.end_ns,
            latency_ns: request.end_ns.saturating_sub(begin_ns),
            tid,
        });
    }

    /// Whether nearly every begin came at once after an end of the same thread.
    pub(super) fn is_most(&self) -> bool {
        self.seen >= FEWEST && self.followed * 100 >= self.seen * MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(turn_ns: u64, gap_ns: u64, connections: u64) -> Followed {
        let mut followed = Followed::default();
        for turn in 0..100 {
            for connection in 0..connections {
                let begin_ns = 1_000_000_000 + turn * turn_ns + connection * 400_000;
                followed.add(&Request {
                    tid: 7,
                    begin_ns,
                    end_ns: begin_ns + turn_ns - gap_ns,
                    ..Request::default()
                });
            }
        }
        followed
    }

    #[test]
    fn a_begin_right_after_an_end_is_one_of_many_or_an_accident() {
        for connections in [1, 20] {
            assert!(run(51_000_000, 5_000, connections).is_most());
            assert!(!run(51_000_000, 150_000, connections).is_most());
        }
        // One short request after the other.
        assert!(!run(80_000, 5_000, 1).is_most());
        assert!(!Followed::default().is_most());
    }
}
