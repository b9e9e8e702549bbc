//! Stacks: the kernel's sums, or slow requests, in; lines with names out.

use std::collections::BTreeSet;
use std::sync::Arc;

use reqtrace_base::plain::Plain;
use reqtrace_common::limits::MAX_STACK_SUMS;
use reqtrace_common::record::{FILE_NONE, STACK_LOST};
use reqtrace_common::sums::off_kind;
use reqtrace_recording::{BlockSite, Request, StackSum, StackSumKey};
use rustc_hash::FxHashMap;

use super::names::Text;
use super::sites::{Sites, site_of, space_of};
use super::sums::in_order;
use crate::report::{StackKind, StackLine};

/// Lines that are kept by themselves: as many as the kernel's table has sums.
const MAX_LINES: usize = MAX_STACK_SUMS as usize;
/// Bytes of the text of all lines.
const MAX_BYTES: usize = 128 << 20;
/// The frame of all others.
const OTHER_STACKS: &str = "[other stacks]";

/// Blocked time of slow requests, from their records.
#[derive(Debug)]
pub(super) struct SlowStacks {
    threshold_ns: u64,
    sums: FxHashMap<StackSumKey, StackSum>,
}

impl SlowStacks {
    pub(super) fn new(threshold_ns: u64) -> Self {
        Self {
            threshold_ns,
            sums: FxHashMap::default(),
        }
    }

    /// Requests below this latency are left out, ns.
    pub(super) fn threshold_ns(&self) -> u64 {
        self.threshold_ns
    }

    pub(super) fn add(&mut self, request: &Request<'_>) {
        if request.latency_ns() < self.threshold_ns {
            return;
        }
        for slot in request.slots {
            self.add_site(request, slot.site, slot.blocked_ns);
        }
        if request.unattributed_ns > 0 {
            let lost = BlockSite {
                kernel_stack: STACK_LOST,
                user_stack: STACK_LOST,
                syscall: -1,
                file: FILE_NONE,
            };
            self.add_site(request, lost, request.unattributed_ns);
        }
    }

    fn add_site(&mut self, request: &Request<'_>, site: BlockSite, ns: u64) {
        let key = StackSumKey {
            user_stack: site.user_stack,
            kernel_stack: site.kernel_stack,
            tgid: request.space.tgid,
            exec_generation: request.space.exec_generation,
            request_type: request.request_type,
            off_kind: off_kind::BLOCK,
            syscall: site.syscall,
            file: site.file,
        };
        let sum = self.sums.entry(key).or_default();
        sum.off_ns += ns * u64::from(request.weight);
        sum.count += u64::from(request.weight);
        sum.longest_ns = sum.longest_ns.max(ns);
    }

    /// Whether there are so many that they are to be settled.
    pub(super) fn is_full(&self) -> bool {
        self.sums.len() >= MAX_STACK_SUMS as usize
    }

    /// Forgets the sums: they are settled.
    pub(super) fn forget(&mut self) {
        self.sums.clear();
    }

    /// The sums, in the form of the kernel's. A slot of a request counts as one interval.
    pub(super) fn sums(&self) -> Vec<(StackSumKey, StackSum)> {
        in_order(&self.sums)
    }
}

/// Stacks so far, by name: those that read alike are one line.
///
/// Their number is bounded. When there are too many, the half with the least time is put together to one
/// line for each request type, wait class and process name, so that no time is lost.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    lines: FxHashMap<LineKey, LineSum>,
    bytes: usize,
    merged: u64,
    most: usize,
    most_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LineKey {
    pub(super) comm: Text,
    pub(super) request_type: u32,
    /// Outermost first.
    pub(super) user: Arc<[Text]>,
    pub(super) kernel: Arc<[Text]>,
    pub(super) kind: StackKind,
    pub(super) class: Option<usize>,
}

impl Default for Lines {
    fn default() -> Self {
        Self::bounded(MAX_LINES, MAX_BYTES)
    }
}

impl LineKey {
    /// Bytes of its text.
    fn bytes(&self, sites: &Sites) -> usize {
        let frames = self.user.iter().chain(&*self.kernel);
        let bytes = frames.map(|text| size_of::<String>() + sites.text(*text).len());
        bytes.sum()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LineSum {
    pub(super) ns: u64,
    pub(super) count: u64,
    pub(super) longest_ns: u64,
}

impl LineSum {
    pub(super) const ZERO: Self = Self {
        ns: 0,
        count: 0,
        longest_ns: 0,
    };
}

impl Lines {
    /// None yet, and room for so many and so many bytes of their text.
    pub(super) fn bounded(most: usize, most_bytes: usize) -> Self {
        Self {
            lines: FxHashMap::default(),
            bytes: 0,
            merged: 0,
            most,
            most_bytes,
        }
    }

    /// Adds the time of one line.
    pub(super) fn add_one(&mut self, sites: &mut Sites, key: LineKey, more: LineSum) {
        self.add_line(sites, key, more);
        self.bound(sites);
    }

    /// Adds all lines of another one.
    pub(super) fn merge(&mut self, sites: &mut Sites, other: &Self) {
        self.merged += other.merged;
        for (key, more) in &other.lines {
            self.add_line(sites, key.clone(), *more);
        }
        self.bound(sites);
    }

    /// Names stacks and adds their times.
    pub(super) fn add(
        &mut self,
        sites: &mut Sites,
        types: usize,
        sums: &[(StackSumKey, StackSum)],
    ) {
        for (key, sum) in sums.iter().filter(|(key, _)| !key.is_outside()) {
            if key.request_type as usize >= types {
                continue;
            }
            let space = space_of(key);
            let is_block = key.is_block();
            let comm = sites.processes.comm(key.tgid);
            let comm = sites.number(&comm);
            let block = LineKey {
                comm,
                request_type: key.request_type,
                user: sites.texts(Some(space), key.user_stack).into(),
                kernel: sites.texts(None, key.kernel_stack).into(),
                kind: StackKind::Blocked,
                class: None,
            };
            let sum_of = |ns, longest_ns| LineSum {
                ns,
                count: sum.count,
                longest_ns,
            };
            let longest_ns = sum.longest_ns;
            // An older recording has one time for both.
            let longest_queued_ns = match sum.longest_run_queue_ns {
                0 => longest_ns,
                ns => ns,
            };
            if is_block {
                let run_queue = LineKey {
                    kind: StackKind::RunQueue,
                    ..block.clone()
                };
                self.add_line(
                    sites,
                    run_queue,
                    sum_of(sum.run_queue_ns, longest_queued_ns),
                );
                let class = sites.class(Some(key.request_type), space, &site_of(key));
                self.add_line(
                    sites,
                    LineKey { class, ..block },
                    sum_of(sum.off_ns, longest_ns),
                );
            } else {
                let preempted = LineKey {
                    kind: StackKind::Preempted,
                    ..block
                };
                self.add_line(sites, preempted, sum_of(sum.off_ns, longest_ns));
            }
            self.bound(sites);
        }
    }

    /// Names stacks of samples and adds their numbers, which take the place of times.
    pub(super) fn add_samples(
        &mut self,
        sites: &mut Sites,
        types: usize,
        sums: &[(StackSumKey, u64)],
    ) {
        for &(key, count) in sums {
            if key.request_type as usize >= types {
                continue;
            }
            let comm = sites.processes.comm(key.tgid);
            let line = LineKey {
                comm: sites.number(&comm),
                request_type: key.request_type,
                user: sites.texts(Some(space_of(&key)), key.user_stack).into(),
                kernel: sites.texts(None, key.kernel_stack).into(),
                kind: StackKind::OnCpu,
                class: None,
            };
            let sum = LineSum {
                ns: count,
                count,
                longest_ns: 0,
            };
            self.add_line(sites, line, sum);
            self.bound(sites);
        }
    }

    /// Blocks and preemptions.
    pub(super) fn switches(&self) -> u64 {
        let lines = self.lines.iter();
        let is_one = |(key, _): &(&LineKey, &LineSum)| key.kind != StackKind::RunQueue;
        lines.filter(is_one).map(|(_, sum)| sum.count).sum()
    }

    /// Stacks whose frames were given up.
    pub(super) fn merged(&self) -> u64 {
        self.merged
    }

    /// The functions of all lines.
    pub(super) fn functions(&self) -> BTreeSet<Text> {
        let stacks = self.lines.keys().flat_map(|key| [&key.user, &key.kernel]);
        stacks.flat_map(|frames| frames.iter().copied()).collect()
    }

    /// All lines, those with most time first; `requests` are names of request types.
    pub(super) fn stacks(&self, sites: &Sites, requests: &[String]) -> Vec<StackLine> {
        let text = |number: &Text| sites.text(*number).to_owned();
        let mut lines: Vec<StackLine> = self
            .lines
            .iter()
            .map(|(key, sum)| StackLine {
                comm: Plain::of(sites.text(key.comm)),
                request: requests
                    .get(key.request_type as usize)
                    .cloned()
                    .unwrap_or_default(),
                user: key.user.iter().map(text).collect(),
                kernel: key.kernel.iter().map(text).collect(),
                kind: key.kind,
                class: key.class,
                ns: sum.ns,
                count: sum.count,
                longest_ns: sum.longest_ns,
            })
            .collect();
        lines.sort_by(|a, b| {
            b.ns.cmp(&a.ns)
                .then_with(|| {
                    (&a.request, &a.user, &a.kernel).cmp(&(&b.request, &b.user, &b.kernel))
                })
                .then_with(|| (a.kind, &a.comm, a.class).cmp(&(b.kind, &b.comm, b.class)))
        });
        lines
    }

    fn add_line(&mut self, sites: &Sites, key: LineKey, more: LineSum) {
        if more.ns == 0 {
            return;
        }
        let bytes = &mut self.bytes;
        let sum = self.lines.entry(key).or_insert_with_key(|key| {
            *bytes += key.bytes(sites);
            LineSum::ZERO
        });
        sum.ns += more.ns;
        sum.count += more.count;
        sum.longest_ns = sum.longest_ns.max(more.longest_ns);
    }

    fn bound(&mut self, sites: &mut Sites) {
        while self.lines.len() > self.most || self.bytes > self.most_bytes && self.lines.len() > 1 {
            self.shrink(sites);
        }
    }

    /// Puts the half with the least time together.
    fn shrink(&mut self, sites: &mut Sites) {
        let other: Arc<[Text]> = [sites.number(OTHER_STACKS)].into();
        let none: Arc<[Text]> = Arc::new([]);
        let mut lines: Vec<(LineKey, LineSum)> = self.lines.drain().collect();
        // What reads alike but for its numbers cannot be distinguished by time: the order is that of the names.
        lines.sort_by(|(a, a_sum), (b, b_sum)| {
            let rest = |key: &LineKey| (key.request_type, key.comm, key.kind, key.class);
            (b.user == other)
                .cmp(&(a.user == other))
                .then_with(|| b_sum.ns.cmp(&a_sum.ns))
                .then_with(|| (&a.user, &a.kernel).cmp(&(&b.user, &b.kernel)))
                .then_with(|| rest(a).cmp(&rest(b)))
        });
        let least = lines.split_off(lines.len() / 2);
        self.bytes = lines.iter().map(|(key, _)| key.bytes(sites)).sum();
        self.lines.extend(lines);
        self.merged += least.len() as u64;
        for (key, sum) in least {
            let key = LineKey {
                user: Arc::clone(&other),
                kernel: Arc::clone(&none),
                ..key
            };
            self.add_line(sites, key, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use reqtrace_common::record::STACK_NONE;
    use reqtrace_recording::{Address, AddressSpace, Name, Stack};

    use super::*;
    use crate::classify::of_waits;

    /// A stack of one function, blocked for `ns`.
    fn sum(sites: &mut Sites, id: u64, ns: u64) -> (StackSumKey, StackSum) {
        let address = Address {
            object: 2,
            offset: id,
        };
        sites.name(&Name {
            address,
            is_return: false,
            frames: vec![format!("f{id}")],
        });
        sites.stack(&Stack {
            space: Some(AddressSpace::default()),
            id,
            stop: 0,
            addresses: vec![address],
        });
        let key = StackSumKey {
            user_stack: id,
            kernel_stack: STACK_NONE,
            file: FILE_NONE,
            ..StackSumKey::default()
        };
        let sum = StackSum {
            off_ns: ns,
            count: 1,
            ..StackSum::default()
        };
        (key, sum)
    }

    #[test]
    fn too_many_lines_lose_frames_and_no_time() {
        let mut sites = Sites::new(of_waits(&[]).unwrap());
        let mut lines = Lines::default();
        let mut all = 0;
        for first in (0..3 * MAX_LINES as u64).step_by(1000) {
            let ids = first..first + 1000;
            let sums: Vec<_> = ids.map(|id| sum(&mut sites, 2 * id + 2, id + 1)).collect();
            all += sums.iter().map(|(_, sum)| sum.off_ns).sum::<u64>();
            lines.add(&mut sites, 1, &sums);
            sites.forget_stacks(std::iter::empty());
        }
        let stacks = lines.stacks(&sites, &["work".to_owned()]);
        assert!(stacks.len() <= MAX_LINES);
        assert!(lines.merged() > MAX_LINES as u64);
        assert_eq!(stacks.iter().map(|line| line.ns).sum::<u64>(), all);
        assert_eq!(stacks[0].user, [OTHER_STACKS]);
        // The longest have their names.
        assert_eq!(stacks[1].ns, stacks[2].ns + 1);
        assert!(stacks[1].user[0].starts_with('f'));
    }
}
