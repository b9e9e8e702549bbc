//! The compiler of the kernel programs: a Rust toolchain named `ebpf` that has Rust's source.
//!
//! In: what rustup and apt have. Out: a compiler to link as `ebpf`, with the LLVM it is built on.
//! The kernel programs need `core` built for the BPF target, so `core`'s source, and bpf-linker must
//! read the compiler's bitcode, so an LLVM at least as new.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    linker,
    packages::{Apt, Package},
    process::{self, Guard},
    workspace::target_dir,
};

/// The name that reqtrace-capture/build.rs looks for.
pub(crate) const NAME: &str = "ebpf";
/// The oldest Rust that the workspace builds with (`rust-version`).
const OLDEST: (u32, u32) = (1, 95);
/// The LLVM of Debian 12's rustc-web.
const DEBIAN_LLVM: u32 = 22;
/// How long rustup may take to fetch the source (a few MB).
const FETCH_LIMIT: Duration = Duration::from_secs(180);

/// A compiler that rustup knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compiler {
    /// Rust's version.
    release: (u32, u32),
    /// Major version of its LLVM.
    pub(crate) llvm: u32,
    sysroot: PathBuf,
}

impl Compiler {
    /// The compiler of a toolchain; `None` if there is no such toolchain.
    fn of(toolchain: &str) -> Option<Self> {
        let rustc = |arg: &[&str]| {
            let mut command = Command::new("rustup");
            command.args(["run", toolchain, "rustc"]).args(arg);
            // Only look: rustup may be set to fetch a toolchain that it is asked for.
            process::output(command.env("RUSTUP_AUTO_INSTALL", "0"))
        };
        let (release, llvm) = parse_version(&rustc(&["-vV"])?)?;
        let sysroot = PathBuf::from(rustc(&["--print", "sysroot"])?.trim());
        Some(Self {
            release,
            llvm,
            sysroot,
        })
    }

    fn has_source(&self) -> bool {
        self.sysroot
            .join("lib/rustlib/src/rust/library/core")
            .is_dir()
    }
}

/// Which compiler it will be.
pub(crate) enum Choice {
    /// `ebpf` is there and can be used.
    Ready(Compiler),
    /// A toolchain of rustup that has the source, to be linked as `ebpf`.
    Rustup(Compiler),
    /// Debian's compiler, to be installed and linked as `ebpf`.
    Debian,
}

impl Choice {
    /// Finds out what serves, adding Rust's source to a toolchain of rustup where that is possible.
    pub(crate) fn make(apt: &Apt, verbose: bool) -> Result<Self> {
        if process::output(Command::new("rustup").arg("--version")).is_none() {
            bail!(
                "rustup is missing; it keeps the kernel programs' compiler apart from yours. \
                 Install it from https://rustup.rs, with a stable Rust of at least {}.{}",
                OLDEST.0,
                OLDEST.1
            );
        }
        let mut tried = Vec::new();
        let mut usable = |name: &str, compiler: &Compiler| {
            let cause = if compiler.release < OLDEST {
                format!("is older than {}.{}", OLDEST.0, OLDEST.1)
            } else if !linker::can_read(compiler.llvm, apt) {
                format!(
                    "has LLVM {}, for which there is no bpf-linker here",
                    compiler.llvm
                )
            } else {
                return true;
            };
            let (major, minor) = compiler.release;
            tried.push(format!("{name} (Rust {major}.{minor}) {cause}"));
            false
        };
        if let Some(compiler) = Compiler::of(NAME)
            && usable(NAME, &compiler)
            && compiler.has_source()
        {
            if verbose {
                eprintln!(
                    "setup: toolchain `{NAME}` already there: {}",
                    compiler.sysroot.display()
                );
            }
            return Ok(Self::Ready(compiler));
        }
        let mut known: Vec<(String, Compiler)> = candidates()
            .into_iter()
            .filter_map(|name| Compiler::of(&name).map(|compiler| (name, compiler)))
            .filter(|(name, compiler)| usable(name, compiler))
            .collect();
        // The toolchain in use is mostly `stable` under its long name.
        known.dedup_by(|a, b| a.1 == b.1);
        if let Some((_, compiler)) = known.iter().find(|(_, compiler)| compiler.has_source()) {
            return Ok(Self::Rustup(compiler.clone()));
        }
        for (name, compiler) in known {
            match add_source(&name) {
                Ok(()) if compiler.has_source() => return Ok(Self::Rustup(compiler)),
                Ok(()) => tried.push(format!("{name} got no source by `rustup component add`")),
                Err(error) => tried.push(format!("{name} got no source: {error:#}")),
            }
        }
        if Debian::serves(apt) {
            eprintln!("setup: rustup has no Rust source here; Debian's compiler will do");
            return Ok(Self::Debian);
        }
        bail!("{}", nothing_serves(&tried));
    }

    /// Major version of the LLVM of that compiler.
    pub(crate) fn llvm(&self) -> u32 {
        match self {
            Self::Ready(compiler) | Self::Rustup(compiler) => compiler.llvm,
            Self::Debian => DEBIAN_LLVM,
        }
    }

    /// What must be installed for it.
    pub(crate) fn packages(&self) -> Vec<Package> {
        match self {
            Self::Ready(_) | Self::Rustup(_) => Vec::new(),
            Self::Debian => Debian::packages(),
        }
    }

    /// Links it as `ebpf`; its packages are installed by now.
    pub(crate) fn link(&self) -> Result<()> {
        let sysroot = match self {
            Self::Ready(_) => return Ok(()),
            Self::Rustup(compiler) => compiler.sysroot.as_path(),
            Self::Debian => Path::new("/usr"),
        };
        eprintln!("setup: linking {} as toolchain `{NAME}`", sysroot.display());
        let mut command = Command::new("rustup");
        command.args(["toolchain", "link", NAME]).arg(sysroot);
        process::run(&mut command)?;
        match Compiler::of(NAME) {
            Some(compiler) if compiler.llvm == self.llvm() && compiler.has_source() => Ok(()),
            other => bail!(
                "toolchain `{NAME}` is linked, but is not what was expected (LLVM {} with Rust's \
                 source): {other:?}",
                self.llvm()
            ),
        }
    }
}

/// Debian's own compiler, kept at Rust's latest for the browsers.
struct Debian;

impl Debian {
    fn packages() -> Vec<Package> {
        vec![
            Package::with_file("rustc-web", "/usr/bin/rustc"),
            Package::with_file("cargo-web", "/usr/bin/cargo"),
            Package::with_file("rust-web-src", "/usr/lib/rustlib/src/rust/library/core"),
        ]
    }

    /// Whether apt has it, new enough.
    fn serves(apt: &Apt) -> bool {
        let new_enough =
            |version: &str| parse_release(version).is_some_and(|release| release >= OLDEST);
        apt.may_have("rustc-web", new_enough)
            && apt.may_have("rust-web-src", |_| true)
            && linker::can_read(DEBIAN_LLVM, apt)
    }
}

/// Toolchains of rustup that may serve, in the order they are asked: the one in use first.
fn candidates() -> Vec<String> {
    let mut names: Vec<String> = env::var("RUSTUP_TOOLCHAIN").into_iter().collect();
    names.extend(["stable", "nightly"].map(str::to_owned));
    names.retain(|name| name != NAME);
    names
}

fn add_source(toolchain: &str) -> Result<()> {
    eprintln!("setup: adding Rust's source to toolchain {toolchain} (rustup component add)");
    let log = target_dir().join("setup-rustup.log");
    let file = File::create(&log).with_context(|| log.display().to_string())?;
    let mut command = Command::new("rustup");
    command
        .args(["component", "add", "rust-src", "--toolchain", toolchain])
        .env("RUSTUP_MAX_RETRIES", "1")
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file);
    let result = Guard::spawn(&mut command)?.finish(FETCH_LIMIT);
    result.with_context(|| {
        fs::read_to_string(&log)
            .unwrap_or_default()
            .trim_end()
            .to_owned()
    })
}

fn nothing_serves(tried: &[String]) -> String {
    let mut text = String::from(
        "no compiler for the kernel programs: they need a Rust that has its own source (rust-src), \
         and bpf-linker needs an LLVM at least as new as that Rust's",
    );
    for line in tried {
        text.push_str("\n    ");
        text.push_str(line);
    }
    text.push_str(&format!(
        "\n    apt has no rustc-web of at least {}.{} with rust-web-src (Debian 12 has)\n\
         What to do: `rustup component add rust-src`, and install LLVM's development files of the \
         same major version (in Debian 12: llvm-22-dev libpolly-22-dev; elsewhere from your \
         distribution), then run this command again",
        OLDEST.0, OLDEST.1
    ));
    text
}

/// Version and LLVM major from `rustc -vV`.
fn parse_version(text: &str) -> Option<((u32, u32), u32)> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let llvm = field("LLVM version: ")?.split('.').next()?.parse().ok()?;
    Some((parse_release(field("release: ")?)?, llvm))
}

/// Major and minor of a version such as `1.96.0+dfsg1-1~deb12u2`.
fn parse_release(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let text = "rustc 1.96.0 (ac68faa20 2026-05-25)\nrelease: 1.96.0\nLLVM version: 22.1.4\n";
        assert_eq!(parse_version(text), Some(((1, 96), 22)));
        assert_eq!(parse_version("release: 1.97.0-nightly\n"), None);
        assert_eq!(parse_release("1.96.0+dfsg1-1~deb12u2"), Some((1, 96)));
        assert_eq!(parse_release("unknown"), None);
    }

    #[test]
    fn the_oldest_rust_is_the_workspaces() {
        let manifest = include_str!("../../Cargo.toml");
        let wanted = format!("rust-version = \"{}.{}\"", OLDEST.0, OLDEST.1);
        assert!(manifest.contains(&wanted), "{wanted}");
    }
}
