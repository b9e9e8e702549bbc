//! What a tracer has in the kernel: its programs, links and maps, by the numbers that the kernel gave them.
//!
//! In: a running tracer. Out, when it is gone: those of them that are still there. Nobody else's matter.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::process::until;

/// The kernel frees a program some time after its last user has left.
const LIMIT: Duration = Duration::from_secs(30);

/// Commands of bpf(2) that open an object by its number (`linux/bpf.h`).
const PROGRAM: Kind = Kind("prog_id", 13);
const MAP: Kind = Kind("map_id", 14);
const LINK: Kind = Kind("link_id", 30);

/// A kind of object: what it is called in `/proc/PID/fdinfo`, and the command that opens one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind(&'static str, libc::c_long);

/// Objects in the kernel.
#[derive(Clone, Debug)]
pub struct Held(BTreeSet<(Kind, u32)>);

impl Held {
    /// Those of a tracer that traces.
    ///
    /// # Errors
    ///
    /// When it has no programs and no maps, so that nothing could be found missing later.
    pub fn by(pid: u32) -> Result<Self> {
        let mut held = BTreeSet::new();
        let folder = format!("/proc/{pid}/fdinfo");
        for entry in std::fs::read_dir(&folder).with_context(|| folder.clone())? {
            // It closes some meanwhile.
            let Ok(text) = std::fs::read_to_string(entry?.path()) else {
                continue;
            };
            held.extend(text.lines().filter_map(object));
        }
        for kind in [PROGRAM, MAP] {
            ensure!(
                held.iter().any(|held| held.0 == kind),
                "{pid} has no {}",
                kind.0
            );
        }
        Ok(Self(held))
    }

    /// Waits until none is left.
    ///
    /// # Errors
    ///
    /// When one stays.
    pub fn are_gone(&self) -> Result<()> {
        let left = || -> Vec<_> { self.0.iter().filter(exists).collect() };
        until(LIMIT, "programs, links and maps to go", || {
            Ok(left().is_empty().then_some(()))
        })
        .with_context(|| format!("left: {:?}", left()))
    }
}

/// `prog_id:`, some space, and a number.
fn object(line: &str) -> Option<(Kind, u32)> {
    let (name, number) = line.split_once(':')?;
    let kind = [PROGRAM, MAP, LINK]
        .into_iter()
        .find(|kind| kind.0 == name)?;
    Some((kind, number.trim().parse().ok()?))
}

/// Whether an object of that number is there.
fn exists((Kind(_, command), number): &&(Kind, u32)) -> bool {
    // The number stands first, for each of the three commands; the rest is to be zero.
    let mut attributes = [0_u32; 4];
    attributes[0] = *number;
    // SAFETY: `attributes` is as long as its size states; what it opens is closed below.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            *command,
            attributes.as_mut_ptr(),
            size_of_val(&attributes),
        )
    };
    if descriptor >= 0 {
        // SAFETY: it is ours, and nobody else has it.
        unsafe { libc::close(descriptor as libc::c_int) };
    }
    descriptor >= 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read() {
        assert_eq!(object("prog_id:\t17"), Some((PROGRAM, 17)));
        assert_eq!(object("link_id:\t3"), Some((LINK, 3)));
        assert_eq!(object("prog_tag:\tabc"), None);
        assert_eq!(object("flags:\t02"), None);
    }
}
