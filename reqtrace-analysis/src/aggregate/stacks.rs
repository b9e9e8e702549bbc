//! Stacks: the kernel's sums, or slow requests, in; lines with names out.

use std::collections::HashMap;

use reqtrace_common::limits::MAX_STACK_SUMS;
use reqtrace_common::record::{BlockSite, FILE_NONE, STACK_LOST};
use reqtrace_common::sums::{StackSum, StackSumKey, off_kind};
use reqtrace_recording::Request;
use rustc_hash::FxHashMap;

use super::sites::{Sites, site_of, space_of};
use super::sums::in_order;
use crate::report::{StackKind, StackLine};

/// Blocked time of slow requests, from their records.
#[derive(Debug)]
pub(super) struct SlowStacks {
    threshold_ns: u64,
    sums: FxHashMap<StackSumKey, StackSum>,
    /// Slots that found no room in `sums`.
    pub(super) overflowed: u64,
}

impl SlowStacks {
    pub(super) fn new(threshold_ns: u64) -> Self {
        Self {
            threshold_ns,
            sums: FxHashMap::default(),
            overflowed: 0,
        }
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
        if self.sums.len() >= MAX_STACK_SUMS as usize && !self.sums.contains_key(&key) {
            self.overflowed += 1;
            return;
        }
        let sum = self.sums.entry(key).or_default();
        sum.off_ns += ns * u64::from(request.weight);
        sum.count += u64::from(request.weight);
        sum.longest_ns = sum.longest_ns.max(ns);
    }

    /// The sums, in the form of the kernel's. A slot of a request counts as one interval.
    pub(super) fn sums(&self) -> Vec<(StackSumKey, StackSum)> {
        in_order(&self.sums)
    }
}

/// Names stacks and puts together those that read alike.
pub(super) fn lines(
    sites: &mut Sites,
    names: &[String],
    sums: &[(StackSumKey, StackSum)],
) -> Vec<StackLine> {
    let mut merged: HashMap<LineKey, StackLine> = HashMap::new();
    let mut add = |line: StackLine| {
        if line.ns == 0 {
            return;
        }
        let key = LineKey {
            comm: line.comm.clone(),
            request: line.request.clone(),
            user: line.user.clone(),
            kernel: line.kernel.clone(),
            kind: line.kind,
            class: line.class,
        };
        merged
            .entry(key)
            .and_modify(|known| {
                known.ns += line.ns;
                known.count += line.count;
                known.longest_ns = known.longest_ns.max(line.longest_ns);
            })
            .or_insert(line);
    };
    for (key, sum) in sums.iter().filter(|(key, _)| !key.is_outside()) {
        let Some(request) = names.get(key.request_type as usize) else {
            continue;
        };
        let space = space_of(key);
        let is_block = key.is_block();
        let line = StackLine {
            comm: sites.comm(key.tgid),
            request: request.clone(),
            user: sites.user_side(space, key.user_stack).outermost_first(),
            kernel: sites.kernel_side(key.kernel_stack).outermost_first(),
            kind: if is_block {
                StackKind::Blocked
            } else {
                StackKind::Preempted
            },
            class: if is_block {
                sites.class(space, &site_of(key))
            } else {
                None
            },
            ns: sum.off_ns,
            count: sum.count,
            longest_ns: sum.longest_ns,
        };
        if is_block {
            add(StackLine {
                kind: StackKind::RunQueue,
                class: None,
                ns: sum.run_queue_ns,
                ..line.clone()
            });
        }
        add(line);
    }
    let mut lines: Vec<_> = merged.into_values().collect();
    lines.sort_by(|a, b| {
        let names =
            |line: &StackLine| (line.request.clone(), line.user.clone(), line.kernel.clone());
        b.ns.cmp(&a.ns)
            .then_with(|| names(a).cmp(&names(b)))
            .then_with(|| (a.kind, &a.comm, a.class).cmp(&(b.kind, &b.comm, b.class)))
    });
    lines
}

#[derive(PartialEq, Eq, Hash)]
struct LineKey {
    comm: String,
    request: String,
    user: Vec<String>,
    kernel: Vec<String>,
    kind: StackKind,
    class: Option<usize>,
}
