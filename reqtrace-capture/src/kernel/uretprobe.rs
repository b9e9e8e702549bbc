//! Whether a uretprobe kills processes under a seccomp filter on this kernel.
//!
//! From Linux 6.11 on the trampoline of a uretprobe ends in a system call of its own on x86-64. A
//! seccomp filter that was written before does not allow it, and the process is killed at the first
//! return. Linux 6.14 lets the call pass all filters, and so do 6.12.14 and 6.13.3 and what
//! distributions have patched; so the version does not tell, and it is tried.

use super::{release, version};
use reqtrace_base::error::Result;

/// Number of the system call `uretprobe` on x86-64.
const SYS_URETPROBE: u32 = 335;

/// The first version whose uretprobes make a system call.
const FIRST: (u32, u32) = (6, 11);

/// What the filter answers, which the call itself never does.
const ANSWER: u32 = libc::EDOM as u32;

/// Whether a filter of seccomp can stop the system call of a uretprobe. When it cannot be tried:
/// whether the version may be an affected one.
///
/// # Errors
///
/// When the kernel does not tell its version.
pub fn is_filtered_by_seccomp() -> Result<bool> {
    let release = release()?;
    if version(&release).is_none_or(|version| version < FIRST) {
        return Ok(false);
    }
    Ok(tried().unwrap_or(true))
}

/// Makes the call in a child under a filter. Outside of a trampoline the kernel answers it with
/// SIGILL or an error; only where filters come first does the filter's own answer arrive.
fn tried() -> Option<bool> {
    // SAFETY: the child calls nothing but system calls until it ends.
    let child = unsafe { libc::fork() };
    match child {
        -1 => None,
        0 => {
            let answered = call_under_filter();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(answered)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` is a valid place for the result.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            (waited == child).then(|| libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1)
        }
    }
}

/// Whether the filter's answer came. Runs in the child.
fn call_under_filter() -> bool {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        // The number of the system call is the first field of the data.
        instruction(LOAD, 0, 0, 0),
        instruction(JUMP_IF_EQUAL, 0, 1, SYS_URETPROBE),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | ANSWER),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: system calls with valid arguments, in a child of its own.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        ) != 0
        {
            // It cannot be tried: taken for affected.
            return true;
        }
        let result = libc::syscall(i64::from(SYS_URETPROBE));
        result == -1 && std::io::Error::last_os_error().raw_os_error() == Some(ANSWER as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernels that the tests run on are older than the trouble or have the fix.
    #[test]
    fn this_kernel_lets_the_call_pass() {
        assert!(!is_filtered_by_seccomp().unwrap());
    }
}
