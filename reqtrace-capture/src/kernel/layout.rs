//! Where the running kernel keeps what the programs read: its types in, values of globals out.
//!
//! This is the one list of members of the kernel's structures.

use super::btf::Types;
use reqtrace_common::config::NOT_IN_THIS_KERNEL;

/// Members that are of use only together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Of a thread.
    Task,
    /// Of what uprobes keep of a thread.
    Uprobe,
    /// On the way to the name of a file.
    File,
    /// Of sockets.
    Socket,
    /// Of block devices and their I/O.
    Disk,
    /// Of limits of CPU time, as they are known of each thread, since 6.18.
    Throttled,
    /// The same as they are known of each cgroup. Neither is there where the kernel has no such limits.
    Limit,
    /// Of what the hypervisor takes; not there where the kernel cannot be KVM's guest.
    Steal,
}

/// A structure and a member of it, maybe inside an anonymous one.
type Member = (&'static str, &'static str);

/// A global of the kernel programs, and the members whose offsets it is the sum of.
type Global = (&'static str, &'static [Member]);

const COMMON: Member = ("sock", "__sk_common");
/// What a protocol keeps of a packet of its own.
const CONTROL: Member = ("sk_buff", "cb");

/// Variables that each CPU has for itself.
const PER_CPU: &str = ".data..percpu";

const MEMBERS: [(Part, &[Global]); 8] = [
    (
        Part::Task,
        &[
            ("TASK_PID", &[("task_struct", "pid")]),
            ("TASK_TGID", &[("task_struct", "tgid")]),
            (
                "TASK_RAN",
                &[("task_struct", "se"), ("sched_entity", "sum_exec_runtime")],
            ),
            ("TASK_STACK", &[("task_struct", "stack")]),
            ("TASK_COMM", &[("task_struct", "comm")]),
            ("TASK_POLICY", &[("task_struct", "policy")]),
            ("TASK_PRIORITY", &[("task_struct", "prio")]),
            ("TASK_QUEUED", &[("task_struct", "on_rq")]),
        ],
    ),
    (
        Part::Uprobe,
        &[
            ("TASK_UTASK", &[("task_struct", "utask")]),
            (
                "UTASK_RETURN_INSTANCES",
                &[("uprobe_task", "return_instances")],
            ),
            ("UTASK_VADDR", &[("uprobe_task", "vaddr")]),
            ("UTASK_XOL_VADDR", &[("uprobe_task", "xol_vaddr")]),
            ("TASK_MM", &[("task_struct", "mm")]),
            (
                "MM_XOL_AREA",
                &[
                    ("mm_struct", "uprobes_state"),
                    ("uprobes_state", "xol_area"),
                ],
            ),
            ("XOL_AREA_VADDR", &[("xol_area", "vaddr")]),
            ("RETURN_INSTANCE_STACK", &[("return_instance", "stack")]),
            (
                "RETURN_INSTANCE_ORIGINAL",
                &[("return_instance", "orig_ret_vaddr")],
            ),
            ("RETURN_INSTANCE_NEXT", &[("return_instance", "next")]),
        ],
    ),
    (
        Part::File,
        &[
            ("TASK_FILES", &[("task_struct", "files")]),
            ("FILES_FDT", &[("files_struct", "fdt")]),
            ("FDT_MAX", &[("fdtable", "max_fds")]),
            ("FDT_FD", &[("fdtable", "fd")]),
            ("FILE_MNT", &[("file", "f_path"), ("path", "mnt")]),
            ("FILE_DENTRY", &[("file", "f_path"), ("path", "dentry")]),
            ("FILE_INODE", &[("file", "f_inode")]),
            ("FILE_POSITION", &[("file", "f_pos")]),
            ("BINPRM_FILE", &[("linux_binprm", "file")]),
            ("VMA_FILE", &[("vm_area_struct", "vm_file")]),
            ("INODE_MODE", &[("inode", "i_mode")]),
            ("INODE_NUMBER", &[("inode", "i_ino")]),
            ("INODE_SB", &[("inode", "i_sb")]),
            ("SB_DEVICE", &[("super_block", "s_dev")]),
            ("SB_MAGIC", &[("super_block", "s_magic")]),
            ("DENTRY_PARENT", &[("dentry", "d_parent")]),
            ("DENTRY_HASH", &[("dentry", "d_name"), ("qstr", "hash_len")]),
            ("DENTRY_NAME", &[("dentry", "d_name"), ("qstr", "name")]),
            ("MNT_ROOT", &[("vfsmount", "mnt_root")]),
            ("MOUNT_MNT", &[("mount", "mnt")]),
            ("MOUNT_PARENT", &[("mount", "mnt_parent")]),
            ("MOUNT_POINT", &[("mount", "mnt_mountpoint")]),
        ],
    ),
    (
        Part::Socket,
        &[
            ("SK_FAMILY", &[COMMON, ("sock_common", "skc_family")]),
            ("SK_SOCKET", &[("sock", "sk_socket")]),
            (
                "SK_QUEUE_LEN",
                &[("sock", "sk_receive_queue"), ("sk_buff_head", "qlen")],
            ),
            ("SKB_SEQUENCE", &[CONTROL, ("tcp_skb_cb", "seq")]),
            ("SKB_END", &[CONTROL, ("tcp_skb_cb", "end_seq")]),
            ("SKB_FLAGS", &[CONTROL, ("tcp_skb_cb", "tcp_flags")]),
            ("TCP_RECEIVED", &[("tcp_sock", "rcv_nxt")]),
            ("TCP_COPIED", &[("tcp_sock", "copied_seq")]),
            ("SK_ADDRESSES", &[COMMON, ("sock_common", "skc_addrpair")]),
            ("SK_PORTS", &[COMMON, ("sock_common", "skc_portpair")]),
            ("SK_V6_REMOTE", &[COMMON, ("sock_common", "skc_v6_daddr")]),
            (
                "SK_V6_LOCAL",
                &[COMMON, ("sock_common", "skc_v6_rcv_saddr")],
            ),
            ("SK_NET", &[COMMON, ("sock_common", "skc_net")]),
            ("SK_PROTOCOL", &[("sock", "sk_protocol")]),
            ("TCP_WRITTEN", &[("tcp_sock", "write_seq")]),
            ("FILE_PRIVATE", &[("file", "private_data")]),
            ("SOCKET_FILE", &[("socket", "file")]),
            ("SOCKET_SK", &[("socket", "sk")]),
            ("ICSK_ULP_OPS", &[("inet_connection_sock", "icsk_ulp_ops")]),
        ],
    ),
    (
        Part::Disk,
        &[
            ("BIO_DEVICE", &[("bio", "bi_bdev")]),
            ("BIO_OPERATION", &[("bio", "bi_opf")]),
            ("BDEV_DISK", &[("block_device", "bd_disk")]),
            ("DISK_MAJOR", &[("gendisk", "major")]),
            ("DISK_MINOR", &[("gendisk", "first_minor")]),
            ("DISK_NAME", &[("gendisk", "disk_name")]),
            ("REQUEST_BIO", &[("request", "bio")]),
        ],
    ),
    (
        Part::Throttled,
        &[("TASK_THROTTLED", &[("task_struct", "throttled")])],
    ),
    (
        Part::Limit,
        &[
            (
                "TASK_QUEUE",
                &[("task_struct", "se"), ("sched_entity", "cfs_rq")],
            ),
            ("TASK_GROUP", &[("task_struct", "sched_task_group")]),
            ("GROUP_QUEUES", &[("task_group", "cfs_rq")]),
            ("CFS_LIMITED", &[("cfs_rq", "throttled_clock_pelt_time")]),
        ],
    ),
    (
        Part::Steal,
        &[
            (
                "TASK_CFS",
                &[("task_struct", "se"), ("sched_entity", "cfs_rq")],
            ),
            ("CFS_RUN_QUEUE", &[("cfs_rq", "rq")]),
            ("CPU_RUN_QUEUE", &[(PER_CPU, "runqueues")]),
            (
                "CPU_STEAL",
                &[(PER_CPU, "steal_time"), ("kvm_steal_time", "steal")],
            ),
        ],
    ),
];

/// Byte offsets in the running kernel's structures, by the global that takes each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    offsets: Vec<(Part, &'static str, u32)>,
    missing: Vec<(Part, String)>,
}

/// The structures that are looked at.
pub(super) fn structures() -> impl Iterator<Item = &'static str> {
    let globals = MEMBERS.iter().flat_map(|(_, globals)| *globals);
    globals.flat_map(|(_, members)| members.iter().map(|(structure, _)| *structure))
}

impl Layout {
    /// Finds all members.
    pub(super) fn of(types: &Types<'_>) -> Self {
        let mut layout = Self {
            offsets: Vec::new(),
            missing: Vec::new(),
        };
        for (part, globals) in MEMBERS {
            for (global, members) in globals {
                let sum = members.iter().try_fold(0, |sum, &(structure, member)| {
                    let offset = types.member_offset(structure, member);
                    offset.map(|offset| sum + offset).ok_or((structure, member))
                });
                let offset = sum.unwrap_or_else(|(structure, member)| {
                    layout.lose(part, format!("{structure}.{member}"));
                    NOT_IN_THIS_KERNEL
                });
                layout.offsets.push((part, global, offset));
            }
        }
        layout
    }

    /// A member of this part that the kernel does not have.
    pub(super) fn missing(&self, part: Part) -> Option<&str> {
        let mut missing = self.missing.iter();
        let (_, member) = missing.find(|(of, _)| *of == part)?;
        Some(member)
    }

    /// Has the programs do without a part, for want of this.
    pub(super) fn lose(&mut self, part: Part, what: String) {
        self.missing.push((part, what));
    }

    /// The globals of a part with their values: none of a part is known if not all are.
    pub(crate) fn globals(&self, part: Part) -> impl Iterator<Item = (&'static str, &u32)> {
        let is_whole = self.missing(part).is_none();
        let known = self.offsets.iter().filter(move |(of, ..)| *of == part);
        known.map(move |(_, global, offset)| {
            let offset = if is_whole {
                offset
            } else {
                &NOT_IN_THIS_KERNEL
            };
            (*global, offset)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::btf::tests::sample;
    use super::*;

    #[test]
    fn a_part_is_known_as_a_whole_or_not_at_all() {
        let data = sample();
        let layout = Layout::of(&Types::parse(&data, |_| true).unwrap());
        assert_eq!(
            layout.missing(Part::Task),
            Some("task_struct.se"),
            "the sample has no more than the ids"
        );
        let known: Vec<_> = layout.globals(Part::Task).collect();
        assert_eq!(known.len(), 8);
        assert_eq!(known[0], ("TASK_PID", &NOT_IN_THIS_KERNEL));
        assert_eq!(layout.missing(Part::Socket), Some("sock.__sk_common"));
    }

    #[test]
    fn this_kernel_has_all_of_them() {
        let data = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
        let wanted: Vec<_> = structures().map(str::as_bytes).collect();
        let types = Types::parse(&data, |name| wanted.contains(&name)).unwrap();
        let mut layout = Layout::of(&types);
        // Which of the two says it depends on the kernel.
        layout.missing.retain(|(part, _)| *part != Part::Throttled);
        assert_eq!(layout.missing, []);
        for (part, globals) in MEMBERS {
            assert_eq!(layout.globals(part).count(), globals.len());
        }
        layout.lose(Part::File, "a test".to_owned());
        let mut files = layout.globals(Part::File);
        assert!(files.all(|(_, offset)| *offset == NOT_IN_THIS_KERNEL));
        let mut tasks = layout.globals(Part::Task);
        assert!(tasks.all(|(_, offset)| *offset != NOT_IN_THIS_KERNEL));
    }
}
