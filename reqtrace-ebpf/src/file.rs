//! Which file a thread blocks on: a descriptor in, an id out; the name of a new file to user space.
//!
//! The name is read when the thread blocks: a moment later the descriptor may be closed, and the file
//! removed. The id is made of what the kernel keeps of names (hashes, and the addresses of mount and
//! folder), so that a known file costs a dozen reads of a word, and its name is read once.

use core::ffi::c_void;

use aya_ebpf::Global;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::{
    bpf_find_vma, bpf_get_current_task_btf, bpf_loop, bpf_probe_read_kernel_str,
};

use reqtrace_common::config::NOT_IN_THIS_KERNEL;
use reqtrace_common::limits::MAX_PATH;
use reqtrace_common::loss::Loss;
use reqtrace_common::record::{FILE_NONE, FILE_UNKNOWN, FileId, FileRecord, file_name, kind};

use crate::before::{Object, field};
use crate::emit;
use crate::maps::{FILE_SCRATCH, FILES, file_period, lose};
use crate::task::Task;

/// Defines globals that user space sets to offsets in the running kernel's structures.
macro_rules! offsets {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        static $name: Global<u32> = Global::new(0);
    )* };
}

offsets! {
    /// `task_struct.files`.
    TASK_FILES;
    /// `files_struct.fdt`.
    FILES_FDT;
    /// `fdtable.max_fds`.
    FDT_MAX;
    /// `fdtable.fd`.
    FDT_FD;
    /// `file.f_path.mnt`.
    FILE_MNT;
    /// `file.f_path.dentry`.
    FILE_DENTRY;
    /// `file.f_inode`.
    FILE_INODE;
    /// `file.f_pos`.
    FILE_POSITION;
    /// `vm_area_struct.vm_file`.
    VMA_FILE;
    /// `linux_binprm.file`.
    BINPRM_FILE;
    /// `inode.i_mode`.
    INODE_MODE;
    /// `inode.i_ino`.
    INODE_NUMBER;
    /// `inode.i_sb`.
    INODE_SB;
    /// `super_block.s_dev`.
    SB_DEVICE;
    /// `super_block.s_magic`.
    SB_MAGIC;
    /// `dentry.d_parent`.
    DENTRY_PARENT;
    /// `dentry.d_name.hash_len`: a hash of name and parent, and the name's length.
    DENTRY_HASH;
    /// `dentry.d_name.name`.
    DENTRY_NAME;
    /// `vfsmount.mnt_root`.
    MNT_ROOT;
    /// `mount.mnt`.
    MOUNT_MNT;
    /// `mount.mnt_parent`.
    MOUNT_PARENT;
    /// `mount.mnt_mountpoint`.
    MOUNT_POINT;
}

const S_IFMT: u16 = 0o170_000;
const S_IFIFO: u16 = 0o010_000;
const S_IFSOCK: u16 = 0o140_000;

/// Folders and mounts on the way to the root.
const MAX_STEPS: u32 = 48;
/// A name is at most 255 bytes (`NAME_MAX`), and its NUL.
const NAME_ROOM: usize = 256;
/// Names without a folder are distinguished by so many words.
const NAME_WORDS: u64 = 4;

/// What is known of a file of [`FILES`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Known {
    /// All bits of the hash: two files of one id differ here.
    hash: u64,
    /// The period in which user space was sent its name ([`file_period`]).
    period: u64,
}

/// Where a name is put together.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FileScratch {
    record: FileRecord,
    /// So that a name may be read wherever one begins.
    room: [u8; NAME_ROOM],
}

/// A descriptor's file: addresses in the kernel.
struct Open {
    mnt: u64,
    dentry: u64,
    parent: u64,
    inode: u64,
    mode: u16,
}

/// The file behind a descriptor of the current thread, and a hash of it and of the place in it that it is
/// read or written at next, or 0.
#[inline(always)]
pub(crate) fn behind(fd: u64) -> (FileId, u64) {
    if TASK_FILES.load() == NOT_IN_THIS_KERNEL {
        return (FILE_NONE, 0);
    }
    let Some(file) = descriptor(fd as u32) else {
        lose(Loss::FileUnknown);
        return (FILE_UNKNOWN, 0);
    };
    let position: u64 = read(file, &FILE_POSITION).unwrap_or(0);
    (known(file), mix(mix(1, file), position))
}

/// What is mapped at an address of the current process.
#[repr(C)]
struct Mapped {
    /// Address of a `struct file`; 0 for memory without one.
    file: u64,
}

/// The file that is mapped at an address of the current thread's process; `FILE_NONE` where it is memory
/// without a file.
#[inline(always)]
pub(crate) fn mapped_at(address: u64) -> FileId {
    if TASK_FILES.load() == NOT_IN_THIS_KERNEL {
        return FILE_NONE;
    }
    let mut mapped = Mapped { file: 0 };
    // SAFETY: the callback has the signature that the helper calls, and the context outlives it. The helper
    // does not wait: it gives up when the mappings are being changed.
    let found = unsafe {
        bpf_find_vma(
            bpf_get_current_task_btf(),
            address,
            of_mapping as *mut c_void,
            (&raw mut mapped).cast(),
            0,
        )
    };
    if found != 0 {
        lose(Loss::FileUnknown);
        return FILE_UNKNOWN;
    }
    match mapped.file {
        0 => FILE_NONE,
        file => known(file),
    }
}

/// The inode number of the program that a process begins to run, by the `linux_binprm` of its exec.
#[inline(always)]
pub(crate) fn number_of_program(binprm: *const c_void) -> Option<u64> {
    if BINPRM_FILE.load() == NOT_IN_THIS_KERNEL {
        return None;
    }
    let file: u64 = read(binprm as u64, &BINPRM_FILE)?;
    let inode: u64 = read(file, &FILE_INODE)?;
    read(inode, &INODE_NUMBER)
}

/// Notes the file of a mapping.
extern "C" fn of_mapping(_task: Task, vma: *const c_void, mapped: *mut Mapped) -> u64 {
    // SAFETY: the context of `mapped_at`.
    unsafe {
        (*mapped).file = read(vma as u64, &VMA_FILE).unwrap_or(0);
    }
    0
}

/// The id of a file, whose name is sent when it is new.
#[inline(always)]
fn known(file: u64) -> FileId {
    let Some((hash, open)) = open(file).and_then(|open| Some((hash(&open)?, open))) else {
        lose(Loss::FileUnknown);
        return FILE_UNKNOWN;
    };
    let mut id = hash as FileId;
    if id <= FILE_UNKNOWN {
        id = !id;
    }
    let period = file_period();
    // SAFETY: copied at once. The kernel may give the entry to another file meanwhile, which then shows
    // as another hash.
    match unsafe { FILES.get(id) }.copied() {
        Some(known) if known.hash != hash => {
            lose(Loss::FileCollision);
            return FILE_UNKNOWN;
        }
        Some(known) if known.period == period => return id,
        _ => {}
    }
    // Two CPUs may both send the name, which does no harm.
    if send(id, &open) {
        // Without an entry the name is sent again next time.
        let _ = FILES.insert(id, Known { hash, period }, 0);
    }
    id
}

#[inline(always)]
pub(crate) fn read<T>(base: u64, offset: &Global<u32>) -> Option<T> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel((base + u64::from(offset.load())) as *const T) }.ok()
}

/// The `struct file` behind a descriptor of the current thread.
#[inline(always)]
pub(crate) fn descriptor(fd: u32) -> Option<u64> {
    // SAFETY: no precondition.
    let task: Task = unsafe { bpf_get_current_task_btf() };
    // SAFETY: loads of fields from BTF pointers; a fault yields 0.
    let (most, entries): (u32, u64) = unsafe {
        let files: Object = field(task.cast(), &TASK_FILES);
        let table: Object = field(files, &FILES_FDT);
        (field(table, &FDT_MAX), field(table, &FDT_FD))
    };
    if fd >= most {
        return None;
    }
    // SAFETY: the helper checks the address.
    let file: u64 =
        unsafe { bpf_probe_read_kernel((entries + u64::from(fd) * 8) as *const u64) }.ok()?;
    (file != 0).then_some(file)
}

#[inline(always)]
fn open(file: u64) -> Option<Open> {
    let dentry = read(file, &FILE_DENTRY)?;
    let inode = read(file, &FILE_INODE)?;
    Some(Open {
        mnt: read(file, &FILE_MNT)?,
        dentry,
        parent: read(dentry, &DENTRY_PARENT)?,
        inode,
        mode: read(inode, &INODE_MODE)?,
    })
}

#[inline(always)]
pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    let mixed = (hash ^ value).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ mixed >> 32
}

/// Of a file in a folder: its mount, and three names with the addresses of their folders. So a file
/// that is moved, or whose folder or its folder is, gets another one.
#[inline(always)]
fn hash(open: &Open) -> Option<u64> {
    let kind = open.mode & S_IFMT;
    let no_folder = open.parent == open.dentry;
    if kind == S_IFSOCK || (no_folder && kind == S_IFIFO) {
        return Some(mix(0, u64::from(kind)));
    }
    let own: u64 = read(open.dentry, &DENTRY_HASH)?;
    let hash = mix(mix(0, open.mnt), own);
    if no_folder {
        return name_hash(hash, own >> 32, read(open.dentry, &DENTRY_NAME)?);
    }
    let above: u64 = read(open.parent, &DENTRY_PARENT)?;
    let hash = mix(mix(hash, open.parent), read(open.parent, &DENTRY_HASH)?);
    Some(mix(mix(hash, above), read(above, &DENTRY_HASH)?))
}

/// The kernel does not hash names without a folder. A dentry has room for 32 bytes in itself.
#[inline(always)]
fn name_hash(mut hash: u64, len: u64, name: u64) -> Option<u64> {
    let mut word = 0;
    while word < NAME_WORDS {
        let left = len.saturating_sub(8 * word);
        if left == 0 {
            break;
        }
        // SAFETY: the helper checks the address.
        let mut bytes = unsafe { bpf_probe_read_kernel((name + 8 * word) as *const u64) }.ok()?;
        if left < 8 {
            bytes &= (1 << (8 * left)) - 1;
        }
        hash = mix(hash, bytes);
        word += 1;
    }
    Some(hash)
}

/// A way up to the root.
#[repr(C)]
struct Climb {
    dentry: u64,
    mnt: u64,
    scratch: *mut FileScratch,
    at: u64,
    name: u32,
    pad: u32,
}

/// Sends the name of a file; whether it was sent. What cannot be read is left out of it.
#[inline(always)]
fn send(id: FileId, open: &Open) -> bool {
    let Some(scratch) = FILE_SCRATCH.get_ptr_mut(0) else {
        return false;
    };
    let mut climb = Climb {
        dentry: open.dentry,
        mnt: open.mnt,
        scratch,
        at: 0,
        name: file_name::CUT,
        pad: 0,
    };
    let root = read(open.mnt, &MNT_ROOT).unwrap_or(open.dentry);
    if open.parent == open.dentry && root != open.dentry {
        climb.name = file_name::NO_FOLDER;
        take_name(&mut climb);
    } else {
        // SAFETY: the callback has the signature that the helper calls, and the context outlives it.
        unsafe {
            bpf_loop(MAX_STEPS, step as *mut c_void, (&raw mut climb).cast(), 0);
        }
    }
    let sb = read(open.inode, &INODE_SB).unwrap_or(0);
    let magic: u64 = read(sb, &SB_MAGIC).unwrap_or(0);
    // SAFETY: the scratch entry is ours while interrupts are off.
    let record = unsafe { &mut (*scratch).record };
    record.kind = kind::FILE;
    record.file = id;
    record.name = climb.name;
    record.len = climb.at as u32;
    record.mode = u32::from(open.mode);
    record.magic = magic as u32;
    record.device = read(sb, &SB_DEVICE).unwrap_or(0);
    record.pad = 0;
    record.inode = read(open.inode, &INODE_NUMBER).unwrap_or(0);
    emit::file(record)
}

/// One folder or mount up. Returns 1 to stop.
extern "C" fn step(_index: u32, climb: *mut Climb) -> u64 {
    // SAFETY: the context of `send`.
    let climb = unsafe { &mut *climb };
    match up(climb) {
        Some(()) => 0,
        None => 1,
    }
}

#[inline(always)]
fn up(climb: &mut Climb) -> Option<()> {
    let root: u64 = read(climb.mnt, &MNT_ROOT)?;
    if climb.dentry != root {
        let parent: u64 = read(climb.dentry, &DENTRY_PARENT)?;
        if parent == climb.dentry || !take_name(climb) {
            return None;
        }
        climb.dentry = parent;
        return Some(());
    }
    let mount = climb.mnt.wrapping_sub(u64::from(MOUNT_MNT.load()));
    let above: u64 = read(mount, &MOUNT_PARENT)?;
    if above == mount {
        climb.name = file_name::WHOLE;
        return None;
    }
    climb.dentry = read(mount, &MOUNT_POINT)?;
    climb.mnt = above + u64::from(MOUNT_MNT.load());
    Some(())
}

/// Adds the name of where the way has come to; `false` when it has no room.
#[inline(always)]
fn take_name(climb: &mut Climb) -> bool {
    let at = climb.at as usize;
    if at >= MAX_PATH {
        return false;
    }
    let Some(name) = read::<u64>(climb.dentry, &DENTRY_NAME) else {
        return false;
    };
    // SAFETY: `at` is below the size of `names`, and `room` follows it.
    let len = unsafe {
        let to = (&raw mut (*climb.scratch).record.names)
            .cast::<u8>()
            .add(at);
        bpf_probe_read_kernel_str(to.cast(), NAME_ROOM as u32, name as *const c_void)
    };
    if len <= 0 || at + len as usize > MAX_PATH {
        return false;
    }
    climb.at = (at + len as usize) as u64;
    true
}
