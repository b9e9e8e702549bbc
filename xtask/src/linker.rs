//! bpf-linker: whether it is there and reads the compiler's bitcode, and installing it.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    packages::{Apt, Package},
    process,
    workspace::find_command,
};

/// The version that setup installs.
const VERSION: &str = "0.13.0";
/// Major versions of LLVM that it can be built with.
const LLVMS: [u32; 3] = [21, 22, 23];

/// An installed bpf-linker.
struct Installed {
    /// Major version of the LLVM it uses; `None` when that cannot be seen (linked statically).
    llvm: Option<u32>,
}

/// Where cargo's programs are; rustup's `cargo` puts this folder into `PATH` by itself.
fn cargo_home() -> Option<PathBuf> {
    let given = env::var_os("CARGO_HOME").map(PathBuf::from);
    given.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")))
}

/// The bpf-linker that a build would find, if it runs.
fn installed() -> Option<Installed> {
    let file = find_command("bpf-linker")?;
    process::output(Command::new(&file).arg("--version"))?;
    let libraries = process::output(Command::new("ldd").arg(&file)).unwrap_or_default();
    Some(Installed {
        llvm: parse_llvm(&libraries),
    })
}

/// The major version in `libLLVM.so.22.1 => …`.
fn parse_llvm(libraries: &str) -> Option<u32> {
    let (_, rest) = libraries.split_once("libLLVM")?;
    let digits = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits
        .split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// Whether there is one that reads bitcode of this LLVM.
pub(crate) fn is_ready(llvm: u32) -> bool {
    installed().is_some_and(|linker| linker.llvm.is_none_or(|own| own >= llvm))
}

/// Whether there is one that reads bitcode of this LLVM, or one can be installed.
pub(crate) fn can_read(llvm: u32, apt: &Apt) -> bool {
    is_ready(llvm)
        || (LLVMS.contains(&llvm)
            && packages(llvm)
                .iter()
                .all(|package| package.is_present() || apt.may_have(&package.name, |_| true)))
}

/// LLVM's folder; a user may name another.
fn prefix(llvm: u32) -> PathBuf {
    env::var_os("LLVM_PREFIX").map_or_else(|| format!("/usr/lib/llvm-{llvm}").into(), PathBuf::from)
}

/// What building it needs.
pub(crate) fn packages(llvm: u32) -> Vec<Package> {
    let prefix = prefix(llvm);
    vec![
        Package::with_file(&format!("llvm-{llvm}-dev"), prefix.join("bin/llvm-config")),
        // llvm-config refuses to answer when a library of its list is missing.
        Package::with_file(
            &format!("libpolly-{llvm}-dev"),
            prefix.join("lib/libPolly.a"),
        ),
    ]
}

/// Builds and installs it against that LLVM.
pub(crate) fn install(llvm: u32) -> Result<()> {
    let home = cargo_home().context("neither CARGO_HOME nor HOME is set")?;
    eprintln!("setup: building bpf-linker {VERSION} with LLVM {llvm} (two minutes)");
    let mut command = Command::new("cargo");
    command
        .args([
            "install",
            "bpf-linker",
            "--version",
            VERSION,
            "--locked",
            "--force",
        ])
        .args([
            "--no-default-features",
            "--features",
            &format!("llvm-{llvm}"),
            "--root",
        ])
        .arg(&home)
        .current_dir(Path::new("/"))
        .env("LLVM_PREFIX", prefix(llvm))
        // Its own target directory: ours may be given by the environment.
        .env_remove("CARGO_TARGET_DIR");
    process::run(&mut command)?;
    let program = home.join("bin/bpf-linker");
    if !is_ready(llvm) {
        bail!(
            "{} is built, but the bpf-linker found first is not it; put {} first in PATH",
            program.display(),
            home.join("bin").display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_llvm_of_a_linker_is_seen() {
        let text = "\tlinux-vdso.so.1 (0x0)\n\tlibLLVM.so.22.1 => /lib/libLLVM.so.22.1 (0x7f)\n";
        assert_eq!(parse_llvm(text), Some(22));
        assert_eq!(
            parse_llvm("\tlibLLVM-21.so => /lib/libLLVM-21.so (0x7f)\n"),
            Some(21)
        );
        assert_eq!(parse_llvm("\tlibc.so.6 => /lib/libc.so.6\n"), None);
    }
}
