//! What the kernel has counted, and what has come of it: totals, seconds and records in, what nobody accounts for out.
//!
//! The kernel counts each complete request before it sends its record, or withholds it. So what it has sent has come, or is
//! counted as lost; and when all records have come, their latencies add up to the nanosecond. What it has sent it counts by the
//! second of the end too: so it shows when something went wrong, also where two faults add up to none.

use std::collections::BTreeMap;

use reqtrace_recording::{Header, Request, Sent, TypeTotals};

use super::types::Arrived;

/// Seconds that wait for what the kernel has sent in them; that comes a few seconds later.
const MAX_SECONDS: usize = 4 * Sent::SECONDS as usize;

/// All types.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// Complete requests whose records have not come.
    missing: u64,
    /// What the latencies differ in of types whose records have all come.
    ns: u64,
}

impl Counted {
    /// Adds one type.
    pub(super) fn add(&mut self, totals: &TypeTotals, arrived: &Arrived) {
        let sent = totals.sent();
        self.missing += sent.saturating_sub(arrived.rows);
        // Where a record stands for more than the kernel has added up of it, the sums differ.
        if totals.recorded() == arrived.rows && totals.count == arrived.complete.weight {
            let latency_ns = arrived.complete.ledger.latency_ns;
            self.ns += totals.latency_ns.abs_diff(latency_ns);
        }
    }

    /// Requests that are neither there nor among so many lost ones, and nanoseconds that should not differ.
    pub(super) fn unaccounted(self, lost: u64) -> (u64, u64) {
        (self.missing.saturating_sub(lost), self.ns)
    }
}

/// Seconds by what was sent in them and what has come.
#[derive(Debug)]
pub(super) struct Seconds {
    /// From here on all records are seen: a later file of a trace may begin in the middle of a second, and what ended some
    /// milliseconds after its begin is still in the file before.
    from: u64,
    /// What has come of seconds that are not checked yet: records, and Σ of their latencies.
    arrived: BTreeMap<u64, (u64, u64)>,
    /// How many were checked.
    pub(super) checked: u64,
    /// Of these, those where what was sent is not what has come.
    differing: u64,
    /// Records by which they differ.
    missing: u64,
}

impl Seconds {
    pub(super) fn new(header: &Header) -> Self {
        let first = Sent::second_of(header.start_ns);
        Self {
            from: if header.part.number > 1 { first + 2 } else { 0 },
            arrived: BTreeMap::new(),
            checked: 0,
            differing: 0,
            missing: 0,
        }
    }

    /// A record has come.
    pub(super) fn request(&mut self, request: &Request<'_>) {
        let second = self.arrived.entry(Sent::second_of(request.end_ns));
        let (records, latency_ns) = second.or_default();
        *records += 1;
        *latency_ns = latency_ns.wrapping_add(request.latency_ns());
        if self.arrived.len() > MAX_SECONDS {
            self.arrived.pop_first();
        }
    }

    /// The kernel has sent so much, and all of it has come.
    pub(super) fn sent(&mut self, sent: &Sent) {
        let shares = |second: &u64| (sent.second - second).is_multiple_of(Sent::SECONDS);
        let of_counter = self
            .arrived
            .extract_if(..=sent.second, |second, _| shares(second));
        let all = of_counter.fold((0, 0_u64), |all, (_, one)| {
            (all.0 + one.0, all.1.wrapping_add(one.1))
        });
        if sent.second < self.from {
            return;
        }
        self.checked += 1;
        if all != (sent.requests, sent.latency_ns) {
            log::debug!("second {}: {sent:?} sent, {all:?} came", sent.second);
            self.differing += 1;
            self.missing += sent.requests.abs_diff(all.0);
        }
    }

    /// Seconds in which what has come is not what was sent, if that is more than so many lost records.
    pub(super) fn unaccounted(&self, lost: u64) -> u64 {
        let is_explained = self.missing > 0 && self.missing <= lost;
        if is_explained { 0 } else { self.differing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqtrace_recording::Part;

    const SECOND_NS: u64 = 1_000_000_000;

    fn request(end_ns: u64, latency_ns: u64) -> Request<'static> {
        Request {
            begin_ns: end_ns - latency_ns,
            end_ns,
            ..Request::default()
        }
    }

    fn sent(second: u64, requests: u64, latency_ns: u64) -> Sent {
        Sent {
            second,
            requests,
            latency_ns,
        }
    }

    #[test]
    fn a_record_that_stands_for_others_is_no_difference() {
        let totals = TypeTotals {
            count: 1,
            latency_ns: 500,
            ..TypeTotals::ZERO
        };
        let mut arrived = Arrived::default();
        (arrived.rows, arrived.complete.weight) = (1, 1);
        arrived.complete.ledger.latency_ns = 501;
        let of = |arrived: &Arrived, totals: &TypeTotals| {
            let mut counted = Counted::default();
            counted.add(totals, arrived);
            counted.unaccounted(0)
        };
        assert_eq!(of(&arrived, &totals), (0, 1));
        (arrived.complete.weight, arrived.complete.ledger.latency_ns) = (100, 50_000);
        assert_eq!(of(&arrived, &totals), (0, 0));
        let withheld = TypeTotals {
            count: 3,
            withheld: 1,
            ..totals
        };
        assert_eq!(of(&arrived, &withheld), (1, 0));
    }

    #[test]
    fn one_record_in_a_million_that_is_missing_shows() {
        for missing in [None, Some(0), Some(654_321), Some(999_999)] {
            let mut seconds = Seconds::new(&Header::default());
            let mut by_kernel = BTreeMap::<u64, (u64, u64)>::new();
            for number in 0..1_000_000_u64 {
                // 40 seconds, now and then one that ended in the second before.
                let end_ns = 5 * SECOND_NS + number * 40_000 - number % 7 * 1_000;
                let latency_ns = 1_000 + number % 3_333;
                let of_second = by_kernel.entry(end_ns / SECOND_NS).or_default();
                *of_second = (of_second.0 + 1, of_second.1 + latency_ns);
                if Some(number) != missing {
                    seconds.request(&request(end_ns, latency_ns));
                }
                let over = by_kernel.range(..(end_ns / SECOND_NS).saturating_sub(1));
                let over: Vec<u64> = over.map(|(second, _)| *second).collect();
                for second in over {
                    let (requests, latency_ns) = by_kernel.remove(&second).unwrap();
                    seconds.sent(&sent(second, requests, latency_ns));
                }
            }
            for (second, (requests, latency_ns)) in by_kernel {
                seconds.sent(&sent(second, requests, latency_ns));
            }
            assert!(seconds.checked >= 40, "{}", seconds.checked);
            assert_eq!(seconds.unaccounted(0), u64::from(missing.is_some()));
            assert_eq!(seconds.unaccounted(1), 0);
        }
    }

    #[test]
    fn a_nanosecond_that_differs_is_not_explained_by_what_was_lost() {
        let mut seconds = Seconds::new(&Header::default());
        seconds.request(&request(3 * SECOND_NS, 500));
        seconds.sent(&sent(3, 1, 501));
        assert_eq!(seconds.unaccounted(10), 1);
    }

    #[test]
    fn seconds_that_were_not_read_in_time_are_checked_with_those_that_share_their_counter() {
        let mut seconds = Seconds::new(&Header::default());
        for second in 0..20 {
            seconds.request(&request(second * SECOND_NS + 7, 5));
        }
        for second in 6..20 {
            // 0 to 3 were stopped over.
            let of = if second >= 16 { 2 } else { 1 };
            seconds.sent(&sent(second, of, 5 * of));
        }
        assert_eq!((seconds.checked, seconds.unaccounted(0)), (14, 0));
    }

    #[test]
    fn a_later_file_begins_in_the_middle_of_a_second() {
        let part = Part {
            number: 2,
            ..Part::default()
        };
        let mut seconds = Seconds::new(&Header {
            start_ns: 4 * SECOND_NS - 5,
            part,
            ..Header::default()
        });
        seconds.request(&request(4 * SECOND_NS - 2, 5));
        // Two more of each are in the file before.
        seconds.request(&request(4 * SECOND_NS + 9, 5));
        seconds.request(&request(5 * SECOND_NS, 5));
        seconds.sent(&sent(3, 3, 15));
        seconds.sent(&sent(4, 3, 15));
        seconds.sent(&sent(5, 1, 5));
        assert_eq!((seconds.checked, seconds.unaccounted(0)), (1, 0));
    }
}
