//! Programs for tests, compiled when the test runs: real compilers make better fixtures than
//! hand-made bytes.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use reqtrace_binary::elf::Object;

/// A folder with one compiled program in it.
pub(crate) struct Fixture {
    folder: TempDir,
    program: PathBuf,
}

impl Fixture {
    /// Compiles C++.
    pub(crate) fn cpp(source: &str, flags: &[&str]) -> Self {
        Self::compile("g++", "source.cc", source, flags)
    }

    /// Compiles C or, with a file name ending in `S`, assembles.
    pub(crate) fn c(source: &str, flags: &[&str]) -> Self {
        Self::compile("gcc", "source.c", source, flags)
    }

    /// The same of two files that have a variable of their own each, `depth`.
    pub(crate) fn c_of_two_depths(source: &str, flags: &[&str]) -> Self {
        const DEPTH: &str = "static int depth __attribute__((used)) = 1;\n";
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other.c");
        std::fs::write(&other, DEPTH).unwrap();
        let flags = [flags, &[other.to_str().unwrap()]].concat();
        Self::c(&format!("{source}\n{DEPTH}"), &flags)
    }

    /// Assembles.
    pub(crate) fn assembly(source: &str) -> Self {
        Self::compile("gcc", "source.S", source, &["-nostdlib", "-shared"])
    }

    /// Assembles a program that lies where it was linked.
    pub(crate) fn fixed_assembly(source: &str) -> Self {
        let flags = ["-nostdlib", "-static", "-no-pie", "-Wl,-e,0"];
        Self::compile("gcc", "source.S", source, &flags)
    }

    /// Compiles Rust.
    pub(crate) fn rust(source: &str, flags: &[&str]) -> Self {
        Self::compile("rustc", "source.rs", source, flags)
    }

    fn compile(compiler: &str, name: &str, source: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::fs::write(folder.path().join(name), source).unwrap();
        run(Command::new(compiler)
            .current_dir(folder.path())
            .args([name, "-o", "program"])
            .args(flags));
        Self { folder, program }
    }

    /// Strips everything but what is exported.
    pub(crate) fn stripped(self) -> Self {
        run(Command::new("strip").arg(&self.program));
        self
    }

    pub(crate) fn path(&self) -> &Path {
        &self.program
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn object(&self) -> Object {
        Object::open(&self.program, "program").unwrap()
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
