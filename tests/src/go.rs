//! Programs in Go of the tests' own (`tests/programs`), built by the installed Go, or another one, from what Debian has
//! packaged: no network, no modules.
//!
//! In: a folder's name. Out: the program's path.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::goroutines::VERSIONS;
use crate::process::run;
use crate::workspace;

/// Where Debian's packages have Go's libraries.
const LIBRARIES: &str = "usr/share/gocode";

/// Builds the program of a folder.
///
/// # Errors
///
/// When Go or a library is not installed, or it does not build.
pub fn program(name: &str, has_c: bool) -> Result<PathBuf> {
    program_by(&workspace::program("go")?, name, name, has_c)
}

/// The same by the newest Go, which [`crate::goroutines::VERSIONS`] has last.
///
/// # Errors
///
/// As [`program`].
pub fn program_by_newest(name: &str, has_c: bool) -> Result<PathBuf> {
    let newest = VERSIONS[VERSIONS.len() - 1];
    let go = workspace::go(newest).join("bin/go");
    program_by(&go, name, &format!("{name}-{newest}"), has_c)
        .with_context(|| format!("Go {newest}: `cargo xtask setup --for test` installs it"))
}

fn program_by(go: &Path, name: &str, as_file: &str, has_c: bool) -> Result<PathBuf> {
    let to = workspace::target().join("tmp").join("go");
    fs::create_dir_all(&to)?;
    workspace::file(&format!("{LIBRARIES}/src/google.golang.org/grpc/server.go"))?;
    let program = to.join(as_file);
    let mut command = Command::new(go);
    command
        .args(["build", "-o"])
        .arg(&program)
        .arg(format!("./tests/programs/{name}"))
        .current_dir(workspace::root())
        // Nothing of the user's own.
        .env("HOME", &to)
        .env("GOCACHE", to.join("cache"))
        .env("GOPATH", format!("/{LIBRARIES}"))
        .env("GOFLAGS", "")
        .env("GO111MODULE", "off")
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", if has_c { "1" } else { "0" });
    run(&mut command)?;
    Ok(program)
}
