//! The table of wait classes against the kernels' own names: a name that no kernel has is a mistake.
//!
//! In: what `reqtrace classes` printed on each kernel. Out: an error that names what is nowhere.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

/// Names of what is built as a module, or not at all, in these kernels: nothing can be known of them.
const MODULES: &[&str] = &[
    "btrfs_*",
    "ceph_*",
    "cifs_*",
    "dm_*",
    "f2fs_*",
    "fuse_*",
    "__fuse_*",
    "loop_*",
    "md_*",
    "mptcp_*",
    "nfs4_*",
    "nfs_*",
    "nvme_*",
    "ovl_*",
    "p9_client_*",
    "raid*",
    "request_wait_answer",
    "rpc_*",
    "__rpc_*",
    "scsi_*",
    "sctp_*",
    "smb2_*",
    "smc_*",
    "tls_*",
    "txg_wait_*",
    "udpv6_*",
    "v9fs_*",
    "vsock_*",
    "xfs_*",
    "xlog_*",
    "zfs_*",
    "zil_*",
    "zpl_*",
    "ext4_*",
    "__ext4_*",
    "jbd2_*",
    "wait_transaction_*",
    "add_transaction_credits",
    "start_this_handle",
];

/// Functions of the kernel's source that these builds have inlined, or have only with real-time
/// preemption: other builds have them.
const OTHER_BUILDS: &[&str] = &[
    "__down_read*",
    "__down_write*",
    "coredump_wait",
    "de_thread",
    "do_freezer_trap",
    "do_jobctl_trap",
    "do_lock_file_wait",
    "do_poll",
    "do_wait_pid",
    "ep_poll",
    "faultin_page",
    "flock_lock_inode_wait",
    "io_cqring_schedule*",
    "percpu_down_read*",
    "posix_lock_inode_wait",
    "rt_spin_lock*",
    "rtlock_*",
    "rwbase_*",
    "signalfd_dequeue",
    "splice_pipe_to_pipe",
    "wait_for_dump_helpers",
    "wait_for_vfork_done",
];

/// How many functions each name matched, by kernel.
#[derive(Default)]
pub(super) struct Names(BTreeMap<(String, String), u64>);

impl Names {
    /// Takes what one kernel has; each class must have a function there.
    pub(super) fn add(&mut self, printed: &str) -> Result<()> {
        let mut by_class: BTreeMap<&str, u64> = BTreeMap::new();
        for line in printed.lines() {
            let mut words = line.split(' ');
            let parts = (words.next(), words.next(), words.next());
            let (Some(class), Some(name), Some(count)) = parts else {
                anyhow::bail!("`reqtrace classes` printed {line:?}");
            };
            let count: u64 = count.parse().with_context(|| format!("{line:?}"))?;
            *by_class.entry(class).or_default() += count;
            let key = (class.to_owned(), name.to_owned());
            *self.0.entry(key).or_default() += count;
        }
        ensure!(
            by_class.len() >= 8,
            "`reqtrace classes` printed {} classes",
            by_class.len()
        );
        let empty: Vec<&str> = by_class
            .iter()
            .filter(|(_, count)| **count == 0)
            .map(|(class, _)| *class)
            .collect();
        ensure!(
            empty.is_empty(),
            "no function of this kernel is in the wait classes {empty:?}"
        );
        Ok(())
    }

    /// Fails when a name was on none of the kernels.
    pub(super) fn judge(&self) -> Result<()> {
        let nowhere: Vec<String> = self
            .0
            .iter()
            .filter(|((_, name), count)| {
                let excused = [MODULES, OTHER_BUILDS].concat().contains(&name.as_str());
                **count == 0 && !excused
            })
            .map(|((class, name), _)| format!("{class}: {name}"))
            .collect();
        ensure!(
            nowhere.is_empty(),
            "names in the table of wait classes that no kernel has: {}",
            nowhere.join(", ")
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "disk a 1\nnetwork b 1\nlock c 1\nsleep d 1\npoll e 1\npipe f 1\n\
                       page-fault g 1\nprocess h 1\n";

    #[test]
    fn a_name_that_no_kernel_has_is_found() {
        let mut names = Names::default();
        names
            .add(&format!("{ALL}disk new 0\ndisk old 3\ndisk xfs_* 0\n"))
            .unwrap();
        assert!(names.judge().unwrap_err().to_string().contains("disk: new"));
        names
            .add(&format!("{ALL}disk new 1\ndisk old 0\n"))
            .unwrap();
        names.judge().unwrap();
    }

    #[test]
    fn a_class_without_a_function_is_found() {
        let mut names = Names::default();
        let error = names.add(&ALL.replace("pipe f 1", "pipe f 0")).unwrap_err();
        assert!(error.to_string().contains("pipe"));
        assert!(names.add("").is_err());
        assert!(names.add("disk\n").is_err());
    }
}
