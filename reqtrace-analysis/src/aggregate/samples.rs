//! Samples: threads of requests on their CPUs in; sums of complete requests by stack, and what a report says
//! of them, out.
//!
//! A sample belongs to a request, and the ledger has only those that were complete. So samples wait until their
//! request has ended. Their number says how the time of a request type is split, never how much it is: that
//! is the ledger's, which is exact.

use std::collections::BTreeMap;

use reqtrace_base::names::telling;
use reqtrace_base::plain::Plain;
use reqtrace_common::record::{FILE_NONE, StackId};
use reqtrace_recording::{
    AddressSpace, BlockSite, Header, Request, RequestOf, Sample, StackSumKey, Unrecorded,
};
use rustc_hash::FxHashMap;

use super::sums::in_order;
use super::types::split;
use crate::report::{HotFunction, Ledger, NOT_SAMPLED, OnCpu, OnCpuType, StackKind, StackLine};

/// Stacks of requests that have not ended, all threads together; beyond it samples are counted and forgotten.
const MAX_WAITING: usize = 1 << 16;
/// A thread of which no sample has come for so long may be gone, and the record of its request lost, ns.
const SILENT_NS: u64 = 60_000_000_000;
/// Sums that are kept by id, as for the sums of the kernel.
const MAX_UNSETTLED: usize = 8192;
/// Functions of each type that a report has.
const HOTTEST: usize = 20;
/// Where processes of several names have served a type.
pub(super) const SEVERAL: &str = "[several processes]";

/// Samples so far.
#[derive(Debug)]
pub(super) struct Samples {
    rate_hz: u32,
    engine: String,
    /// Of requests that have not ended.
    waiting: FxHashMap<Of, OfRequest>,
    /// Which request types have a key.
    keyed: Vec<bool>,
    /// Stacks of all of them.
    kept: usize,
    sums: FxHashMap<StackSumKey, u64>,
    types: Vec<OfType>,
    /// What came when there were too many stacks.
    pub(super) forgotten: u64,
}

/// A request that has not ended, as long as it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Of {
    /// That of this thread.
    Thread(u32),
    /// The one of this process that began then: it has a key, and runs on any thread.
    Keyed(u32, u64),
}

/// Samples of one request.
#[derive(Debug)]
pub(super) struct OfRequest {
    request: RequestOf,
    /// When the last one was taken.
    at_ns: u64,
    space: AddressSpace,
    /// How many requests its samples stand for: those that its begin does. Its record may stand for more.
    weight: u32,
    /// User and kernel stack, and how often.
    stacks: FxHashMap<(StackId, StackId), u64>,
}

impl OfRequest {
    /// Where those were met that its record stands for, and how often, in an order that is always the same.
    pub(super) fn places(
        &self,
        request: &Request<'_>,
    ) -> impl Iterator<Item = (AddressSpace, BlockSite, u64)> {
        let more = self.more(request);
        let mut stacks: Vec<_> = self.stacks.iter().collect();
        stacks.sort_unstable();
        let space = self.space;
        stacks
            .into_iter()
            .map(move |(stack, count)| (space, site(*stack), *count * more))
    }

    /// By how much its record stands for more requests than its samples.
    fn more(&self, request: &Request<'_>) -> u64 {
        u64::from(request.weight / self.weight.max(1)).max(1)
    }
}

/// The place of a sample: no system call, no file.
fn site((user_stack, kernel_stack): (StackId, StackId)) -> BlockSite {
    BlockSite {
        kernel_stack,
        user_stack,
        syscall: -1,
        file: FILE_NONE,
    }
}

/// Complete requests of one type whose stacks are shown.
#[derive(Clone, Debug, Default)]
struct OfType {
    samples: u64,
    on_cpu_ns: u64,
    run_queue_ns: u64,
    preempted_ns: u64,
    /// A process that has served some.
    process: Option<u32>,
}

impl Samples {
    /// `None` when the trace takes none.
    /// `keyed`: which request types have a key.
    pub(super) fn new(header: &Header, keyed: &[bool]) -> Option<Self> {
        (header.cpu_rate > 0).then(|| Self {
            rate_hz: header.cpu_rate,
            engine: header.cpu_engine.clone(),
            waiting: FxHashMap::default(),
            kept: 0,
            sums: FxHashMap::default(),
            types: vec![OfType::default(); keyed.len()],
            keyed: keyed.to_vec(),
            forgotten: 0,
        })
    }

    /// Takes a sample. `all`: a request whose record was lost is one of those that are shown.
    pub(super) fn add(&mut self, sample: &Sample, all: bool) {
        let of = self.of(sample.space.tgid, sample.tid, sample.request);
        let before = self.waiting.get(&of);
        if before.is_some_and(|waiting| waiting.request != sample.request) {
            // The record of the request before was lost; the kernel's totals have it.
            self.end(of, all.then_some(1));
        }
        if self.kept >= MAX_WAITING {
            self.end_silent(sample.at_ns, all.then_some(1));
        }
        let is_full = self.kept >= MAX_WAITING;
        let waiting = self.waiting.entry(of).or_insert_with(|| OfRequest {
            request: sample.request,
            at_ns: 0,
            space: sample.space,
            weight: sample.weight,
            stacks: FxHashMap::default(),
        });
        waiting.at_ns = waiting.at_ns.max(sample.at_ns);
        let stack = (sample.user_stack, sample.kernel_stack);
        let weight = u64::from(sample.weight);
        if let Some(count) = waiting.stacks.get_mut(&stack) {
            *count += weight;
        } else if is_full {
            self.forgotten += 1;
        } else {
            waiting.stacks.insert(stack, weight);
            self.kept += 1;
        }
    }

    /// A request that has no record has ended. `all`: it is one of those that are shown.
    pub(super) fn unrecorded(&mut self, request: &Unrecorded, all: bool) {
        let of = RequestOf {
            begin_ns: request.begin_ns,
            request_type: request.request_type,
        };
        let it = self.of(request.tgid, request.tid, of);
        let waiting = self.waiting.get(&it);
        if waiting.is_some_and(|waiting| waiting.request == of) {
            self.end(it, all.then_some(1));
        }
    }

    /// A request has ended. `ledger` is its own if its stacks are shown. `all`: those of all requests are, so that its samples
    /// stand for no other's. Returns its samples, if it has any.
    pub(super) fn request(
        &mut self,
        request: &Request<'_>,
        ledger: Option<&Ledger>,
        all: bool,
    ) -> Option<OfRequest> {
        let of = RequestOf {
            begin_ns: request.begin_ns,
            request_type: request.request_type,
        };
        let it = self.of(request.space.tgid, request.tid, of);
        let waiting = self.waiting.get(&it);
        let samples = match waiting.filter(|waiting| waiting.request == of) {
            Some(waiting) => {
                let more = if all { 1 } else { waiting.more(request) };
                self.end(it, ledger.map(|_| more))
            }
            None => None,
        };
        let state = self.types.get_mut(request.request_type as usize);
        if let (Some(state), Some(ledger)) = (state, ledger) {
            let weight = u64::from(request.weight);
            state.on_cpu_ns += ledger.on_cpu_ns * weight;
            state.run_queue_ns += ledger.run_queue_ns * weight;
            state.preempted_ns += ledger.preempted_ns * weight;
            state.process = Some(request.space.tgid);
        }
        samples
    }

    fn of(&self, tgid: u32, tid: u32, request: RequestOf) -> Of {
        match self.keyed.get(request.request_type as usize) {
            Some(true) => Of::Keyed(tgid, request.begin_ns),
            _ => Of::Thread(tid),
        }
    }

    /// Makes room: of the requests with a key, and of those of threads that may be gone, ends the half that ran last the
    /// longest ago. Some of their records may have been lost, and nothing else ends those.
    fn end_silent(&mut self, now_ns: u64, shown: Option<u64>) {
        let may_be_over = |(of, waiting): &(&Of, &OfRequest)| match of {
            Of::Keyed(..) => true,
            Of::Thread(_) => now_ns.saturating_sub(waiting.at_ns) >= SILENT_NS,
        };
        let silent = self.waiting.iter().filter(may_be_over);
        let mut over: Vec<(u64, Of)> = silent.map(|(of, waiting)| (waiting.at_ns, *of)).collect();
        over.sort_unstable();
        for (_, of) in &over[..over.len().div_ceil(2)] {
            self.end(*of, shown);
        }
    }

    /// `shown`: for how many each of its samples counts, if they are shown.
    fn end(&mut self, of: Of, shown: Option<u64>) -> Option<OfRequest> {
        let waiting = self.waiting.remove(&of)?;
        self.kept -= waiting.stacks.len();
        let request_type = waiting.request.request_type;
        let state = self.types.get_mut(request_type as usize)?;
        let Some(each) = shown else {
            return Some(waiting);
        };
        for (&(user_stack, kernel_stack), &count) in &waiting.stacks {
            let count = count * each;
            state.samples += count;
            let key = StackSumKey {
                user_stack,
                kernel_stack,
                tgid: waiting.space.tgid,
                exec_generation: waiting.space.exec_generation,
                request_type,
                off_kind: 0,
                syscall: -1,
                file: FILE_NONE,
            };
            *self.sums.entry(key).or_default() += count;
        }
        Some(waiting)
    }

    /// Whether there are so many sums that they are to be settled.
    pub(super) fn is_full(&self) -> bool {
        self.sums.len() >= MAX_UNSETTLED
    }

    /// Forgets the sums: they are settled.
    pub(super) fn forget(&mut self) {
        self.sums.clear();
    }

    /// The sums, in an order that is always the same.
    pub(super) fn sums(&self) -> Vec<(StackSumKey, u64)> {
        in_order(&self.sums)
    }

    /// Where requests that have not ended were met.
    pub(super) fn places(&self) -> impl Iterator<Item = (AddressSpace, BlockSite)> + '_ {
        self.waiting.values().flat_map(|waiting| {
            let stacks = waiting.stacks.keys();
            stacks.map(|&stack| (waiting.space, site(stack)))
        })
    }

    /// What a report says. `lines` are those of the sums, with numbers of samples in place of times. `ledgers`
    /// are those of the types; `None` where a part of the requests is shown, by their records.
    pub(super) fn report(
        &self,
        mut lines: Vec<StackLine>,
        names: &[String],
        ledgers: Option<&[Ledger]>,
        comm: impl Fn(u32) -> Plain,
    ) -> OnCpu {
        let mut types = Vec::new();
        let mut beside = Vec::new();
        for (index, (state, name)) in self.types.iter().zip(names).enumerate() {
            let whole = ledgers.and_then(|ledgers| ledgers.get(index));
            let ns = whole.map_or(state.on_cpu_ns, |ledger| ledger.on_cpu_ns);
            let mine: Vec<usize> = (0..lines.len())
                .filter(|&line| lines[line].request == *name)
                .collect();
            let weights: Vec<u64> = mine.iter().map(|&line| lines[line].count).collect();
            let process = process_name(&lines, &mine, state.process.map(&comm));
            let line = |kind, ns: u64| StackLine {
                comm: process.clone(),
                request: name.clone(),
                user: Vec::new(),
                kernel: Vec::new(),
                kind,
                class: None,
                ns,
                count: 0,
                longest_ns: 0,
            };
            match split(ns, &weights) {
                Some(parts) => {
                    for (&line, part) in mine.iter().zip(parts) {
                        lines[line].ns = part;
                    }
                }
                None => lines.push(StackLine {
                    user: vec![NOT_SAMPLED.to_owned()],
                    ..line(StackKind::OnCpu, ns)
                }),
            }
            if whole.is_none() {
                beside.push(line(StackKind::RunQueue, state.run_queue_ns));
                beside.push(line(StackKind::Preempted, state.preempted_ns));
            }
            types.push(OnCpuType {
                samples: state.samples,
                ns,
                hottest: hottest(mine.iter().map(|&line| &lines[line])),
            });
        }
        lines.retain(|line| line.ns > 0);
        beside.retain(|line| line.ns > 0);
        OnCpu {
            engine: self.engine.clone(),
            rate_hz: self.rate_hz,
            types,
            stacks: lines,
            beside,
        }
    }
}

/// Name of the processes that have served a type.
fn process_name(lines: &[StackLine], mine: &[usize], last: Option<Plain>) -> Plain {
    let mut names = mine.iter().map(|&line| &lines[line].comm);
    match (names.next(), last) {
        (None, Some(last)) => last,
        (None, None) => Plain::of(SEVERAL),
        (Some(first), _) if names.all(|name| name == first) => first.clone(),
        _ => Plain::of(SEVERAL),
    }
}

/// The innermost functions of the lines of one type, the most time first.
fn hottest<'a>(lines: impl Iterator<Item = &'a StackLine>) -> Vec<HotFunction> {
    /// Time and samples of a function, and its biggest line.
    type Sum<'a> = (u64, u64, &'a StackLine);
    let mut functions: BTreeMap<&str, Sum<'_>> = BTreeMap::new();
    for line in lines {
        let Some(name) = line.kernel.last().or_else(|| line.user.last()) else {
            continue;
        };
        let (ns, samples, biggest) = functions.entry(name).or_insert((0, 0, line));
        *ns += line.ns;
        *samples += line.count;
        if line.ns > biggest.ns {
            *biggest = line;
        }
    }
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_by_key(|(name, (ns, samples, _))| (std::cmp::Reverse((*ns, *samples)), *name));
    functions.truncate(HOTTEST);
    let function = |(name, (ns, samples, biggest)): (&str, Sum<'_>)| {
        // The function itself is named already.
        let is_kernel = !biggest.kernel.is_empty();
        let user = biggest.user.iter().rev().skip(usize::from(!is_kernel));
        let user = telling(user.map(String::as_str), std::iter::empty());
        // What called it in the kernel, if that is not its entry.
        let kernel = biggest.kernel.iter().rev().skip(1).take(1).cloned();
        HotFunction {
            name: name.to_owned(),
            ns,
            samples,
            callers: kernel.chain(user).collect(),
        }
    };
    functions.into_iter().map(function).collect()
}

#[cfg(test)]
mod tests;
