//! The table of wait classes: kernel functions in, a class out.
//!
//! Read a stack from its innermost frame on: the first function that is in the table decides. So a
//! mutex inside a file system is a lock, and `epoll_wait` on a socket is a poll. Probes and page faults come
//! before all: what these wait for (disk, a lock of the address space) is not what the program asked for.
//!
//! Names are those of Linux 6.1 to 6.18, without what the compiler appends (`.isra.0`,
//! `.constprop.0`). A `*` at the end stands for any rest. Generic functions (`schedule`,
//! `schedule_timeout`, `wait_woken`, `wait_for_completion`, `do_syscall_64`) say nothing and are
//! left out: the next frame decides.

use super::class::WaitClass;
use super::{Block, syscalls};
use crate::symbolize::Frame;
use crate::symbolize::names::without_suffix;

/// Functions that make a block one of tracing wherever they stand in the stack: the traps of probes, and
/// what the kernel does in them.
const TRACING: &[&str] = &[
    "asm_exc_int3",
    "exc_int3",
    "asm_exc_debug",
    "exc_debug_user",
    "uprobe_notify_resume",
    "uprobe_handle_trampoline",
    "uprobe_pre_sstep_notifier",
    "arch_uprobe_*",
    "__x64_sys_uretprobe",
    "__do_sys_uretprobe",
    "__x64_sys_uprobe",
    "__do_sys_uprobe",
];

/// Functions that make a block one of a stopped process: somebody has sent a signal that stops it, or a debugger has it.
const STOPPED: &[&str] = &[
    "do_signal_stop",
    "do_jobctl_trap",
    "do_freezer_trap",
    "__refrigerator",
    "ptrace_stop",
];

/// Functions that make a block a page fault wherever they stand in the stack.
const PAGE_FAULT: &[&str] = &[
    "asm_exc_page_fault",
    "exc_page_fault",
    "do_user_addr_fault",
    "handle_mm_fault",
    "__handle_mm_fault",
    "faultin_page",
    "handle_userfault",
];

/// The table. Within a stack the innermost frame decides; within the table the first line does.
const TABLE: &[(WaitClass, &[&str])] = &[
    (
        WaitClass::Lock,
        &[
            // Futexes. futex_wait_queue_me became futex_wait_queue in 5.16.
            "futex_wait*",
            "__futex_wait*",
            "futex_lock_pi*",
            "futex_do_wait",
            "futex_unqueue*",
            // Locks of the kernel.
            "__mutex_lock*",
            "mutex_lock*",
            "ww_mutex_lock*",
            "rwsem_down_*",
            "down_read*",
            "down_write*",
            "__down_read*",
            "__down_write*",
            "__down",
            "__down_common",
            "__down_interruptible",
            "__down_killable",
            "__down_timeout",
            "down_interruptible",
            "percpu_rwsem_wait*",
            "__percpu_down_read*",
            "percpu_down_write*",
            "percpu_down_read*",
            "rt_mutex_*",
            "__rt_mutex_*",
            "rtlock_*",
            "rt_spin_lock*",
            "rwbase_*",
            "synchronize_rcu*",
            "synchronize_srcu*",
            "__synchronize_srcu*",
            "__wait_rcu_gp",
            // Locks of files, and System V semaphores.
            "posix_lock_inode_wait",
            "flock_lock_inode_wait",
            "locks_lock_inode_wait",
            "fcntl_setlk*",
            "do_lock_file_wait",
            "do_semtimedop",
            "__do_semtimedop",
        ],
    ),
    (
        WaitClass::Sleep,
        &[
            "do_nanosleep",
            "hrtimer_nanosleep*",
            "common_nsleep*",
            "alarm_timer_nsleep",
            "alarmtimer_do_nsleep",
            "timerfd_read*",
            "do_sigtimedwait",
            "sigsuspend",
            "__do_sys_pause",
            "__x64_sys_pause",
            "msleep*",
            "usleep_range*",
        ],
    ),
    (
        WaitClass::Poll,
        &[
            "ep_poll",
            "do_epoll_wait",
            "do_epoll_pwait*",
            "do_poll",
            "do_sys_poll",
            "poll_schedule_timeout",
            "do_select",
            "core_sys_select",
            // Any completion of a ring, file or socket: the ring itself is what is waited on.
            "io_cqring_wait*",
            "io_cqring_schedule*",
            "inotify_read",
            "fanotify_read",
            "signalfd_read*",
            "signalfd_dequeue",
        ],
    ),
    (
        WaitClass::Pipe,
        &[
            "pipe_read",
            "pipe_write",
            "anon_pipe_*",
            "fifo_pipe_*",
            "pipe_wait*",
            "wait_for_partner",
            "fifo_open",
            "splice_from_pipe*",
            "splice_pipe_to_pipe",
            "opipe_prep",
            "ipipe_prep",
            "eventfd_read",
            "eventfd_write",
            "n_tty_*",
            "tty_*",
            "wq_sleep",
            "do_mq_timed*",
            "do_msgrcv*",
            "do_msgsnd*",
        ],
    ),
    (
        WaitClass::Disk,
        &[
            "io_schedule*",
            "bit_wait_io*",
            "folio_wait_*",
            "__folio_lock*",
            "wait_on_page_*",
            "__wait_on_buffer",
            "__lock_buffer",
            "__filemap_*",
            "filemap_*",
            "file_write_and_wait*",
            "file_fdatawait*",
            "balance_dirty_pages*",
            "writeback_*",
            "wb_wait_*",
            "sync_inodes_sb",
            "iterate_supers*",
            "submit_bio_wait",
            "bio_await*",
            "blkdev_*",
            "__blkdev_*",
            "blk_*",
            "__blk_*",
            "rq_qos_*",
            "wbt_*",
            "iocb_bio_*",
            "iomap_*",
            "__iomap_*",
            "read_events",
            "do_io_getevents",
            "jbd2_*",
            "wait_transaction_*",
            "add_transaction_credits",
            "start_this_handle",
            "ext4_*",
            "__ext4_*",
            "xfs_*",
            "xlog_*",
            "btrfs_*",
            "f2fs_*",
            "zfs_*",
            "zpl_*",
            "zil_*",
            "txg_wait_*",
            "ovl_*",
            "fuse_*",
            "__fuse_*",
            "request_wait_answer",
            "p9_client_*",
            "v9fs_*",
            "nvme_*",
            "scsi_*",
            "loop_*",
            "dm_*",
            "md_*",
            "raid*",
            "vfs_fsync*",
            "do_fsync",
            "ksys_sync",
            "sync_filesystem",
        ],
    ),
    (
        WaitClass::Network,
        &[
            "sk_wait_data",
            "sk_stream_wait_*",
            "__lock_sock*",
            "lock_sock*",
            "sock_*",
            "__sock_*",
            "tcp_*",
            "__tcp_*",
            "udp_*",
            "__udp_*",
            "udpv6_*",
            "tcpv6_*",
            "raw_*",
            "mptcp_*",
            "sctp_*",
            "inet_*",
            "__inet_*",
            "inet6_*",
            "unix_*",
            "__unix_*",
            "vsock_*",
            "netlink_*",
            "packet_*",
            "tls_*",
            "skb_*",
            "__skb_*",
            "smc_*",
            "rpc_*",
            "__rpc_*",
            "nfs_*",
            "nfs4_*",
            "cifs_*",
            "smb2_*",
            "ceph_*",
            "__sys_accept*",
            "__sys_connect*",
            "__sys_recv*",
            "__sys_send*",
            "___sys_recv*",
            "___sys_send*",
        ],
    ),
    (
        WaitClass::Process,
        &[
            "do_wait",
            "__do_wait",
            "kernel_wait4",
            "kernel_waitid*",
            "do_wait_pid",
            "wait_for_vfork_done",
            "kernel_clone",
            "ptrace_*",
            "pidfd_*",
            "wait_for_dump_helpers",
            "coredump_wait",
            "exit_to_user_mode_loop",
            "get_signal",
            "begin_new_exec",
            "de_thread",
            "do_group_exit",
            "call_usermodehelper*",
        ],
    ),
];

/// Whether a block is in a probe, or is one of a stopped process. That comes before all, named waits too: whatever the
/// program was at, it did not ask for this.
#[must_use]
pub fn is_imposed(kernel: &[Frame]) -> bool {
    is_tracing(kernel) || has(kernel, STOPPED)
}

fn is_tracing(kernel: &[Frame]) -> bool {
    has(kernel, TRACING)
}

fn has(kernel: &[Frame], patterns: &[&str]) -> bool {
    let named = kernel.iter().filter(|frame| frame.is_named());
    let mut names = named.map(|frame| without_suffix(&frame.name));
    names.any(|name| patterns.iter().any(|pattern| is(pattern, name)))
}

/// Whether a block is in a page fault.
#[must_use]
pub fn is_page_fault(kernel: &[Frame]) -> bool {
    let mut named = kernel.iter().filter(|frame| frame.is_named());
    named.any(|frame| PAGE_FAULT.contains(&without_suffix(&frame.name)))
}

/// The built-in class of a block.
#[must_use]
pub fn class(block: &Block<'_>) -> WaitClass {
    let named = || block.kernel.iter().filter(|frame| frame.is_named());
    let names = || named().map(|frame| without_suffix(&frame.name));
    if named().next().is_none() {
        return syscalls::class(block.syscall, block.file);
    }
    if is_tracing(block.kernel) {
        return WaitClass::Tracing;
    }
    if has(block.kernel, STOPPED) {
        return WaitClass::Process;
    }
    if is_page_fault(block.kernel) {
        return WaitClass::PageFault;
    }
    names().find_map(of_function).unwrap_or(WaitClass::Other)
}

fn of_function(name: &str) -> Option<WaitClass> {
    let line = TABLE
        .iter()
        .find(|(_, patterns)| patterns.iter().any(|pattern| is(pattern, name)));
    line.map(|(class, _)| *class)
}

/// Whether a function, without what the compiler appends, is of a name of the table.
#[must_use]
pub fn is(pattern: &str, function: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => function.starts_with(prefix),
        None => function == pattern,
    }
}

/// All names of the table with their class.
pub fn names() -> impl Iterator<Item = (WaitClass, &'static str)> {
    let tracing = TRACING.iter().map(|name| (WaitClass::Tracing, *name));
    let faults = PAGE_FAULT.iter().map(|name| (WaitClass::PageFault, *name));
    let others = TABLE
        .iter()
        .flat_map(|(class, names)| names.iter().map(|name| (*class, *name)));
    let stopped = STOPPED.iter().map(|name| (WaitClass::Process, *name));
    tracing.chain(stopped).chain(faults).chain(others)
}
