//! Whose segments the current thread delivers: packets come in the context of any thread. A segment in; whether that
//! thread has sent it out.

use aya_ebpf::Global;
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use reqtrace_common::origin::Way;
use reqtrace_common::syscall::{SYS_IO_URING_ENTER, SYS_SPLICE, may_close, may_send};

use crate::assembly::forgotten;
use crate::before::{Object, at, read};
use crate::globals::{FILE_PRIVATE, SOCKET_FILE, SOCKET_SK};
use crate::task::{current_ids, is_kernel_thread, second_to_fourth, user_context};
use crate::way::way_from_untyped;
use crate::{file, origin};

/// The segment that came last on this CPU.
#[map]
static LAST_SEGMENT: PerCpuArray<LastSegment> = PerCpuArray::with_max_entries(1, 0);

#[repr(C)]
struct LastSegment {
    /// The way on which it came.
    way: Way,
    /// Who ran.
    tid: u32,
    has_data: u32,
}

/// A segment comes on this way.
#[inline(always)]
pub(crate) fn comes(way: &Way, has_data: bool) {
    if let Some(last) = LAST_SEGMENT.get_ptr_mut(0) {
        // SAFETY: this CPU's own entry, and no softirq interrupts another one.
        unsafe {
            (*last).way = *way;
            (*last).tid = current_ids().1;
            (*last).has_data = u32::from(has_data);
        }
    }
}

/// Whose segment the current thread delivers. Numbers, because the verifier goes over what follows once for each variant.
pub(crate) mod segment {
    /// None is being delivered.
    pub(crate) const NONE: u64 = 0;
    pub(crate) const OWN: u64 = 1;
    /// It takes that of another one out of a queue.
    pub(crate) const OTHERS: u64 = 2;
    pub(crate) const NOT_KNOWN: u64 = 3;
}

/// The same of the segment that is being delivered.
#[inline(always)]
pub(crate) fn of_current() -> u64 {
    // Without it members of sockets may lack, and the verifier refuses what reads them.
    if !origin::wanted() {
        return segment::NOT_KNOWN;
    }
    let Some(last) = LAST_SEGMENT.get_ptr(0) else {
        return segment::NOT_KNOWN;
    };
    // SAFETY: this CPU's own entry, which does not change meanwhile.
    let last = unsafe { &*last };
    if last.tid != current_ids().1 {
        return segment::NOT_KNOWN;
    }
    let whose = Current::look().delivers(&last.way, last.has_data != 0);
    forgotten(whose, last.way.ports)
}

/// What the current thread does when a segment comes: packets come in the context of any.
pub(crate) struct Current {
    syscall: i32,
    /// The way on which the socket sends that its system call is about; without ports: there is none.
    way: Way,
}

impl Current {
    /// Looks at the current thread.
    #[inline(always)]
    pub(crate) fn look() -> Self {
        let user = user_context();
        let fd = if user.syscall == SYS_SPLICE {
            second_to_fourth()[1]
        } else {
            user.first_argument
        };
        Self {
            syscall: user.syscall,
            way: way_of(fd as u32).unwrap_or_default(),
        }
    }

    #[inline(always)]
    fn is_on(&self, way: &Way) -> bool {
        self.way.is(way)
    }

    /// Whether it is in a call that sends on this way.
    #[inline(always)]
    pub(crate) fn sends_on(&self, way: &Way) -> bool {
        may_send(self.syscall) && self.syscall != SYS_IO_URING_ENTER && self.is_on(way)
    }

    /// Whose segment it delivers that comes on this way.
    #[inline(always)]
    fn delivers(&self, way: &Way, has_data: bool) -> u64 {
        let is_on = self.is_on(way);
        // The sockets of one that dies are closed.
        if self.syscall == SYS_IO_URING_ENTER || may_close(self.syscall) || is_kernel_thread() {
            segment::NOT_KNOWN
        } else if is_on || !has_data && self.is_on(&way.back()) {
            // A thread that reads sends acknowledgements.
            segment::OWN
        } else if has_data || may_send(self.syscall) {
            segment::OTHERS
        } else {
            segment::NOT_KNOWN
        }
    }
}

/// The way on which the socket behind a descriptor of the current thread sends.
#[inline(always)]
fn way_of(fd: u32) -> Option<Way> {
    let pointer = |base: u64, offset: &Global<u32>| read::<u64>(at(base as Object, offset));
    let file = file::descriptor(fd)?;
    let socket = pointer(file, &FILE_PRIVATE)?;
    if pointer(socket, &SOCKET_FILE) != Some(file) {
        return None;
    }
    way_from_untyped(pointer(socket, &SOCKET_SK)? as Object)
}
