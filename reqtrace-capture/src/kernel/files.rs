//! Where the running kernel keeps the file behind a descriptor: BTF in, values of globals out.

use super::btf::Types;

/// Globals of the kernel programs, each with the members whose offsets it is the sum of.
const MEMBERS: [(&str, &[(&str, &str)]); 22] = [
    ("TASK_FILES", &[("task_struct", "files")]),
    ("FILES_FDT", &[("files_struct", "fdt")]),
    ("FDT_MAX", &[("fdtable", "max_fds")]),
    ("FDT_FD", &[("fdtable", "fd")]),
    ("FILE_MNT", &[("file", "f_path"), ("path", "mnt")]),
    ("FILE_DENTRY", &[("file", "f_path"), ("path", "dentry")]),
    ("FILE_INODE", &[("file", "f_inode")]),
    ("FILE_POSITION", &[("file", "f_pos")]),
    ("VMA_FILE", &[("vm_area_struct", "vm_file")]),
    ("BINPRM_FILE", &[("linux_binprm", "file")]),
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
];

/// Byte offsets on the way from a thread to the name of a file, by the name of the global that
/// takes each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOffsets(Vec<(&'static str, u32)>);

impl FileOffsets {
    /// Finds them; the error is the member that the kernel does not have.
    pub(super) fn of(types: &Types<'_>) -> Result<Self, (&'static str, &'static str)> {
        let sum = |members: &[(&'static str, &'static str)]| {
            members.iter().try_fold(0, |sum, &(structure, member)| {
                let offset = types.member_offset(structure, member);
                offset.map(|offset| sum + offset).ok_or((structure, member))
            })
        };
        let found = MEMBERS
            .iter()
            .map(|(global, members)| Ok((*global, sum(members)?)));
        found.collect::<Result<_, _>>().map(Self)
    }

    /// The values, each with its global.
    pub fn globals(&self) -> impl Iterator<Item = (&'static str, &u32)> {
        self.0.iter().map(|(global, offset)| (*global, offset))
    }
}
