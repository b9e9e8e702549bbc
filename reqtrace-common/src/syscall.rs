//! Which x86-64 system calls take a file descriptor as their first argument and can block in a
//! file system.

/// `read`, `write`, `pread64`, `pwrite64`, `readv`, `writev`: numbers below 64.
const LOW: u64 = 1 << 0 | 1 << 1 | 1 << 17 | 1 << 18 | 1 << 19 | 1 << 20;
/// `flock`, `fsync`, `fdatasync`, `ftruncate`, `getdents`: numbers 64 to 127.
const MIDDLE: u64 =
    1 << (73 - 64) | 1 << (74 - 64) | 1 << (75 - 64) | 1 << (77 - 64) | 1 << (78 - 64);
/// `sync_file_range`, `fallocate`, `preadv`, `pwritev`, `syncfs`: numbers 256 to 319.
const HIGH: u64 =
    1 << (277 - 256) | 1 << (285 - 256) | 1 << (295 - 256) | 1 << (296 - 256) | 1 << (306 - 256);
/// `copy_file_range`, `preadv2`, `pwritev2`: numbers 320 to 383.
const TOP: u64 = 1 << (326 - 320) | 1 << (327 - 320) | 1 << (328 - 320);

/// `futex`: its first argument is the address that is waited on.
pub const SYS_FUTEX: i32 = 202;

/// `splice`: what is sent goes to its third argument.
pub const SYS_SPLICE: i32 = 275;

/// `io_uring_enter`: any of several threads may send what is handed to it.
pub const SYS_IO_URING_ENTER: i32 = 426;

/// Whether this system call may hand something to a socket: then the thread itself runs the softirq that
/// delivers it on this machine. `write`, `writev`, `sendfile`, `connect`, `sendto`, `sendmsg`, `shutdown`,
/// `splice`, `sendmmsg`, `io_uring_enter`.
#[must_use]
#[inline]
pub const fn may_send(number: i32) -> bool {
    matches!(number, 1 | 20 | 40 | 42 | 44 | 46 | 48 | 275 | 307 | 426)
}

/// Whether this system call may close a socket, which may send what is left: `close`, `dup2`, `exit`, `exit_group`,
/// `dup3`. The descriptor is gone by then.
#[must_use]
#[inline]
pub const fn may_close(number: i32) -> bool {
    matches!(number, 3 | 33 | 60 | 231 | 292)
}

/// Whether a thread waits in this system call for whatever comes first of many things: `poll`, `select`,
/// `epoll_wait`, `pselect6`, `ppoll`, `epoll_pwait`, `io_uring_enter`, `epoll_pwait2`.
#[must_use]
#[inline]
pub const fn waits_for_many(number: i32) -> bool {
    matches!(number, 7 | 23 | 232 | 270 | 271 | 281 | 426 | 441)
}

/// Whether the third argument of this system call is how many bytes of a file it reads or writes: `read`,
/// `write`, `pread64`, `pwrite64`.
#[must_use]
#[inline]
pub const fn has_size(number: i32) -> bool {
    matches!(number, 0 | 1 | 17 | 18)
}

/// Whether the first argument of this system call is a descriptor worth a name. Calls that are
/// only for sockets are left out: there is one descriptor per connection, and its name says
/// nothing.
#[must_use]
#[inline]
pub const fn takes_file_descriptor(number: i32) -> bool {
    let mask = match number {
        0..=63 => LOW,
        64..=127 => MIDDLE,
        256..=319 => HIGH,
        320..=383 => TOP,
        _ => return false,
    };
    mask >> (number as u32 & 63) & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::takes_file_descriptor;

    #[test]
    fn file_calls_are_told_from_others() {
        for (number, wanted) in [
            (0, true),    // read
            (1, true),    // write
            (7, false),   // poll
            (18, true),   // pwrite64
            (35, false),  // nanosleep
            (45, false),  // recvfrom
            (74, true),   // fsync
            (75, true),   // fdatasync
            (202, false), // futex
            (277, true),  // sync_file_range
            (328, true),  // pwritev2
            (-1, false),
            (i32::MAX, false),
        ] {
            assert_eq!(
                takes_file_descriptor(number),
                wanted,
                "system call {number}"
            );
        }
    }
}
