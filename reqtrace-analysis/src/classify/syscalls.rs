//! System calls that can block: names and numbers of x86-64 in, numbers and classes out.

use super::table::WaitClass;

/// Name, number and, where the call alone tells it, the class. Calls on any descriptor have none:
/// the file decides.
const TABLE: &[(&str, i32, Option<WaitClass>)] = &[
    ("read", 0, None),
    ("write", 1, None),
    ("open", 2, Some(WaitClass::Disk)),
    ("close", 3, None),
    ("stat", 4, Some(WaitClass::Disk)),
    ("fstat", 5, None),
    ("lstat", 6, Some(WaitClass::Disk)),
    ("poll", 7, Some(WaitClass::Poll)),
    ("lseek", 8, None),
    ("mmap", 9, Some(WaitClass::Lock)),
    ("mprotect", 10, Some(WaitClass::Lock)),
    ("munmap", 11, Some(WaitClass::Lock)),
    ("brk", 12, Some(WaitClass::Lock)),
    ("ioctl", 16, None),
    ("pread64", 17, None),
    ("pwrite64", 18, None),
    ("readv", 19, None),
    ("writev", 20, None),
    ("select", 23, Some(WaitClass::Poll)),
    ("msync", 26, Some(WaitClass::Disk)),
    ("madvise", 28, Some(WaitClass::Lock)),
    ("pause", 34, Some(WaitClass::Sleep)),
    ("nanosleep", 35, Some(WaitClass::Sleep)),
    ("sendfile", 40, None),
    ("connect", 42, Some(WaitClass::Network)),
    ("accept", 43, Some(WaitClass::Network)),
    ("sendto", 44, Some(WaitClass::Network)),
    ("recvfrom", 45, Some(WaitClass::Network)),
    ("sendmsg", 46, Some(WaitClass::Network)),
    ("recvmsg", 47, Some(WaitClass::Network)),
    ("shutdown", 48, Some(WaitClass::Network)),
    ("clone", 56, Some(WaitClass::Process)),
    ("fork", 57, Some(WaitClass::Process)),
    ("vfork", 58, Some(WaitClass::Process)),
    ("execve", 59, Some(WaitClass::Process)),
    ("wait4", 61, Some(WaitClass::Process)),
    ("semop", 65, Some(WaitClass::Lock)),
    ("msgsnd", 69, Some(WaitClass::Pipe)),
    ("msgrcv", 70, Some(WaitClass::Pipe)),
    ("fcntl", 72, None),
    ("flock", 73, Some(WaitClass::Lock)),
    ("fsync", 74, Some(WaitClass::Disk)),
    ("fdatasync", 75, Some(WaitClass::Disk)),
    ("truncate", 76, Some(WaitClass::Disk)),
    ("ftruncate", 77, Some(WaitClass::Disk)),
    ("getdents", 78, Some(WaitClass::Disk)),
    ("rename", 82, Some(WaitClass::Disk)),
    ("mkdir", 83, Some(WaitClass::Disk)),
    ("rmdir", 84, Some(WaitClass::Disk)),
    ("creat", 85, Some(WaitClass::Disk)),
    ("link", 86, Some(WaitClass::Disk)),
    ("unlink", 87, Some(WaitClass::Disk)),
    ("rt_sigtimedwait", 128, Some(WaitClass::Sleep)),
    ("rt_sigsuspend", 130, Some(WaitClass::Sleep)),
    ("sync", 162, Some(WaitClass::Disk)),
    ("readahead", 187, Some(WaitClass::Disk)),
    ("futex", 202, Some(WaitClass::Lock)),
    ("io_getevents", 208, Some(WaitClass::Disk)),
    ("io_submit", 209, Some(WaitClass::Disk)),
    ("getdents64", 217, Some(WaitClass::Disk)),
    ("semtimedop", 220, Some(WaitClass::Lock)),
    ("clock_nanosleep", 230, Some(WaitClass::Sleep)),
    ("epoll_wait", 232, Some(WaitClass::Poll)),
    ("mq_timedsend", 242, Some(WaitClass::Pipe)),
    ("mq_timedreceive", 243, Some(WaitClass::Pipe)),
    ("waitid", 247, Some(WaitClass::Process)),
    ("openat", 257, Some(WaitClass::Disk)),
    ("mkdirat", 258, Some(WaitClass::Disk)),
    ("newfstatat", 262, Some(WaitClass::Disk)),
    ("unlinkat", 263, Some(WaitClass::Disk)),
    ("renameat", 264, Some(WaitClass::Disk)),
    ("pselect6", 270, Some(WaitClass::Poll)),
    ("ppoll", 271, Some(WaitClass::Poll)),
    ("splice", 275, None),
    ("tee", 276, Some(WaitClass::Pipe)),
    ("sync_file_range", 277, Some(WaitClass::Disk)),
    ("vmsplice", 278, Some(WaitClass::Pipe)),
    ("epoll_pwait", 281, Some(WaitClass::Poll)),
    ("fallocate", 285, Some(WaitClass::Disk)),
    ("accept4", 288, Some(WaitClass::Network)),
    ("preadv", 295, None),
    ("pwritev", 296, None),
    ("recvmmsg", 299, Some(WaitClass::Network)),
    ("syncfs", 306, Some(WaitClass::Disk)),
    ("sendmmsg", 307, Some(WaitClass::Network)),
    ("renameat2", 316, Some(WaitClass::Disk)),
    ("execveat", 322, Some(WaitClass::Process)),
    ("membarrier", 324, Some(WaitClass::Lock)),
    ("copy_file_range", 326, Some(WaitClass::Disk)),
    ("preadv2", 327, None),
    ("pwritev2", 328, None),
    ("statx", 332, Some(WaitClass::Disk)),
    ("io_uring_enter", 426, Some(WaitClass::Poll)),
    ("clone3", 435, Some(WaitClass::Process)),
    ("epoll_pwait2", 441, Some(WaitClass::Poll)),
    ("futex_waitv", 449, Some(WaitClass::Lock)),
    ("futex_wait", 455, Some(WaitClass::Lock)),
];

/// The number of a system call by name; a number in digits is taken as it is.
#[must_use]
pub fn number(name: &str) -> Option<i32> {
    let known = TABLE.iter().find(|(known, _, _)| *known == name);
    known.map_or_else(|| name.parse().ok(), |(_, number, _)| Some(*number))
}

/// The name of a system call, if it is one of those that can block.
#[must_use]
pub fn name(number: i32) -> Option<&'static str> {
    let known = TABLE.iter().find(|(_, known, _)| *known == number);
    known.map(|(name, _, _)| *name)
}

/// Names that are known, in the order of their numbers.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(name, _, _)| *name)
}

/// The class of a block of which nothing but the system call is known.
#[must_use]
pub fn class(number: i32, file: Option<&str>) -> WaitClass {
    if number < 0 {
        // A thread outside any system call can only wait for memory.
        return WaitClass::PageFault;
    }
    match TABLE.iter().find(|(_, known, _)| *known == number) {
        None => WaitClass::Other,
        Some((_, _, Some(class))) => *class,
        Some((_, _, None)) => match file {
            Some(file) if file.starts_with("socket:") => WaitClass::Network,
            Some(file) if file.starts_with("pipe:") => WaitClass::Pipe,
            Some(file) if file.starts_with("anon_inode:[eventfd") => WaitClass::Pipe,
            Some(file) if file.starts_with("anon_inode:[timerfd") => WaitClass::Sleep,
            Some(file) if file.starts_with("/dev/pts") || file.starts_with("/dev/tty") => {
                WaitClass::Pipe
            }
            Some(file) if file.starts_with('/') => WaitClass::Disk,
            _ => WaitClass::Other,
        },
    }
}
