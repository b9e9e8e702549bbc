//! Values that user space sets before the programs are loaded. All of them are overridden with
//! `must_exist`: a missing one is an error at load, not a wrong offset at run time.

use aya_ebpf::Global;
use reqtrace_common::config::NOT_IN_THIS_KERNEL;
use reqtrace_common::filter::ANY_STATE;

/// [`reqtrace_common::ABI_VERSION`], compared by the loader with its own.
#[unsafe(no_mangle)]
pub(crate) static ABI_VERSION: Global<u32> = Global::new(reqtrace_common::ABI_VERSION);

/// How many CPUs the kernel may have.
#[unsafe(no_mangle)]
pub(crate) static CPUS: Global<u32> = Global::new(1);

/// Offset of `pid` in the running kernel's `task_struct`.
#[unsafe(no_mangle)]
pub(crate) static TASK_PID: Global<u32> = Global::new(0);

/// Offset of `tgid` in the running kernel's `task_struct`.
#[unsafe(no_mangle)]
pub(crate) static TASK_TGID: Global<u32> = Global::new(0);

/// Offset of `se.sum_exec_runtime` in the running kernel's `task_struct`.
#[unsafe(no_mangle)]
pub(crate) static TASK_RAN: Global<u32> = Global::new(0);

/// Offset of `stack` in the running kernel's `task_struct`.
#[unsafe(no_mangle)]
pub(crate) static TASK_STACK: Global<u32> = Global::new(0);

/// Offset of `comm` in the running kernel's `task_struct`.
#[unsafe(no_mangle)]
pub(crate) static TASK_COMM: Global<u32> = Global::new(0);

/// Offset of `policy` in the running kernel's `task_struct`.
#[unsafe(no_mangle)]
pub(crate) static TASK_POLICY: Global<u32> = Global::new(0);

/// Offset of `prio` in the running kernel's `task_struct`.
#[unsafe(no_mangle)]
pub(crate) static TASK_PRIORITY: Global<u32> = Global::new(0);

/// Offset of `on_rq` in the running kernel's `task_struct`: not 0 in the queue of a CPU.
#[unsafe(no_mangle)]
pub(crate) static TASK_QUEUED: Global<u32> = Global::new(0);

/// Offset of `throttled` in the running kernel's `task_struct`, since 6.18.
#[unsafe(no_mangle)]
pub(crate) static TASK_THROTTLED: Global<u32> = Global::new(0);

/// Offset of `se.cfs_rq` in the running kernel's `task_struct`.
#[unsafe(no_mangle)]
pub(crate) static TASK_QUEUE: Global<u32> = Global::new(0);

/// Offset of `sched_task_group` in the running kernel's `task_struct`.
#[unsafe(no_mangle)]
pub(crate) static TASK_GROUP: Global<u32> = Global::new(0);

/// Offset of `cfs_rq` in the running kernel's `task_group`: one for each CPU.
#[unsafe(no_mangle)]
pub(crate) static GROUP_QUEUES: Global<u32> = Global::new(0);

/// Offset of `throttled_clock_pelt_time` in the running kernel's `cfs_rq`.
#[unsafe(no_mangle)]
pub(crate) static CFS_LIMITED: Global<u32> = Global::new(0);

/// Bits of [`reqtrace_common::config::stacks_wanted`].
#[unsafe(no_mangle)]
pub(crate) static STACKS_WANTED: Global<u32> = Global::new(3);

/// 1 when labels are recorded. 0 takes the code out when the program is loaded.
#[unsafe(no_mangle)]
pub(crate) static LABELS_WANTED: Global<u32> = Global::new(0);
/// [`reqtrace_common::filter::StackFilter::min_ns`].
#[unsafe(no_mangle)]
pub(crate) static STACK_MIN_NS: Global<u64> = Global::new(0);

/// [`reqtrace_common::filter::StackFilter::max_ns`].
#[unsafe(no_mangle)]
pub(crate) static STACK_MAX_NS: Global<u64> = Global::new(u64::MAX);

/// [`reqtrace_common::filter::StackFilter::state`].
#[unsafe(no_mangle)]
pub(crate) static STACK_STATE: Global<u64> = Global::new(ANY_STATE);

/// [`reqtrace_common::filter::KeepSlow::slow_ns`]. 0 takes the code out.
#[unsafe(no_mangle)]
pub(crate) static KEEP_SLOW_NS: Global<u64> = Global::new(0);

/// [`reqtrace_common::filter::KeepSlow::one_in`].
#[unsafe(no_mangle)]
pub(crate) static KEEP_ONE_IN: Global<u32> = Global::new(1);

/// 1 with blame: every interval of a thread in a request is sent, and who ended it.
#[unsafe(no_mangle)]
pub(crate) static BLAME_WANTED: Global<u32> = Global::new(0);

/// With blame: where interrupts enter the kernel, see [`crate::stack::waker`]: the first address.
#[unsafe(no_mangle)]
pub(crate) static INTERRUPTS_FROM: Global<u64> = Global::new(0);

/// The address behind that code; 0: it is not known.
#[unsafe(no_mangle)]
pub(crate) static INTERRUPTS_UNTIL: Global<u64> = Global::new(0);

/// Not 0: of a thread that held up a request all requests are recorded, though others are drawn.
#[unsafe(no_mangle)]
pub(crate) static HOLDERS_WANTED: Global<u32> = Global::new(0);

/// 1 when lengths of blocks are to be counted in histograms.
#[unsafe(no_mangle)]
pub(crate) static HISTOGRAM_WANTED: Global<u32> = Global::new(0);
/// 1: what walking user stacks takes is counted.
#[unsafe(no_mangle)]
pub(crate) static MEASURE_WALKS: Global<u32> = Global::new(0);

/// Offset of `utask` in the running kernel's `task_struct`.
#[unsafe(no_mangle)]
pub(crate) static TASK_UTASK: Global<u32> = Global::new(0);

/// Offset of `return_instances` in the running kernel's `uprobe_task`.
#[unsafe(no_mangle)]
pub(crate) static UTASK_RETURN_INSTANCES: Global<u32> = Global::new(0);

/// Offset of `vaddr` in the running kernel's `uprobe_task`: the address of the probed instruction.
#[unsafe(no_mangle)]
pub(crate) static UTASK_VADDR: Global<u32> = Global::new(0);

/// Offset of `xol_vaddr` in the running kernel's `uprobe_task`: where its copy is executed.
#[unsafe(no_mangle)]
pub(crate) static UTASK_XOL_VADDR: Global<u32> = Global::new(0);

/// Offset of `mm` in the running kernel's `task_struct`.
#[unsafe(no_mangle)]
pub(crate) static TASK_MM: Global<u32> = Global::new(0);

/// Offset of `uprobes_state.xol_area` in the running kernel's `mm_struct`.
#[unsafe(no_mangle)]
pub(crate) static MM_XOL_AREA: Global<u32> = Global::new(0);

/// Offset of `vaddr` in the running kernel's `xol_area`.
#[unsafe(no_mangle)]
pub(crate) static XOL_AREA_VADDR: Global<u32> = Global::new(0);

/// Offset of `stack` in the running kernel's `return_instance`.
#[unsafe(no_mangle)]
pub(crate) static RETURN_INSTANCE_STACK: Global<u32> = Global::new(0);

/// Offset of `orig_ret_vaddr` in the running kernel's `return_instance`.
#[unsafe(no_mangle)]
pub(crate) static RETURN_INSTANCE_ORIGINAL: Global<u32> = Global::new(0);

/// Offset of `next` in the running kernel's `return_instance`.
#[unsafe(no_mangle)]
pub(crate) static RETURN_INSTANCE_NEXT: Global<u32> = Global::new(0);

/// 1: a walk goes by frame pointers through code without rows in an object that has rows.
#[unsafe(no_mangle)]
pub(crate) static GAPS_BY_FRAME_POINTERS: Global<u32> = Global::new(0);

/// With blame: how many threads may be watched that have woken nobody yet.
#[unsafe(no_mangle)]
pub(crate) static MOST_WATCHED: Global<u32> = Global::new(0);

/// Stacks of each kind that are remembered per CPU: a power of two, at least 8.
#[unsafe(no_mangle)]
pub(crate) static KNOWN_STACKS: Global<u32> = Global::new(8);

/// 1 with `--interrupts`: what takes the CPU from requests without a switch. 0 takes the code out.
#[unsafe(no_mangle)]
pub(crate) static INTERRUPT_CLOCKS_WANTED: Global<u32> = Global::new(0);

/// Offset of `se.cfs_rq` in the running kernel's `task_struct`, of `rq` in its `cfs_rq`, and of two variables that each CPU has:
/// its run queue, and what the hypervisor has taken.
#[unsafe(no_mangle)]
pub(crate) static TASK_CFS: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub(crate) static CFS_RUN_QUEUE: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub(crate) static CPU_RUN_QUEUE: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub(crate) static CPU_STEAL: Global<u32> = Global::new(NOT_IN_THIS_KERNEL);

/// 1 with `--before`: when the data came that a request begins with. 0 takes the code out.
#[unsafe(no_mangle)]
pub(crate) static BEFORE_WANTED: Global<u32> = Global::new(0);

/// Offset of `__sk_common.skc_family` in the running kernel's `sock`.
#[unsafe(no_mangle)]
pub(crate) static SK_FAMILY: Global<u32> = Global::new(0);

/// Offset of `sk_socket` in the running kernel's `sock`: null until it is accepted.
#[unsafe(no_mangle)]
pub(crate) static SK_SOCKET: Global<u32> = Global::new(0);

/// Offset of `sk_receive_queue.qlen` in the running kernel's `sock`.
#[unsafe(no_mangle)]
pub(crate) static SK_QUEUE_LEN: Global<u32> = Global::new(0);

/// Offset of `seq` in the control block of the running kernel's `sk_buff` while it is TCP's, a `tcp_skb_cb`: the number of the first byte.
#[unsafe(no_mangle)]
pub(crate) static SKB_SEQUENCE: Global<u32> = Global::new(0);

/// The same of `end_seq`: that of the byte after the last; a FIN counts as one.
#[unsafe(no_mangle)]
pub(crate) static SKB_END: Global<u32> = Global::new(0);

/// The same of `tcp_flags`, whose lowest byte is that of the header.
#[unsafe(no_mangle)]
pub(crate) static SKB_FLAGS: Global<u32> = Global::new(0);

/// Offset of `rcv_nxt` in the running kernel's `tcp_sock`: what comes next.
#[unsafe(no_mangle)]
pub(crate) static TCP_RECEIVED: Global<u32> = Global::new(0);

/// Offset of `copied_seq` in the running kernel's `tcp_sock`: what is read next.
#[unsafe(no_mangle)]
pub(crate) static TCP_COPIED: Global<u32> = Global::new(0);

/// Offset of `icsk_ulp_ops` in the running kernel's `inet_connection_sock`: TLS in the kernel, and the like.
#[unsafe(no_mangle)]
pub(crate) static ICSK_ULP_OPS: Global<u32> = Global::new(0);

/// 1 with blame of requests with a key: who sent what they go on with. 0 takes the code out.
#[unsafe(no_mangle)]
pub(crate) static ORIGIN_WANTED: Global<u32> = Global::new(0);

/// 1 where the kernel says who has sent on a socket (`sock_send_length`, 6.3).
#[unsafe(no_mangle)]
pub(crate) static SENDS_SEEN: Global<u32> = Global::new(0);

/// With [`ORIGIN_WANTED`]: where segments are taken for connections (`tcp_rcv_established`): the first address.
#[unsafe(no_mangle)]
pub(crate) static SEGMENTS_FROM: Global<u64> = Global::new(0);

/// The address behind that code; 0: it is not known.
#[unsafe(no_mangle)]
pub(crate) static SEGMENTS_UNTIL: Global<u64> = Global::new(0);

/// Offset of `__sk_common.skc_addrpair` in the running kernel's `sock`: remote and local address of IPv4.
#[unsafe(no_mangle)]
pub(crate) static SK_ADDRESSES: Global<u32> = Global::new(0);

/// Offset of `__sk_common.skc_portpair` in the running kernel's `sock`: remote and local port.
#[unsafe(no_mangle)]
pub(crate) static SK_PORTS: Global<u32> = Global::new(0);

/// Offset of `__sk_common.skc_v6_daddr` in the running kernel's `sock`.
#[unsafe(no_mangle)]
pub(crate) static SK_V6_REMOTE: Global<u32> = Global::new(0);

/// Offset of `__sk_common.skc_v6_rcv_saddr` in the running kernel's `sock`.
#[unsafe(no_mangle)]
pub(crate) static SK_V6_LOCAL: Global<u32> = Global::new(0);

/// Offset of `__sk_common.skc_net` in the running kernel's `sock`.
#[unsafe(no_mangle)]
pub(crate) static SK_NET: Global<u32> = Global::new(0);

/// Offset of `sk_protocol` in the running kernel's `sock`.
#[unsafe(no_mangle)]
pub(crate) static SK_PROTOCOL: Global<u32> = Global::new(0);

/// Offset of `write_seq` in the running kernel's `tcp_sock`: what is written next.
#[unsafe(no_mangle)]
pub(crate) static TCP_WRITTEN: Global<u32> = Global::new(0);

/// Offset of `private_data` in the running kernel's `file`: the socket of one.
#[unsafe(no_mangle)]
pub(crate) static FILE_PRIVATE: Global<u32> = Global::new(0);

/// Offset of `file` in the running kernel's `socket`.
#[unsafe(no_mangle)]
pub(crate) static SOCKET_FILE: Global<u32> = Global::new(0);

/// Offset of `sk` in the running kernel's `socket`.
#[unsafe(no_mangle)]
pub(crate) static SOCKET_SK: Global<u32> = Global::new(0);

/// Offset of `bi_bdev` in the running kernel's `bio`.
#[unsafe(no_mangle)]
pub(crate) static BIO_DEVICE: Global<u32> = Global::new(0);

/// Offset of `bi_opf` in the running kernel's `bio`.
#[unsafe(no_mangle)]
pub(crate) static BIO_OPERATION: Global<u32> = Global::new(0);

/// Offset of `bd_disk` in the running kernel's `block_device`.
#[unsafe(no_mangle)]
pub(crate) static BDEV_DISK: Global<u32> = Global::new(0);

/// Offset of `major` in the running kernel's `gendisk`.
#[unsafe(no_mangle)]
pub(crate) static DISK_MAJOR: Global<u32> = Global::new(0);

/// Offset of `first_minor` in the running kernel's `gendisk`.
#[unsafe(no_mangle)]
pub(crate) static DISK_MINOR: Global<u32> = Global::new(0);

/// Offset of `disk_name` in the running kernel's `gendisk`.
#[unsafe(no_mangle)]
pub(crate) static DISK_NAME: Global<u32> = Global::new(0);

/// Offset of `bio` in the running kernel's `request`: the first.
#[unsafe(no_mangle)]
pub(crate) static REQUEST_BIO: Global<u32> = Global::new(0);
