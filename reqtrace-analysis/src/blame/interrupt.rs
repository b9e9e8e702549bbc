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
    const POLLER: [&str; 3] = [
        "runtime.netpoll",
        "runtime.netpollready",
        "runtime.injectglist*",
    ];
    let named = || frames.iter().filter(|frame| frame.is_named());
    let of_runtime =
        |frame: &&Frame| frame.name.starts_with("runtime.") || frame.name.starts_with("time.");
    for frame in named().take_while(of_runtime) {
        if TIMERS.contains(&&*frame.name) {
            return WokenBy::Timer;
        }
        // It may find what is ready between two timers.
        if is_one_of(&POLLER, &frame.name) {
            return WokenBy::Other;
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
    Some(match of_drivers.next() {
        Some(rest) if is_timer(rest) => WokenBy::Timer,
        // What resets a timer of its own is in one, too.
        _ if frames.iter().any(polls) => WokenBy::Task,
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
mod tests {
    use super::*;

    /// The interrupt of a stack, written innermost first.
    fn of(stack: &str) -> Interrupt {
        let frames: Vec<Frame> = stack.split_whitespace().map(Frame::new).collect();
        of_stack(&frames)
    }

    // Stacks of 6.18, taken by a tracepoint of wakings; 6.1 has `__do_softirq` for `handle_softirqs`.
    #[test]
    fn real_stacks_have_their_kind() {
        for (stack, wanted) in [
            (
                "try_to_wake_up hrtimer_wakeup __hrtimer_run_queues hrtimer_interrupt \
                 __sysvec_apic_timer_interrupt sysvec_apic_timer_interrupt \
                 asm_sysvec_apic_timer_interrupt blk_mq_submit_bio submit_bio_noacct",
                Cause::Timer,
            ),
            (
                "try_to_wake_up call_timer_fn __run_timers run_timer_softirq handle_softirqs \
                 __irq_exit_rcu sysvec_apic_timer_interrupt",
                Cause::Timer,
            ),
            (
                "try_to_wake_up ep_autoremove_wake_function __wake_up_common __wake_up \
                 ep_poll_callback __wake_up_common timerfd_tmrproc __hrtimer_run_queues \
                 hrtimer_interrupt __sysvec_apic_timer_interrupt",
                Cause::Timer,
            ),
            (
                "try_to_wake_up wake_bit_function __wake_up_common wake_up_bit \
                 end_buffer_write_sync end_bio_bh_io_sync blk_update_request blk_mq_end_request \
                 blk_done_softirq handle_softirqs __irq_exit_rcu common_interrupt",
                Cause::Disk,
            ),
            (
                "try_to_wake_up complete blk_update_request blk_mq_end_request blk_done_softirq \
                 __do_softirq __irq_exit_rcu common_interrupt asm_common_interrupt",
                Cause::Disk,
            ),
            (
                "try_to_wake_up __wake_up_common sock_def_readable tcp_data_queue \
                 tcp_rcv_established tcp_v4_rcv ip_local_deliver_finish \
                 __netif_receive_skb_list_core napi_complete_done virtnet_poll __napi_poll \
                 net_rx_action handle_softirqs __irq_exit_rcu common_interrupt \
                 asm_common_interrupt tcp_sendmsg __x64_sys_sendto",
                Cause::Network,
            ),
            (
                "try_to_wake_up __wake_up_common sock_def_readable tcp_rcv_established \
                 virtnet_poll __napi_poll net_rx_action handle_softirqs do_softirq.part.0 \
                 __local_bh_enable_ip __dev_queue_xmit ip_finish_output2 tcp_sendmsg",
                Cause::Network,
            ),
            (
                "try_to_wake_up swake_up_one rcu_core handle_softirqs __irq_exit_rcu \
                 sysvec_apic_timer_interrupt asm_sysvec_apic_timer_interrupt tcp_sendmsg",
                Cause::OtherInterrupt,
            ),
            (
                "try_to_wake_up swake_up_one rcu_core handle_softirqs do_softirq.part.0 \
                 __local_bh_enable_ip __inet_hash_connect tcp_v4_connect __x64_sys_connect",
                Cause::OtherInterrupt,
            ),
        ] {
            assert_eq!(of(stack), Interrupt::Of(wanted), "{stack}");
        }
    }

    #[test]
    fn who_sends_to_the_same_machine_is_the_waker() {
        let receiver = "try_to_wake_up __wake_up_common __wake_up_sync_key sock_def_readable \
             tcp_rcv_established tcp_v4_do_rcv tcp_v4_rcv ip_protocol_deliver_rcu \
             ip_local_deliver_finish __netif_receive_skb_one_core process_backlog __napi_poll \
             net_rx_action";
        let sender = "__dev_queue_xmit ip_finish_output2 ip_output __ip_queue_xmit \
             __tcp_transmit_skb tcp_write_xmit tcp_sendmsg_locked tcp_sendmsg __sys_sendto \
             __x64_sys_sendto do_syscall_64 entry_SYSCALL_64_after_hwframe";
        for softirq in ["handle_softirqs", "__do_softirq"] {
            let by_itself =
                format!("{receiver} {softirq} do_softirq.part.0 __local_bh_enable_ip {sender}");
            assert_eq!(of(&by_itself), Interrupt::Sender { is_tcp: true });
            // The same softirq, but an interrupt came while this thread was sending.
            let by_interrupt = format!(
                "{receiver} {softirq} __irq_exit_rcu common_interrupt asm_common_interrupt {sender}"
            );
            assert_eq!(of(&by_interrupt), Interrupt::Of(Cause::Network));
            let by_daemon = format!("{receiver} {softirq} run_ksoftirqd smpboot_thread_fn kthread");
            assert_eq!(of(&by_daemon), Interrupt::Of(Cause::Network));
        }
    }

    #[test]
    fn a_thread_that_no_interrupt_came_upon_is_the_waker() {
        for stack in [
            "try_to_wake_up wake_page_function __wake_up_common folio_wake_bit filemap_map_pages \
             do_fault __handle_mm_fault exc_page_fault asm_exc_page_fault",
            "try_to_wake_up autoremove_wake_function __wake_up_common jbd2_journal_commit_transaction \
             kjournald2 kthread ret_from_fork ret_from_fork_asm",
            "try_to_wake_up futex_wake do_futex __x64_sys_futex do_syscall_64",
        ] {
            assert_eq!(of(stack), Interrupt::Thread, "{stack}");
        }
        // An interrupt whose stack was cut.
        let cut = "try_to_wake_up hrtimer_wakeup __hrtimer_run_queues hrtimer_interrupt";
        assert_eq!(of(cut), Interrupt::Of(Cause::Timer));
    }

    #[test]
    fn a_stack_without_names_is_not_known() {
        let wanted = Interrupt::NotKnown(Reason::InterruptNotNamed);
        assert_eq!(of(""), wanted);
        assert_eq!(of("[unknown] [kernel+0x1]"), wanted);
    }

    #[test]
    fn what_wakes_a_goroutine_is_known_by_its_stack() {
        let wakes = |stack: &str| {
            let frames: Vec<Frame> = stack.split_whitespace().map(Frame::new).collect();
            woken_by(&frames)
        };
        const READY: &str = "runtime.ready runtime.goready.func1 runtime.systemstack.abi0";
        for (behind, wanted) in [
            // `time.After` of Go 1.27 and of 1.19.
            (
                "runtime.send runtime.chansend time.sendTime runtime.(*timer).unlockAndRun \
                 runtime.(*timers).run runtime.(*timers).check runtime.findRunnable runtime.schedule",
                WokenBy::Timer,
            ),
            (
                "runtime.selectgo time.sendTime runtime.runOneTimer runtime.runtimer \
                 runtime.checkTimers runtime.mcall main.handler",
                WokenBy::Timer,
            ),
            (
                "runtime.closechan context.(*cancelCtx).cancel context.(*timerCtx).cancel \
                 context.WithDeadlineCause.func2 runtime.goexit.abi0",
                WokenBy::Timer,
            ),
            // Somebody gives up before the deadline.
            (
                "runtime.closechan context.(*cancelCtx).cancel context.(*timerCtx).cancel \
                 context.WithDeadlineCause.func3 main.handler runtime.goexit.abi0",
                WokenBy::Task,
            ),
            (
                "runtime.send runtime.chansend1 main.sends runtime.goexit.abi0",
                WokenBy::Task,
            ),
            // A deadline of a connection.
            (
                "runtime.netpollgoready runtime.netpolldeadlineimpl runtime.netpollReadDeadline \
                 runtime.(*timer).unlockAndRun runtime.(*timers).run",
                WokenBy::Timer,
            ),
            (
                "runtime.netpollgoready internal/poll.runtime_pollUnblock net.(*conn).Close main.closes",
                WokenBy::Task,
            ),
            ("runtime.netpollready runtime.netpoll", WokenBy::Other),
            ("runtime.bgsweep runtime.goexit.abi0", WokenBy::Other),
        ] {
            assert_eq!(
                wakes(&format!("{READY} {behind}")),
                Some(wanted),
                "{behind}"
            );
        }
    }

    #[test]
    fn what_wakes_a_task_of_tokio_is_known_by_its_stack() {
        let wakes = |names: &[&str]| {
            let frames: Vec<Frame> = names.iter().map(|name| Frame::new(*name)).collect();
            woken_by(&frames)
        };
        const OUTSIDE: [&str; 2] = [
            "tokio::runtime::time::Driver::park_internal",
            "tokio::runtime::scheduler::multi_thread::park::Inner::park_driver",
        ];
        let in_driver = |inside: &[&str]| wakes(&[inside, &OUTSIDE].concat());
        assert_eq!(
            Some(WokenBy::Timer),
            in_driver(&[
                "tokio::runtime::task::waker::wake_by_val",
                "tokio::util::wake_list::WakeList::wake_all",
                "tokio::runtime::time::<impl tokio::runtime::time::handle::Handle>::process_at_time",
            ])
        );
        assert_eq!(
            Some(WokenBy::Timer),
            in_driver(&["<tokio::runtime::time::handle::Handle>::process_at_time"])
        );
        // Data that came, a signal, and a task that wakes another one.
        assert_eq!(
            Some(WokenBy::Other),
            in_driver(&[
                "tokio::runtime::io::scheduled_io::ScheduledIo::wake",
                "tokio::runtime::io::driver::Driver::turn",
            ])
        );
        assert_eq!(
            Some(WokenBy::Other),
            in_driver(&["tokio::runtime::signal::Driver::process"])
        );
        assert_eq!(
            Some(WokenBy::Task),
            wakes(&[
                "tokio::runtime::task::waker::wake_by_val",
                "tokio::sync::batch_semaphore::Semaphore::add_permits_locked",
                "app::holds",
                "tokio::runtime::task::harness::Harness<T,S>::poll",
            ])
        );
        // A thread outside of the runtime.
        assert_eq!(
            Some(WokenBy::Other),
            wakes(&["tokio::runtime::task::waker::wake_by_val", "app::main"])
        );
        // Names may come later.
        assert_eq!(None, wakes(&[]));
        assert_eq!(None, wakes(&["[unknown]"]));
        // It resets a timer of its own.
        assert_eq!(
            Some(WokenBy::Task),
            wakes(&[
                "tokio::runtime::time::entry::TimerEntry::reset",
                "app::handle",
                "tokio::runtime::task::raw::poll",
            ])
        );
    }
}
