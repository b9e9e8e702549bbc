//! Packages: the workspace in; an archive and a Debian package out, in `target/packages`.
//!
//! Both hold the program, manual pages, completions, the built-in profiles to read, and the licences of
//! all that is linked. The program is static, so that it runs on any distribution. Debian's own tools
//! write the two files; the dates in them are the commit's.

mod booted;
mod licences;
pub(crate) mod trial;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    process,
    setup::{self, Need},
    workspace::{cargo, root, target_dir},
};

/// What is built for: also with the linker's own target this must be named, or build scripts would be
/// linked as the program is.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The program is static.
const FLAGS: &str = r#"target.x86_64-unknown-linux-gnu.rustflags=["-Ctarget-feature=+crt-static"]"#;

/// Makes the user of the agent's worker and its group, which the units have: by systemd where it is, else by what each Debian has.
const POSTINST: &str = "#!/bin/sh
set -e
if [ \"$1\" = configure ] && ! getent passwd reqtrace >/dev/null; then
    systemd-sysusers /usr/lib/sysusers.d/reqtrace.conf 2>/dev/null ||
        useradd --system --user-group --home-dir / --shell /usr/sbin/nologin reqtrace
fi
# An upgrade: what runs is the old program.
if [ \"$1\" = configure ] && [ -n \"$2\" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl try-restart reqtrace-agent.service reqtrace-ship.service
fi
";

/// What is removed does not run on.
const PRERM: &str = "#!/bin/sh
set -e
if [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now reqtrace-agent.service reqtrace-ship.service
fi
";

/// Options of `dist`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also install the Debian package in a bare Debian 12 and trace a program there, then in one with systemd, MariaDB and
    /// Prometheus, which is booted under qemu, until an alert fires; needs root
    #[arg(long)]
    trial: bool,
}

/// What was made.
pub(crate) struct Packages {
    /// For Debian and its children.
    pub(crate) deb: PathBuf,
    /// For all others.
    archive: PathBuf,
}

/// `cargo xtask dist`.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::prepare(&[Need::Dist], false)?;
    let packages = make()?;
    for file in [&packages.archive, &packages.deb] {
        let kilobytes = fs::metadata(file)?.len() / 1000;
        println!("{} ({kilobytes} kB)", file.display());
    }
    if args.trial {
        trial::run(&packages.deb)?;
    }
    Ok(())
}

/// Builds the program and both packages.
pub(crate) fn make() -> Result<Packages> {
    let mut build = cargo();
    build.args(["build", "--profile", "dist", "--target", TARGET]);
    build.args(["--config", FLAGS, "--package", "reqtrace"]);
    build.args(["--bin", "reqtrace", "--example", "manual"]);
    process::run(&mut build)?;
    let built = target_dir().join(TARGET).join("dist");
    let folder = target_dir().join("packages");
    // What is left of an earlier build must not be packed.
    let parts = empty(&folder.join("parts"))?;
    process::run(Command::new(built.join("examples/manual")).arg(&parts))?;
    fs::write(parts.join("NOTICES"), licences::notices(TARGET)?)?;
    let version = version()?;
    let program = built.join("reqtrace");
    Ok(Packages {
        archive: archive(&folder, &parts, &program, &version)?,
        deb: deb(&folder, &parts, &program, &version)?,
    })
}

fn archive(folder: &Path, parts: &Path, program: &Path, version: &str) -> Result<PathBuf> {
    let name = format!("reqtrace-{version}-x86_64-linux");
    let tree = empty(&folder.join(&name))?;
    copy(program, &tree.join("reqtrace"))?;
    for part in ["man", "completions"] {
        copy(&parts.join(part), &tree.join(part))?;
    }
    copy(&parts.join("NOTICES"), &tree.join("NOTICES"))?;
    for folder in ["profiles", "deploy"] {
        copy(&root().join(folder), &tree.join(folder))?;
    }
    for file in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&root().join(file), &tree.join(file))?;
    }
    let file = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
    ]);
    tar.arg(format!("--mtime=@{}", date()))
        .args(["--use-compress-program", "gzip -9n"]);
    tar.arg("--file")
        .arg(&file)
        .arg("-C")
        .arg(folder)
        .arg(&name);
    process::run(&mut tar)?;
    Ok(file)
}

fn deb(folder: &Path, parts: &Path, program: &Path, version: &str) -> Result<PathBuf> {
    let tree = empty(&folder.join("deb"))?;
    copy(program, &tree.join("usr/bin/reqtrace"))?;
    for page in fs::read_dir(parts.join("man"))? {
        let page = page?;
        let to = tree.join("usr/share/man/man1").join(page.file_name());
        copy(&page.path(), &to)?;
        compress(&to)?;
    }
    for (from, to) in [
        ("reqtrace.bash", "bash-completion/completions/reqtrace"),
        ("_reqtrace", "zsh/vendor-completions/_reqtrace"),
        ("reqtrace.fish", "fish/vendor_completions.d/reqtrace.fish"),
    ] {
        copy(
            &parts.join("completions").join(from),
            &tree.join("usr/share").join(to),
        )?;
    }
    let documents = tree.join("usr/share/doc/reqtrace");
    copy(&root().join("profiles"), &documents.join("profiles"))?;
    let deploy = root().join("deploy");
    for folder in ["grafana", "prometheus", "clickhouse", "duckdb"] {
        copy(&deploy.join(folder), &documents.join(folder))?;
    }
    copy(&deploy.join("sysusers.d"), &tree.join("usr/lib/sysusers.d"))?;
    copy(
        &deploy.join("systemd"),
        &tree.join("usr/lib/systemd/system"),
    )?;
    copy(&root().join("README.md"), &documents.join("README.md"))?;
    copy(&root().join("CHANGELOG.md"), &documents.join("changelog"))?;
    copy(&parts.join("NOTICES"), &documents.join("NOTICES"))?;
    for file in ["changelog", "NOTICES"] {
        compress(&documents.join(file))?;
    }
    fs::write(documents.join("copyright"), copyright()?)?;
    fs::create_dir(tree.join("DEBIAN"))?;
    fs::write(
        tree.join("DEBIAN/control"),
        control(version, kibibytes(&tree)?),
    )?;
    let scripts = [("postinst", POSTINST), ("prerm", PRERM)];
    for (name, script) in scripts {
        fs::write(tree.join("DEBIAN").join(name), script)?;
    }
    // For the configurations, which are the user's.
    fs::create_dir_all(tree.join("etc/reqtrace"))?;
    // The umask of whoever builds is none of the package's business.
    let mode = "u=rwX,go=rX";
    process::run(Command::new("chmod").args(["--recursive", mode]).arg(&tree))?;
    for (name, _) in scripts {
        process::run(
            Command::new("chmod")
                .arg("0755")
                .arg(tree.join("DEBIAN").join(name)),
        )?;
    }
    let file = folder.join(format!("reqtrace_{version}_amd64.deb"));
    let mut build = Command::new("dpkg-deb");
    build.env("SOURCE_DATE_EPOCH", date());
    build
        .args(["--root-owner-group", "-Zxz", "--build"])
        .arg(&tree)
        .arg(&file);
    process::run(build.stdout(std::process::Stdio::null()))?;
    Ok(file)
}

/// The package's description of itself. It depends on nothing: the program is static.
fn control(version: &str, kibibytes: u64) -> String {
    format!(
        "Package: reqtrace\nVersion: {version}\nArchitecture: amd64\nMaintainer: The reqtrace authors\n\
         Installed-Size: {kibibytes}\nSection: admin\nPriority: optional\n\
         Description: request-synchronous off-CPU tracer\n \
         reqtrace accounts for the time of each request of a running server: on CPU,\n \
         run queue, preempted, and blocked by cause. It needs no change of the server,\n \
         root, and a Linux kernel of 5.18 or later, or one with its BPF, with type information (BTF).\n"
    )
}

fn copyright() -> Result<String> {
    let texts = ["LICENSE-MIT", "LICENSE-APACHE"].map(|file| fs::read_to_string(root().join(file)));
    let [mit, apache] = texts;
    Ok(format!(
        "reqtrace is licensed under MIT or Apache-2.0, at your choice. Its kernel programs declare\n\
         themselves \"Dual MIT/GPL\" to the kernel. The licences of all that is linked into the program\n\
         stand in NOTICES.gz beside this file.\n\n{}\n\n{}",
        mit?, apache?
    ))
}

fn version() -> Result<String> {
    let text = fs::read_to_string(root().join("Cargo.toml"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("version = \""));
    let version = line.and_then(|rest| rest.strip_suffix('"'));
    Ok(version.context("Cargo.toml has no version")?.to_owned())
}

/// Date of the commit, in seconds; what is packed twice is then the same. Outside of a checkout: 0.
fn date() -> String {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["log", "-1", "--format=%ct"]);
    process::output(&mut git).map_or_else(|| "0".to_owned(), |text| text.trim().to_owned())
}

fn kibibytes(folder: &Path) -> Result<u64> {
    let mut du = Command::new("du");
    let text = process::output(du.args(["-sk"]).arg(folder)).context("du fails")?;
    let number = text.split_whitespace().next().context("du says nothing")?;
    Ok(number.parse()?)
}

fn compress(file: &Path) -> Result<()> {
    process::run(Command::new("gzip").args(["-9nf"]).arg(file))
}

/// A new folder in place of what was there.
fn empty(folder: &Path) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    Ok(folder.to_owned())
}

/// Copies a file, or a folder of files.
fn copy(from: &Path, to: &Path) -> Result<()> {
    ensure!(from.exists(), "{} is not there", from.display());
    if from.is_dir() {
        for file in fs::read_dir(from)? {
            let file = file?;
            copy(&file.path(), &to.join(file.file_name()))?;
        }
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_says_what_it_is() {
        let text = control("1.2.3", 9000);
        assert!(text.starts_with("Package: reqtrace\nVersion: 1.2.3\n"));
        assert!(
            text.contains("\nDescription: request-synchronous off-CPU tracer\n reqtrace accounts")
        );
        assert!(!text.contains("Depends"));
        assert_eq!(version().unwrap(), env!("CARGO_PKG_VERSION"));
    }
}
