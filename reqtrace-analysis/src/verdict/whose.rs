//! Whose a cause is: slow requests and a pattern in; who has most of it, and how much is known, out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use reqtrace_recording::RequestOf;

use super::numbers::CULPRIT;
use super::patterns::{COUNT, Family, NOT_KNOWN, Names, PATTERNS, Pattern};
use super::shares::Who;
use super::slow::Slow;

/// Whose most of a cause is, and which share.
pub(super) fn culprit(slow: &[&Slow], pattern: &Pattern) -> (Who, f64) {
    let mut by: BTreeMap<Who, u64> = BTreeMap::new();
    let all = all_of(slow, pattern);
    for slow in slow {
        for share in &slow.shares {
            // Who held a request up, and waited for a CPU itself, has not taken it.
            let is_taker = matches!(share.who, Who::Process(_) | Who::Cgroup(_));
            let is_named = match pattern.names {
                Names::Taker => is_taker,
                // Who waited for another machine, and was waited for, has not delayed its answer.
                Names::Peer => matches!(share.who, Who::Peer(_)),
                _ => true,
            };
            if is_named && PATTERNS[usize::from(share.pattern)].family == pattern.family {
                *by.entry(share.who).or_default() += share.ns * slow.weight;
            }
        }
    }
    if pattern.names == Names::Nobody {
        return (Who::Nobody, 1.0);
    }
    let largest = by.into_iter().max_by_key(|(who, ns)| (*ns, Reverse(*who)));
    let (who, ns) = largest.unwrap_or((Who::Nobody, 0));
    (who, ns as f64 / all.max(1) as f64)
}

/// The request of a type that has most of a cause, and its share.
pub(super) fn single(slow: &[&Slow], pattern: &Pattern, pid: u32, of_type: u32) -> (Who, f64) {
    let mut by: BTreeMap<RequestOf, u64> = BTreeMap::new();
    for slow in slow {
        for share in &slow.shares {
            let is_of_cause = PATTERNS[usize::from(share.pattern)].family == pattern.family;
            if is_of_cause
                && share.who == Who::Requests(pid, of_type)
                && let Some((of, ns)) = share.most
            {
                *by.entry(of).or_default() += ns * slow.weight;
            }
        }
    }
    match by.into_iter().max_by_key(|(_, ns)| *ns) {
        Some((of, ns)) => {
            let share = ns as f64 / all_of(slow, pattern).max(1) as f64;
            (Who::Request(pid, of), share)
        }
        None => (Who::Nobody, 0.0),
    }
}

/// What all of them have of a cause, ns.
fn all_of(slow: &[&Slow], pattern: &Pattern) -> u64 {
    let each = slow.iter().map(|slow| {
        let patterns = PATTERNS.iter().zip(slow.times);
        let own = patterns.filter(|(of, _)| of.family == pattern.family);
        own.map(|(_, ns)| ns).sum::<u64>() * slow.weight
    });
    each.sum()
}

/// The process whose threads have most of a cause, if they serve none of the requests, and its share.
pub(super) fn another_process(slow: &[&Slow], pattern: &Pattern) -> Option<(u32, f64)> {
    let own: BTreeSet<u32> = slow.iter().map(|slow| slow.thread.tgid).collect();
    let mut by: BTreeMap<u32, u64> = BTreeMap::new();
    let mut all = 0;
    for slow in slow {
        for share in &slow.shares {
            if PATTERNS[usize::from(share.pattern)].family == pattern.family {
                all += share.ns * slow.weight;
                let pid = match share.who {
                    Who::Thread(thread) => thread.tgid,
                    Who::Requests(pid, _) => pid,
                    _ => continue,
                };
                *by.entry(pid).or_default() += share.ns * slow.weight;
            }
        }
    }
    let (pid, ns) = by.into_iter().max_by_key(|(_, ns)| *ns)?;
    let share = ns as f64 / all.max(1) as f64;
    (share >= CULPRIT && !own.contains(&pid)).then_some((pid, share))
}

/// Of what slow requests waited the part whose root cause is known.
pub(super) fn coverage(slow: &[&Slow]) -> f64 {
    let mut sums = [0_u64; COUNT];
    for slow in slow {
        for (sum, ns) in sums.iter_mut().zip(slow.times) {
            *sum += ns * slow.weight;
        }
    }
    let own = PATTERNS.iter().zip(sums);
    let waited = own.filter(|(pattern, _)| pattern.family != Family::OnCpu);
    let all: u64 = waited.map(|(_, ns)| ns).sum();
    1.0 - sums[NOT_KNOWN] as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::ThreadId;
    use crate::verdict::patterns::Times;
    use crate::verdict::shares::Share;

    #[test]
    fn who_waits_for_the_network_is_no_culprit_and_a_peer_is() {
        let is_network = |pattern: &Pattern| pattern.names == Names::Peer;
        let at = PATTERNS.iter().position(is_network).unwrap();
        let thread = ThreadId { tgid: 1, tid: 7 };
        let peer = Who::Peer("192.0.2.1:5432".parse().unwrap());
        let share = |(who, ns)| Share {
            pattern: at as u8,
            who,
            most: None,
            class: None,
            ns,
            from_ns: 0,
            until_ns: ns,
            longest: (0, ns),
        };
        let found = |parts: &[(Who, u64)]| {
            let mut times = Times::default();
            times[at] = 100;
            let slow = Slow {
                times,
                shares: parts.iter().copied().map(share).collect(),
                ..Slow::bare(0, 100)
            };
            culprit(&[&slow], &PATTERNS[at])
        };
        assert_eq!(found(&[(Who::Thread(thread), 100)]), (Who::Nobody, 0.0));
        let both = [(Who::Thread(thread), 60), (peer, 40)];
        assert_eq!(found(&both), (peer, 0.4));
    }
}
