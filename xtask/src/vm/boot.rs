//! One boot under qemu, without KVM.
//!
//! In: a kernel, an initramfs, a disk. Out: the console's log, and what the guest sent through its second
//! serial port.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Error, Result, anyhow, bail};

use crate::process::Guard;

/// From start to power-off; seen: 6 s to 10 s with a tracer that does nothing.
const LIMIT: Duration = Duration::from_secs(2_000);
/// How many lines of the console an error shows.
const ERROR_LINES: usize = 40;

/// A machine to run once.
pub(crate) struct Machine<'a> {
    /// The kernel's image.
    pub(crate) kernel: &'a Path,
    /// Its file system; `None`: the disk has it.
    pub(crate) initramfs: Option<&'a Path>,
    /// Its disk.
    pub(crate) disk: PathBuf,
    /// Reads and writes of the disk a second; `None`: as the host's.
    pub(crate) disk_iops: Option<u32>,
    /// Its memory, as qemu takes it.
    pub(crate) memory: &'a str,
    /// Added to its command line.
    pub(crate) parameters: &'a str,
    /// Where its console goes.
    pub(crate) console: PathBuf,
    /// Where its second serial port goes.
    pub(crate) results: PathBuf,
}

impl Machine<'_> {
    /// Runs it until it powers itself off.
    pub(crate) fn run(&self) -> Result<()> {
        // A kernel that panics reboots at once, and `-no-reboot` makes that an exit.
        let line = format!(
            "console=ttyS0 quiet loglevel=3 panic=-1 {}",
            self.parameters
        );
        for file in [&self.console, &self.results] {
            fs::write(file, b"").with_context(|| file.display().to_string())?;
        }
        let mut qemu = Command::new("qemu-system-x86_64");
        // One thread emulates both CPUs: with one each, a CPU can run on in an instruction that
        // the other is patching, and attaching to a tracepoint patches `__schedule`.
        qemu.args([
            "-accel",
            "tcg,thread=single",
            "-cpu",
            "max",
            "-m",
            self.memory,
            "-smp",
            "2",
        ])
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ])
        // The one kind of disk that Debian's cloud kernels can read without a module.
        .arg("-drive")
        .arg(format!(
            "file={},format=raw,if=none,id=disk{}",
            value(&self.disk),
            self.disk_iops
                .map_or_else(String::new, |iops| format!(",throttling.iops-total={iops}"))
        ))
        .args(["-device", "nvme,drive=disk,serial=reqtrace"])
        .arg("-serial")
        .arg(port(&self.console))
        .arg("-serial")
        .arg(port(&self.results))
        .arg("-kernel")
        .arg(self.kernel)
        .args(["-append", line.trim_end()])
        .stdin(Stdio::null());
        if let Some(initramfs) = self.initramfs {
            qemu.arg("-initrd").arg(initramfs);
        }
        let mut guest = Guard::spawn(&mut qemu)?;
        match guest.wait_for(LIMIT)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.explain(&anyhow!("qemu failed: {status}"))),
            None => Err(self.explain(&anyhow!("no power-off within {} s", LIMIT.as_secs()))),
        }
    }

    /// The error with the end of the console's log.
    pub(crate) fn explain(&self, error: &Error) -> Error {
        let text = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let end = lines[lines.len().saturating_sub(ERROR_LINES)..].join("\n");
        anyhow!(
            "{error:#}\n--- end of {} ---\n{end}\n---",
            self.console.display()
        )
    }
}

fn port(file: &Path) -> String {
    format!("file:{}", value(file))
}

fn value(file: &Path) -> String {
    // A comma would end the name; qemu takes a doubled one for itself.
    file.display().to_string().replace(',', ",,")
}

/// Fails unless the file is there; the name of the guest's file says what is missing.
pub(crate) fn read(results: &Path, name: &str) -> Result<String> {
    let file = results.join(name);
    match fs::read(&file) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) => bail!("the guest sent no {name}: {error}"),
    }
}
