//! Where things are: the workspace, its target directory, the release binaries.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, ensure};
use reqtrace_tests::goroutines;

use crate::process;

/// The workspace's root: the parent of this crate.
pub fn root() -> PathBuf {
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
pub fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A cargo command in the workspace, with the cargo that started this program.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// How programs are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// What users get.
    Release,
    /// What all tiers of the tests use, so that nothing is built twice.
    Tests,
    /// Programs of the demo, by the same profile: tracing, and no agent, whose libraries take longer to build than all the rest.
    Demo,
}

impl Profile {
    /// Arguments of cargo.
    pub fn arguments(self) -> [&'static str; 2] {
        ["--profile", self.name()]
    }

    /// What cargo is to choose from all packages. Cargo unites the features of what it is given, so all tiers of the tests
    /// give the same: else they would build the product, and what it stands on, once for each.
    pub fn selection(self) -> &'static [&'static str] {
        match self {
            Self::Release => &[],
            Self::Demo => &["--no-default-features", "--features", "reqtrace/capture"],
            Self::Tests => &["--workspace", "--exclude", "reqtrace-ebpf"],
        }
    }

    /// Its name, which is also that of its folder of build results.
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Tests | Self::Demo => "tests",
        }
    }
}

/// Builds of the tracer and of the example services.
pub struct Binaries {
    /// The tracer.
    pub reqtrace: PathBuf,
    /// The example service.
    pub shop: PathBuf,
    /// The example that measures its own waits.
    pub truth: PathBuf,
    /// The example on tokio.
    pub tasks: PathBuf,
    /// The example in Go.
    pub goroutines: PathBuf,
}

impl Binaries {
    /// All of them.
    pub const ALL: [&str; 5] = ["reqtrace", "shop", "truth", "tasks", "goroutines"];
    /// Those that are measured, for which no Go is needed.
    pub const MEASURED: [&str; 3] = ["reqtrace", "shop", "truth"];

    /// The options that hand these programs to another command: those of [`BinaryArgs`].
    pub fn arguments(&self) -> [&OsStr; 10] {
        [
            "--reqtrace".as_ref(),
            self.reqtrace.as_os_str(),
            "--shop".as_ref(),
            self.shop.as_os_str(),
            "--truth".as_ref(),
            self.truth.as_os_str(),
            "--tasks".as_ref(),
            self.tasks.as_os_str(),
            "--goroutines".as_ref(),
            self.goroutines.as_os_str(),
        ]
    }
}

/// Other binaries to use instead of a fresh build.
#[derive(clap::Args, Clone, Default)]
pub struct BinaryArgs {
    /// Use this tracer instead of building one
    #[arg(long, value_name = "FILE")]
    reqtrace: Option<PathBuf>,
    /// Use this example service instead of building it
    #[arg(long, value_name = "FILE")]
    shop: Option<PathBuf>,
    /// Use this example `truth` instead of building it
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// Use this example `tasks` instead of building it
    #[arg(long, value_name = "FILE")]
    tasks: Option<PathBuf>,
    /// Use this example `goroutines` instead of building it
    #[arg(long, value_name = "FILE")]
    goroutines: Option<PathBuf>,
}

impl BinaryArgs {
    /// Only the tracer is given, if any.
    pub fn of_reqtrace(reqtrace: Option<PathBuf>) -> Self {
        Self {
            reqtrace,
            ..Self::default()
        }
    }

    /// Builds those of `wanted` that were not given, and says where the binaries are.
    pub fn build(&self, profile: Profile, wanted: &[&str]) -> Result<Binaries> {
        let mut command = cargo();
        command.arg("build").args(profile.arguments());
        let mut missing = false;
        let are_all = wanted == Binaries::ALL;
        command.args(profile.selection());
        if profile == Profile::Tests {
            // With examples, as with tests, features that only tests want are on.
            command.arg("--examples");
            // Those that tests start by their path, too.
            command.args(are_all.then_some("--bins"));
        }
        let by_cargo = [
            ("reqtrace", &self.reqtrace),
            ("shop", &self.shop),
            ("truth", &self.truth),
            ("tasks", &self.tasks),
        ];
        for (name, given) in by_cargo {
            if given.is_none() && wanted.contains(&name) {
                match profile {
                    Profile::Release | Profile::Demo => command.args(["--package", name]),
                    Profile::Tests if !are_all => command.args(["--bin", name]),
                    Profile::Tests => &mut command,
                };
                missing = true;
            }
        }
        if missing {
            process::run(&mut command)?;
        }
        let built = target_dir().join(profile.name());
        let [reqtrace, shop, truth, tasks] =
            by_cargo.map(|(name, given)| given.clone().unwrap_or_else(|| built.join(name)));
        let goroutines = match &self.goroutines {
            None if wanted.contains(&"goroutines") => goroutines::program()?,
            given => given.clone().unwrap_or_default(),
        };
        let binaries = Binaries {
            reqtrace,
            shop,
            truth,
            tasks,
            goroutines,
        };
        let files = [
            &binaries.reqtrace,
            &binaries.shop,
            &binaries.truth,
            &binaries.tasks,
            &binaries.goroutines,
        ];
        for (name, file) in Binaries::ALL.iter().zip(files) {
            let missing = wanted.contains(name) && !file.is_file();
            ensure!(!missing, "{} does not exist", file.display());
        }
        Ok(binaries)
    }
}

/// The profile of the example service.
pub fn shop_profile() -> PathBuf {
    root().join("examples/shop/shop.toml")
}

/// The first file of that name in `PATH` or in the system's directories, which a user's `PATH` may
/// lack.
pub fn find_command(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(system)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}
