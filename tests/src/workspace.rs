//! Where things are: the workspace, what cargo built, and programs of the system.
//!
//! In: names. Out: paths, or an error with the command that mends it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::process::run;

/// Where set-up unpacks servers whose packages would install a service, laid out as `/`.
pub const UNPACKED: &str = "/opt/reqtrace-tests";

/// The root of the workspace.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Cargo's folder of build results.
#[must_use]
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A temporary folder that everybody may enter. It is below the build results rather than in
/// `/tmp`, which may be in memory: then no `fdatasync` would ever wait.
///
/// # Errors
///
/// When it cannot be made.
pub fn scratch() -> Result<TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let parent = target().join("tmp");
    std::fs::create_dir_all(&parent).with_context(|| parent.display().to_string())?;
    let everybody = std::fs::Permissions::from_mode(0o755);
    tempfile::Builder::new()
        .prefix("e2e-")
        .permissions(everybody)
        .tempdir_in(&parent)
        .with_context(|| format!("no temporary folder in {}", parent.display()))
}

/// The folder in which each trace's recording is kept, so that other builds can judge it, too.
const RECORDINGS: &str = "REQTRACE_TESTS_RECORDINGS";

/// Where the next trace's recording is kept, if somebody wants them: `TEST-PID-NUMBER.rec`.
#[must_use]
pub fn kept_recording() -> Option<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let folder = PathBuf::from(std::env::var_os(RECORDINGS)?);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test").replace("::", ".");
    Some(folder.join(format!("{test}-{}-{number:03}.rec", std::process::id())))
}

/// A file system of a few kilobytes in memory; unmounted when it is dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of `size` (as of `mount -o size=`) at a folder that it makes.
    ///
    /// # Errors
    ///
    /// When the folder is there already, or it cannot be mounted.
    pub fn mount(at: &Path, size: &str) -> Result<Self> {
        std::fs::create_dir(at).with_context(|| at.display().to_string())?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]);
        let status = mount.arg(at).status()?;
        ensure!(status.success(), "mount {}: {status}", at.display());
        Ok(Self(at.to_owned()))
    }

    /// Mounts one with a journal, ext4 in a file of 64 MiB beside it on a device of its own.
    ///
    /// # Errors
    ///
    /// As [`SmallDisk::mount`], and when there is no loop device.
    pub fn with_journal(at: &Path) -> Result<Self> {
        std::fs::create_dir(at).with_context(|| at.display().to_string())?;
        let image = at.with_extension("image");
        std::fs::File::create(&image)?.set_len(64 << 20)?;
        run(Command::new("mke2fs")
            .args(["-q", "-t", "ext4"])
            .arg(&image))?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(at))?;
        Ok(Self(at.to_owned()))
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Copies a program that is to be run. Another process does it: a descriptor of ours that is open for
/// writing would be inherited by whatever another thread starts meanwhile, and as long as that one
/// has it the copy cannot be executed ("text file busy").
///
/// # Errors
///
/// When it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg(from).arg(to).status()?;
    ensure!(
        status.success(),
        "cp {} {}: {status}",
        from.display(),
        to.display()
    );
    Ok(())
}

/// A program of the system, searched in `PATH`, the administrator's folders and what set-up has
/// unpacked.
///
/// # Errors
///
/// When it is not installed; the message says how to install it.
pub fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin"].map(PathBuf::from);
    let unpacked = ["usr/bin", "usr/sbin"].map(|folder| Path::new(UNPACKED).join(folder));
    std::env::split_paths(&path)
        .chain(system)
        .chain(unpacked)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .with_context(|| format!("{name} is not installed; run: cargo xtask setup"))
}

/// A file of the system or of what set-up has unpacked, by its path below the root.
///
/// # Errors
///
/// When it is not installed; the message says how to install it.
pub fn file(path: &str) -> Result<PathBuf> {
    let mut files = ["/", UNPACKED]
        .map(|root| Path::new(root).join(path))
        .into_iter();
    files
        .find(|file| file.is_file())
        .with_context(|| format!("/{path} is missing; run: cargo xtask setup --for test"))
}

/// The environment of Python that set-up makes for the schemas of Perfetto and OTLP.
#[must_use]
pub fn perfetto() -> PathBuf {
    target().join("perfetto")
}

/// The one for engines that rows are sent to.
#[must_use]
pub fn engines() -> PathBuf {
    target().join("engines")
}

/// The one for the engine of a cluster.
#[must_use]
pub fn spark() -> PathBuf {
    target().join("spark")
}

/// The environment that set-up makes for a version of Go, of which [`crate::goroutines::VERSIONS`] has some.
#[must_use]
pub fn go(version: &str) -> PathBuf {
    target().join("go").join(version)
}

/// The shop's program: `SHOP_BIN`, or built by cargo with optimisation.
///
/// # Errors
///
/// When it does not build.
pub fn shop() -> Result<PathBuf> {
    static BUILT: Built = Built::new();
    example("shop", "SHOP_BIN", &BUILT)
}

/// The program of the example that measures itself: `TRUTH_BIN`, or built by cargo.
///
/// # Errors
///
/// When it does not build.
pub fn truth() -> Result<PathBuf> {
    static BUILT: Built = Built::new();
    example("truth", "TRUTH_BIN", &BUILT)
}

/// The program of the example with a thread pool: `BAKERY_BIN`, or built by cargo.
///
/// # Errors
///
/// When it does not build.
pub fn bakery() -> Result<PathBuf> {
    static BUILT: Built = Built::new();
    example("bakery", "BAKERY_BIN", &BUILT)
}

/// The program of the example on tokio: `TASKS_BIN`, or built by cargo.
///
/// # Errors
///
/// When it does not build.
pub fn tasks() -> Result<PathBuf> {
    static BUILT: Built = Built::new();
    example("tasks", "TASKS_BIN", &BUILT)
}

/// The program of the examples on axum and tonic: `WEB_BIN`, or built by cargo.
///
/// # Errors
///
/// When it does not build.
pub fn web() -> Result<PathBuf> {
    static BUILT: Built = Built::new();
    example("web", "WEB_BIN", &BUILT)
}

/// An example that is built at most once.
type Built = OnceLock<std::result::Result<PathBuf, String>>;

fn example(name: &str, variable: &str, built: &Built) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    built
        .get_or_init(|| build(name).map_err(|error| format!("{error:#}")))
        .clone()
        .map_err(anyhow::Error::msg)
}

fn build(example: &str) -> Result<PathBuf> {
    build_in(&target(), example, &[])
}

/// An example as it is built for release with settings of cargo's profile, in a folder of this name below the build
/// results.
///
/// # Errors
///
/// When it does not build.
pub fn built_as(example: &str, name: &str, settings: &[(&str, &str)]) -> Result<PathBuf> {
    build_in(&target().join("builds").join(name), example, settings)
}

fn build_in(folder: &Path, example: &str, settings: &[(&str, &str)]) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let settings = settings.iter();
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--release", "--package", example])
        .arg("--target-dir")
        .arg(folder)
        .envs(settings.map(|(key, value)| (format!("CARGO_PROFILE_RELEASE_{key}"), value)))
        .current_dir(root())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!(
            "the example {example} does not build: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(folder.join("release").join(example))
}

/// reqtrace's program: `REQTRACE_BIN`, or the newer one of the release and debug builds.
///
/// # Errors
///
/// When there is none.
pub fn reqtrace() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("REQTRACE_BIN") {
        let path = PathBuf::from(path);
        if !path.is_file() {
            bail!("REQTRACE_BIN names no file: {}", path.display());
        }
        return Ok(path);
    }
    let target = target();
    ["release", "debug"]
        .into_iter()
        .map(|profile| target.join(profile).join("reqtrace"))
        .filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file)))
        .max()
        .map(|(_, file)| file)
        .with_context(|| {
            format!(
                "no reqtrace in {}; run: cargo build --release -p reqtrace",
                target.display()
            )
        })
}
