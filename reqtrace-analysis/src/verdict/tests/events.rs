//! What happens in a world, told as events to the analysis.

use reqtrace_common::record::STACK_NONE;
use reqtrace_recording::{
    Address, AddressSpace, BlockSite, Comm, CpuWait, End, Ending, Event, Header, Holder, Interval,
    IntervalKind, KERNEL, Name, Options as Recorded, Process, ProcessChange, Request, RequestOf,
    Slot, Stack, Thread, Waker, WakerContext, WakerIs,
};

use super::world::{HOLDER, OTHER_PID, PID, SECOND, UPSTREAM};
use crate::aggregate::{Aggregator, Options};
use crate::profile::Profiles;
use crate::report::verdict::Finding;

const PROFILE: &str = "
[profile]
name = \"db\"
[[request]]
name = \"query\"
begin = { function = \"a\" }
end = { function = \"b\" }
[[wait]]
name = \"row lock\"
functions = [\"lock_wait\"]
";
/// The same of tasks, which any thread runs; and of others.
const KEYED: &str = "
[profile]
name = \"db\"
[[request]]
name = \"query\"
key = { arg = 0 }
begin = { function = \"a\" }
end = { function = \"b\" }
[[request]]
name = \"report\"
key = { arg = 0 }
begin = { function = \"c\" }
end = { function = \"d\" }
[[wait]]
name = \"row lock\"
functions = [\"lock_wait\"]
";
/// Stacks.
pub(super) const LOCK: u64 = 100;
pub(super) const DISK: u64 = 101;
pub(super) const TIMER: u64 = 102;
pub(super) const LOCK_USER: u64 = 103;
const READS: u64 = 104;
const READS_USER: u64 = 105;

#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) request_type: u32,
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) blocked: u64,
    pub(super) run_queue: u64,
    pub(super) preempted: u64,
    pub(super) weight: u32,
    pub(super) label: &'static str,
}

#[derive(Clone, Debug)]
pub(super) struct Off {
    pub(super) tid: u32,
    pub(super) space: u32,
    pub(super) request: Option<RequestOf>,
    pub(super) times: [u64; 3],
    pub(super) waker: Option<Waker>,
    pub(super) sequence: u32,
    pub(super) site: BlockSite,
}

#[derive(Clone, Debug)]
pub(super) enum Told {
    Request(Made),
    Off(Off),
    CpuWait(CpuWait),
}

pub(super) const fn of(begin_ns: u64) -> RequestOf {
    RequestOf {
        begin_ns,
        request_type: 0,
    }
}

pub(super) const fn space(tgid: u32) -> AddressSpace {
    AddressSpace {
        tgid,
        exec_generation: 0,
    }
}

pub(super) fn task(tgid: u32, tid: u32, is: WakerIs) -> Waker {
    Waker {
        context: WakerContext::Task,
        is,
        tid,
        tgid,
        stack: STACK_NONE,
    }
}

pub(super) fn interrupt(stack: u64) -> Waker {
    Waker {
        context: WakerContext::Unclear,
        stack,
        ..Waker::UNKNOWN
    }
}

pub(super) const SITE: BlockSite = BlockSite {
    kernel_stack: LOCK,
    user_stack: LOCK_USER,
    ..BlockSite::PREEMPTED
};

/// Where a thread waits for its client.
pub(super) const CLIENT: BlockSite = BlockSite {
    kernel_stack: READS,
    user_stack: READS_USER,
    ..BlockSite::PREEMPTED
};

pub(super) struct World {
    analysis: Aggregator,
    requests: u64,
}

impl World {
    pub(super) fn new(is_keyed: bool) -> Self {
        let profile = if is_keyed { KEYED } else { PROFILE };
        let profile = Profiles::parse([profile], "db").unwrap();
        let header = Header {
            blame: true,
            options: Recorded {
                labels: true,
                ..Recorded::default()
            },
            ..Header::default()
        };
        let mut world = Self {
            analysis: Aggregator::new(&profile, &header, Options::default()).unwrap(),
            requests: 0,
        };
        world.event(&Event::Process(&Process {
            space: space(PID),
            change: ProcessChange::Start,
            name: "db".to_owned(),
            ..Process::default()
        }));
        world.event(&Event::Process(&Process {
            space: space(OTHER_PID),
            change: ProcessChange::Fork,
            time_ns: 3 * SECOND,
            name: "upstream".to_owned(),
            ..Process::default()
        }));
        for (tgid, tid, name) in [(PID, HOLDER, "worker"), (OTHER_PID, UPSTREAM, "slow")] {
            world.event(&Event::Thread(&Thread {
                tgid,
                tid,
                name: name.to_owned(),
            }));
        }
        world.stack(None, LOCK, &["futex_wait", "do_futex"]);
        world.stack(Some(space(PID)), LOCK_USER, &["lock_wait", "main"]);
        world.stack(None, READS, &["tcp_recvmsg", "sock_recvmsg"]);
        world.stack(Some(space(PID)), READS_USER, &["reads", "main"]);
        world.stack(
            None,
            DISK,
            &["try_to_wake_up", "blk_mq_end_request", "__irq_exit_rcu"],
        );
        world.stack(
            None,
            TIMER,
            &[
                "try_to_wake_up",
                "hrtimer_wakeup",
                "__hrtimer_run_queues",
                "hrtimer_interrupt",
            ],
        );
        world
    }

    fn event(&mut self, event: &Event<'_>) {
        self.analysis.event(event, &mut []).unwrap();
    }

    fn stack(&mut self, space: Option<AddressSpace>, id: u64, frames: &[&str]) {
        let mut addresses = Vec::new();
        for (depth, frame) in frames.iter().enumerate() {
            let address = Address {
                object: if space.is_none() { KERNEL } else { 2 },
                offset: id * 100 + depth as u64,
            };
            addresses.push(address);
            self.event(&Event::Name(&Name {
                address,
                is_return: depth > 0,
                frames: vec![(*frame).to_owned()],
            }));
        }
        self.event(&Event::Stack(&Stack {
            space,
            id,
            stop: 0,
            addresses,
        }));
    }

    pub(super) fn tell(&mut self, told: &Told) {
        match told {
            Told::Off(off) => self.event(&Event::Interval(&Interval {
                space: space(off.space),
                tid: off.tid,
                sequence: off.sequence,
                request: off.request,
                site: off.site,
                out_ns: off.times[0],
                kind: off
                    .waker
                    .map_or(IntervalKind::Preempted, |waker| IntervalKind::Blocked {
                        wake_ns: off.times[1],
                        waker,
                    }),
                in_ns: off.times[2],
                futex: 0,
                holder: Holder::NoFutex,
                woken_from: None,
            })),
            Told::CpuWait(wait) => self.event(&Event::CpuWait(wait)),
            Told::Request(made) => {
                self.requests += 1;
                let slots = [Slot {
                    site: SITE,
                    blocked_ns: made.blocked,
                }];
                let slots = if made.blocked > 0 { &slots[..] } else { &[] };
                self.event(&Event::Request(Request {
                    id: self.requests,
                    space: space(made.pid),
                    tid: made.tid,
                    request_type: made.request_type,
                    comm: Comm::default(),
                    label: made.label.as_bytes(),
                    begin_ns: made.begin,
                    end_ns: made.end,
                    blocked_ns: made.blocked,
                    run_queue_ns: made.run_queue,
                    preempted_ns: made.preempted,
                    weight: made.weight,
                    slots,
                    ..Request::default()
                }));
            }
        }
    }

    pub(super) fn finish(mut self) -> Vec<Finding> {
        self.event(&Event::End(&End::default()));
        self.analysis
            .finish(&Ending::default(), &mut [])
            .unwrap()
            .verdict
    }
}
