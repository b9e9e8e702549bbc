//! What the running kernel can do, so that the end-to-end tests know whether they can run.

use std::{fs, io, path::Path};

/// `BPF_MAP_CREATE`.
const MAP_CREATE: libc::c_int = 0;
/// `BPF_MAP_TYPE_ARRAY`.
const MAP_TYPE_ARRAY: u32 = 2;
/// Files without which reqtrace cannot work.
const NEEDED: [(&str, &str); 2] = [
    ("/sys/kernel/btf/vmlinux", "no BTF of the running kernel"),
    ("/sys/bus/event_source/devices/uprobe/type", "no uprobes"),
];

/// The running kernel's release.
pub fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Why BPF programs cannot run here; `None` if they can.
pub fn no_bpf() -> Option<String> {
    for (file, meaning) in NEEDED {
        if !Path::new(file).exists() {
            return Some(format!("{meaning} ({file} does not exist)"));
        }
    }
    create_map()
        .err()
        .map(|error| format!("bpf() says: {error}"))
}

/// Creates the smallest map and closes it again.
fn create_map() -> io::Result<()> {
    #[repr(C)]
    struct MapAttr {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    let attr = MapAttr {
        map_type: MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: 4,
        max_entries: 1,
    };
    // SAFETY: the attribute lives until the call returns and its size is passed with it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            MAP_CREATE,
            &raw const attr,
            size_of::<MapAttr>(),
        )
    };
    let Ok(fd) = libc::c_int::try_from(fd) else {
        return Err(io::Error::other("bpf() returned no descriptor"));
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just returned to us and is used nowhere else.
    unsafe { libc::close(fd) };
    Ok(())
}

/// Whether this process is root.
pub fn is_root() -> bool {
    // SAFETY: geteuid cannot fail.
    unsafe { libc::geteuid() == 0 }
}
