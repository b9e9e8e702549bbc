//! Whether the kernel's tables need a privilege: a table of our own in, the answer out.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, RawFd};
use std::thread;

use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_map_type};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::grace::array;
use super::system::bpf;
use crate::kernel::{Feature, Hidden};
use reqtrace_base::error::Result;

/// Whether the kernel's tables can be used by whoever has their descriptors, although `kernel.unprivileged_bpf_disabled`
/// is set (Linux 5.19): tried in a thread without capabilities.
///
/// # Errors
///
/// When the kernel makes no table.
pub fn maps_go_by_descriptor() -> Result<bool> {
    if Hidden::read()?.has(Feature::MapsByDescriptor) {
        return Ok(false);
    }
    let map = array(bpf_map_type::BPF_MAP_TYPE_ARRAY, None)?;
    let tried = thread::spawn(move || {
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, none).is_ok() && first_key(map.as_raw_fd()).is_ok()
    });
    Ok(tried.join().unwrap_or(false))
}

/// Asks for the first key of an array.
fn first_key(map: RawFd) -> io::Result<()> {
    let mut key = 0_u32;
    // SAFETY: a union of plain numbers.
    let mut attr: bpf_attr = unsafe { zeroed() };
    attr.__bindgen_anon_2.map_fd = map.cast_unsigned();
    attr.__bindgen_anon_2.__bindgen_anon_1.next_key = (&raw mut key) as u64;
    // SAFETY: there is room for a key.
    unsafe { bpf(bpf_cmd::BPF_MAP_GET_NEXT_KEY as i64, &raw mut attr) }
}
