//! A probe on this program itself: shows that probes work here, and what one hit costs.
//!
//! In: nothing. Out: [`SelfTest`], or why a probe does not work.

use std::fs;
use std::hint::black_box;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Engine;
use super::count::{Counter, Place, Whose};
use crate::error::{Error, Result};

/// Calls of one round, and rounds, of which the fastest counts: the machine may be busy.
const CALLS: u32 = 100;
const ROUNDS: u32 = 10;

/// What a thread pays for one hit of a counting probe: the trap and the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitCost {
    /// On an instruction that the kernel executes itself: `push`, `nop`, jumps and calls. Functions
    /// mostly begin with one.
    pub emulated: Duration,
    /// On any other, which is single-stepped out of line: a second trap. `ret` is one.
    pub stepped: Duration,
}

/// What a self-test has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelfTest {
    /// What sets probes on this kernel.
    pub engine: Engine,
    /// What one hit costs.
    pub cost: HitCost,
}

/// The function that is probed: one instruction that is emulated, and one that is stepped.
#[unsafe(naked)]
extern "C" fn probed() {
    core::arch::naked_asm!("nop", "ret")
}

/// Sets counting probes on this program, calls it, and measures.
///
/// # Errors
///
/// When probes cannot be set, or are not hit.
pub fn cost_of_hit() -> Result<HitCost> {
    run().map(|found| found.cost)
}

/// The same, and what has set the probes.
///
/// # Errors
///
/// When probes cannot be set, or are not hit.
pub fn run() -> Result<SelfTest> {
    let entry = probed as extern "C" fn();
    let (object, offset) = file_offset_of(entry as usize as u64)?;
    let bare = fastest();
    let mut engine = Engine::PerfEvents;
    let mut with = |distance: u64| -> Result<Duration> {
        let place = Place {
            object: object.clone(),
            file_offset: offset + distance,
            semaphore: None,
        };
        let own = [std::process::id()];
        let counter = Counter::attach(&[place], Whose::Processes(&own))?;
        engine = counter.engine();
        let round = fastest();
        let hits = counter.hits()?.iter().sum::<u64>();
        let expected = u64::from(CALLS * ROUNDS);
        if hits != expected {
            return Err(Error::unsupported(format!(
                "a probe on this program itself was hit {expected} times, and {hits} hits arrived"
            ))
            .next("report this with the output of `uname -a` and of `reqtrace doctor`"));
        }
        Ok(round.saturating_sub(bare) / CALLS)
    };
    let cost = HitCost {
        emulated: with(0)?,
        stepped: with(1)?,
    };
    Ok(SelfTest { engine, cost })
}

/// The fastest round.
fn fastest() -> Duration {
    (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            for _ in 0..CALLS {
                black_box(probed as extern "C" fn())();
            }
            started.elapsed()
        })
        .min()
        .unwrap_or_default()
}

/// The file that an address of this process is mapped from, and its offset in it.
fn file_offset_of(address: u64) -> Result<(PathBuf, u64)> {
    let maps = fs::read_to_string("/proc/self/maps")
        .map_err(|error| Error::failed("/proc/self/maps cannot be read").because(error))?;
    let exe = Path::new("/proc/self/exe");
    let inode = fs::metadata(exe).map(|file| file.ino()).unwrap_or(0);
    maps.lines()
        .find_map(|line| mapped_at(line, address, inode))
        .map(|offset| (exe.to_owned(), offset))
        .ok_or_else(|| Error::failed("this program's own code is not found in /proc/self/maps"))
}

/// The file offset of an address in one line of `/proc/PID/maps`, if it is there and the file has
/// this inode.
fn mapped_at(line: &str, address: u64, inode: u64) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let offset = hex(fields.nth(1)?)?;
    let of_file: u64 = fields.nth(1)?.parse().ok()?;
    ((start..end).contains(&address) && of_file == inode).then(|| address - start + offset)
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_code_is_found_in_its_file() {
        let entry = probed as extern "C" fn();
        let (file, offset) = file_offset_of(entry as usize as u64).unwrap();
        let bytes = fs::read(file).unwrap();
        let at = usize::try_from(offset).unwrap();
        assert_eq!(bytes[at..at + 2], [0x90, 0xc3]);
        assert_eq!(mapped_at("garbage", 0, 0), None);
    }
}
