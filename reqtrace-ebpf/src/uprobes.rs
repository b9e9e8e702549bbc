//! What uprobes, ours and those of other tracers, do to a thread's registers and stack.
//!
//! In: the kernel's own record of the current thread's probes. Out: where its code really stands,
//! and the return addresses that uretprobes have replaced.

use aya_ebpf::bindings::task_struct;
use aya_ebpf::helpers::generated::bpf_get_current_task_btf;
use aya_ebpf::helpers::{bpf_probe_read_kernel, bpf_probe_read_user};

use crate::globals::{
    MM_XOL_AREA, RETURN_INSTANCE_NEXT, RETURN_INSTANCE_ORIGINAL, RETURN_INSTANCE_STACK, TASK_MM,
    TASK_UTASK, UTASK_RETURN_INSTANCES, UTASK_VADDR, UTASK_XOL_VADDR, XOL_AREA_VADDR,
};
use crate::task::{UserContext, holds};

/// How many return addresses replaced by uretprobes are looked through: the kernel allows 64 in
/// one thread.
const MAX_RETURN_INSTANCES: u32 = 64;
/// The instruction that the kernel puts in place of a probed one.
const INT3: u8 = 0xcc;
/// Longest x86 instruction, bytes. Executed out of line, it ends at most this far from its copy.
const MAX_INSTRUCTION: u64 = 15;
const PAGE: u64 = 4096;
/// The instructions of the trampoline behind its system call.
const POP_R11: u16 = 0x5b41;
const POP_RCX: u16 = 0x59;
const RET: u16 = 0xc3;

/// A place in user code: the address of an instruction, and the stack pointer there.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
}

/// Where the thread that is being switched out stands.
///
/// That is where its registers say, unless it was preempted on its way over a probe: behind the
/// breakpoint, in the copy of the probed instruction, or in the trampoline of return probes.
/// These lie in a page of their own that no unwind information describes.
#[inline(always)]
pub(crate) fn true_place(user: &UserContext) -> Place {
    let there = Place {
        pc: user.pc,
        sp: user.sp,
    };
    // In a system call it is behind the call, which is neither.
    if user.syscall != -1 {
        return there;
    }
    let Some(utask) = utask() else {
        return there;
    };
    // SAFETY: loads through helpers, at offsets of the running kernel.
    unsafe {
        let page = uprobes_page().unwrap_or(0);
        if page != 0 && user.pc.wrapping_sub(page) < PAGE {
            return in_uprobes_page(user, utask);
        }
        let trapped = user.pc.wrapping_sub(1);
        // The byte before a function's first instruction may be one that traps, too.
        if user.is_interrupted || bpf_probe_read_user(trapped as *const u8) != Ok(INT3) {
            return there;
        }
        // A probed push was emulated, and is done: by then the thread is in a request that begins
        // at it. All others of these instructions leave the stack as it is.
        if let Ok(top) = bpf_probe_read_user(user.sp as *const u64)
            && holds(top)
        {
            return there;
        }
        Place {
            pc: trapped,
            sp: user.sp,
        }
    }
}

/// The original instruction of a copy that is executed, or the caller that a trampoline returns to.
#[inline(always)]
unsafe fn in_uprobes_page(user: &UserContext, utask: u64) -> Place {
    // SAFETY: as in the caller.
    unsafe {
        let copy = read_kernel(utask, UTASK_XOL_VADDR.load()).unwrap_or(0);
        let inside = user.pc.wrapping_sub(copy);
        if copy != 0
            && inside <= MAX_INSTRUCTION
            && let Some(original) = read_kernel(utask, UTASK_VADDR.load())
        {
            return Place {
                pc: original.wrapping_add(inside),
                sp: user.sp,
            };
        }
        // From 6.11 on the trampoline is `push` of three registers, a system call that puts the
        // caller's address in place of the first, two `pop`, and `ret`. Before, it is a breakpoint.
        let code = bpf_probe_read_user(user.pc as *const u16).unwrap_or(0);
        let slot = match (code, code & 0xff) {
            (POP_R11, _) => user.sp.wrapping_add(16),
            (_, POP_RCX) => user.sp.wrapping_add(8),
            (_, RET) => user.sp,
            _ => return before_the_handler(user, utask),
        };
        match bpf_probe_read_user(slot as *const u64) {
            Ok(caller) => returned(caller, slot),
            Err(_) => Place {
                pc: user.pc,
                sp: user.sp,
            },
        }
    }
}

/// In the trampoline, before the kernel has looked up what it replaced: that is the newest entry.
#[inline(always)]
unsafe fn before_the_handler(user: &UserContext, utask: u64) -> Place {
    // SAFETY: as in the caller.
    unsafe {
        let instance = read_kernel(utask, UTASK_RETURN_INSTANCES.load()).unwrap_or(0);
        if instance != 0
            && let Some(slot) = read_kernel(instance, RETURN_INSTANCE_STACK.load())
            // Up to three registers are pushed.
            && slot.wrapping_add(8).wrapping_sub(user.sp) <= 24
            && let Some(caller) = read_kernel(instance, RETURN_INSTANCE_ORIGINAL.load())
        {
            return returned(caller, slot);
        }
        Place {
            pc: user.pc,
            sp: user.sp,
        }
    }
}

/// Behind a return. The innermost address of a stack is taken as it is: one byte back it is in the
/// call, and so in the right function.
#[inline(always)]
fn returned(caller: u64, slot: u64) -> Place {
    Place {
        pc: caller.wrapping_sub(1),
        sp: slot.wrapping_add(8),
    }
}

/// Where the current process has the page of copies and trampoline; `None` when it has none.
#[inline(always)]
unsafe fn uprobes_page() -> Option<u64> {
    // SAFETY: as in the caller.
    unsafe {
        let task: *const task_struct = bpf_get_current_task_btf();
        let mm = read_kernel(task as u64, TASK_MM.load()).filter(|mm| *mm != 0)?;
        let area = read_kernel(mm, MM_XOL_AREA.load()).filter(|area| *area != 0)?;
        read_kernel(area, XOL_AREA_VADDR.load())
    }
}

/// What a uretprobe replaced at this place of the current thread's stack, from the kernel's own
/// list, so that it holds for every tracer's uretprobes and however they nest.
#[inline(always)]
pub(crate) fn replaced_return(slot: u64) -> Option<u64> {
    let utask = utask()?;
    // SAFETY: loads of kernel memory through helpers, at offsets of the running kernel.
    unsafe {
        let mut instance = read_kernel(utask, UTASK_RETURN_INSTANCES.load())?;
        let mut tries = 0;
        while tries < MAX_RETURN_INSTANCES {
            if instance == 0 {
                return None;
            }
            if read_kernel(instance, RETURN_INSTANCE_STACK.load())? == slot {
                return read_kernel(instance, RETURN_INSTANCE_ORIGINAL.load());
            }
            instance = read_kernel(instance, RETURN_INSTANCE_NEXT.load())?;
            tries += 1;
        }
        None
    }
}

/// What uprobes keep of the current thread; `None` when it never hit one.
#[inline(always)]
fn utask() -> Option<u64> {
    // SAFETY: loads of kernel memory through helpers, at offsets of the running kernel.
    unsafe {
        let task: *const task_struct = bpf_get_current_task_btf();
        read_kernel(task as u64, TASK_UTASK.load()).filter(|utask| *utask != 0)
    }
}

#[inline(always)]
unsafe fn read_kernel(base: u64, offset: u32) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(base.wrapping_add(u64::from(offset)) as *const u64) }.ok()
}
