//! Many uprobes in one link: places of one file and a loaded program in, a link out.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::super::image::AttachType;
use super::super::system::bpf_fd;
use super::{BPF_LINK_CREATE, Place};
use reqtrace_binary::lazy::LazyFile;
use reqtrace_binary::procfs;

/// `BPF_F_UPROBE_MULTI_RETURN`.
const ON_RETURN: u32 = 1;

/// `union bpf_attr` as `BPF_LINK_CREATE` of a `uprobe_multi` link reads it.
#[repr(C)]
struct LinkCreateAttr {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    link_flags: u32,
    path: u64,
    offsets: u64,
    counters: u64,
    cookies: u64,
    count: u32,
    flags: u32,
    process: u32,
    pad: u32,
}

/// Whether the kernel has such links: one that has none does not come to say what is wrong with this place.
pub(super) fn is_there(program: BorrowedFd<'_>) -> bool {
    let no_file = LazyFile::at("/dev/null");
    let no_place = Place {
        object: &no_file,
        file_offset: 1,
        counter: None,
        on_return: false,
        process: None,
        cookie: 0,
    };
    let error = attach_at(program, Path::new("/"), &[no_place]).err();
    error.and_then(|error| error.raw_os_error()) == Some(libc::EBADF)
}

/// Sets probes at all these places, which have file, process and kind in common with the first.
///
/// # Errors
///
/// What the kernel says; then none is set.
pub(super) fn attach(program: BorrowedFd<'_>, places: &[Place<'_>]) -> io::Result<OwnedFd> {
    let Some(first) = places.first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let file = first.object.open()?;
    attach_at(program, &procfs::descriptor(&file), places)
}

fn attach_at(program: BorrowedFd<'_>, path: &Path, places: &[Place<'_>]) -> io::Result<OwnedFd> {
    let Some(first) = places.first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let path = CString::new(path.as_os_str().as_bytes())?;
    let offsets: Vec<u64> = places.iter().map(|place| place.file_offset).collect();
    let counters: Vec<u64> = places
        .iter()
        .map(|place| place.counter.unwrap_or(0))
        .collect();
    let cookies: Vec<u64> = places.iter().map(|place| place.cookie).collect();
    let attr = LinkCreateAttr {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_fd: 0,
        attach_type: AttachType::UprobeMulti as u32,
        link_flags: 0,
        path: path.as_ptr() as u64,
        offsets: offsets.as_ptr() as u64,
        counters: counters.as_ptr() as u64,
        cookies: cookies.as_ptr() as u64,
        count: places.len() as u32,
        flags: if first.on_return { ON_RETURN } else { 0 },
        process: first.process.unwrap_or(0),
        pad: 0,
    };
    // SAFETY: path and arrays live until the call returns, and have `count` entries.
    unsafe {
        bpf_fd(
            BPF_LINK_CREATE,
            &raw const attr,
            size_of::<LinkCreateAttr>(),
        )
    }
}
