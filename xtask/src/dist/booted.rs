//! A trial of the Debian package with a real systemd: docs/agent.md, from the package to the first alert, then what systemd does
//! when a process of the agent is killed or stopped.
//!
//! In: the package. Out: how long each step took, or an error with what the machine has sent. It is a bare Debian 12 with MariaDB and
//! Prometheus, booted under qemu's emulation.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    process,
    setup::{self, Need},
    vm::{self, boot::Machine, kernels},
    workspace::{find_command, target_dir},
};

/// What is there beside Debian's smallest set.
const PACKAGES: [&str; 6] = [
    "systemd-sysv",
    "dbus",
    "mariadb-server",
    "prometheus",
    "curl",
    "procps",
];
/// What the guest does.
const SCRIPT: &str = include_str!("booted.sh");
const UNIT: &str = "[Unit]\nAfter=multi-user.target mariadb.service prometheus.service\n\
                    [Service]\nExecStart=/bin/bash /trial/trial.sh\n";
/// All steps; with a kernel that is not Debian 12's own those up to `figures`.
const STEPS: [&str; 20] = [
    "install",
    "configure",
    "start",
    "traced",
    "figures",
    "prometheus",
    "alert",
    "all",
    "reload",
    "root-causes",
    "KILL-tracing",
    "STOP-tracing",
    "KILL-worker",
    "STOP-worker",
    "KILL-attaching",
    "STOP-attaching",
    "rows",
    "ship",
    "limits",
    "stop",
];
const SHORT: usize = 5;
const DISK: u64 = 3 << 30;

/// Makes the machine's files if they are not there, and boots it with both kernels.
pub(super) fn run(deb: &Path) -> Result<()> {
    setup::prepare(&[Need::Vm], false)?;
    let folder = target_dir().join("packages");
    let root = folder.join("debian-12-systemd");
    if !root.exists() {
        super::trial::bootstrap(&root, &PACKAGES)?;
    }
    fill(&root, deb)?;
    for (series, parameters) in [("6.12", "reqtrace.short"), ("6.1", "")] {
        let is_short = !parameters.is_empty();
        let kernel = kernels::get(series, &vm::folder().join("kernels"))?;
        eprintln!("dist: booting {} with systemd", kernel.release);
        let begin = Instant::now();
        let machine = Machine {
            kernel: &kernel.image,
            initramfs: None,
            disk: disk(&root, &folder.join("systemd.disk"))?,
            disk_iops: None,
            memory: "2G",
            parameters: &format!("root=/dev/nvme0n1 rw systemd.getty_auto=0 {parameters}"),
            console: folder.join(format!("systemd-{series}.log")),
            results: folder.join(format!("systemd-{series}.txt")),
        };
        machine.run()?;
        fs::remove_file(&machine.disk)?;
        let sent = fs::read_to_string(&machine.results)?;
        let steps = judge(&sent, is_short).map_err(|error| machine.explain(&error))?;
        println!(
            "the agent works with systemd on {} ({:.0} s, emulated):",
            kernel.release,
            begin.elapsed().as_secs_f64()
        );
        for step in steps {
            println!("  {:<13} {:>6} s  {}", step.name, step.seconds, step.what);
        }
    }
    Ok(())
}

/// Puts what is tried into the root.
fn fill(root: &Path, deb: &Path) -> Result<()> {
    let trial = super::empty(&root.join("trial"))?;
    super::copy(deb, &trial.join("reqtrace.deb"))?;
    fs::write(trial.join("trial.sh"), SCRIPT)?;
    let units = root.join("etc/systemd/system");
    fs::write(units.join("reqtrace-trial.service"), UNIT)?;
    // Wanted by the last target, since it comes after the one before.
    let wants = super::empty(&units.join("graphical.target.wants"))?;
    symlink(
        "../reqtrace-trial.service",
        wants.join("reqtrace-trial.service"),
    )?;
    Ok(())
}

/// A disk with the root's files.
fn disk(root: &Path, path: &Path) -> Result<PathBuf> {
    let mke2fs =
        find_command("mke2fs").context("mke2fs is missing; run `cargo xtask setup --for dist`")?;
    File::create(path)?.set_len(DISK)?;
    let mut make = Command::new(mke2fs);
    make.args(["-q", "-F", "-t", "ext4", "-d"])
        .arg(root)
        .arg(path);
    process::run(&mut make)?;
    Ok(path.to_owned())
}

/// A step that succeeded.
#[derive(Debug, PartialEq)]
struct Step<'a> {
    name: &'a str,
    seconds: &'a str,
    what: &'a str,
}

/// The steps, of which none may be missing.
fn judge(text: &str, is_short: bool) -> Result<Vec<Step<'_>>> {
    if let Some(at) = text.find("failed ") {
        bail!("{}", &text[at..]);
    }
    let steps = text.lines().filter_map(|line| {
        let (name, rest) = line.trim_end().strip_prefix("step ")?.split_once(' ')?;
        let (seconds, what) = rest.split_once(' ')?;
        Some(Step {
            name,
            seconds,
            what,
        })
    });
    let steps: Vec<Step<'_>> = steps.collect();
    let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
    let wanted: Vec<&str> = match is_short {
        true => STEPS[..SHORT].to_vec(),
        false => STEPS.to_vec(),
    };
    ensure!(
        names == wanted,
        "the machine has done {names:?}, not {wanted:?}:\n{text}"
    );
    ensure!(
        text.trim_end().ends_with("done"),
        "the machine has not come to its end:\n{text}"
    );
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_step_and_a_failed_one_are_errors() {
        let all: String = STEPS[..SHORT]
            .iter()
            .map(|name| format!("step {name} 1.5 it is\r\n"))
            .collect();
        let steps = [all.clone(), "done\r\n".to_owned()].concat();
        let judged = judge(&steps, true).unwrap();
        assert_eq!(
            judged[0],
            Step {
                name: "install",
                seconds: "1.5",
                what: "it is"
            }
        );
        assert_eq!(judged.len(), SHORT);
        assert!(judge(&steps, false).is_err());
        assert!(judge(&all, true).is_err());
        let failed = format!("{all}failed figures: within 60 s\nActive: failed\n");
        let error = judge(&failed, true).unwrap_err().to_string();
        assert!(
            error.starts_with("failed figures: within 60 s\nActive"),
            "{error}"
        );
    }
}
