//! Whether a uretprobe kills processes under a seccomp filter on this kernel.
//!
//! From Linux 6.11 on the trampoline of a uretprobe ends in a system call of its own on x86-64. A
//! seccomp filter that was written before does not allow it, and the process is killed at the first
//! return. Linux 6.14 lets the call pass all filters, and so do 6.12.14 and 6.13.3 and what
//! distributions have patched; so the version does not tell, and it is tried.

use std::io;

use super::privileges;

/// Number of the system call `uretprobe` on x86-64.
const SYS_URETPROBE: libc::c_long = 335;

/// What the filter answers, which the call itself never does.
const ANSWER: i32 = libc::EDOM;

/// What came of a call in a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// The kernel has no such call.
    NoSuchCall,
    /// The filter answered.
    Filtered,
    /// The kernel answered, by an error or a signal.
    Passed,
}

/// Whether a filter of seccomp can stop the system call of a uretprobe; `true` also when it cannot be tried.
#[must_use]
pub fn is_filtered_by_seccomp() -> bool {
    // Outside of a trampoline the kernel answers the call with SIGILL or an error.
    match tried(|| true) {
        // A filter on this program, a container's, may say so too.
        Some(Came::NoSuchCall) if privileges::seccomp_mode("self") != Some(2) => false,
        // Only where filters come first does the filter's own answer arrive.
        Some(_) => tried(set_filter) != Some(Came::Passed),
        None => true,
    }
}

/// Makes the call in a child, after this, which says whether it worked; `None` when it did not.
fn tried(before: fn() -> bool) -> Option<Came> {
    const NO_SUCH_CALL: i32 = 1;
    const FILTERED: i32 = 2;
    const NOT_TRIED: i32 = 3;
    // SAFETY: the child calls nothing but system calls until it ends.
    let child = unsafe { libc::fork() };
    match child {
        -1 => None,
        0 => {
            let no_core = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: a system call with valid arguments, in a child of its own.
            unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core) };
            let code = if before() {
                // SAFETY: at worst it ends the child.
                let result = unsafe { libc::syscall(SYS_URETPROBE) };
                match io::Error::last_os_error().raw_os_error() {
                    Some(ANSWER) if result == -1 => FILTERED,
                    Some(libc::ENOSYS) if result == -1 => NO_SUCH_CALL,
                    _ => 0,
                }
            } else {
                NOT_TRIED
            };
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` is a valid place for the result.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            if waited != child {
                return None;
            }
            match libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)) {
                Some(NO_SUCH_CALL) => Some(Came::NoSuchCall),
                Some(FILTERED) => Some(Came::Filtered),
                Some(NOT_TRIED) => None,
                _ => Some(Came::Passed),
            }
        }
    }
}

/// Sets a filter that answers the call. Runs in the child.
fn set_filter() -> bool {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        // The number of the system call is the first field of the data.
        instruction(LOAD, 0, 0, 0),
        instruction(JUMP_IF_EQUAL, 0, 1, SYS_URETPROBE as u32),
        instruction(
            RETURN,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | ANSWER.cast_unsigned(),
        ),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: system calls with valid arguments, in a child of its own.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        ) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernels that the tests run on are older than the trouble or have the fix.
    #[test]
    fn this_kernel_lets_the_call_pass() {
        assert!(!is_filtered_by_seccomp());
    }

    /// The filter does answer a call that the kernel has not, so that a trial can tell.
    #[test]
    fn what_cannot_be_tried_is_no_answer() {
        assert_eq!(tried(|| false), None);
        assert_ne!(tried(|| true), Some(Came::Filtered));
    }
}
