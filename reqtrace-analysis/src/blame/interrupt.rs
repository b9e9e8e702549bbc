//! Interrupts: the kernel stack of a waking in, which interrupt it was out, or that the thread itself ran.
//!
//! The stack is read from its innermost frame on, up to where the interrupt came in: what is behind belongs
//! to an innocent thread. The first function that is in the table decides. Names are those of
//! Linux 6.1 to 6.18; a `*` at the end stands for any rest.
//!
//! A softirq has no interrupt behind it when a thread that sends something runs the receiver's side
//! itself, as packets to the same machine do. Then that thread is the waker, unless the kernel's programs saw
//! that the packet is another's, which had been in a queue.

use super::{Cause, Reason};
use crate::classify::table::is;
use crate::symbolize::Frame;
use crate::symbolize::names::without_suffix;

/// What a kernel stack says of what ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// An interrupt of this kind.
    Of(Cause),
    /// The thread itself.
    Thread,
    /// The thread, which sends to its own machine; by a segment of TCP or not.
    Sender {
        /// Whether a connection has got a segment.
        is_tcp: bool,
    },
    /// It is not known.
    NotKnown(Reason),
}

/// Where an interrupt comes in: what is outside of these frames was interrupted.
const ENTRIES: &[&str] = &[
    "asm_sysvec_*",
    "asm_common_interrupt",
    "asm_exc_nmi",
    "common_interrupt",
    "__common_interrupt",
    "sysvec_*",
    "__sysvec_*",
    "exc_nmi",
    "irq_exit*",
    "__irq_exit*",
    "do_softirq*",
    "__do_softirq_own_stack",
    "__local_bh_enable*",
    "run_ksoftirqd",
    "ktimers_thread",
];

/// What only interrupts call, for stacks that do not reach their entry.
const INTERRUPTS: &[&str] = &[
    "handle_softirqs",
    "__do_softirq",
    "hrtimer_interrupt",
    "__handle_irq_event*",
    "handle_irq_event*",
    "__flush_smp_call_function_queue",
    "irq_work_run*",
];

/// Entries of softirqs that a thread runs when it allows them again.
const BY_THE_THREAD: &[&str] = &["do_softirq*", "__local_bh_enable*"];

/// A packet was handed over here, by the thread that runs.
const SENDING: &[&str] = &[
    "__dev_queue_xmit",
    "dev_queue_xmit*",
    "ip_finish_output*",
    "__ip_finish_output*",
    "ip6_finish_output*",
    "__ip6_finish_output*",
    "__ip_queue_xmit",
    "ip_queue_xmit",
    "inet6_csk_xmit",
    "ip_send_skb",
    "ip6_send_skb",
    "tcp_sendmsg*",
    "udp_sendmsg*",
    "udpv6_sendmsg*",
    "__sys_sendto*",
    "__sys_sendmsg*",
    "netif_rx*",
];

/// Where packets are taken from that the machine has sent to itself; cards have functions of their own.
const TO_ITSELF: &str = "process_backlog";

/// What takes a segment for a connection.
const GETS_SEGMENT: &str = "tcp_rcv_established";

/// Functions by kind of interrupt.
const TABLE: &[(Cause, &[&str])] = &[
    (
        Cause::Timer,
        &[
            "hrtimer_*",
            "__hrtimer_*",
            "process_timeout",
            "it_real_fn",
            "posix_timer_fn",
            "posix_timer_event",
            "posix_cpu_timer*",
            "run_posix_cpu_timers",
            "timerfd_*",
            "alarm_*",
            "alarmtimer_*",
            "call_timer_fn",
            "__run_timers*",
            "run_timer_*",
            "delayed_work_timer_fn",
            "tick_*",
            "update_process_times",
            "do_nanosleep",
        ],
    ),
    (
        Cause::Disk,
        &[
            "blk_*",
            "__blk_*",
            "blkdev_*",
            "bio_*",
            "__bio_*",
            "submit_bio_wait_endio",
            "end_page_*",
            "end_bio_*",
            "end_buffer_*",
            "end_clone_*",
            "folio_end_*",
            "__folio_end_*",
            "mpage_*",
            "ext4_end_*",
            "ext4_finish_bio",
            "xfs_*",
            "xlog_*",
            "btrfs_*",
            "f2fs_*",
            "iomap_*",
            "nvme_*",
            "virtblk_*",
            "scsi_*",
            "sd_*",
            "ata_*",
            "ahci_*",
            "megasas_*",
            "mpt3sas_*",
            "dm_*",
            "clone_endio",
            "md_*",
            "raid*",
            "loop_*",
            "nbd_*",
            "xen_blkif_*",
            "blkif_*",
            "mmc_*",
            "aio_complete*",
            "dio_bio_*",
            "swap_*",
            "end_swap_*",
        ],
    ),
    (
        Cause::Network,
        &[
            "net_rx_action",
            "net_tx_action",
            "__napi_*",
            "napi_*",
            "process_backlog",
            "netif_*",
            "__netif_*",
            "sock_*",
            "sk_*",
            "__sk_*",
            "tcp_*",
            "__tcp_*",
            "udp_*",
            "__udp_*",
            "udp6_*",
            "udpv6_*",
            "tcp6_*",
            "inet_*",
            "icmp_*",
            "raw_*",
            "ping_*",
            "ip_rcv*",
            "ip_local_deliver*",
            "ip6_*",
            "ipv6_*",
            "packet_rcv*",
            "tpacket_*",
            "virtnet_*",
            "skb_xmit_done",
            "vsock_*",
            "virtio_vsock_*",
            "virtio_transport_*",
            "sctp_*",
            "mptcp_*",
        ],
    ),
];

/// Which interrupt it was; `frames` are the kernel's, innermost first.
pub(crate) fn of_stack(frames: &[Frame]) -> Interrupt {
    let named = frames.iter().filter(|frame| frame.is_named());
    let names: Vec<&str> = named.map(|frame| without_suffix(&frame.name)).collect();
    if names.is_empty() {
        return Interrupt::NotKnown(Reason::InterruptNotNamed);
    }
    let entry = names.iter().position(|name| is_one_of(ENTRIES, name));
    let (inside, outside) = names.split_at(entry.unwrap_or(names.len()));
    let is_interrupt = entry.is_some() || inside.iter().any(|name| is_one_of(INTERRUPTS, name));
    if !is_interrupt {
        return Interrupt::Thread;
    }
    if is_of_sender(inside, outside) {
        return Interrupt::Sender {
            is_tcp: inside.contains(&GETS_SEGMENT),
        };
    }
    let kind = inside.iter().find_map(|name| {
        let line = TABLE.iter().find(|(_, patterns)| is_one_of(patterns, name));
        line.map(|(kind, _)| *kind)
    });
    Interrupt::Of(kind.unwrap_or(Cause::OtherInterrupt))
}

/// What makes a task ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WokenBy {
    /// A time has passed.
    Timer,
    /// Another task.
    Task,
    /// The runtime, for a socket or another file.
    Driver,
    /// Another driver of the runtime, or whoever it is.
    Other,
}

/// What makes a unit of a runtime ready, by the user stack of the thread that does. Nothing when no frame has a name.
pub(crate) fn woken_by(frames: &[Frame]) -> Option<WokenBy> {
    let is_go = |frame: &Frame| frame.name.starts_with("runtime.");
    match frames.iter().find(|frame| frame.is_named()) {
        Some(innermost) if is_go(innermost) => Some(goroutine_woken_by(frames)),
        _ => task_woken_by(frames),
    }
}

/// The same of a goroutine. Timers call from the runtime's own stack, behind which the frames of whatever goroutine ran last
/// may be; those of a deadline have a goroutine of their own.
fn goroutine_woken_by(frames: &[Frame]) -> WokenBy {
    const TIMERS: [&str; 5] = [
        "runtime.(*timer).unlockAndRun",
        "runtime.(*timers).run",
        "runtime.runOneTimer",
        "runtime.runtimer",
        "time.goFunc",
    ];
    // What calls these is no more than what the goroutine did that ran last.
    const SCHEDULER: [&str; 6] = [
        "runtime.netpoll",
        "runtime.netpollready",
        "runtime.injectglist*",
        "runtime.findRunnable",
        "runtime.findrunnable",
        "runtime.schedule",
    ];
    let named = || frames.iter().filter(|frame| frame.is_named());
    // `_.` is what Go 1.27 calls the package of closures that it has inlined: their callers have the name of theirs.
    let packages = ["runtime.", "time.", "_."];
    let of_runtime = |frame: &&Frame| {
        packages
            .iter()
            .any(|package| frame.name.starts_with(package))
    };
    for frame in named().take_while(of_runtime) {
        if TIMERS.contains(&&*frame.name) {
            return WokenBy::Timer;
        }
        // It may find what is ready between two timers.
        if is_one_of(&SCHEDULER, &frame.name) {
            return WokenBy::Driver;
        }
    }
    let is_root = |name: &str| name.starts_with("runtime.goexit");
    let first = named().take_while(|frame| !is_root(&frame.name)).last();
    let is_deadline = |frame: &Frame| {
        frame.name.starts_with("context.WithDeadline") && frame.name.ends_with(".func2")
    };
    match first.is_some_and(is_deadline) {
        true => WokenBy::Timer,
        false if named().all(|frame| of_runtime(&frame)) => WokenBy::Other,
        false => WokenBy::Task,
    }
}

/// What makes a task of tokio ready, by the user stack of the thread that does. The innermost frame of a driver decides, as that of
/// timers calls the others. Nothing when no frame has a name.
fn task_woken_by(frames: &[Frame]) -> Option<WokenBy> {
    const TASK: &str = "tokio::runtime::task::";
    const DRIVERS: &str = "tokio::runtime::";
    const WORKER: &str = "::multi_thread::worker::";
    const ALONE: &str = "::scheduler::current_thread::";
    let mut named = frames.iter().filter(|frame| frame.is_named()).peekable();
    named.peek()?;
    let mut of_drivers = named.filter_map(|frame| {
        let (_, rest) = frame.name.split_once(DRIVERS)?;
        let is_one = ["time::", "io::", "signal::", "process::"]
            .iter()
            .any(|driver| rest.starts_with(driver));
        is_one.then_some(rest)
    });
    let is_timer = |rest: &str| rest.starts_with("time::") && rest.ends_with("process_at_time");
    let polls = |frame: &Frame| {
        let rest = frame.name.split_once(TASK);
        rest.is_some_and(|(_, rest)| rest.contains("poll"))
    };
    // A worker is a job of the blocking pool, which is polled as a task is.
    let is_scheduler = |frame: &Frame| {
        let within = |module| frame.name.split_once(module).map(|(_, rest)| rest);
        within(WORKER).is_some_and(|rest| {
            rest.starts_with("run") || rest.starts_with("Context") && !rest.contains("defer")
        }) || within(ALONE)
            .is_some_and(|rest| rest.starts_with("CoreGuard") || rest.starts_with("Context"))
    };
    let mut of_task = frames.iter().take_while(|frame| !is_scheduler(frame));
    Some(match of_drivers.next() {
        Some(rest) if is_timer(rest) => WokenBy::Timer,
        // What resets a timer of its own is in one, too.
        _ if of_task.any(polls) => WokenBy::Task,
        Some(rest) if rest.starts_with("io::") => WokenBy::Driver,
        _ => WokenBy::Other,
    })
}

/// Whether a softirq delivers what the thread under it sends.
fn is_of_sender(inside: &[&str], outside: &[&str]) -> bool {
    let by_interrupt = outside
        .iter()
        .position(|name| is_one_of(ENTRIES, name) && !is_one_of(BY_THE_THREAD, name));
    let by_thread = &outside[..by_interrupt.unwrap_or(outside.len())];
    by_interrupt.is_none_or(|at| at > 0)
        && inside.contains(&TO_ITSELF)
        && by_thread.iter().any(|name| is_one_of(SENDING, name))
}

fn is_one_of(patterns: &[&str], name: &str) -> bool {
    patterns.iter().any(|pattern| is(pattern, name))
}

#[cfg(test)]
mod tests;
