//! Packages of the distribution: what is missing, and installing it through apt.
//!
//! A package counts as present when the file is there that we want it for, so a machine without apt
//! where the same program was installed by hand works too.

use std::{
    cell::Cell,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    kernel, process,
    workspace::{find_command, target_dir},
};

/// How many lines of apt's output an error shows.
const ERROR_LINES: usize = 20;

/// A package, and the file that shows that it is there.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its name in Debian.
    pub name: String,
    evidence: Evidence,
}

#[derive(Clone, Debug)]
enum Evidence {
    Command(&'static str),
    File(PathBuf),
    Installed,
}

impl Package {
    /// A package wanted for a command.
    pub fn with_command(name: &str, command: &'static str) -> Self {
        let name = name.to_owned();
        Self {
            name,
            evidence: Evidence::Command(command),
        }
    }

    /// A package wanted for a file.
    pub fn with_file(name: &str, file: impl Into<PathBuf>) -> Self {
        let name = name.to_owned();
        Self {
            name,
            evidence: Evidence::File(file.into()),
        }
    }

    /// A library, whose files have names that change with its version: wanted as such.
    pub fn library(name: &str) -> Self {
        let name = name.to_owned();
        let evidence = Evidence::Installed;
        Self { name, evidence }
    }

    /// Whether what we want it for is there.
    pub fn is_present(&self) -> bool {
        match &self.evidence {
            Evidence::Command(command) => find_command(command).is_some(),
            Evidence::File(file) => file.exists(),
            Evidence::Installed => is_installed(&self.name),
        }
    }
}

/// Apt, with its lists brought up to date at most once.
#[derive(Default)]
pub struct Apt {
    updated: Cell<bool>,
}

impl Apt {
    /// The version apt would install; updates the lists when they do not know the package.
    pub fn candidate(&self, package: &str) -> Option<String> {
        if let Some(version) = known_candidate(package) {
            return Some(version);
        }
        // Without root or apt the lists stay as they are, and the caller hears "none".
        if self.update().is_ok() {
            known_candidate(package)
        } else {
            None
        }
    }

    /// Whether apt has a package that suits. Without root, lists that were never fetched cannot be
    /// asked: then the answer is yes, so that the user gets the commands that will tell.
    pub fn may_have(&self, package: &str, suits: impl FnOnce(&str) -> bool) -> bool {
        match self.candidate(package) {
            Some(version) => suits(&version),
            None => find_command("apt-get").is_some() && !lists_were_fetched(),
        }
    }

    /// What a package depends on, by name; none if the lists do not know it.
    pub fn depends(&self, package: &str) -> Vec<String> {
        let text = process::output(Command::new("apt-cache").args(["depends", package]));
        let text = text.unwrap_or_default();
        let names = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "));
        names.map(str::to_owned).collect()
    }

    /// Brings the lists up to date, once.
    pub fn update(&self) -> Result<()> {
        if self.updated.get() {
            return Ok(());
        }
        if !kernel::is_root() || find_command("apt-get").is_none() {
            bail!("apt's lists cannot be updated without root and apt-get");
        }
        eprintln!("setup: bringing apt's lists up to date");
        apt_get(&["update"])?;
        self.updated.set(true);
        Ok(())
    }

    /// Installs those that are missing; without root or apt an error with the commands to run.
    pub fn install(&self, wanted: &[Package], verbose: bool) -> Result<()> {
        let (present, missing): (Vec<_>, Vec<_>) =
            wanted.iter().partition(|package| package.is_present());
        if verbose {
            for package in present {
                eprintln!("setup: {} already there", package.name);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = missing
            .iter()
            .map(|package| package.name.as_str())
            .collect();
        if find_command("apt-get").is_none() {
            bail!("{}", without_apt(&missing));
        }
        if !kernel::is_root() {
            bail!(
                "installing packages needs root; run these, then this command again:\n\
                 \n    sudo apt-get update\n    sudo {}\n",
                install_line(&names)
            );
        }
        let unknown: Vec<&str> = names
            .iter()
            .copied()
            .filter(|name| self.candidate(name).is_none())
            .collect();
        if !unknown.is_empty() {
            bail!(
                "apt knows no package {}; reqtrace's set-up is made for Debian 12 (with its \
                 security and updates archives in sources.list). Install the same programs another \
                 way and run this command again: it only looks for the files",
                unknown.join(", ")
            );
        }
        eprintln!("setup: installing {}", names.join(" "));
        if self.try_install(&names).is_err() {
            // Old lists name versions that the archive no longer has.
            self.update()?;
            self.try_install(&names)?;
        }
        match missing.iter().find(|package| !package.is_present()) {
            Some(package) => {
                bail!(
                    "{} is installed, but without {:?}",
                    package.name,
                    package.evidence
                )
            }
            None => Ok(()),
        }
    }

    fn try_install(&self, names: &[&str]) -> Result<()> {
        let mut args = vec!["install", "-y", "--no-install-recommends"];
        args.extend(names);
        apt_get(&args)
    }

    /// Downloads a package's file into a folder.
    pub fn download(&self, package: &str, folder: &Path) -> Result<()> {
        let mut command = Command::new("apt-get");
        command
            .args(["-qq", "download", package])
            .current_dir(folder);
        if kernel::is_root() {
            // The download user of apt cannot write into our folder.
            command.args(["-o", "APT::Sandbox::User=root"]);
        }
        process::run(&mut command)
    }
}

/// The command a person would run.
fn install_line(names: &[&str]) -> String {
    format!(
        "apt-get install -y --no-install-recommends {}",
        names.join(" ")
    )
}

fn without_apt(missing: &[&Package]) -> String {
    let mut text = String::from("there is no apt-get here; install these another way:\n");
    for package in missing {
        let what = match &package.evidence {
            Evidence::Command(command) => format!("the command `{command}`"),
            Evidence::File(file) => format!("the file {}", file.display()),
            Evidence::Installed => format!("the library of {}", package.name),
        };
        text.push_str(&format!(
            "\n    {what} (in Debian: package {})",
            package.name
        ));
    }
    let names: Vec<&str> = missing
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    text.push_str(&format!("\n\nOn Debian 12: sudo {}", install_line(&names)));
    text
}

/// Whether dpkg has a package in its place.
fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f", "${db:Status-Status} ", package]);
    process::output(&mut query).is_some_and(|text| text.starts_with("installed"))
}

/// Whether apt knows the packages of any archive.
fn lists_were_fetched() -> bool {
    let Ok(entries) = fs::read_dir("/var/lib/apt/lists") else {
        return false;
    };
    let mut names = entries.flatten().map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().contains("_Packages"))
}

fn known_candidate(package: &str) -> Option<String> {
    let text = process::output(Command::new("apt-cache").args(["policy", package]))?;
    parse_candidate(&text)
}

fn parse_candidate(policy: &str) -> Option<String> {
    let mut lines = policy.lines();
    let version = lines.find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (version != "(none)").then(|| version.to_owned())
}

/// Runs apt-get with its output in a file, and shows the end of that file if it fails.
fn apt_get(args: &[&str]) -> Result<()> {
    let folder = target_dir();
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let log = folder.join("setup-apt.log");
    let file = File::create(&log).with_context(|| log.display().to_string())?;
    let status = Command::new("apt-get")
        .args(["-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"])
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stderr(file.try_clone().context("apt's log")?)
        .stdout(file)
        .status()
        .context("apt-get could not be started")?;
    if status.success() {
        return Ok(());
    }
    let text = fs::read_to_string(&log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let end = lines[lines.len().saturating_sub(ERROR_LINES)..].join("\n");
    bail!(
        "`apt-get {}` failed ({status}):\n{end}\n(all of it: {})",
        args.join(" "),
        log.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_candidate_is_read_from_a_policy() {
        let policy =
            "rustc-web:\n  Installed: (none)\n  Candidate: 1.96.0+dfsg1-1\n  Version table:";
        assert_eq!(parse_candidate(policy).as_deref(), Some("1.96.0+dfsg1-1"));
        assert_eq!(
            parse_candidate("x:\n  Installed: 1\n  Candidate: (none)\n"),
            None
        );
        assert_eq!(parse_candidate(""), None);
    }

    #[test]
    fn without_apt_the_error_names_command_and_file() {
        let packages = [
            Package::with_command("sysbench", "sysbench"),
            Package::with_file("libpolly-22-dev", "/nowhere/libPolly.a"),
        ];
        let text = without_apt(&packages.iter().collect::<Vec<_>>());
        assert!(text.contains("the command `sysbench`"), "{text}");
        assert!(text.contains("the file /nowhere/libPolly.a"), "{text}");
        assert!(
            text.contains("--no-install-recommends sysbench libpolly-22-dev"),
            "{text}"
        );
        assert!(!packages[1].is_present());
    }
}
