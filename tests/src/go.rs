//! Programs in Go of the tests' own (`tests/programs`), built by the installed Go from what Debian has packaged: no network,
//! no modules.
//!
//! In: a folder's name. Out: the program's path.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

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
    let to = workspace::target().join("tmp").join("go");
    fs::create_dir_all(&to)?;
    workspace::file(&format!("{LIBRARIES}/src/google.golang.org/grpc/server.go"))?;
    let program = to.join(name);
    let mut command = Command::new(workspace::program("go")?);
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
