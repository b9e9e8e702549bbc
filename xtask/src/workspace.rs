//! Where things are: the workspace, its target directory, the release binaries.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, ensure};

use crate::process;

/// The workspace's root: the parent of this crate.
pub(crate) fn root() -> PathBuf {
    // CARGO_MANIFEST_DIR of the run wins over the build's, so that a moved checkout works.
    let crate_dir =
        env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let crate_dir = PathBuf::from(crate_dir);
    crate_dir
        .parent()
        .map(Path::to_path_buf)
        .unwrap_or(crate_dir)
}

/// Cargo's target directory.
pub(crate) fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A cargo command in the workspace, with the cargo that started this program.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Release builds of the tracer and of the example services.
pub(crate) struct Binaries {
    /// The tracer.
    pub(crate) reqtrace: PathBuf,
    /// The example service.
    pub(crate) shop: PathBuf,
    /// The example that measures its own waits.
    pub(crate) truth: PathBuf,
}

/// Other binaries to use instead of a fresh release build.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct BinaryArgs {
    /// Use this tracer instead of building one
    #[arg(long, value_name = "FILE")]
    reqtrace: Option<PathBuf>,
    /// Use this example service instead of building it
    #[arg(long, value_name = "FILE")]
    shop: Option<PathBuf>,
    /// Use this example `truth` instead of building it
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
}

impl BinaryArgs {
    /// Only the tracer is given, if any.
    pub(crate) fn of_reqtrace(reqtrace: Option<PathBuf>) -> Self {
        Self {
            reqtrace,
            ..Self::default()
        }
    }

    /// Builds what was not given, and says where the binaries are.
    pub(crate) fn build(&self) -> Result<Binaries> {
        let mut command = cargo();
        command.args(["build", "--release"]);
        let mut missing = false;
        let all = [
            ("reqtrace", &self.reqtrace),
            ("shop", &self.shop),
            ("truth", &self.truth),
        ];
        for (name, given) in all {
            if given.is_none() {
                command.args(["--package", name]);
                missing = true;
            }
        }
        if missing {
            process::run(&mut command)?;
        }
        let release = target_dir().join("release");
        let [reqtrace, shop, truth] =
            all.map(|(name, given)| given.clone().unwrap_or_else(|| release.join(name)));
        let binaries = Binaries {
            reqtrace,
            shop,
            truth,
        };
        for file in [&binaries.reqtrace, &binaries.shop, &binaries.truth] {
            ensure!(file.is_file(), "{} does not exist", file.display());
        }
        Ok(binaries)
    }
}

/// The profile of the example service.
pub(crate) fn shop_profile() -> PathBuf {
    root().join("examples/shop/shop.toml")
}

/// The first file of that name in `PATH` or in the system's directories, which a user's `PATH` may
/// lack.
pub(crate) fn find_command(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(system)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}
