//! The recorded scenes.

use reqtrace_common::loss::Loss;
use reqtrace_common::record::{FILE_NONE, STACK_LOST, STACK_NONE};
use reqtrace_recording::{BlockSite, Incomplete};

use crate::build::{Builder, Off};

const PROFILE: &str = r#"
[profile]
name = "mysql"

[[request]]
name = "command"
begin = { function = "dispatch_command" }

[[wait]]
name = "redo log"
functions = ["log_write_up_to*"]
files = ["*/ib_logfile*"]

[[wait]]
name = "row lock"
functions = ["lock_wait"]
"#;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const US: u64 = 1_000;

struct Sites {
    redo: BlockSite,
    row_lock: BlockSite,
    net: BlockSite,
    page: BlockSite,
    data: BlockSite,
    running: BlockSite,
    lost: BlockSite,
}

fn sites(builder: &mut Builder) -> Sites {
    const COMMAND: &str = "dispatch_command(enum_server_command, THD*, char*, unsigned int, bool)";
    let sync = [
        "__schedule",
        "schedule",
        "jbd2_log_wait_commit",
        "ext4_sync_file",
        "do_fsync",
    ];
    let futex = [
        "__schedule",
        "schedule",
        "futex_wait_queue",
        "futex_wait",
        "do_futex",
    ];
    let net = [
        "__schedule",
        "schedule",
        "schedule_timeout",
        "sk_wait_data",
        "tcp_recvmsg_locked",
    ];
    let read = [
        "__schedule",
        "schedule",
        "io_schedule",
        "folio_wait_bit_common",
        "filemap_read",
    ];
    let fault = [
        "__schedule",
        "schedule",
        "io_schedule",
        "folio_wait_bit_common",
        "filemap_fault",
        "handle_mm_fault",
        "asm_exc_page_fault",
    ];
    let lock_wait = [
        "pthread_cond_timedwait",
        "lock_wait(que_thr_t*)",
        COMMAND,
        "start_thread",
    ];
    Sites {
        redo: builder.site(
            &sync,
            &["fdatasync", "[mariadbd+0x9a3b10]", COMMAND, "start_thread"],
            75,
            7,
        ),
        row_lock: builder.site(&futex, &lock_wait, 202, FILE_NONE),
        net: builder.site(
            &net,
            &["recv", "net_read;raw\n", COMMAND, "start_thread"],
            45,
            31,
        ),
        page: builder.site(&fault, &["memcpy", COMMAND, "start_thread"], -1, FILE_NONE),
        data: builder.site(
            &read,
            &["pread64", "[mariadbd+0x8c0012]", COMMAND, "start_thread"],
            17,
            9,
        ),
        running: builder.site(
            &["__schedule", "schedule"],
            &["evaluate()", COMMAND, "start_thread"],
            -1,
            FILE_NONE,
        ),
        lost: BlockSite {
            kernel_stack: STACK_LOST,
            user_stack: STACK_LOST,
            syscall: 1,
            file: 4,
        },
    }
}

/// So many commands of the ordinary kind, each a little different.
fn commands(builder: &mut Builder, sites: &Sites, from: u64, to: u64, arrive: bool) {
    for index in from..to {
        let tid = 9600 + (index % 4) as u32;
        let begin = 10 * MS + index * 20 * MS;
        let mut off = vec![
            Off::Block(sites.redo, 250 * US + index * US, 20 * US),
            Off::Block(sites.net, 90 * US, 7),
        ];
        if index % 5 == 0 {
            off.push(Off::Preempted(sites.running, 33 * US));
        }
        if index % 10 == 3 {
            off.push(Off::Block(sites.data, 400 * US, 10 * US));
            off.push(Off::Block(sites.page, 80 * US, 0));
        }
        if index % 25 == 7 {
            off.push(Off::Block(sites.row_lock, 6 * MS, 45 * US));
        }
        let off_ns: u64 = off
            .iter()
            .map(|interval| match interval {
                Off::Block(_, blocked, queued) => blocked + queued,
                Off::Preempted(_, ns) => *ns,
            })
            .sum();
        let latency = off_ns + 300 * US + (index % 7) * 11 * US;
        if arrive {
            builder.complete(0, tid, begin, latency, &off);
        } else {
            builder.lost(tid, begin, latency, &off);
        }
    }
}

/// Two request types on their CPUs: one was met in several functions, the other never.
pub(crate) fn computing() -> Vec<u8> {
    let profile = format!(
        "{PROFILE}\n[[request]]\nname = \"<script>\"\nbegin = {{ function = \"run_script\" }}\n"
    );
    let mut builder = Builder::sampled(2, &profile);
    let sites = sites(&mut builder);
    let mut user = |names: &[&str]| BlockSite {
        kernel_stack: STACK_NONE,
        ..builder.site(&[], names, -1, FILE_NONE)
    };
    let command = "dispatch_command(enum_server_command, THD*, char*, unsigned int, bool)";
    let sorts = user(&["my_qsort2", "filesort(THD*)", command, "start_thread"]);
    let escapes = user(&["</script><b>&\"'", command, "start_thread"]);
    // On the way to a block, and in the kernel.
    let sends = builder.site(
        &["tcp_sendmsg", "__sys_sendto"],
        &["recv", "net_read;raw\n", command, "start_thread"],
        45,
        FILE_NONE,
    );
    for index in 0..60 {
        let (tid, begin) = (9600 + (index % 4) as u32, 10 * MS + index * 20 * MS);
        if index % 2 == 0 {
            builder.sample(0, tid, begin, sorts);
        }
        if index % 10 == 0 {
            builder.sample(0, tid, begin, sends);
        }
        if index % 15 == 0 {
            builder.sample(0, tid, begin, escapes);
        }
        let off = [
            Off::Block(sites.redo, 2 * MS, 100 * US),
            Off::Block(sites.net, 500 * US, 0),
            Off::Preempted(sites.running, 300 * US),
        ];
        builder.complete(0, tid, begin, 10 * MS, &off);
    }
    builder.complete(1, 9610, 6_000 * MS, 4 * MS, &[]);
    builder.finish()
}

/// Everything that can be in a report, in small.
pub(crate) fn busy() -> Vec<u8> {
    let mut builder = Builder::new(1, PROFILE);
    let sites = sites(&mut builder);
    builder.file(7, "/var/lib/mysql/ib_logfile0");
    builder.file(9, "/var/lib/mysql/sbtest/sbtest1.ibd");
    commands(&mut builder, &sites, 0, 200, true);
    builder.complete(
        0,
        9610,
        6_000 * MS,
        3 * MS,
        &[Off::Block(sites.lost, MS, 0)],
    );
    // A block shorter than half a microsecond is still in the stacks.
    let tiny = builder.site(&["__schedule", "schedule", "pipe_write"], &["write"], 1, 5);
    builder.complete(0, 9610, 6_100 * MS, MS, &[Off::Block(tiny, 300, 0)]);
    builder.incomplete(
        Incomplete::ThreadDied,
        9611,
        6_200 * MS,
        5 * MS,
        &[Off::Block(sites.net, MS, 0)],
    );
    builder.incomplete(Incomplete::NoEnd, 9611, 6_300 * MS, 2 * MS, &[]);
    builder.malformed();
    builder.blocked_at_stop(9612, 500 * MS, sites.row_lock, 520 * MS);
    builder.ends_without_begin(4);
    builder.loss(Loss::KernelStackUnreadable, 1);
    builder.finish()
}

/// A quarter of the records did not fit into the ring.
pub(crate) fn lost() -> Vec<u8> {
    let mut builder = Builder::new(1, PROFILE);
    let sites = sites(&mut builder);
    builder.file(7, "/var/lib/mysql/ib_logfile0");
    commands(&mut builder, &sites, 0, 150, true);
    commands(&mut builder, &sites, 150, 200, false);
    builder.loss(Loss::RingFull, 50);
    builder.finish()
}

/// [`lost`], had nothing been lost.
pub(crate) fn nothing_lost() -> Vec<u8> {
    let mut builder = Builder::new(1, PROFILE);
    let sites = sites(&mut builder);
    builder.file(7, "/var/lib/mysql/ib_logfile0");
    commands(&mut builder, &sites, 0, 200, true);
    builder.finish()
}

/// The begin was never hit.
pub(crate) fn idle() -> Vec<u8> {
    Builder::new(1, PROFILE).finish()
}

/// The ring had no room for the name of the log until it was blocked on again.
pub(crate) fn late_name() -> Vec<u8> {
    let mut builder = Builder::new(1, PROFILE);
    let sites = sites(&mut builder);
    commands(&mut builder, &sites, 0, 10, true);
    builder.file(7, "/var/lib/mysql/ib_logfile0");
    commands(&mut builder, &sites, 10, 20, true);
    builder.loss(Loss::FileNotice, 1);
    builder.finish()
}

/// A request that has hung for long, and one that had just begun.
pub(crate) fn open() -> Vec<u8> {
    let mut builder = Builder::new(1, PROFILE);
    let sites = sites(&mut builder);
    commands(&mut builder, &sites, 0, 100, true);
    builder.blocked_at_stop(9612, 500 * MS, sites.row_lock, 520 * MS);
    let just_now = 10_000 * MS - 60 * US;
    builder.blocked_at_stop(9613, just_now, sites.net, just_now + 10 * US);
    builder.finish()
}
