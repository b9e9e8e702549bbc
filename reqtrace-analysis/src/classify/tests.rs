use super::*;
use crate::profile::{Combine, Origin, Profile, WaitSpec};

/// A classifier for one service with these waits.
pub(crate) fn of_waits(waits: &[WaitSpec]) -> Result<Classifier> {
    Classifier::new(&service("x", waits).into())
}

fn service(name: &str, waits: &[WaitSpec]) -> Profile {
    let text = format!(
        "[profile]\nname = \"{name}\"\n[[request]]\nname = \"r\"\nbegin = {{ function = \"f\" }}"
    );
    Profile {
        waits: waits.to_vec(),
        ..Profile::parse(&text, name, Origin::BuiltIn).unwrap()
    }
}

/// Stacks as three kernels print them, innermost first.
const STACKS: &[(&str, &[&str])] = &[
    (
        "lock",
        &[
            "__schedule",
            "schedule",
            "futex_wait_queue",
            "futex_wait",
            "do_futex",
            "__x64_sys_futex",
        ],
    ),
    (
        "lock",
        &[
            "__schedule",
            "schedule",
            "futex_do_wait",
            "__futex_wait",
            "futex_wait",
        ],
    ),
    (
        "lock",
        &[
            "__schedule",
            "schedule",
            "rwsem_down_write_slowpath",
            "ext4_buffered_write_iter",
            "vfs_write",
        ],
    ),
    (
        "lock",
        &[
            "__schedule",
            "schedule_preempt_disabled",
            "__mutex_lock.constprop.0",
            "pipe_write",
        ],
    ),
    (
        "sleep",
        &[
            "__schedule",
            "schedule",
            "do_nanosleep",
            "hrtimer_nanosleep",
            "common_nsleep",
        ],
    ),
    (
        "poll",
        &[
            "__schedule",
            "schedule",
            "schedule_hrtimeout_range_clock",
            "ep_poll",
            "do_epoll_wait",
        ],
    ),
    (
        "poll",
        &[
            "__schedule",
            "schedule",
            "poll_schedule_timeout.constprop.0",
            "do_sys_poll",
            "__x64_sys_poll",
        ],
    ),
    (
        "network",
        &[
            "__schedule",
            "schedule",
            "schedule_timeout",
            "wait_woken",
            "sk_wait_data",
            "tcp_recvmsg_locked",
            "tcp_recvmsg",
            "inet_recvmsg",
            "sock_recvmsg",
        ],
    ),
    (
        "network",
        &[
            "__schedule",
            "schedule",
            "schedule_timeout",
            "unix_stream_read_generic",
            "unix_stream_recvmsg",
            "sock_read_iter",
            "vfs_read",
        ],
    ),
    (
        "network",
        &[
            "__schedule",
            "schedule",
            "schedule_timeout",
            "inet_csk_accept",
            "inet_accept",
        ],
    ),
    (
        "pipe",
        &[
            "__schedule",
            "schedule",
            "pipe_read",
            "vfs_read",
            "ksys_read",
        ],
    ),
    (
        "pipe",
        &[
            "__schedule",
            "schedule",
            "anon_pipe_read",
            "vfs_read",
            "ksys_read",
        ],
    ),
    (
        "disk",
        &[
            "__schedule",
            "schedule",
            "io_schedule",
            "folio_wait_bit_common",
            "filemap_update_page",
            "filemap_read",
        ],
    ),
    (
        "disk",
        &[
            "__schedule",
            "schedule",
            "jbd2_log_wait_commit",
            "ext4_sync_file",
            "do_fsync",
        ],
    ),
    (
        "disk",
        &[
            "__schedule",
            "schedule",
            "schedule_timeout",
            "io_schedule_timeout",
            "__wait_for_common",
            "submit_bio_wait",
            "blkdev_issue_flush",
        ],
    ),
    (
        "disk",
        &[
            "__schedule",
            "schedule",
            "xlog_wait_on_iclog",
            "xfs_log_force_seq",
            "xfs_file_fsync",
        ],
    ),
    (
        "page-fault",
        &[
            "__schedule",
            "schedule",
            "io_schedule",
            "folio_wait_bit_common",
            "filemap_fault",
            "__do_fault",
            "do_fault",
            "__handle_mm_fault",
            "handle_mm_fault",
            "do_user_addr_fault",
            "exc_page_fault",
            "asm_exc_page_fault",
        ],
    ),
    (
        "page-fault",
        &[
            "__schedule",
            "schedule",
            "rwsem_down_read_slowpath",
            "do_user_addr_fault",
            "asm_exc_page_fault",
        ],
    ),
    (
        "process",
        &[
            "__schedule",
            "schedule",
            "do_wait",
            "kernel_wait4",
            "__do_sys_wait4",
        ],
    ),
    (
        "process",
        &[
            "__schedule",
            "schedule",
            "schedule_timeout",
            "wait_for_vfork_done",
            "kernel_clone",
        ],
    ),
    // The lock of the address space in a probe's trap, and a page fault in it.
    (
        "tracing",
        &[
            "__schedule",
            "schedule",
            "rwsem_down_read_slowpath",
            "uprobe_notify_resume",
            "irqentry_exit_to_user_mode",
            "asm_exc_int3",
        ],
    ),
    (
        "tracing",
        &[
            "schedule",
            "folio_wait_bit_common",
            "handle_mm_fault",
            "asm_exc_page_fault",
            "uprobe_handle_trampoline",
            "__x64_sys_uretprobe",
        ],
    ),
    (
        "other",
        &["__schedule", "schedule", "something_new", "do_syscall_64"],
    ),
];

fn frames(names: &[&str]) -> Vec<Frame> {
    names.iter().map(|name| Frame::new(*name)).collect()
}

fn class_of<'a>(classifier: &'a Classifier, block: &Block<'_>) -> &'a str {
    &classifier.names()[classifier.class(Some(0), block)]
}

#[test]
fn the_table_knows_the_stacks_of_three_kernels() {
    let classifier = of_waits(&[]).unwrap();
    for (class, stack) in STACKS {
        let kernel = frames(stack);
        let block = Block {
            kernel: &kernel,
            user: &[],
            file: None,
            syscall: 0,
        };
        assert_eq!(class_of(&classifier, &block), *class, "{stack:?}");
    }
}

#[test]
fn without_kernel_names_the_system_call_decides() {
    let classifier = of_waits(&[]).unwrap();
    let kernel = frames(&["[kernel+0x1]", "[kernel+0x2]"]);
    for (syscall, file, class) in [
        (202, None, "lock"),
        (75, None, "disk"),
        (0, Some("socket:[1]"), "network"),
        (0, Some("pipe:[1]"), "pipe"),
        (0, Some("/var/lib/mysql/ibdata1"), "disk"),
        (0, None, "other"),
        (-1, None, "page-fault"),
        (9999, None, "other"),
    ] {
        let block = Block {
            kernel: &kernel,
            user: &[],
            file,
            syscall,
        };
        assert_eq!(class_of(&classifier, &block), class, "{syscall} {file:?}");
    }
}

fn wait(name: &str) -> WaitSpec {
    WaitSpec {
        name: name.to_owned(),
        ..WaitSpec::default()
    }
}

#[test]
fn named_waits_match_in_file_order_before_the_table() {
    let specs = [
        WaitSpec {
            files: vec!["*/ib_logfile*".to_owned()],
            functions: vec!["log_write_up_to*".to_owned()],
            ..wait("redo log")
        },
        WaitSpec {
            functions: vec!["MDL_context::acquire_lock".to_owned()],
            ..wait("metadata lock")
        },
        WaitSpec {
            kernel_functions: vec!["ext4_sync_*".to_owned()],
            syscalls: vec!["epoll_wait".to_owned()],
            ..wait("sync")
        },
    ];
    let classifier = of_waits(&specs).unwrap();
    assert_eq!(classifier.named(), 3);
    assert!(classifier.needs_user());
    assert_eq!(
        classifier.names()[..4],
        ["redo log", "metadata lock", "sync", "disk"]
    );
    let kernel = frames(&[
        "__schedule",
        "schedule",
        "jbd2_log_wait_commit",
        "ext4_sync_file.isra.0",
    ]);
    let user = |name: &str| frames(&["fdatasync", name, "main"]);
    let block = |user, file, syscall| Block {
        kernel: &kernel,
        user,
        file,
        syscall,
    };
    assert_eq!(
        class_of(&classifier, &block(&[], Some("/d/ib_logfile0"), 75)),
        "redo log"
    );
    assert_eq!(
        class_of(&classifier, &block(&[], Some("/d/ibdata1"), 75)),
        "sync"
    );
    let log = user("log_write_up_to(unsigned long, bool)");
    assert_eq!(class_of(&classifier, &block(&log, None, 75)), "redo log");
    let lock = user("MDL_context::acquire_lock(MDL_request*, double)");
    assert_eq!(
        class_of(&classifier, &block(&lock, None, 202)),
        "metadata lock"
    );
    let poll = frames(&["ep_poll"]);
    let polling = Block {
        kernel: &poll,
        user: &[],
        file: None,
        syscall: 232,
    };
    assert_eq!(class_of(&classifier, &polling), "sync");
}

#[test]
fn a_chain_is_one_function_somewhere_inside_another() {
    let specs = [WaitSpec {
        functions: vec!["handler::* => *cond_timedwait*".to_owned()],
        ..wait("row lock")
    }];
    let classifier = of_waits(&specs).unwrap();
    let kernel = frames(&["futex_wait"]);
    let of = |user: &[&str]| {
        let user = frames(user);
        let block = Block {
            kernel: &kernel,
            user: &user,
            file: None,
            syscall: 202,
        };
        class_of(&classifier, &block).to_owned()
    };
    let engine = "handler::ha_update_row(unsigned char const*)";
    let wait = "___pthread_cond_timedwait64";
    assert_eq!(
        of(&["__futex_wait", wait, "lib", engine, "main"]),
        "row lock"
    );
    assert_eq!(of(&["__futex_wait", wait, "main"]), "lock");
    assert_eq!(of(&[engine, wait, "main"]), "lock", "the wrong way round");
    assert_eq!(of(&[wait]), "lock");
}

#[test]
fn all_kinds_must_match_where_the_profile_says_so() {
    let specs = [
        WaitSpec {
            combine: Combine::All,
            files: vec!["*.ibd".to_owned(), "*-bin.[0-9]*".to_owned()],
            syscalls: vec!["pread64".to_owned()],
            ..wait("read")
        },
        WaitSpec {
            files: vec!["*.ibd".to_owned()],
            ..wait("write")
        },
        WaitSpec {
            syscalls: vec!["fsync".to_owned()],
            ..wait("read")
        },
    ];
    let classifier = of_waits(&specs).unwrap();
    assert_eq!(classifier.named(), 2, "waits of one name share a column");
    let kernel = frames(&["io_schedule"]);
    for (file, syscall, class) in [
        ("/d/t.ibd", 17, "read"),
        ("/d/a-bin.000001", 17, "read"),
        ("/d/t.ibd", 18, "write"),
        ("/d/t.frm", 17, "disk"),
        ("/d/t.frm", 74, "read"),
    ] {
        let block = Block {
            kernel: &kernel,
            user: &[],
            file: Some(file),
            syscall,
        };
        assert_eq!(class_of(&classifier, &block), class, "{syscall} {file}");
    }
}

#[test]
fn a_wait_named_like_a_class_adds_to_it() {
    let specs = [WaitSpec {
        syscalls: vec!["futex".to_owned()],
        ..wait("disk")
    }];
    let classifier = of_waits(&specs).unwrap();
    assert_eq!(classifier.named(), 0);
    let kernel = frames(&["futex_wait"]);
    let block = Block {
        kernel: &kernel,
        user: &[],
        file: None,
        syscall: 202,
    };
    assert_eq!(class_of(&classifier, &block), "disk");
}

#[test]
fn bad_waits_are_errors_that_say_what_to_do() {
    let unknown = of_waits(&[WaitSpec {
        syscalls: vec!["fsnc".to_owned()],
        ..wait("x")
    }]);
    assert!(
        unknown
            .unwrap_err()
            .advice()
            .is_some_and(|a| a.contains("fsync"))
    );
    for names in [["a b", "a_b"], ["blocked", "x"]] {
        let specs = names.map(wait);
        assert!(of_waits(&specs).is_err(), "{names:?}");
    }
}

#[test]
fn a_named_wait_does_not_take_what_probes_wait_for() {
    let specs = [WaitSpec {
        name: "any lock".to_owned(),
        functions: vec!["take_lock".to_owned()],
        ..WaitSpec::default()
    }];
    let classifier = of_waits(&specs).unwrap();
    let user = frames(&["take_lock"]);
    let class = |kernel: &[&str]| {
        let kernel = frames(kernel);
        let block = Block {
            kernel: &kernel,
            user: &user,
            file: None,
            syscall: -1,
        };
        classifier.names()[classifier.class(Some(0), &block)].clone()
    };
    assert_eq!(class(&["schedule", "futex_wait"]), "any lock");
    assert_eq!(
        class(&["schedule", "down_read", "uprobe_notify_resume"]),
        "tracing"
    );
    // Somebody has stopped it in its call.
    let stopped = ["schedule", "do_signal_stop", "get_signal", "futex_wait"];
    assert_eq!(class(&stopped), "process");
}

/// PHP waits for its database in `recv`; the database's own `recv` is nobody's database.
#[test]
fn named_waits_hold_for_their_own_service() {
    let database = WaitSpec {
        syscalls: vec!["recvfrom".to_owned()],
        ..wait("database")
    };
    let sync = WaitSpec {
        syscalls: vec!["fsync".to_owned()],
        ..wait("redo log")
    };
    let profiles = Profiles::new(vec![service("php", &[database]), service("mysql", &[sync])]);
    let classifier = Classifier::new(&profiles.unwrap()).unwrap();
    assert_eq!(classifier.names()[..2], ["database", "redo log"]);
    let class = |request_type: Option<u32>, syscall: i32| {
        let service = request_type.and_then(|number| classifier.service(number));
        let block = Block {
            kernel: &[],
            user: &[],
            file: None,
            syscall,
        };
        classifier.names()[classifier.class(service, &block)].clone()
    };
    let (recvfrom, fsync) = (45, 74);
    assert_eq!(class(Some(0), recvfrom), "database");
    assert_eq!(class(Some(1), recvfrom), "network");
    assert_eq!(class(Some(0), fsync), "disk");
    assert_eq!(class(Some(1), fsync), "redo log");
    assert_eq!(class(None, fsync), "disk");
}
