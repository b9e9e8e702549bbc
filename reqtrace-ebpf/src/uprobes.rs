//! What uprobes, ours and those of other tracers, do to a thread's registers and stack.
//!
//! In: the kernel's own record of the current thread's probes. Out: where its code really stands,
//! and the return addresses that uretprobes have replaced.

use aya_ebpf::bindings::task_struct;
use aya_ebpf::helpers::generated::bpf_get_current_task_btf;
use aya_ebpf::helpers::{bpf_probe_read_kernel, bpf_probe_read_user};

use crate::globals::{
    RETURN_INSTANCE_NEXT, RETURN_INSTANCE_ORIGINAL, RETURN_INSTANCE_STACK, TASK_UTASK,
    UTASK_RETURN_INSTANCES, UTASK_VADDR, UTASK_XOL_VADDR,
};
use crate::task::{UserContext, holds};

/// How many return addresses replaced by uretprobes are looked through: the kernel allows 64 in
/// one thread.
const MAX_RETURN_INSTANCES: u32 = 64;
/// The instruction that the kernel puts in place of a probed one.
const INT3: u8 = 0xcc;
/// Longest x86 instruction, bytes. Executed out of line, it ends at most this far from its copy.
const MAX_INSTRUCTION: u64 = 15;

/// Where the code of the thread that is being switched out stands.
///
/// That is its `pc`, unless it was preempted on its way over a probe: behind the breakpoint, or in
/// the copy of the probed instruction, which lies in no mapping that has unwind information.
#[inline(always)]
pub(crate) fn true_pc(user: &UserContext) -> u64 {
    // In a system call it is behind the call, which is neither.
    if user.syscall != -1 {
        return user.pc;
    }
    let Some(utask) = utask() else {
        return user.pc;
    };
    // SAFETY: loads through helpers, at offsets of the running kernel.
    unsafe {
        if let (Some(copy), Some(original)) = (
            read_kernel(utask, UTASK_XOL_VADDR.load()),
            read_kernel(utask, UTASK_VADDR.load()),
        ) {
            let inside = user.pc.wrapping_sub(copy);
            if copy != 0 && inside <= MAX_INSTRUCTION {
                return original.wrapping_add(inside);
            }
        }
        let trapped = user.pc.wrapping_sub(1);
        if bpf_probe_read_user(trapped as *const u8) != Ok(INT3) {
            return user.pc;
        }
        // A probed push was emulated, and is done: by then the thread is in a request that begins
        // at it. All others of these instructions leave the stack as it is.
        if let Ok(top) = bpf_probe_read_user(user.sp as *const u64)
            && holds(top)
        {
            return user.pc;
        }
        // The trampoline of return probes is such a breakpoint as well: the thread has just
        // returned to it.
        let slot = user.sp.wrapping_sub(8);
        if bpf_probe_read_user(slot as *const u64) == Ok(trapped)
            && let Some(instance) = read_kernel(utask, UTASK_RETURN_INSTANCES.load())
            && instance != 0
            && read_kernel(instance, RETURN_INSTANCE_STACK.load()) == Some(slot)
            && let Some(caller) = read_kernel(instance, RETURN_INSTANCE_ORIGINAL.load())
        {
            return caller;
        }
        trapped
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
