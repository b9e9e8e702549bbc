//! Programs whose stack at the place where they block is known.
//!
//! In: `tests/fixtures/stacks`. Out: built programs, each with the chain that it says it has, and
//! a check of recorded frames against it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The language of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C, by `cc`.
    C,
    /// C++, by `c++`.
    Cpp,
    /// Rust, by `rustc`.
    Rust,
}

/// A program of the corpus, as source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its file's name without the extension.
    pub name: &'static str,
    /// Its language.
    pub language: Language,
    /// Whether `NAME.lib.c` is built as a library for it.
    pub library: bool,
}

const fn c(name: &'static str) -> Program {
    Program {
        name,
        language: Language::C,
        library: false,
    }
}

const fn cpp(name: &'static str) -> Program {
    Program {
        language: Language::Cpp,
        ..c(name)
    }
}

/// All programs.
pub const PROGRAMS: [Program; 17] = [
    Program {
        library: true,
        ..c("plt")
    },
    c("variable"),
    c("large"),
    c("recursion"),
    c("tail"),
    c("signal"),
    c("signal_stack"),
    c("realign"),
    c("leaf"),
    c("pipe"),
    c("spawn"),
    c("thread"),
    c("cold"),
    cpp("virtual"),
    cpp("exception"),
    cpp("unwinding"),
    Program {
        language: Language::Rust,
        ..c("generic")
    },
];

/// A program that can be run: `PATH [REQUESTS [MILLISECONDS]]`. It prints its chain, waits for a
/// line on standard input, serves its requests, and exits with 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The source it was built from.
    pub program: Program,
    /// The executable.
    pub path: PathBuf,
    /// Names of functions from the innermost one that is not the C library's up to `request`. `*`
    /// stands for any text, alone also for a frame without a name.
    pub chain: Vec<String>,
}

impl Program {
    /// Compiles it into `folder` as distributions compile: optimized, without frame pointers and
    /// debug information, stripped of all names but the exported ones.
    ///
    /// # Errors
    ///
    /// When a compiler is missing or fails, or the program does not say its chain.
    pub fn build(self, folder: &Path) -> Result<Built> {
        const FLAGS: [&str; 5] = ["-O2", "-fomit-frame-pointer", "-Wall", "-Wextra", "-s"];
        let sources = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../tests/fixtures/stacks")
            .canonicalize()
            .context("the corpus is not there")?;
        let path = folder.join(self.name);
        let mut command = match self.language {
            Language::C => Command::new("cc"),
            Language::Cpp => Command::new("c++"),
            Language::Rust => Command::new("rustc"),
        };
        let source = |extension: &str| sources.join(format!("{}.{extension}", self.name));
        if self.language == Language::Rust {
            // Rust exports nothing from programs, so the symbol table stays.
            command.args([
                "--edition=2024",
                "-Copt-level=2",
                "-Cforce-frame-pointers=no",
            ]);
            command.arg(source("rs"));
        } else {
            let extension = if self.language == Language::C {
                "c"
            } else {
                "cpp"
            };
            command.args(FLAGS).args(["-rdynamic", "-pthread"]);
            command.arg(source(extension));
        }
        command.arg("-o").arg(&path);
        if self.library {
            let library = folder.join(format!("lib{}.so", self.name));
            let mut compile = Command::new("cc");
            compile.args(FLAGS).args(["-fPIC", "-shared"]);
            compile.arg(source("lib.c")).arg("-o").arg(&library);
            run(&mut compile)?;
            // Bound at the first call, so that the table is really gone through.
            command
                .arg(&library)
                .args(["-Wl,-z,lazy", "-Wl,-rpath,$ORIGIN"]);
        }
        run(&mut command)?;
        let printed = run(Command::new(&path).stdin(Stdio::null()))?;
        let chain = printed
            .lines()
            .find_map(|line| line.strip_prefix("chain: "))
            .with_context(|| format!("{} does not say its chain", self.name))?;
        Ok(Built {
            program: self,
            path,
            chain: chain.split(';').map(str::to_owned).collect(),
        })
    }
}

/// Compiles all programs into `folder`.
///
/// # Errors
///
/// When one cannot be compiled.
pub fn build_all(folder: &Path) -> Result<Vec<Built>> {
    PROGRAMS
        .into_iter()
        .map(|program| program.build(folder))
        .collect()
}

impl Built {
    /// Checks frames, innermost first: the C library's, then exactly the chain, then anything.
    ///
    /// # Errors
    ///
    /// When they are others; with both.
    pub fn check<S: AsRef<str>>(&self, frames: &[S]) -> Result<()> {
        /// `block` sleeps by some three functions of the C library, and more of Rust's.
        const MOST_LIBRARY_FRAMES: usize = 6;
        let found = (0..frames.len().min(MOST_LIBRARY_FRAMES + 1)).any(|skipped| {
            let frames = &frames[skipped..];
            frames.len() >= self.chain.len()
                && self
                    .chain
                    .iter()
                    .zip(frames)
                    .all(|(pattern, name)| matches(pattern, name.as_ref()))
        });
        let frames: Vec<&str> = frames.iter().map(AsRef::as_ref).collect();
        ensure!(
            found,
            "{}: expected {}, found {}",
            self.program.name,
            self.chain.join(";"),
            frames.join(";")
        );
        Ok(())
    }
}

/// Whether a name is what a pattern with `*` for any text says.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((prefix, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(name) = name.strip_prefix(prefix) else {
        return false;
    };
    (0..=name.len())
        .filter(|&at| name.is_char_boundary(at))
        .any(|at| matches(rest, &name[at..]))
}

/// As `process::run`, which is not there where the unit tests of `reqtrace` include this file.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| {
        format!("cannot run {command:?}; `cargo xtask setup` says what to install")
    })?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text() {
        assert!(matches("*", ""));
        assert!(matches("*", "[libc.so.6+0x1234]"));
        assert!(matches("a", "a"));
        assert!(!matches("a", "ab"));
        assert!(matches("*draw*", "<Circle as Shape>::draw"));
        assert!(!matches("*draw*", "drew"));
        assert!(matches("a*b*c", "a-b-b-c"));
    }

    #[test]
    fn a_chain_is_found_whole_or_not_at_all() {
        let built = Built {
            program: PROGRAMS[0],
            path: PathBuf::new(),
            chain: ["block", "*", "request"].map(str::to_owned).to_vec(),
        };
        assert!(
            built
                .check(&["nanosleep", "block", "x", "request", "main"])
                .is_ok()
        );
        assert!(built.check(&["block", "request", "main"]).is_err());
        assert!(built.check(&["block", "x"]).is_err());
        assert!(built.check::<&str>(&[]).is_err());
    }
}
