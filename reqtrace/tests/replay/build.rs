//! Recordings made by hand: what a server does in, a recording of it out.

use std::collections::{BTreeMap, HashSet};

use reqtrace_common::histogram::bucket;
use reqtrace_common::loss::Loss as Cause;
use reqtrace_common::record::{FileId, STACK_LOST};
use reqtrace_common::sums::off_kind;
use reqtrace_common::syscall::has_size;
use reqtrace_recording::losses::MALFORMED;
use reqtrace_recording::{
    Address, AddressSpace, Away, AwayIn, BlockSite, BlockedIn, Comm, Cost, End, Event, File,
    Header, Incomplete, KERNEL, LongBlock, Loss, Marker, Name, Object, Open, Options, Process,
    ProcessChange, ProgramCost, QUEUED, Request, RequestOf, SYSCALLS, Sample, Slot, Stack,
    StackSum, StackSumKey, SumOf, TypeTotals, UnmatchedWait, Window, Writer,
};

/// The traced server.
pub(crate) const PID: u32 = 9587;
/// When tracing began, `CLOCK_MONOTONIC` ns.
pub(crate) const START_NS: u64 = 50_000_000_000;
/// How long it lasted.
pub(crate) const DURATION_NS: u64 = 10_000_000_000;

/// The place of the scenes in which requests are queued.
pub(crate) const POOL_QUEUE: u32 = 2;

/// Process and thread that wake.
const WAKER: (u32, u32) = (PID, 9588);

pub(crate) const SPACE: AddressSpace = AddressSpace {
    tgid: PID,
    exec_generation: 0,
};

/// The object of the server's addresses.
const PROGRAM: u32 = 2;

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
    writer: Writer<Vec<u8>>,
    stacks: HashSet<u64>,
    sums: BTreeMap<(u64, u64, u32, u32, i32, FileId), StackSum>,
    totals: Vec<TypeTotals>,
    open: Vec<Open>,
    losses: Vec<(Cause, u64)>,
    sent: u64,
}

impl Builder {
    /// For so many request types.
    pub(crate) fn new(types: usize, profile: &str) -> Self {
        Self::with(types, &header(profile))
    }

    /// The same with samples of requests on their CPUs.
    pub(crate) fn sampled(types: usize, profile: &str) -> Self {
        let header = Header {
            cpu_rate: 199,
            cpu_engine: "cpu-clock".to_owned(),
            ..header(profile)
        };
        Self::with(types, &header)
    }

    /// The same with samples, intervals and labels.
    pub(crate) fn complete_trace(types: usize, profile: &str) -> Self {
        let sampled = header(profile);
        let header = Header {
            cpu_rate: 199,
            cpu_engine: "cpu-clock".to_owned(),
            blame: true,
            options: Options {
                labels: true,
                ..sampled.options
            },
            ..sampled
        };
        Self::with(types, &header)
    }

    fn with(types: usize, header: &Header) -> Self {
        let mut builder = Self {
            writer: Writer::new(Vec::new(), header).unwrap(),
            stacks: HashSet::new(),
            sums: BTreeMap::new(),
            totals: vec![TypeTotals::ZERO; types],
            open: Vec::new(),
            losses: Vec::new(),
            sent: 0,
        };
        builder.event(&Event::Process(&Process {
            space: SPACE,
            change: ProcessChange::Start,
            parent: 0,
            time_ns: 0,
            name: "mariadbd".to_owned(),
        }));
        builder.event(&Event::Object(&Object {
            id: PROGRAM,
            path: "/usr/sbin/mariadbd".to_owned(),
            build_id: Vec::new(),
        }));
        builder
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) {
        self.writer.event(event).unwrap();
    }

    /// A request that will end was met at this place; of the kernel only when it has such a stack.
    pub(crate) fn sample(&mut self, kind: usize, tid: u32, begin: u64, site: BlockSite) {
        self.event(&Event::Sample(&Sample {
            space: SPACE,
            tid,
            request: RequestOf {
                begin_ns: START_NS + begin,
                request_type: kind as u32,
            },
            weight: 1,
            at_ns: START_NS + begin + 1000,
            user_stack: site.user_stack,
            kernel_stack: site.kernel_stack,
        }));
    }

    /// Resumes that fit no request.
    pub(crate) fn misfits(&mut self, unknown_keys: u64, running_elsewhere: u64) {
        self.totals[0].unknown_keys += unknown_keys;
        self.totals[0].running_elsewhere += running_elsewhere;
    }

    /// A request that is parked when tracing stops.
    pub(crate) fn parked_at_stop(&mut self, tid: u32, begin: u64, place: u32, since: u64) {
        let latency = DURATION_NS - begin;
        let mut request = self.request(0, tid, begin, latency, &[]);
        request.request.incomplete = Some(Incomplete::ParkedAtStop);
        request.away = vec![Away {
            place,
            count: 1,
            ns: DURATION_NS - since,
        }];
        request.away_in = Some(AwayIn {
            place,
            since_ns: START_NS + since,
        });
        self.totals[0].begins += 1;
        self.open.push(request);
    }

    /// A place of blocking; frames are innermost first.
    pub(crate) fn site(
        &mut self,
        kernel: &[&str],
        user: &[&str],
        syscall: i32,
        file: FileId,
    ) -> BlockSite {
        BlockSite {
            kernel_stack: self.stack(None, kernel),
            user_stack: self.stack(Some(SPACE), user),
            syscall,
            file,
        }
    }

    /// Says a stack and its names.
    fn stack(&mut self, space: Option<AddressSpace>, names: &[&str]) -> u64 {
        let object = if space.is_none() { KERNEL } else { PROGRAM };
        let (id, offsets) = stack_id(names);
        if !self.stacks.insert(id) {
            return id;
        }
        let mut addresses = Vec::new();
        for (name, offset) in names.iter().zip(offsets) {
            let address = Address { object, offset };
            self.event(&Event::Name(&Name {
                address,
                is_return: !addresses.is_empty(),
                frames: vec![(*name).to_owned()],
            }));
            addresses.push(address);
        }
        self.event(&Event::Stack(&Stack {
            space,
            id,
            stop: 0,
            addresses,
        }));
        id
    }

    /// The name of a file.
    pub(crate) fn file(&mut self, file: FileId, path: &str) {
        self.event(&Event::File(&File {
            file,
            path: path.to_owned(),
            device: 0,
            inode: 0,
        }));
    }

    /// A request, as the kernel closes it. Times in ns, the begin since the start of the trace.
    pub(crate) fn request(
        &self,
        kind: usize,
        tid: u32,
        begin: u64,
        latency: u64,
        off: &[Off],
    ) -> Open {
        let (mut slots, mut longest): (Vec<Slot>, Vec<LongBlock>) = (Vec::new(), Vec::new());
        let mut request = Request {
            request_type: kind as u32,
            space: SPACE,
            tid,
            comm: Comm::from("connection"),
            begin_ns: START_NS + begin,
            end_ns: START_NS + begin + latency,
            run_queue_ns: 0,
            preempted_ns: 0,
            blocked_ns: 0,
            unattributed_ns: 0,
            blocks: 0,
            preemptions: 0,
            max_depth: 1,
            weight: 1,
            ..Request::default()
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
                    longest.push(LongBlock {
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
                    match slots.iter_mut().find(|slot| slot.site == site) {
                        Some(slot) => slot.blocked_ns += blocked_ns,
                        None => slots.push(Slot { site, blocked_ns }),
                    }
                }
            }
        }
        let length = |block: &LongBlock| block.blocked_ns + block.run_queue_ns;
        longest.sort_by_key(|block| std::cmp::Reverse(length(block)));
        longest.truncate(4);
        Open {
            request,
            slots,
            longest,
            ..Open::default()
        }
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
                site.file,
            );
            let sum = self.sums.entry(key).or_default();
            sum.off_ns += ns;
            sum.run_queue_ns += run_queue;
            sum.count += 1;
            sum.longest_ns = sum.longest_ns.max(ns);
            sum.longest_run_queue_ns = sum.longest_run_queue_ns.max(run_queue);
        }
    }

    /// Adds a complete request to the totals.
    pub(crate) fn total(&mut self, request: &Request<'_>) {
        let totals = &mut self.totals[request.request_type as usize];
        totals.count += 1;
        totals.begins += 1;
        totals.ends += 1;
        totals.latency_ns += request.latency_ns();
        totals.run_queue_ns += request.run_queue_ns;
        totals.preempted_ns += request.preempted_ns;
        totals.blocked_ns += request.blocked_ns;
        totals.unattributed_ns += request.unattributed_ns;
        for away in request.away {
            match away.place {
                QUEUED | POOL_QUEUE => totals.queued_ns += away.ns,
                _ => totals.parked_ns += away.ns,
            }
        }
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
        self.total(&request.request);
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
        request.request.incomplete = Some(why);
        self.totals[0].begins += 1;
        self.totals[0].incomplete += 1;
        self.sum(0, off);
        self.send(&request);
    }

    /// A complete request whose record did not fit into the ring.
    pub(crate) fn lost(&mut self, tid: u32, begin: u64, latency: u64, off: &[Off]) {
        let request = self.request(0, tid, begin, latency, off);
        self.total(&request.request);
        self.sum(0, off);
    }

    /// A request that is blocked when tracing stops.
    pub(crate) fn blocked_at_stop(&mut self, tid: u32, begin: u64, site: BlockSite, since: u64) {
        let latency = DURATION_NS - begin;
        let off = [Off::Block(site, DURATION_NS - since, 0)];
        let mut request = self.request(0, tid, begin, latency, &off);
        request.request.incomplete = Some(Incomplete::BlockedAtStop);
        request.blocked_in = Some(BlockedIn {
            site,
            since_ns: START_NS + since,
        });
        self.totals[0].begins += 1;
        self.open.push(request);
    }

    /// Ends with no begin.
    pub(crate) fn ends_without_begin(&mut self, count: u64) {
        self.totals[0].ends += count;
        self.totals[0].ends_without_begin += count;
    }

    /// Something was lost.
    pub(crate) fn loss(&mut self, loss: Cause, count: u64) {
        self.losses.push((loss, count));
    }

    /// A record that could not be decoded.
    pub(crate) fn malformed(&mut self) {
        self.event(&Event::Loss(&Loss {
            name: MALFORMED.to_owned(),
            count: 1,
        }));
    }

    fn next_id(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    pub(crate) fn send(&mut self, request: &Open) {
        let id = self.next_id();
        let attributes = request.attributes();
        let request = Request {
            id,
            attributes: &attributes,
            ..request.request()
        };
        self.event(&Event::Request(request));
        // As if it were written every second.
        if id.is_multiple_of(50) {
            self.writer.flush().unwrap();
        }
    }

    /// The recording.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let sums = self.sums.iter().map(|(key, sum)| {
            let (kernel_stack, user_stack, request_type, off_kind, syscall, file) = *key;
            let key = StackSumKey {
                user_stack,
                kernel_stack,
                tgid: PID,
                exec_generation: 0,
                request_type,
                off_kind,
                syscall,
                file,
            };
            // Each call asks for a page.
            let bytes = if has_size(key.syscall) {
                4096 * sum.count
            } else {
                0
            };
            let sum = StackSum { bytes, ..*sum };
            SumOf { key, sum }
        });
        let sums = sums.collect();
        let stop_ns = START_NS + DURATION_NS;
        let window = Window {
            until_ns: stop_ns,
            totals: self.totals.clone(),
            sums,
            histograms: Vec::new(),
            longest_apart: true,
            markers: Vec::new(),
        };
        self.event(&Event::Window(&window));
        for (loss, count) in std::mem::take(&mut self.losses) {
            let name = loss.name().to_owned();
            self.event(&Event::Loss(&Loss { name, count }));
        }
        for mut open in std::mem::take(&mut self.open) {
            open.request.id = self.next_id();
            self.event(&Event::Open(&open));
        }
        self.event(&Event::Cost(&Cost {
            programs: vec![ProgramCost {
                name: "sched_switch".to_owned(),
                runs: 1_234_567,
                run_ns: 456_789_012,
                recursion_misses: 0,
            }],
            ..Cost::default()
        }));
        let ended_by = "duration".to_owned();
        self.event(&Event::End(&End {
            stop_ns,
            ended_by,
            ..End::default()
        }));
        self.writer.flush().unwrap();
        self.writer.into_inner()
    }
}

/// Id and offsets made from names, the same in every run.
fn stack_id(names: &[&str]) -> (u64, Vec<u64>) {
    let hash = |text: &str| {
        text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    let offsets = names.iter().map(|name| hash(name) % 0x10_0000);
    (hash(&names.join(";")) | 1 << 63, offsets.collect())
}

fn header(profile: &str) -> Header {
    let marker = |marker: &str, place: &str, probes| Marker {
        request: "command".to_owned(),
        marker: marker.to_owned(),
        place: place.to_owned(),
        object: "/usr/sbin/mariadbd".to_owned(),
        probes,
    };
    Header {
        version: "0.1.0".to_owned(),
        host: "db1".to_owned(),
        kernel: "6.12.0".to_owned(),
        start_ns: START_NS,
        monotonic_to_unix_ns: 1_700_000_000_000_000_000,
        profile: "mysql".to_owned(),
        profile_text: profile.to_owned(),
        more_profile_texts: Vec::new(),
        options: Options {
            preempted_stacks: true,
            ..Options::default()
        },
        unmatched_waits: vec![UnmatchedWait {
            wait: "redo log".to_owned(),
            functions: vec!["log_write_up_to*".to_owned()],
        }],
        architecture: "x86_64".to_owned(),
        syscalls: SYSCALLS.to_owned(),
        markers: vec![
            marker("begin", "dispatch_command at entry", 1),
            marker("end", "dispatch_command at return", 3),
        ],
        ..Header::default()
    }
}
