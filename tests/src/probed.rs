//! Whether a probe is set in a process, seen in the process itself: by number of process, so that
//! other people's tracers on the same machine do not matter.
//!
//! In: a process and a function of its executable or of a library. Out: whether a breakpoint is there now. A test
//! that uses this runs a program of its own: probes are set per file.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail, ensure};

use crate::reqtrace;

/// The instruction that the kernel puts in place of a probed one's first byte.
const BREAKPOINT: u8 = 0xcc;

/// One place in the code of a process.
#[derive(Debug)]
pub struct Code {
    memory: File,
    address: u64,
}

impl Code {
    /// Where a function of the executable begins, by its signature.
    ///
    /// # Errors
    ///
    /// When the process is gone, or `reqtrace functions` does not find it.
    pub fn of_function(pid: u32, signature: &str) -> Result<Self> {
        let executable = std::fs::read_link(format!("/proc/{pid}/exe"))?;
        Self::of_file(pid, &executable.to_string_lossy(), signature)
    }

    /// Where a function of a library begins that the process has mapped; `name` is the file's.
    ///
    /// # Errors
    ///
    /// When the process is gone, has no such library, or `reqtrace functions` does not find it.
    pub fn of_library(pid: u32, name: &str, signature: &str) -> Result<Self> {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let mut files = maps.lines().filter_map(|line| line.split(' ').next_back());
        let file = files.find(|file| file.ends_with(&format!("/{name}")));
        Self::of_file(pid, file.context("the library is not mapped")?, signature)
    }

    fn of_file(pid: u32, file: &str, signature: &str) -> Result<Self> {
        let outcome = reqtrace::run(reqtrace::command(["functions", file, signature])?)?;
        let line = outcome
            .stdout
            .lines()
            .find(|line| line.ends_with(&format!("  {signature}")))
            // With debug symbols libc's names are other ones.
            .or_else(|| outcome.stdout.lines().find(|line| line.contains("  0x")))
            .with_context(|| outcome.printed())?;
        let offset = line.trim_start().trim_start_matches("0x");
        let offset = offset.split(' ').next().unwrap_or_default();
        let offset = u64::from_str_radix(offset, 16).with_context(|| line.to_owned())?;
        Ok(Self {
            memory: File::open(format!("/proc/{pid}/mem"))?,
            address: address_of(pid, file, offset)?,
        })
    }

    /// Whether a breakpoint is there.
    ///
    /// # Errors
    ///
    /// When the process is gone.
    pub fn is_probed(&self) -> Result<bool> {
        let mut byte = [0];
        self.memory.read_exact_at(&mut byte, self.address)?;
        Ok(byte[0] == BREAKPOINT)
    }
}

/// The code of a process's executable, as it stands in its memory: a number that differs when one byte of
/// it does.
///
/// # Errors
///
/// When the process is gone.
pub fn code_of(pid: u32) -> Result<u64> {
    let executable = std::fs::read_link(format!("/proc/{pid}/exe"))?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut hasher = DefaultHasher::new();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut bytes = 0;
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_code = fields.len() >= 6 && fields[1].contains('x');
        if !is_code || !line.ends_with(&*executable.to_string_lossy()) {
            continue;
        }
        let (start, end) = fields[0].split_once('-').context("no range")?;
        let start = u64::from_str_radix(start, 16)?;
        let mut text = vec![0; (u64::from_str_radix(end, 16)? - start) as usize];
        memory.read_exact_at(&mut text, start)?;
        bytes += text.len();
        text.hash(&mut hasher);
    }
    ensure!(bytes > 0, "{} is not mapped", executable.display());
    Ok(hasher.finish())
}

/// Checks that the code of a process's executable, and of libraries beside it, is what its files hold: also
/// of files that were removed meanwhile.
///
/// # Errors
///
/// When a byte differs; the error says where.
pub fn is_as_in_its_files(pid: u32) -> Result<()> {
    let executable = std::fs::read_link(format!("/proc/{pid}/exe"))?;
    let folder = executable.parent().context("no folder")?.to_string_lossy();
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut bytes = 0;
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if fields.len() < 6 || !fields[1].contains('x') || !fields[5].starts_with(&*folder) {
            continue;
        }
        let (start, end) = fields[0].split_once('-').context("no range")?;
        let start = u64::from_str_radix(start, 16)?;
        let length = u64::from_str_radix(end, 16)? - start;
        let offset = u64::from_str_radix(fields[2], 16)?;
        // By this name also a file that has none any more.
        let file = File::open(format!("/proc/{pid}/map_files/{}", fields[0]))?;
        let length = length.min(file.metadata()?.len().saturating_sub(offset));
        let (mut now, mut written) = (vec![0; length as usize], vec![0; length as usize]);
        memory.read_exact_at(&mut now, start)?;
        file.read_exact_at(&mut written, offset)?;
        let differs = now
            .iter()
            .zip(&written)
            .position(|(now, written)| now != written);
        if let Some(at) = differs {
            let (now, written) = (now[at], written[at]);
            bail!(
                "{line}: {now:#x} instead of {written:#x} at {:#x}",
                offset + at as u64
            );
        }
        bytes += length;
    }
    ensure!(bytes > 0, "{} is not mapped", executable.display());
    Ok(())
}

/// The address of code at an offset of a file.
fn address_of(pid: u32, file: &str, offset: u64) -> Result<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    for line in maps.lines().filter(|line| line.ends_with(file)) {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        ensure!(fields.len() >= 6, "{line}");
        let (start, end) = fields[0].split_once('-').context("no range")?;
        let start = u64::from_str_radix(start, 16)?;
        let length = u64::from_str_radix(end, 16)? - start;
        let from = u64::from_str_radix(fields[2], 16)?;
        if fields[1].contains('x') && (from..from + length).contains(&offset) {
            return Ok(start + offset - from);
        }
    }
    anyhow::bail!("offset {offset:#x} of {file} is not mapped in {pid}")
}
