//! Checks of the modules of `report.html`: TypeScript's types from their comments, and a linter.
//!
//! Both are npm packages in the versions of `tests/page/package-lock.json`. Only these checks need them: the
//! program has the modules built in as they are.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::process;
use crate::workspace::root;

/// The modules.
const MODULES: &str = "reqtrace-output/src/html/page";
/// Written behind the packages: the lock file that they are of.
const INSTALLED: &str = "node_modules/.installed-lock.json";

fn folder() -> PathBuf {
    root().join("tests/page")
}

/// Installs the packages, unless those of the lock file are there.
pub fn install(verbose: bool) -> Result<()> {
    let lock = folder().join("package-lock.json");
    let wanted = fs::read(&lock).with_context(|| lock.display().to_string())?;
    let stamp = folder().join(INSTALLED);
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        if verbose {
            eprintln!("setup: checks of the page already there");
        }
        return Ok(());
    }
    eprintln!("setup: installing the checks of the page (npm ci in tests/page)");
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]);
    process::run(npm.current_dir(folder()))?;
    fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())
}

/// Checks the modules.
pub fn run() -> Result<()> {
    let programs = folder().join("node_modules/.bin");
    ensure!(
        programs.is_dir(),
        "the checks of the page are not installed; run: cargo xtask setup --for lint"
    );
    let mut types = Command::new(programs.join("tsc"));
    types.args(["--project", "tests/page/tsconfig.json"]);
    process::run(types.current_dir(root()))?;
    let mut lints = Command::new(programs.join("eslint"));
    lints.args(["--config", "tests/page/eslint.config.mjs"]);
    lints.args(["--max-warnings", "0", MODULES]);
    process::run(lints.current_dir(root()))
}
