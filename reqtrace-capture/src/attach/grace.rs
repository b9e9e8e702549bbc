//! Waiting until no program of the scheduler's tracepoints runs that had begun before.
//!
//! Those programs run with interrupts off, so an RCU grace period is long enough. The kernel waits for one
//! after each change of a map of maps, for just this purpose (`maybe_wait_bpf_programs` in
//! `kernel/bpf/syscall.c`, since 4.20). `membarrier` would do as well, but refuses on machines with
//! `nohz_full` CPUs.

use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_map_type};

use super::system::{bpf, bpf_fd};
use reqtrace_base::error::{Error, Result};

/// A map of maps that nobody reads.
pub(crate) struct GracePeriod {
    outer: OwnedFd,
    inner: OwnedFd,
}

impl GracePeriod {
    /// # Errors
    ///
    /// When the kernel makes no more maps.
    pub(super) fn new() -> Result<Self> {
        let inner = array(bpf_map_type::BPF_MAP_TYPE_ARRAY, None)?;
        let outer = array(bpf_map_type::BPF_MAP_TYPE_ARRAY_OF_MAPS, Some(&inner))?;
        Ok(Self { outer, inner })
    }

    /// One that another process has made.
    pub(crate) fn handed(inner: Option<OwnedFd>, outer: Option<OwnedFd>) -> Option<Self> {
        Some(Self {
            outer: outer?,
            inner: inner?,
        })
    }

    /// Its maps, in the order in which [`GracePeriod::handed`] takes them from the end.
    pub(crate) fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.outer.as_fd(), self.inner.as_fd()]
    }

    /// Waits; some 20 ms.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the change.
    pub(super) fn wait(&self) -> Result<()> {
        let key = 0_u32;
        let value = self.inner.as_raw_fd() as u32;
        // SAFETY: all zeros is a valid value of these plain fields.
        let mut attr: bpf_attr = unsafe { zeroed() };
        // SAFETY: it is the member that this command reads.
        let element = unsafe { &mut attr.__bindgen_anon_2 };
        element.map_fd = self.outer.as_raw_fd() as u32;
        element.key = (&raw const key) as u64;
        element.__bindgen_anon_1.value = (&raw const value) as u64;
        // SAFETY: key and value are as large as the map's, and live longer than the call.
        unsafe { bpf(bpf_cmd::BPF_MAP_UPDATE_ELEM as i64, &raw mut attr) }.map_err(|error| {
            Error::failed("the kernel programs could not be waited for").because(error)
        })
    }
}

/// An array of one entry of four bytes.
pub(super) fn array(kind: bpf_map_type, inner: Option<&OwnedFd>) -> Result<OwnedFd> {
    // SAFETY: all zeros is a valid value of these plain fields.
    let mut attr: bpf_attr = unsafe { zeroed() };
    // SAFETY: it is the member that this command reads.
    let map = unsafe { &mut attr.__bindgen_anon_1 };
    map.map_type = kind as u32;
    map.key_size = 4;
    map.value_size = 4;
    map.max_entries = 1;
    map.inner_map_fd = inner.map_or(0, |inner| inner.as_raw_fd() as u32);
    // SAFETY: the command reads no pointer of it.
    unsafe {
        bpf_fd(
            bpf_cmd::BPF_MAP_CREATE as i64,
            &raw const attr,
            size_of::<bpf_attr>(),
        )
    }
    .map_err(|error| {
        Error::failed("a map for waiting for kernel programs was refused").because(error)
    })
}
