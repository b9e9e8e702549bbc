//! The schemas of Perfetto and OTLP, which the tests decode traces with: pip in, an environment of Python with the
//! packages that their authors publish out.

use std::{fs, process::Command};

use anyhow::{Context as _, Result};

use crate::{packages::Package, process, setup::Need};

/// The schemas, and what reads them.
const PACKAGES: [&str; 3] = [
    "perfetto==0.59.1",
    "opentelemetry-proto==1.45.2",
    "protobuf==7.36.2",
];

/// What is needed to make an environment: Debian's Python comes without.
pub(crate) fn packages(needs: &[Need]) -> Vec<Package> {
    let mut look = Command::new("python3");
    look.args(["-c", "import ensurepip"]);
    let is_wanted = needs.contains(&Need::Test) && !is_there();
    match is_wanted && process::output(&mut look).is_none() {
        true => vec![Package::library("python3-venv")],
        false => Vec::new(),
    }
}

/// Makes the environment, unless it is there.
pub(crate) fn install(needs: &[Need], verbose: bool) -> Result<()> {
    if !needs.contains(&Need::Test) {
        return Ok(());
    }
    if is_there() {
        if verbose {
            eprintln!("setup: {} already there", PACKAGES[0]);
        }
        return Ok(());
    }
    let folder = reqtrace_tests::workspace::perfetto();
    eprintln!("setup: pip install {}", PACKAGES.join(" "));
    process::run(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&folder),
    )?;
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]);
    process::run(pip.args(PACKAGES))?;
    fs::write(folder.join(MARK), PACKAGES.join("\n")).context("the environment's mark")
}

/// Written last, with what is installed.
const MARK: &str = "reqtrace-packages";

fn is_there() -> bool {
    let mark = reqtrace_tests::workspace::perfetto().join(MARK);
    fs::read_to_string(mark).is_ok_and(|text| text == PACKAGES.join("\n"))
}
