//! Bounded reads of the kernel's own structures, at offsets that come from the running kernel.
//!
//! Pointers of BTF tracepoints are typed: the verifier checks a load at a constant offset against
//! the kernel's BTF, and the load needs no helper call.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::Global;
use aya_ebpf::bindings::{pt_regs, task_struct};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_task_pt_regs};
use aya_ebpf::programs::BtfTracePointContext;
use reqtrace_common::limits::COMM_LEN;

use crate::assembly::address_of;
use crate::globals::{TASK_COMM, TASK_PID, TASK_RAN, TASK_STACK, TASK_TGID};
use crate::maps::FRAME_SCRATCH;

/// A `task_struct` of the kernel.
pub(crate) type Task = *const task_struct;

/// Size of a kernel stack on x86-64 without KASAN (`THREAD_SIZE`).
const KERNEL_STACK_SIZE: u64 = 16 << 10;

/// Thread id of the current thread, in the initial PID namespace.
#[inline(always)]
pub(crate) fn current_ids() -> (u32, u32) {
    let both = bpf_get_current_pid_tgid();
    ((both >> 32) as u32, both as u32)
}

/// Thread id.
#[inline(always)]
pub(crate) fn tid(task: Task) -> u32 {
    read_u32(task, &TASK_PID)
}

/// Process id.
#[inline(always)]
pub(crate) fn tgid(task: Task) -> u32 {
    read_u32(task, &TASK_TGID)
}

/// Its name.
#[inline(always)]
pub(crate) fn comm(task: Task) -> [u8; COMM_LEN] {
    let mut comm = [0; COMM_LEN];
    // SAFETY: as in `read_u32`; the array is as long.
    unsafe {
        let from = task.cast::<u8>().add(TASK_COMM.load() as usize);
        let words = comm.as_mut_ptr();
        words
            .cast::<u64>()
            .write_unaligned(from.cast::<u64>().read_volatile());
        let (words, from) = (words.add(8), from.add(8));
        words
            .cast::<u64>()
            .write_unaligned(from.cast::<u64>().read_volatile());
    }
    comm
}

/// CPU time of a thread since its start, nanoseconds, up to its last tick or switch.
#[inline(always)]
pub(crate) fn ran_ns(task: Task) -> u64 {
    // SAFETY: as in `read_u32`.
    unsafe {
        task.cast::<u8>()
            .add(TASK_RAN.load() as usize)
            .cast::<u64>()
            .read_volatile()
    }
}

#[inline(always)]
pub(crate) fn read_u32(task: Task, offset: &Global<u32>) -> u32 {
    // SAFETY: a load of a field from a BTF pointer; a fault yields 0.
    unsafe {
        task.cast::<u8>()
            .add(offset.load() as usize)
            .cast::<u32>()
            .read_volatile()
    }
}

/// What the thread that is about to be switched out was doing in user space.
pub(crate) struct UserContext {
    /// Its instruction pointer.
    pub(crate) pc: u64,
    /// Its stack pointer.
    pub(crate) sp: u64,
    /// Its frame pointer register.
    pub(crate) bp: u64,
    /// System call number, −1 outside any.
    pub(crate) syscall: i32,
    /// First argument of that call.
    pub(crate) first_argument: u64,
    /// It stands at `pc` and nowhere else: it was interrupted there, and did not come upon a breakpoint.
    pub(crate) is_interrupted: bool,
}

/// The user registers of the current thread, as saved at its entry to the kernel.
#[inline(always)]
pub(crate) fn user_context() -> UserContext {
    // SAFETY: both helpers have no precondition; the kernel keeps a frame for each user thread.
    unsafe {
        let regs = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const pt_regs;
        UserContext {
            pc: (&raw const (*regs).rip).read_volatile(),
            sp: (&raw const (*regs).rsp).read_volatile(),
            bp: (&raw const (*regs).rbp).read_volatile(),
            syscall: (&raw const (*regs).orig_rax).read_volatile() as i32,
            first_argument: (&raw const (*regs).rdi).read_volatile(),
            is_interrupted: false,
        }
    }
}

/// The second to fourth argument of the system call that the current thread is in.
#[inline(always)]
pub(crate) fn second_to_fourth() -> [u64; 3] {
    // SAFETY: as in `user_context`.
    unsafe {
        let regs = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const pt_regs;
        [
            (&raw const (*regs).rsi).read_volatile(),
            (&raw const (*regs).rdx).read_volatile(),
            (&raw const (*regs).r10).read_volatile(),
        ]
    }
}

/// The second and third argument of the system call that the current thread is in.
#[inline(always)]
pub(crate) fn second_and_third() -> [u32; 2] {
    // SAFETY: as in `user_context`.
    unsafe {
        let regs = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const pt_regs;
        [
            (&raw const (*regs).rsi).read_volatile() as u32,
            (&raw const (*regs).rdx).read_volatile() as u32,
        ]
    }
}

/// Whether one of the user registers that an instruction of one byte can push has this value.
#[inline(always)]
pub(crate) fn holds(value: u64) -> bool {
    // SAFETY: as in `user_context`.
    unsafe {
        let regs = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const pt_regs;
        (&raw const (*regs).rbp).read_volatile() == value
            || (&raw const (*regs).rbx).read_volatile() == value
            || (&raw const (*regs).rax).read_volatile() == value
            || (&raw const (*regs).rcx).read_volatile() == value
            || (&raw const (*regs).rdx).read_volatile() == value
            || (&raw const (*regs).rsi).read_volatile() == value
            || (&raw const (*regs).rdi).read_volatile() == value
    }
}

/// Whether this program runs on behalf of the current thread, and not in an interrupt that
/// happened to hit it. An interrupt that hits the kernel has a stack of its own; one that hits user
/// code stays on the thread's, which is empty then (`run_irq_on_irqstack_cond`), and leaves no
/// system call in its registers. Kernel threads have zeros there.
#[inline(always)]
pub(crate) fn in_task_context(ctx: &BtfTracePointContext) -> bool {
    on_task_stack(ctx) && user_context().syscall >= 0
}

/// Whether the current thread is one of the kernel's own: it has no registers of user space.
#[inline(always)]
pub(crate) fn is_kernel_thread() -> bool {
    let user = user_context();
    user.pc == 0 && user.sp == 0
}

/// Whether the tracepoint was hit on the current thread's own kernel stack: its arguments lie on the stack
/// of who calls it. This program's own stack is elsewhere from 6.13 on.
#[inline(always)]
fn on_task_stack(ctx: &BtfTracePointContext) -> bool {
    // SAFETY: a load of a field from a BTF pointer; the cell is this CPU's own, and interrupts are off.
    unsafe {
        let task: Task = bpf_get_current_task_btf();
        let base = task
            .cast::<u8>()
            .add(TASK_STACK.load() as usize)
            .cast::<u64>()
            .read_volatile();
        let Some(cell) = FRAME_SCRATCH.get_ptr_mut(0) else {
            return false;
        };
        address_of(ctx.as_ptr(), cell).wrapping_sub(base) < KERNEL_STACK_SIZE
    }
}
