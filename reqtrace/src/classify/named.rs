//! Named waits: a profile's `[[wait]]` in, a matcher over blocks out.

use globset::{GlobBuilder, GlobMatcher};

use super::{Block, syscalls};
use crate::error::{Error, Result};
use crate::profile::WaitSpec;
use crate::symbolize::names::{plain, without_signature, without_suffix};

/// The matchers of one `[[wait]]`. Any of them is enough.
#[derive(Debug)]
pub struct NamedWait {
    functions: Vec<Pattern>,
    files: Vec<Pattern>,
    kernel_functions: Vec<Pattern>,
    syscalls: Vec<i32>,
}

impl NamedWait {
    /// Makes the matchers.
    ///
    /// # Errors
    ///
    /// [`crate::error::Kind::Usage`] for a malformed glob or an unknown system call.
    pub fn new(spec: &WaitSpec) -> Result<Self> {
        let patterns = |key: &str, globs: &[String]| {
            globs
                .iter()
                .map(|glob| Pattern::new(&spec.name, key, glob))
                .collect::<Result<Vec<_>>>()
        };
        let numbers = spec
            .syscalls
            .iter()
            .map(|name| syscalls::number(name).ok_or_else(|| unknown_syscall(&spec.name, name)));
        Ok(Self {
            functions: patterns("functions", &spec.functions)?,
            files: patterns("files", &spec.files)?,
            kernel_functions: patterns("kernel-functions", &spec.kernel_functions)?,
            syscalls: numbers.collect::<Result<_>>()?,
        })
    }

    /// Whether it looks at user functions.
    #[must_use]
    pub fn needs_user(&self) -> bool {
        !self.functions.is_empty()
    }

    /// Whether the block is of this wait.
    #[must_use]
    pub fn matches(&self, block: &Block<'_>) -> bool {
        let is_file = |file| self.files.iter().any(|pattern| pattern.matches(file));
        let is_kernel = |name| {
            let name = without_suffix(name);
            self.kernel_functions
                .iter()
                .any(|pattern| pattern.matches(name))
        };
        let named = |frame: &&crate::symbolize::Frame| frame.is_named();
        self.syscalls.contains(&block.syscall)
            || block.file.is_some_and(is_file)
            || block
                .kernel
                .iter()
                .filter(named)
                .any(|frame| is_kernel(&frame.name))
            || block
                .user
                .iter()
                .filter(named)
                .any(|frame| self.is_function(&frame.name))
    }

    /// A pattern may be the whole demangled name, or leave out the signature, or also the template
    /// arguments.
    fn is_function(&self, name: &str) -> bool {
        if self.functions.is_empty() {
            return false;
        }
        let short = without_signature(name);
        let plain = plain(name);
        self.functions
            .iter()
            .any(|p| p.matches(name) || p.matches(short) || p.matches(&plain))
    }
}

/// A glob, or a name that is compared as it stands (C++ names are full of brackets).
#[derive(Debug)]
enum Pattern {
    Exact(String),
    Glob(GlobMatcher),
}

impl Pattern {
    fn new(wait: &str, key: &str, text: &str) -> Result<Self> {
        if !text.contains(['*', '?']) {
            return Ok(Self::Exact(text.to_owned()));
        }
        // Only `*` and `?` are special.
        let mut glob = String::with_capacity(text.len());
        for c in text.chars() {
            if matches!(c, '[' | ']' | '{' | '}' | '\\' | '!') {
                glob.push('\\');
            }
            glob.push(c);
        }
        let built = GlobBuilder::new(&glob)
            .literal_separator(false)
            .backslash_escape(true)
            .build();
        built
            .map(|glob| Self::Glob(glob.compile_matcher()))
            .map_err(|error| {
                Error::usage(format!(
                    "`{text}` in `{key}` of the wait `{wait}` is no glob"
                ))
                .because(error)
            })
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Glob(glob) => glob.is_match(name),
        }
    }
}

fn unknown_syscall(wait: &str, name: &str) -> Error {
    let nearest = syscalls::names()
        .map(|known| (strsim::damerau_levenshtein(known, name), known))
        .min();
    let error = Error::usage(format!(
        "the wait `{wait}` names the system call `{name}`, which is not one of those that can block"
    ));
    match nearest {
        Some((distance, known)) if distance <= 3 => error.next(format!(
            "did you mean `{known}`? A number (x86-64) is taken as well"
        )),
        _ => error.next("give its number on x86-64 instead"),
    }
}
