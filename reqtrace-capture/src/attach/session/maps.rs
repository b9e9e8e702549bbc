//! Whether the kernel's tables need a privilege: a table of the session in, the answer out.

use std::io;
use std::mem::zeroed;
use std::os::fd::RawFd;
use std::thread;

use aya_obj::generated::{bpf_attr, bpf_cmd};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::{Session, map_fd};
use crate::attach::named::map;
use crate::attach::system::bpf;
use crate::kernel::{Feature, Hidden};
use reqtrace_base::error::{Error, Result};

impl Session {
    /// Whether its tables can be used by whoever has their descriptors, although `kernel.unprivileged_bpf_disabled`
    /// is set: tried in a thread without capabilities.
    ///
    /// # Errors
    ///
    /// When there is no such table.
    pub fn uses_maps_by_descriptor(&self) -> Result<bool> {
        if Hidden::read()?.has(Feature::MapsByDescriptor) {
            return Ok(false);
        }
        let fd = map_fd(map(&self.ebpf, "WALKS")?);
        let fd = fd.ok_or_else(|| Error::failed("a table of the kernel's has no descriptor"))?;
        let tried = thread::spawn(move || {
            let none = CapabilitySets {
                effective: CapabilitySet::empty(),
                permitted: CapabilitySet::empty(),
                inheritable: CapabilitySet::empty(),
            };
            set_capabilities(None, none).is_ok() && first_key(fd).is_ok()
        });
        Ok(tried.join().unwrap_or(false))
    }
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
