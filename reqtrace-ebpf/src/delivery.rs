//! Whose segments the current thread delivers: packets come in the context of any thread. A segment in; whether that
//! thread has sent it out.

use aya_ebpf::Global;
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use reqtrace_common::origin::Way;
use reqtrace_common::syscall::{SYS_IO_URING_ENTER, SYS_SPLICE, may_close, may_send};

use crate::before::{Object, at, read};
use crate::globals::{FILE_PRIVATE, SOCKET_FILE, SOCKET_SK};
use crate::task::{is_kernel_thread, second_to_fourth, user_context};
use crate::way::way_from;
use crate::{file, origin};

/// Whether the current thread has not sent the segment that came last on this CPU.
#[map]
static DELIVERS: PerCpuArray<u32> = PerCpuArray::with_max_entries(1, 0);

/// Whether the segment that came last on this CPU is not of the current thread.
#[inline(always)]
pub(crate) fn delivers() -> bool {
    // SAFETY: this CPU's own entry.
    origin::wanted()
        && DELIVERS
            .get_ptr(0)
            .is_some_and(|entry| unsafe { *entry } != 0)
}

/// What the current thread does when a segment comes: packets come in the context of any.
pub(crate) struct Current {
    syscall: i32,
    /// The way on which the socket sends that its system call is about; without ports: there is none.
    way: Way,
}

impl Current {
    /// Nobody has looked.
    pub(crate) const NONE: Self = Self {
        syscall: -1,
        way: Way {
            from: 0,
            to: 0,
            ports: 0,
            net: 0,
        },
    };

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

    /// Notes whether it takes a segment of another one out of a queue, and delivers it. If that is in doubt, it does
    /// not.
    #[inline(always)]
    pub(crate) fn takes(&self, way: &Way, has_data: bool) {
        let delivers = if self.syscall == SYS_IO_URING_ENTER || may_close(self.syscall) {
            false
        } else if has_data {
            !self.is_on(way) && !is_kernel_thread()
        } else {
            // A thread that reads sends acknowledgements, and the sockets of one that dies are closed.
            may_send(self.syscall) && !self.is_on(way) && !self.is_on(&way.back())
        };
        if let Some(entry) = DELIVERS.get_ptr_mut(0) {
            // SAFETY: this CPU's own entry, and no softirq interrupts another one.
            unsafe { *entry = u32::from(delivers) }
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
    way_from(pointer(socket, &SOCKET_SK)? as Object)
}
