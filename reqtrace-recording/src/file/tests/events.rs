//! Events to write: some that are like those of a trace, and any.

use proptest::prelude::*;
use reqtrace_common::record::FILE_NONE;

use crate::event::{
    Address, AddressSpace, Away, AwayIn, AwayInterval, BlockSite, BlockedIn, ClockStep, Comm, Cost,
    CpuWait, DiskUse, End, Event, File, Futex, Header, Holder, Incomplete, Interval, IntervalKind,
    LateChildren, LengthHistogram, LengthsOf, LongBlock, Loss, LostCpu, Mapping, Marker,
    MarkerCount, MarkerCounts, Name, NumberOf, Object, Open, Options, Origin, Overhead, Park, Part,
    Process, ProcessChange, ProgramCost, Request, RequestOf, Runner, SYSCALLS, Sample, Sender,
    Sent, ShedSpan, Slot, Stack, StackSum, StackSumKey, SumOf, TextOf, Thread, TypeTotals,
    UnmatchedWait, Unrecorded, Untraced, Value, Waker, WakerContext, WakerIs, WalkCost, Window,
    WokenFrom,
};

/// An event with memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owned {
    Process(Process),
    Object(Object),
    Mapping(Mapping),
    File(File),
    Thread(Thread),
    Name(Name),
    Stack(Stack),
    Request(Box<Open>),
    Open(Box<Open>),
    Interval(Box<Interval>),
    Away(AwayInterval),
    CpuWait(CpuWait),
    Disk(DiskUse),
    Unrecorded(Unrecorded),
    Origin(Origin),
    Futex(Futex),
    Sample(Sample),
    Tick(u64),
    Sent(Sent),
    Clock(ClockStep),
    StacksAnew,
    Window(Box<Window>),
    Loss(Loss),
    Cost(Cost),
    End(End),
}

impl Owned {
    pub(crate) fn of(event: &Event<'_>) -> Self {
        match *event {
            Event::Process(event) => Self::Process(event.clone()),
            Event::Object(event) => Self::Object(event.clone()),
            Event::Mapping(event) => Self::Mapping(event.clone()),
            Event::File(event) => Self::File(event.clone()),
            Event::Thread(event) => Self::Thread(event.clone()),
            Event::Name(event) => Self::Name(event.clone()),
            Event::Stack(event) => Self::Stack(event.clone()),
            Event::Request(request) => Self::Request(Box::new(owned(&request))),
            Event::Open(event) => Self::Open(Box::new(event.clone())),
            Event::Interval(event) => Self::Interval(Box::new(*event)),
            Event::Away(event) => Self::Away(*event),
            Event::CpuWait(event) => Self::CpuWait(event.clone()),
            Event::Disk(event) => Self::Disk(event.clone()),
            Event::Unrecorded(event) => Self::Unrecorded(*event),
            Event::Origin(event) => Self::Origin(*event),
            Event::Futex(event) => Self::Futex(event.clone()),
            Event::Sample(event) => Self::Sample(*event),
            Event::Tick(now_ns) => Self::Tick(now_ns),
            Event::Sent(event) => Self::Sent(*event),
            Event::Clock(event) => Self::Clock(*event),
            Event::StacksAnew => Self::StacksAnew,
            Event::Window(event) => Self::Window(Box::new(event.clone())),
            Event::Loss(event) => Self::Loss(event.clone()),
            Event::Cost(event) => Self::Cost(event.clone()),
            Event::End(event) => Self::End(event.clone()),
        }
    }

    /// Hands it out as an event.
    pub(crate) fn with<R>(&self, take: impl FnOnce(&Event<'_>) -> R) -> R {
        if let Self::Request(request) = self {
            return take(&Event::Request(Request {
                attributes: &request.attributes(),
                ..request.request()
            }));
        }
        take(&self.event())
    }

    fn event(&self) -> Event<'_> {
        match self {
            Self::Process(event) => Event::Process(event),
            Self::Object(event) => Event::Object(event),
            Self::Mapping(event) => Event::Mapping(event),
            Self::File(event) => Event::File(event),
            Self::Thread(event) => Event::Thread(event),
            Self::Name(event) => Event::Name(event),
            Self::Stack(event) => Event::Stack(event),
            Self::Request(request) => Event::Request(request.request()),
            Self::Open(event) => Event::Open(event),
            Self::Interval(event) => Event::Interval(event),
            Self::Away(event) => Event::Away(event),
            Self::CpuWait(event) => Event::CpuWait(event),
            Self::Disk(event) => Event::Disk(event),
            Self::Unrecorded(event) => Event::Unrecorded(event),
            Self::Origin(event) => Event::Origin(event),
            Self::Futex(event) => Event::Futex(event),
            Self::Sample(event) => Event::Sample(event),
            Self::Tick(now_ns) => Event::Tick(*now_ns),
            Self::Sent(event) => Event::Sent(event),
            Self::Clock(event) => Event::Clock(event),
            Self::StacksAnew => Event::StacksAnew,
            Self::Window(event) => Event::Window(event),
            Self::Loss(event) => Event::Loss(event),
            Self::Cost(event) => Event::Cost(event),
            Self::End(event) => Event::End(event),
        }
    }
}

fn owned(request: &Request<'_>) -> Open {
    let (mut numbers, mut texts) = (Vec::new(), Vec::new());
    for attribute in request.attributes {
        match attribute.value {
            Value::Number(number) => numbers.push(NumberOf {
                index: attribute.index,
                number,
            }),
            Value::Text { bytes, is_cut } => texts.push(TextOf {
                index: attribute.index,
                bytes: bytes.to_vec(),
                is_cut,
            }),
        }
    }
    Open {
        label: request.label.to_vec(),
        slots: request.slots.to_vec(),
        longest: request.longest.to_vec(),
        request: Request {
            label: &[],
            slots: &[],
            longest: &[],
            away: &[],
            parks: &[],
            attributes: &[],
            ..*request
        },
        blocked_in: None,
        away: request.away.to_vec(),
        parks: request.parks.to_vec(),
        away_in: None,
        numbers,
        texts,
    }
}

pub(super) fn header() -> Header {
    Header {
        version: "0.1.0".to_owned(),
        host: "db1".to_owned(),
        kernel: "6.12.0".to_owned(),
        start_ns: 1_000_000_000,
        monotonic_to_unix_ns: 1_700_000_000_000_000_000,
        profile: "mysql".to_owned(),
        profile_text: "[profile]\nname = \"mysql\"\n".repeat(20),
        more_profile_texts: vec!["[profile]\nname = \"php-fpm\"\n".to_owned()],
        options: Options {
            labels: true,
            stack_filter: "of at least 1 ms".to_owned(),
            ..Options::default()
        },
        markers: vec![Marker {
            request: "command".to_owned(),
            marker: "begin".to_owned(),
            place: "dispatch_command at entry".to_owned(),
            object: "/usr/sbin/mariadbd".to_owned(),
            probes: 1,
        }],
        unmatched_waits: vec![UnmatchedWait {
            wait: "redo log".to_owned(),
            functions: vec!["log_write*".to_owned()],
        }],
        blame: true,
        cpu_rate: 199,
        cpu_engine: "cpu-clock".to_owned(),
        before: true,
        sockets: vec!["TCP".to_owned(), "UDP".to_owned()],
        architecture: "x86_64".to_owned(),
        syscalls: SYSCALLS.to_owned(),
        lacks: vec!["this kernel has no air".to_owned()],
        cpus: 2,
        cpu_model: "a fast one".to_owned(),
        holders: true,
        interrupts: true,
        steal: true,
        part: Part::default(),
    }
}

fn site(number: u64) -> BlockSite {
    BlockSite {
        kernel_stack: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        user_stack: number.wrapping_mul(0xc2b2_ae3d_27d4_eb4f),
        syscall: 202,
        file: if number.is_multiple_of(3) {
            7
        } else {
            FILE_NONE
        },
    }
}

/// A request like many.
pub(super) fn request(id: u64) -> Open {
    let begin_ns = 1_000_000_000 + id * 70_000;
    let slots: Vec<Slot> = (0..id % 4)
        .map(|slot| Slot {
            site: site(id % 7 + slot),
            blocked_ns: (id * 7_919 + slot) % 1_000_003,
        })
        .collect();
    let longest = slots
        .iter()
        .map(|slot| LongBlock {
            site: slot.site,
            start_ns: begin_ns + id % 13_000,
            blocked_ns: slot.blocked_ns,
            run_queue_ns: id % 5_000,
            waker_tid: (id % 3) as u32,
            waker_tgid: (id % 3) as u32,
        })
        .collect();
    let blocked_ns = slots.iter().map(|slot| slot.blocked_ns).sum();
    Open {
        request: Request {
            id,
            request_type: 0,
            space: AddressSpace {
                tgid: 4711,
                exec_generation: 0,
            },
            tid: 4712 + (id % 16) as u32,
            comm: Comm::from("connection"),
            begin_ns,
            end_ns: begin_ns + blocked_ns + id * 104_729 % 90_001,
            run_queue_ns: id % 5_000,
            blocked_ns,
            blocks: slots.len() as u32,
            preemptions: (id % 2) as u32,
            max_depth: 1,
            weight: if id % 9 == 4 { 7 } else { 1 },
            moves: (id % 5) as u32 / 3,
            waited_before_ns: (id % 7 > 2).then_some(id * 333),
            lost: LostCpu {
                interrupts_ns: id % 3 * 2_111,
                softirqs_ns: id % 5 * 17,
                steal_ns: u64::from(id % 6 == 5) * 1_000_003,
            },
            ..Request::default()
        },
        away: (0..id % 3)
            .map(|place| Away {
                place: place as u32 * 8,
                count: id as u32,
                ns: id * 1_000,
            })
            .collect(),
        numbers: (id % 4 == 1)
            .then_some(NumberOf {
                index: 1,
                number: id,
            })
            .into_iter()
            .collect(),
        texts: (id % 5 == 2)
            .then(|| TextOf {
                index: 0,
                bytes: b"/index.html".to_vec(),
                is_cut: id.is_multiple_of(2),
            })
            .into_iter()
            .collect(),
        slots,
        longest,
        ..Open::default()
    }
}

/// A short trace with every kind of event.
pub(super) fn some_events() -> Vec<Owned> {
    let space = AddressSpace {
        tgid: 4711,
        exec_generation: 0,
    };
    let key = StackSumKey {
        user_stack: 5,
        kernel_stack: 6,
        tgid: 4711,
        syscall: -1,
        ..StackSumKey::default()
    };
    let mut totals = TypeTotals::ZERO;
    totals.count = 12;
    totals.histogram[40] = 12;
    totals.parked_ns = 1;
    totals.running_elsewhere = 4;
    totals.children = 5;
    let mut lengths = LengthHistogram::ZERO;
    lengths.counts[3] = 4;
    let sum = StackSum {
        off_ns: 12,
        count: 3,
        bytes: 12_345,
        longest_run_queue_ns: 67,
        ..StackSum::default()
    };
    let mut events = vec![
        Owned::Process(Process {
            space,
            change: ProcessChange::Start,
            parent: 0,
            time_ns: 0,
            name: "mariadbd".to_owned(),
        }),
        Owned::Object(Object {
            id: 2,
            path: "/usr/sbin/mariadbd".to_owned(),
            build_id: vec![1, 2, 3],
        }),
        Owned::Mapping(Mapping {
            space,
            start: 0x5500_0000_0000,
            end: 0x5500_0010_0000,
            offset: 0x1000,
            object: 2,
        }),
        Owned::File(File {
            file: 7,
            path: "/var/lib/mysql/ib_logfile0".to_owned(),
            device: 8 << 20 | 1,
            inode: 1_234,
        }),
    ];
    for id in 1..12 {
        let address = Address {
            object: 2,
            offset: id * 0x123,
        };
        events.push(Owned::Name(Name {
            address,
            is_return: id % 2 == 0,
            frames: vec!["lock_wait(que_thr_t*)".to_owned()],
        }));
        events.push(Owned::Stack(Stack {
            space: (id % 2 == 0).then_some(space),
            id: id.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            stop: 0,
            addresses: vec![address; 3],
        }));
        events.push(Owned::Request(Box::new(request(id))));
    }
    events.extend([
        Owned::Thread(Thread {
            tgid: 4711,
            tid: 4720,
            name: "log writer".to_owned(),
        }),
        Owned::Sample(Sample {
            space: AddressSpace {
                tgid: 4711,
                exec_generation: 1,
            },
            tid: 4712,
            request: RequestOf {
                begin_ns: 1_000_000_100,
                request_type: 2,
            },
            weight: 8,
            at_ns: 1_000_000_300,
            user_stack: 2,
            kernel_stack: 4,
        }),
        Owned::Interval(Box::new(Interval {
            space,
            tid: 4720,
            sequence: 7,
            request: Some(RequestOf {
                begin_ns: 1_900_000_000,
                request_type: 1,
            }),
            site: site(4),
            out_ns: 1_950_000_000,
            kind: IntervalKind::Blocked {
                wake_ns: 1_960_000_000,
                waker: Waker {
                    context: WakerContext::Unclear,
                    is: WakerIs::Helper(1_000_000_000),
                    tid: 12,
                    tgid: 11,
                    stack: 88,
                },
            },
            in_ns: 1_961_000_000,
            futex: 0x7f00_1234,
            holder: Holder::Thread(4722),
            woken_from: Some(WokenFrom {
                space: AddressSpace {
                    tgid: 4711,
                    exec_generation: 1,
                },
                user_stack: 0x7788_99aa_bbcc,
            }),
        })),
        Owned::Interval(Box::new(Interval {
            space,
            tid: 4721,
            sequence: u32::MAX,
            request: None,
            site: BlockSite::PREEMPTED,
            out_ns: 1_950_000_000,
            kind: IntervalKind::Preempted,
            in_ns: 1_961_000_000,
            futex: 0,
            holder: Holder::NoFutex,
            woken_from: None,
        })),
        Owned::Away(AwayInterval {
            space,
            request: RequestOf {
                begin_ns: 1_900_000_000,
                request_type: 1,
            },
            from_tid: 4720,
            place: 8,
            is_queued: true,
            since_ns: 1_950_000_000,
            until_ns: 1_960_000_000,
            by_tid: 4721,
            by_request: Some(RequestOf {
                begin_ns: 1_800_000_000,
                request_type: 0,
            }),
            is_ready: true,
            woken_from: Some(WokenFrom {
                space,
                user_stack: 77,
            }),
            by_helper_since_ns: 1_700_000_000,
            goes_on: true,
            ran: Some(RequestOf {
                begin_ns: 1_750_000_000,
                request_type: 1,
            }),
            ran_until_ns: 1_940_000_000,
        }),
        Owned::CpuWait(CpuWait {
            space,
            tid: 4719,
            cpu: 1,
            from_ns: 1_900_000_000,
            until_ns: 1_960_000_000,
            limited_ns: 0,
            cgroup: String::new(),
            runners: vec![
                Runner::default(),
                Runner {
                    tgid: 991,
                    tid: 992,
                    policy: 1,
                    priority: 89,
                    comm: Comm::from("reindexd"),
                    ns: 59_900_000,
                },
            ],
        }),
        Owned::Unrecorded(Unrecorded {
            request_type: 1,
            tgid: 4711,
            tid: 4720,
            comm: Comm::from("worker"),
            begin_ns: 1_900_000_000,
            end_ns: 1_910_000_000,
        }),
        Owned::Disk(DiskUse {
            device: 254 << 20,
            disk: Comm::from("vda"),
            tgid: 210,
            tid: 211,
            comm: Comm::from("jbd2/vda-8"),
            is_kernel: true,
            is_sum: true,
            from_ns: 1_900_000_000,
            issued_ns: 1_910_000_000,
            until_ns: 1_960_000_000,
            read_bytes: 4096,
            written_bytes: 8192,
            count: 2,
            flushes: 1,
        }),
        Owned::CpuWait(CpuWait {
            space,
            tid: 4719,
            cpu: 0,
            from_ns: 1_960_000_000,
            until_ns: 1_980_000_000,
            limited_ns: 20_000_000,
            cgroup: "/shop".to_owned(),
            runners: Vec::new(),
        }),
        Owned::Origin(Origin {
            space,
            request: RequestOf {
                begin_ns: 1_900_000_000,
                request_type: 1,
            },
            until_ns: 1_960_000_000,
            arrived_ns: 1_955_000_000,
            sender: Sender::Thread {
                tgid: 11,
                tid: 12,
                is: WakerIs::BetweenRequests,
            },
            sent_ns: 1_953_000_000,
        }),
        Owned::Origin(Origin {
            space,
            request: RequestOf {
                begin_ns: 1_900_000_000,
                request_type: 1,
            },
            until_ns: 1_960_000_000,
            arrived_ns: 1_955_000_000,
            sender: Sender::Peer(([192, 0, 2, 1], 80).into()),
            sent_ns: 0,
        }),
        Owned::Futex(Futex {
            space,
            address: 0x7f00_1234_5678,
            lies_in: "libc.so.6 main_arena".to_owned(),
        }),
        Owned::Tick(2_000_000_000),
        Owned::Sent(Sent {
            second: 1,
            requests: 6_469,
            latency_ns: 46_000_000_000,
        }),
        Owned::Clock(ClockStep {
            at_ns: 2_000_000_000,
            to_unix_ns: -3_600_000_000_000,
        }),
        Owned::StacksAnew,
        Owned::Window(Box::new(Window {
            until_ns: 2_000_000_000,
            totals: vec![totals],
            sums: vec![SumOf { key, sum }],
            histograms: vec![LengthsOf { key, lengths }],
            longest_apart: true,
            markers: vec![MarkerCount {
                request: 0,
                marker: "park".to_owned(),
                place: "send at return".to_owned(),
                object: "/usr/sbin/server".to_owned(),
                probes: 2,
                counts: MarkerCounts {
                    hits: 1,
                    condition_false: 2,
                    unknown_keys: 3,
                    elsewhere: 4,
                    other_type: 5,
                    parked_already: 6,
                    resumed: 7,
                    not_ready: 8,
                },
            }],
        })),
        Owned::Loss(Loss {
            name: "ring_full".to_owned(),
            count: 3,
        }),
        Owned::Cost(Cost {
            programs: vec![ProgramCost {
                name: "sched_switch".to_owned(),
                runs: 5,
                run_ns: 500,
                recursion_misses: 0,
            }],
            walks: Some(WalkCost {
                walks: 5,
                frames: 60,
                run_ns: 900,
                p999_ns: 300,
                max_ns: 301,
            }),
            overhead: Some(Overhead {
                traps_ns: 9,
                hits: 1,
                ..Overhead::default()
            }),
            shed: vec![ShedSpan {
                what: "stacks".to_owned(),
                from_ns: 1,
                to_ns: 2,
            }],
            untraced: Some(Untraced {
                work_ns: 3,
                hits: 4,
            }),
            cold_percent: 190,
        }),
        Owned::Open(Box::new(Open {
            blocked_in: Some(BlockedIn {
                site: site(3),
                since_ns: 1_900_000_000,
            }),
            away_in: Some(AwayIn {
                place: 9,
                since_ns: 1_950_000_000,
            }),
            ..request(12)
        })),
        Owned::End(End {
            stop_ns: 2_000_000_000,
            ended_by: "duration".to_owned(),
            late_children: LateChildren {
                count: 2,
                slowest_ns: 5_000,
            },
        }),
    ]);
    events
}

prop_compose! {
    fn any_site()(number in 0_u64..5, syscall in any::<i32>(), file in 0_u32..3) -> BlockSite {
        BlockSite { syscall, file, ..site(number) }
    }
}

prop_compose! {
    fn any_long()(
        site in any_site(), start_ns in any::<u64>(), blocked_ns in any::<u64>(),
        run_queue_ns in any::<u64>(), waker_tid in 0_u32..3, waker_tgid in 0_u32..3,
    ) -> LongBlock {
        LongBlock { site, start_ns, blocked_ns, run_queue_ns, waker_tid, waker_tgid }
    }
}

prop_compose! {
    fn any_keyed()(
        away in prop::collection::vec((0_u32..18, any::<u32>(), any::<u64>()), 0..4),
        parks in prop::collection::vec((any::<u64>(), 0_u32..18, any::<u32>(), any::<u64>()), 0..3),
        moves in prop_oneof![3 => Just(0), 1 => any::<u32>()],
        waited_before_ns in prop::option::of(0..u64::MAX),
        lost in prop_oneof![2 => Just([0; 3]), 1 => any::<[u64; 3]>()],
        numbers in prop::collection::vec((0_u32..8, any::<u64>()), 0..3),
        texts in prop::collection::vec(
            (0_u32..8, prop::collection::vec(any::<u8>(), 0..5), any::<bool>()),
            0..3,
        ),
    ) -> Open {
        let away = away.into_iter().map(|(place, count, ns)| Away { place, count, ns });
        Open {
            request: Request {
                moves,
                waited_before_ns,
                lost: LostCpu {
                    interrupts_ns: lost[0],
                    softirqs_ns: lost[1],
                    steal_ns: lost[2],
                },
                ..Request::default()
            },
            away: away.collect(),
            parks: parks
                .into_iter()
                .map(|(stack, place, count, ns)| Park { stack, place, count, ns })
                .collect(),
            numbers: numbers.into_iter().map(|(index, number)| NumberOf { index, number }).collect(),
            texts: texts
                .into_iter()
                .map(|(index, bytes, is_cut)| TextOf { index, bytes, is_cut })
                .collect(),
            ..Open::default()
        }
    }
}

prop_compose! {
    fn any_request()(
        keyed in prop_oneof![Just(Open::default()), any_keyed()],
        id in prop_oneof![1_u64..4, any::<u64>()],
        numbers in any::<[u64; 5]>(),
        counts in any::<[u32; 6]>(),
        comm in any::<[u8; 16]>(),
        label in prop::collection::vec(any::<u8>(), 0..6),
        slots in prop::collection::vec((any_site(), 0..u64::MAX / 32), 0..5),
        longest in prop::collection::vec(any_long(), 0..5),
        reason in 0_u32..8,
    ) -> Open {
        let slots: Vec<Slot> =
            slots.into_iter().map(|(site, blocked_ns)| Slot { site, blocked_ns }).collect();
        let [begin_ns, end_ns, run_queue_ns, preempted_ns, unattributed_ns] = numbers;
        let [request_type, tgid, tid, blocks, preemptions, max_depth] = counts;
        Open {
            request: Request {
                id,
                request_type,
                space: AddressSpace { tgid, exec_generation: tid % 3 },
                tid,
                incomplete: Incomplete::of(reason).unwrap(),
                comm: Comm(comm),
                begin_ns,
                end_ns,
                run_queue_ns,
                preempted_ns,
                blocked_ns: slots.iter().map(|slot| slot.blocked_ns).sum(),
                unattributed_ns,
                blocks,
                preemptions,
                max_depth,
                weight: blocks % 3 + 1,
                ..keyed.request
            },
            label,
            slots,
            longest,
            ..keyed
        }
    }
}

/// Events in any order.
pub(crate) fn any_events() -> impl Strategy<Value = Vec<Owned>> {
    let all = some_events();
    let event = prop_oneof![
        3 => any_request().prop_map(|request| Owned::Request(Box::new(request))),
        1 => (
            any_request(),
            prop::option::of((any_site(), any::<u64>())),
            prop::option::of((0_u32..10, any::<u64>())),
        )
            .prop_map(|(request, blocked_in, away_in)| {
                let blocked_in = blocked_in.map(|(site, since_ns)| BlockedIn { site, since_ns });
                let away_in = away_in.map(|(place, since_ns)| AwayIn { place, since_ns });
                Owned::Open(Box::new(Open { blocked_in, away_in, ..request }))
            }),
        2 => prop::sample::select(all),
        1 => any::<u64>().prop_map(Owned::Tick),
        1 => Just(Owned::StacksAnew),
    ];
    prop::collection::vec(event, 0..60)
}
