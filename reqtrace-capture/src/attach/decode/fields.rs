//! Bytes of the kernel's records in, numbers and the types of a recording out. Fields are read by their offsets,
//! and every read is checked.

use std::mem::offset_of;

use reqtrace_common::record::{
    BlockSite as KernelSite, LongBlock as KernelLongBlock, Slot as KernelSlot,
};
use reqtrace_recording::{AddressSpace, BlockSite, LongBlock, RequestOf, Slot};

use super::{Malformed, request_type};

/// Little-endian fields by offset; every read is checked.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes(&self, at: usize, len: usize) -> Result<&'a [u8], Malformed> {
        self.0.get(at..at + len).ok_or(Malformed::Short {
            needed: at + len,
            got: self.0.len(),
        })
    }

    pub(super) fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(at, N)?);
        Ok(array)
    }

    pub(super) fn u32(&self, at: usize) -> Result<u32, Malformed> {
        self.array(at).map(u32::from_le_bytes)
    }

    pub(super) fn i32(&self, at: usize) -> Result<i32, Malformed> {
        self.array(at).map(i32::from_le_bytes)
    }

    pub(super) fn u64(&self, at: usize) -> Result<u64, Malformed> {
        self.array(at).map(u64::from_le_bytes)
    }

    /// The address space whose process and generation lie here.
    pub(super) fn space(
        &self,
        tgid: usize,
        exec_generation: usize,
    ) -> Result<AddressSpace, Malformed> {
        Ok(AddressSpace {
            tgid: self.u32(tgid)?,
            exec_generation: self.u32(exec_generation)?,
        })
    }

    /// The request whose begin and type lie here.
    pub(super) fn request(&self, begin_ns: usize, of_type: usize) -> Result<RequestOf, Malformed> {
        Ok(RequestOf {
            begin_ns: self.u64(begin_ns)?,
            request_type: request_type(self.u32(of_type)?)?,
        })
    }

    pub(super) fn count(&self, at: usize, max: usize) -> Result<usize, Malformed> {
        let value = self.u32(at)?;
        match value as usize {
            count if count <= max => Ok(count),
            _ => Err(Malformed::Count(value)),
        }
    }

    pub(super) fn site(&self, at: usize) -> Result<BlockSite, Malformed> {
        Ok(BlockSite {
            kernel_stack: self.u64(at + offset_of!(KernelSite, kernel_stack))?,
            user_stack: self.u64(at + offset_of!(KernelSite, user_stack))?,
            syscall: self.i32(at + offset_of!(KernelSite, syscall))?,
            file: self.u32(at + offset_of!(KernelSite, file))?,
        })
    }

    pub(super) fn slot(&self, at: usize) -> Result<Slot, Malformed> {
        Ok(Slot {
            site: self.site(at + offset_of!(KernelSlot, site))?,
            blocked_ns: self.u64(at + offset_of!(KernelSlot, blocked_ns))?,
        })
    }

    pub(super) fn long_block(&self, at: usize) -> Result<LongBlock, Malformed> {
        Ok(LongBlock {
            site: self.site(at + offset_of!(KernelLongBlock, site))?,
            start_ns: self.u64(at + offset_of!(KernelLongBlock, start_ns))?,
            blocked_ns: self.u64(at + offset_of!(KernelLongBlock, blocked_ns))?,
            run_queue_ns: self.u64(at + offset_of!(KernelLongBlock, run_queue_ns))?,
            waker_tid: self.u32(at + offset_of!(KernelLongBlock, waker_tid))?,
            waker_tgid: self.u32(at + offset_of!(KernelLongBlock, waker_tgid))?,
        })
    }
}
