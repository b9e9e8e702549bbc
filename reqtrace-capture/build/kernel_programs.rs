//! The kernel programs: their package in, an object in `OUT_DIR` out.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use aya_build::{Package, Toolchain};

/// Name under which `cargo xtask setup` links a compiler that has Rust's source.
const LINKED_TOOLCHAIN: &str = "ebpf";

/// Builds them with the compiler that set-up has linked, else with a nightly one.
pub(crate) fn build() -> Result<()> {
    println!("cargo:rerun-if-changed=../reqtrace-common/src");
    // Warnings still come through; the list of compiled crates does not.
    // SAFETY: a build script of one thread.
    unsafe { std::env::set_var("CARGO_TERM_QUIET", "true") };
    // Checks that a build of the tracer asks for (`cargo xtask fuzz --guided`) do not link there.
    for check in ["DEBUG_ASSERTIONS", "OVERFLOW_CHECKS"] {
        // SAFETY: a build script of one thread.
        unsafe { std::env::remove_var(format!("CARGO_PROFILE_RELEASE_{check}")) };
    }
    let toolchain = if has_toolchain(LINKED_TOOLCHAIN) {
        // Debian's compiler is a stable one; this lets it take `-Z build-std=core`. It is set for
        // the child that builds the kernel programs and for nothing else.
        // SAFETY: a build script of one thread.
        unsafe { std::env::set_var("RUSTC_BOOTSTRAP", "1") };
        Toolchain::Custom(LINKED_TOOLCHAIN)
    } else {
        Toolchain::Nightly
    };
    let root_dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../reqtrace-ebpf");
    aya_build::build_ebpf(
        [Package {
            name: "reqtrace-ebpf",
            root_dir,
            ..Package::default()
        }],
        toolchain,
    )
    .context("the kernel programs could not be built; `cargo xtask setup` installs what they need")
}

fn has_toolchain(name: &str) -> bool {
    Command::new("rustup")
        .args(["run", name, "rustc", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
