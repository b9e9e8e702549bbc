//! What the kernel has sent, by the second: its counters in, seconds of which all records have come out.

use aya::maps::PerCpuArray;
use reqtrace_common::sums::SentSums as KernelSent;
use reqtrace_recording::Sent;

use super::maps::{Maps, map_error};
use reqtrace_base::error::Result;

/// So long after a second its last record was sent and counted, ns: a thread that is preempted between the two may wait for a CPU
/// on a machine that is too full.
const MARGIN_NS: u64 = 2_000_000_000;
/// Seconds whose counters are of no second that goes on: behind these come two that may still be counted, and the present.
const READ_AT_ONCE: u64 = Sent::SECONDS - 4;

/// What was read so far.
#[derive(Debug)]
pub(super) struct Seconds {
    /// The first that was not read.
    next: u64,
    /// By counter.
    before: [KernelSent; Sent::SECONDS as usize],
    /// By counter: what came past the ring, so that the kernel has not counted it. Never set back either.
    ours: [KernelSent; Sent::SECONDS as usize],
}

fn plus(one: KernelSent, other: KernelSent) -> KernelSent {
    KernelSent {
        requests: one.requests + other.requests,
        latency_ns: one.latency_ns.wrapping_add(other.latency_ns),
    }
}

impl Seconds {
    /// Begins at this time, `CLOCK_MONOTONIC` ns.
    pub(super) fn new(start_ns: u64) -> Self {
        Self {
            next: Sent::second_of(start_ns),
            before: [KernelSent::default(); Sent::SECONDS as usize],
            ours: [KernelSent::default(); Sent::SECONDS as usize],
        }
    }

    /// A record is sent that did not come through the ring: when its request ended, `CLOCK_MONOTONIC` ns, and its latency, ns.
    pub(super) fn sent_by_us(&mut self, end_ns: u64, latency_ns: u64) {
        let ours = &mut self.ours[(Sent::second_of(end_ns) % Sent::SECONDS) as usize];
        let one = KernelSent {
            requests: 1,
            latency_ns,
        };
        *ours = plus(*ours, one);
    }

    /// The seconds that are over, when all records of before `taken_ns` were taken. With `all` nothing comes any more, and
    /// the last second is among them.
    pub(super) fn take(&mut self, maps: &Maps, taken_ns: u64, all: bool) -> Result<Vec<Sent>> {
        let until = match all {
            true => Sent::second_of(taken_ns) + 1,
            false => Sent::second_of(taken_ns.saturating_sub(MARGIN_NS)),
        };
        let seconds = self.due(until);
        if seconds.is_empty() {
            return Ok(Vec::new());
        }
        let sent: PerCpuArray<_, KernelSent> =
            PerCpuArray::try_from(maps.map("SENT")?).map_err(map_error)?;
        let read = seconds.map(|second| {
            let counter = second % Sent::SECONDS;
            let of_cpus = sent.get(&(counter as u32), 0).map_err(map_error)?;
            let by_kernel = of_cpus.iter().copied().fold(KernelSent::default(), plus);
            Ok(self.read(second, by_kernel))
        });
        read.collect()
    }

    /// The seconds before this one whose counters are to be read. Earlier ones share theirs with these or with later ones.
    fn due(&mut self, until: u64) -> std::ops::Range<u64> {
        let from = self.next.max(until.saturating_sub(READ_AT_ONCE));
        self.next = self.next.max(until);
        from..until
    }

    fn read(&mut self, second: u64, by_kernel: KernelSent) -> Sent {
        let counter = (second % Sent::SECONDS) as usize;
        let now = plus(by_kernel, self.ours[counter]);
        let before = std::mem::replace(&mut self.before[counter], now);
        Sent {
            second,
            requests: now.requests - before.requests,
            latency_ns: now.latency_ns.wrapping_sub(before.latency_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_is_read_once_and_those_that_a_stopped_tracer_missed_with_later_ones() {
        let mut seconds = Seconds::new(100 * 1_000_000_000 + 5);
        assert_eq!(seconds.due(100), 100..100);
        assert_eq!(seconds.due(103), 100..103);
        assert_eq!(seconds.due(103), 103..103);
        // Stopped for a minute. What goes on is second 166, and 164 and 165 may still be counted.
        let read = seconds.due(164);
        assert_eq!(read, 152..164);
        let goes_on = |second| (164..=166).any(|other| second % 16 == other % 16);
        assert!(!read.clone().any(goes_on));
        assert_eq!(seconds.due(165), 164..165);
    }

    fn by_kernel(requests: u64, latency_ns: u64) -> KernelSent {
        KernelSent {
            requests,
            latency_ns,
        }
    }

    #[test]
    fn what_is_new_in_a_counter_is_sent() {
        let mut seconds = Seconds::new(0);
        let first = seconds.read(3, by_kernel(5, 50));
        assert_eq!((first.second, first.requests, first.latency_ns), (3, 5, 50));
        let second = seconds.read(19, by_kernel(7, 90));
        assert_eq!(
            (second.second, second.requests, second.latency_ns),
            (19, 2, 40)
        );
    }

    #[test]
    fn what_came_past_the_ring_counts_with_what_the_kernel_has_sent() {
        let mut seconds = Seconds::new(0);
        let read = |seconds: &mut Seconds, second, requests, latency_ns| {
            let sent = seconds.read(second, by_kernel(requests, latency_ns));
            (sent.requests, sent.latency_ns)
        };
        seconds.sent_by_us(3_999_999_999, 30);
        assert_eq!(read(&mut seconds, 3, 5, 50), (6, 80));
        assert_eq!(read(&mut seconds, 4, 0, 0), (0, 0));
        // One of a second that was read comes with the next second of that counter.
        seconds.sent_by_us(3_000_000_000, 7);
        assert_eq!(read(&mut seconds, 19, 7, 90), (3, 47));
        assert_eq!(read(&mut seconds, 35, 7, 90), (0, 0));
    }
}
