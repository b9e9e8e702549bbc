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
            "_.goready.func1 runtime.goready runtime.send runtime.chansend runtime.selectnbsend time.sendTime \
             runtime.(*timer).unlockAndRun runtime.(*timers).run runtime.(*timers).check runtime.findRunnable",
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
        ("runtime.netpollready runtime.netpoll", WokenBy::Driver),
        // It runs none, on the stack of the one that was parked last.
        (
            "runtime.findRunnable runtime.schedule runtime.park_m runtime.mcall runtime.chanrecv1 main.receives \
             runtime.goexit.abi0",
            WokenBy::Driver,
        ),
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
        Some(WokenBy::Driver),
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
    // A worker is itself in a job of the pool.
    const WORKER: [&str; 3] = [
        "tokio::runtime::scheduler::multi_thread::worker::Context::run",
        "tokio::runtime::scheduler::multi_thread::worker::run",
        "tokio::runtime::task::raw::poll",
    ];
    let in_worker = |inside: &[&str]| wakes(&[inside, &WORKER].concat());
    assert_eq!(
        Some(WokenBy::Driver),
        in_worker(&[
            "tokio::runtime::io::scheduled_io::ScheduledIo::wake",
            "tokio::runtime::io::driver::Driver::turn",
            "tokio::runtime::scheduler::multi_thread::worker::Context::park_internal",
        ])
    );
    assert_eq!(
        Some(WokenBy::Task),
        in_worker(&[
            "tokio::runtime::scheduler::multi_thread::worker::<impl tokio::runtime::scheduler::multi_thread::handle::Handle>::schedule_task",
            "app::sends",
            "tokio::runtime::task::raw::poll",
            "tokio::runtime::scheduler::multi_thread::worker::Context::run_task",
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
