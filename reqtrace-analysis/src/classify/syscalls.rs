//! System calls: names and numbers of x86-64 in, numbers, names and classes out.

use std::str::FromStr as _;

use syscalls::x86_64::Sysno;

use super::class::WaitClass;

/// Calls that can block and that alone tell the class.
const CLASSES: &[(WaitClass, &str)] = &[
    (
        WaitClass::Disk,
        "open stat lstat msync fsync fdatasync truncate ftruncate getdents rename mkdir rmdir creat link \
         unlink sync readahead io_getevents io_submit getdents64 openat mkdirat newfstatat unlinkat \
         renameat sync_file_range fallocate syncfs renameat2 copy_file_range statx",
    ),
    (
        WaitClass::Network,
        "connect accept sendto recvfrom sendmsg recvmsg shutdown accept4 recvmmsg sendmmsg",
    ),
    (
        WaitClass::Lock,
        "mmap mprotect munmap brk madvise semop flock futex semtimedop membarrier futex_waitv futex_wait",
    ),
    (
        WaitClass::Sleep,
        "pause nanosleep rt_sigtimedwait rt_sigsuspend clock_nanosleep",
    ),
    (
        WaitClass::Poll,
        "poll select epoll_wait pselect6 ppoll epoll_pwait io_uring_enter epoll_pwait2",
    ),
    (
        WaitClass::Pipe,
        "msgsnd msgrcv mq_timedsend mq_timedreceive tee vmsplice",
    ),
    (
        WaitClass::Process,
        "clone fork vfork execve wait4 waitid execveat clone3",
    ),
];

/// Calls on any descriptor: the file decides.
const ON_ANY: &str = "read write close fstat lseek ioctl pread64 pwrite64 readv writev sendfile fcntl splice preadv \
         pwritev preadv2 pwritev2";

/// The number of a system call by name; a number in digits is taken as it is.
#[must_use]
pub fn number(name: &str) -> Option<i32> {
    Sysno::from_str(name).map_or_else(|()| name.parse().ok(), |call| Some(call.id()))
}

/// The name of a system call.
#[must_use]
pub fn name(number: i32) -> Option<&'static str> {
    let number = usize::try_from(number).ok()?;
    Sysno::new(number).map(|call| call.name())
}

/// Names that are known, in the order of their numbers.
pub fn names() -> impl Iterator<Item = &'static str> {
    Sysno::iter().map(|call| call.name())
}

fn has(names: &str, name: &str) -> bool {
    names.split(' ').any(|known| known == name)
}

/// The class of a block of which nothing but the system call is known.
#[must_use]
pub fn class(number: i32, file: Option<&str>) -> WaitClass {
    if number < 0 {
        // A thread outside any system call can only wait for memory.
        return WaitClass::PageFault;
    }
    let Some(name) = name(number) else {
        return WaitClass::Other;
    };
    if let Some((class, _)) = CLASSES.iter().find(|(_, names)| has(names, name)) {
        return *class;
    }
    if !has(ON_ANY, name) {
        return WaitClass::Other;
    }
    match file {
        Some(file) if file.starts_with("socket:") => WaitClass::Network,
        Some(file) if file.starts_with("pipe:") => WaitClass::Pipe,
        Some(file) if file.starts_with("anon_inode:[eventfd") => WaitClass::Pipe,
        Some(file) if file.starts_with("anon_inode:[timerfd") => WaitClass::Sleep,
        Some(file) if file.starts_with("/dev/pts") || file.starts_with("/dev/tty") => {
            WaitClass::Pipe
        }
        Some(file) if file.starts_with('/') => WaitClass::Disk,
        _ => WaitClass::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_a_system_call() {
        let lists = CLASSES.iter().map(|(_, names)| *names).chain([ON_ANY]);
        let names = lists.flat_map(|names| names.split(' '));
        let mut numbers: Vec<i32> = names
            .map(|name| number(name).unwrap_or_else(|| panic!("{name}")))
            .collect();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count, "a call has one class");
        assert_eq!((number("futex"), name(202)), (Some(202), Some("futex")));
        assert_eq!((number("4000"), number("futexx")), (Some(4000), None));
        assert_eq!((name(-1), name(4000)), (None, None));
    }
}
