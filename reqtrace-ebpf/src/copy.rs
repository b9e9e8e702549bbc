//! A copy of the innermost part of a stack: one call of a helper in place of one for each word.
//!
//! In: where a user stack begins. Out: words of it, from the copy or, outside of it, from the stack
//! itself.

use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::helpers::generated::bpf_probe_read_user as read_into;

use crate::maps::STACK_COPY;

/// Words of a copy: 4 KiB, which holds some 20 frames of a database.
pub(crate) const COPY_WORDS: usize = 512;
const COPY_BYTES: u32 = 8 * COPY_WORDS as u32;

/// A copy of a part of a user stack.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Copied {
    words: *const u64,
    /// Address of the first word.
    start: u64,
    /// Bytes that were copied.
    len: u64,
}

impl Copied {
    /// Copies what lies from `sp` on. Near the end of a stack the pages behind may not be there: then
    /// to the end of the page.
    #[inline(always)]
    pub(crate) fn of_user(sp: u64) -> Option<Self> {
        let words = STACK_COPY.get_ptr_mut(0)?;
        let start = sp & !7;
        let mut len = COPY_BYTES;
        // SAFETY: the helper checks the address, faults no page in, and writes what it is told to.
        unsafe {
            if read_into(words.cast(), len, start as *const _) != 0 {
                len = COPY_BYTES - (start as u32 & (COPY_BYTES - 1));
                if read_into(words.cast(), len, start as *const _) != 0 {
                    len = 0;
                }
            }
        }
        Some(Self {
            words: words.cast(),
            start,
            len: u64::from(len),
        })
    }

    /// The word at an address; `None` when it is not resident.
    #[inline(always)]
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.start);
        if offset < self.len && offset & 7 == 0 {
            let index = (offset >> 3) as usize & (COPY_WORDS - 1);
            // SAFETY: the mask keeps the index inside the copy.
            return Some(unsafe { self.words.add(index).read() });
        }
        // SAFETY: the helper checks the address and does not fault pages in.
        unsafe { bpf_probe_read_user(address as *const u64) }.ok()
    }
}
