//! The priority of the thread that follows a trace: it comes first while it does, so that records are read before the ring is full
//! of them. Beside 32 threads that always want one of two CPUs its fair share is a sixteenth of a CPU, and it needs three times that.
//!
//! What it takes in all is limited by `--max-overhead`. Whoever starts reqtrace with another nice value has chosen that.

use std::io;

use log::debug;
use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::gettid;

use crate::attach::elsewhere;

/// The nice value while a trace runs: ten threads' share.
const FIRST: i32 = -10;
const USUAL: i32 = 0;

/// Lets the calling thread come first; needs `CAP_SYS_NICE`. Without it, it has the priority that it was started with.
pub(crate) fn come_first() {
    change(USUAL, FIRST);
}

/// Takes that back, also in a thread that was made by one that comes first.
pub(crate) fn come_as_others() {
    change(FIRST, USUAL);
}

fn change(from: i32, to: i32) {
    if getpriority_process(None).is_ok_and(|nice| nice == from) {
        let tid = gettid().as_raw_nonzero().get().cast_unsigned();
        let changed = match elsewhere() {
            Some(attacher) => attacher.come_first(tid, to == FIRST),
            None => set(tid, to == FIRST),
        };
        if let Err(error) = changed {
            debug!("nice {to} is refused: {error}");
        }
    }
}

/// Lets a thread come first, or as others.
pub(crate) fn set(tid: u32, first: bool) -> io::Result<()> {
    let nice = if first { FIRST } else { USUAL };
    Ok(setpriority_process(Pid::from_raw(tid.cast_signed()), nice)?)
}

#[cfg(test)]
mod tests {
    use std::thread::spawn;

    use super::*;

    #[test]
    fn a_thread_comes_first_by_itself_and_goes_back() {
        let nice = || getpriority_process(None).unwrap();
        let before = nice();
        let (first, made, after) = spawn(move || {
            come_first();
            let first = nice();
            let made = spawn(move || {
                come_as_others();
                nice()
            });
            let made = made.join().unwrap();
            come_as_others();
            (first, made, nice())
        })
        .join()
        .unwrap();
        assert_eq!(nice(), before);
        assert!(
            first == before || before == USUAL && first == FIRST,
            "{first}"
        );
        let back = if first == FIRST { USUAL } else { before };
        assert_eq!((made, after), (back, back));
    }
}
