//! Recordings made by hand: what a server does in, a recording as the kernel would give it out.

use std::collections::{BTreeMap, HashMap};

use reqtrace::decode::RawStack;
use reqtrace::decode::recording::{
    RecordedSymbols, Recorder, Recording, encode_request, to_record,
};
use reqtrace::decode::{Incomplete, ProgramCost, RawRequest, Snapshot};
use reqtrace::report::{MarkerInfo, TraceInfo};
use reqtrace::symbolize::{AddressSpace, Frame};
use reqtrace_common::histogram::bucket;
use reqtrace_common::loss::Loss;
use reqtrace_common::record::{BlockSite, LongBlock, STACK_LOST, Slot};
use reqtrace_common::sums::{StackSum, StackSumKey, TypeTotals, off_kind};
use reqtrace_common::unwind::Stop;

/// The traced server.
pub(crate) const PID: u32 = 9587;
/// When tracing began, `CLOCK_MONOTONIC` ns.
pub(crate) const START_NS: u64 = 50_000_000_000;
/// How long it lasted.
pub(crate) const DURATION_NS: u64 = 10_000_000_000;

/// Process and thread that wake.
const WAKER: (u32, u32) = (PID, 9588);

const SPACE: AddressSpace = AddressSpace {
    tgid: PID,
    exec_generation: 0,
};

/// One interval off the CPU.
#[derive(Clone, Copy)]
pub(crate) enum Off {
    /// Blocked at a place for so long, then on the run queue.
    Block(BlockSite, u64, u64),
    /// Preempted at a place.
    Preempted(BlockSite, u64),
}

/// A recording in the making.
pub(crate) struct Builder {
    recorder: Recorder,
    symbols: RecordedSymbols,
    stacks: HashMap<u64, Vec<u64>>,
    sums: BTreeMap<(u64, u64, u32, u32, i32, i32), StackSum>,
    totals: Vec<TypeTotals>,
    open: Vec<RawRequest>,
    losses: Vec<(Loss, u64)>,
}

impl Builder {
    /// For so many request types.
    pub(crate) fn new(types: usize) -> Self {
        Self {
            recorder: Recorder::new(),
            symbols: RecordedSymbols::default(),
            stacks: HashMap::new(),
            sums: BTreeMap::new(),
            totals: vec![TypeTotals::ZERO; types],
            open: Vec::new(),
            losses: Vec::new(),
        }
    }

    /// A place of blocking; frames are innermost first.
    pub(crate) fn site(
        &mut self,
        kernel: &[&str],
        user: &[&str],
        syscall: i32,
        fd: i32,
    ) -> BlockSite {
        let frames = |names: &[&str]| names.iter().map(|name| Frame::new(*name)).collect();
        let kernel_stack = stack_id(kernel, 0xffff_ffff_8100_0000);
        let user_stack = stack_id(user, 0x5500_0000_0000);
        self.stacks.insert(kernel_stack.0, kernel_stack.1.clone());
        self.stacks.insert(user_stack.0, user_stack.1.clone());
        self.symbols.add_kernel(kernel_stack.1, frames(kernel));
        self.symbols.add_user(SPACE, user_stack.1, frames(user));
        BlockSite {
            kernel_stack: kernel_stack.0,
            user_stack: user_stack.0,
            syscall,
            fd,
        }
    }

    /// The file behind a descriptor.
    pub(crate) fn file(&mut self, fd: i32, path: &str) {
        self.recorder.file(SPACE, fd, path);
    }

    /// A request, as the kernel closes it. Times in ns, the begin since the start of the trace.
    pub(crate) fn request(
        &self,
        kind: usize,
        tid: u32,
        begin: u64,
        latency: u64,
        off: &[Off],
    ) -> RawRequest {
        let mut request = RawRequest {
            request_type: kind,
            tgid: PID,
            tid,
            exec_generation: 0,
            incomplete: None,
            comm: "connection".to_owned(),
            label: String::new(),
            begin_ns: START_NS + begin,
            end_ns: START_NS + begin + latency,
            run_queue_ns: 0,
            preempted_ns: 0,
            blocked_ns: 0,
            unattributed_ns: 0,
            blocks: 0,
            preemptions: 0,
            max_depth: 1,
            slots: Vec::new(),
            longest: Vec::new(),
            blocked_in: None,
        };
        for interval in off {
            match *interval {
                Off::Preempted(_, ns) => {
                    request.preempted_ns += ns;
                    request.preemptions += 1;
                }
                Off::Block(site, blocked_ns, run_queue_ns) => {
                    request.blocks += 1;
                    request.run_queue_ns += run_queue_ns;
                    // A futex is woken by a thread, everything else by an interrupt.
                    let waker = if site.syscall == 202 { WAKER } else { (0, 0) };
                    request.longest.push(LongBlock {
                        site,
                        start_ns: request.begin_ns,
                        blocked_ns,
                        run_queue_ns,
                        waker_tid: waker.1,
                        waker_tgid: waker.0,
                    });
                    if site.kernel_stack == STACK_LOST {
                        request.unattributed_ns += blocked_ns;
                        continue;
                    }
                    request.blocked_ns += blocked_ns;
                    match request.slots.iter_mut().find(|slot| slot.site == site) {
                        Some(slot) => slot.blocked_ns += blocked_ns,
                        None => request.slots.push(Slot { site, blocked_ns }),
                    }
                }
            }
        }
        let length = |block: &LongBlock| block.blocked_ns + block.run_queue_ns;
        request
            .longest
            .sort_by_key(|block| std::cmp::Reverse(length(block)));
        request.longest.truncate(4);
        request
    }

    /// Adds the intervals to the sums per stack.
    pub(crate) fn sum(&mut self, kind: usize, off: &[Off]) {
        for interval in off {
            let (site, ns, run_queue, why) = match *interval {
                Off::Block(site, ns, run_queue) => (site, ns, run_queue, off_kind::BLOCK),
                Off::Preempted(site, ns) => (site, ns, 0, off_kind::PREEMPTED),
            };
            let key = (
                site.kernel_stack,
                site.user_stack,
                kind as u32,
                why,
                site.syscall,
                site.fd,
            );
            let sum = self.sums.entry(key).or_default();
            sum.off_ns += ns;
            sum.run_queue_ns += run_queue;
            sum.count += 1;
            sum.longest_ns = sum.longest_ns.max(ns + run_queue);
        }
    }

    /// Adds a complete request to the totals.
    pub(crate) fn total(&mut self, request: &RawRequest) {
        let totals = &mut self.totals[request.request_type];
        totals.count += 1;
        totals.begins += 1;
        totals.ends += 1;
        totals.latency_ns += request.latency_ns();
        totals.run_queue_ns += request.run_queue_ns;
        totals.preempted_ns += request.preempted_ns;
        totals.blocked_ns += request.blocked_ns;
        totals.unattributed_ns += request.unattributed_ns;
        totals.max_ns = totals.max_ns.max(request.latency_ns());
        totals.histogram[bucket(request.latency_ns())] += 1;
    }

    /// A complete request that is kept everywhere.
    pub(crate) fn complete(
        &mut self,
        kind: usize,
        tid: u32,
        begin: u64,
        latency: u64,
        off: &[Off],
    ) {
        let request = self.request(kind, tid, begin, latency, off);
        self.total(&request);
        self.sum(kind, off);
        self.send(&request);
    }

    /// An incomplete request: its record and its stacks are kept, and it is in no total.
    pub(crate) fn incomplete(
        &mut self,
        why: Incomplete,
        tid: u32,
        begin: u64,
        latency: u64,
        off: &[Off],
    ) {
        let mut request = self.request(0, tid, begin, latency, off);
        request.incomplete = Some(why);
        self.totals[0].begins += 1;
        self.totals[0].incomplete += 1;
        self.sum(0, off);
        self.send(&request);
    }

    /// A complete request whose record did not fit into the ring.
    pub(crate) fn lost(&mut self, tid: u32, begin: u64, latency: u64, off: &[Off]) {
        let request = self.request(0, tid, begin, latency, off);
        self.total(&request);
        self.sum(0, off);
    }

    /// A request that is blocked when tracing stops.
    pub(crate) fn blocked_at_stop(&mut self, tid: u32, begin: u64, site: BlockSite, since: u64) {
        let latency = DURATION_NS - begin;
        let off = [Off::Block(site, DURATION_NS - since, 0)];
        let mut request = self.request(0, tid, begin, latency, &off);
        request.incomplete = Some(Incomplete::BlockedAtStop);
        request.blocked_in = Some((site, START_NS + since));
        self.totals[0].begins += 1;
        self.open.push(request);
    }

    /// Ends with no begin.
    pub(crate) fn ends_without_begin(&mut self, count: u64) {
        self.totals[0].ends += count;
        self.totals[0].ends_without_begin += count;
    }

    /// Something was lost.
    pub(crate) fn loss(&mut self, loss: Loss, count: u64) {
        self.losses.push((loss, count));
    }

    /// Bytes as they came from the ring.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.recorder.ring(bytes);
    }

    fn send(&mut self, request: &RawRequest) {
        let bytes = encode_request(&to_record(request));
        // Records without a label end with their last slot.
        let unused = 128 + 32 * (16 - request.slots.len());
        self.recorder.ring(&bytes[..bytes.len() - unused]);
    }

    /// The recording.
    pub(crate) fn finish(mut self, profile: &str) -> Recording {
        let sums = self.sums.iter().map(|(key, sum)| {
            let (kernel_stack, user_stack, request_type, off_kind, syscall, fd) = *key;
            let key = StackSumKey {
                user_stack,
                kernel_stack,
                tgid: PID,
                exec_generation: 0,
                request_type,
                off_kind,
                syscall,
                fd,
            };
            (key, *sum)
        });
        let snapshot = Snapshot {
            stop_ns: START_NS + DURATION_NS,
            totals: self.totals,
            sums: sums.collect(),
            histograms: Vec::new(),
            stacks: self
                .stacks
                .into_iter()
                .map(|(id, addresses)| {
                    (
                        id,
                        RawStack {
                            addresses,
                            stop: Stop::Complete,
                        },
                    )
                })
                .collect(),
            open: self.open,
            losses: self.losses,
            programs: vec![ProgramCost {
                name: "sched_switch".to_owned(),
                runs: 1_234_567,
                run_ns: 456_789_012,
                recursion_misses: 0,
            }],
            walks: None,
        };
        let nothing = &mut HashMap::new();
        self.recorder.finish(
            profile.to_owned(),
            trace(),
            &snapshot,
            nothing,
            &mut self.symbols,
        )
    }
}

/// Ids and addresses made from names, the same in every run.
fn stack_id(names: &[&str], base: u64) -> (u64, Vec<u64>) {
    let hash = |text: &str| {
        text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    let addresses = names.iter().map(|name| base + hash(name) % 0x10_0000);
    (hash(&names.join(";")) | 1 << 63, addresses.collect())
}

fn trace() -> TraceInfo {
    let marker = |marker: &str, place: &str, probes| MarkerInfo {
        request: "command".to_owned(),
        marker: marker.to_owned(),
        place: place.to_owned(),
        object: "/usr/sbin/mariadbd".to_owned(),
        probes,
    };
    TraceInfo {
        version: "0.1.0".to_owned(),
        profile: "mysql".to_owned(),
        processes: vec![(PID, "mariadbd".to_owned())],
        kernel: "6.12.0".to_owned(),
        start_unix_ns: 1_700_000_050_000_000_000,
        monotonic_to_unix_ns: 1_700_000_000_000_000_000,
        duration_ns: DURATION_NS,
        ended_by: "duration".to_owned(),
        stack_filter: String::new(),
        preempted_stacks: true,
        unmatched_waits: vec![("redo log".to_owned(), vec!["log_write_up_to*".to_owned()])],
        markers: vec![
            marker("begin", "dispatch_command entry", 1),
            marker("end", "dispatch_command return", 3),
        ],
    }
}
