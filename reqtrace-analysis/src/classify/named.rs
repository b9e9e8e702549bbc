//! Named waits: a profile's `[[wait]]` in, a matcher over blocks out.

use globset::{GlobBuilder, GlobMatcher};

use super::{Block, syscalls};
use crate::error::{Error, Result};
use crate::profile::{CALLS, Combine, WaitSpec};
use crate::symbolize::names::{plain, without_signature, without_suffix};
use crate::text::glob_matches;
use reqtrace_base::text::check_glob;

/// The matchers of one `[[wait]]`.
#[derive(Debug)]
pub struct NamedWait {
    functions: Vec<Vec<Pattern>>,
    files: Vec<Pattern>,
    kernel_functions: Vec<Pattern>,
    syscalls: Vec<i32>,
    combine: Combine,
}

impl NamedWait {
    /// Makes the matchers.
    ///
    /// # Errors
    ///
    /// [`crate::error::Kind::Usage`] for a malformed glob or an unknown system call.
    pub fn new(spec: &WaitSpec) -> Result<Self> {
        let names = |globs: &[String]| globs.iter().map(|glob| Pattern::name(glob)).collect();
        let files = spec
            .files
            .iter()
            .map(|glob| Pattern::file(&spec.name, glob));
        let numbers = spec
            .syscalls
            .iter()
            .map(|name| syscalls::number(name).ok_or_else(|| unknown_syscall(&spec.name, name)));
        let calls = |chain: &String| chain.split(CALLS).map(Pattern::name).collect();
        Ok(Self {
            functions: spec.functions.iter().map(calls).collect(),
            files: files.collect::<Result<_>>()?,
            kernel_functions: names(&spec.kernel_functions),
            syscalls: numbers.collect::<Result<_>>()?,
            combine: spec.combine,
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
        let kinds = [
            (!self.syscalls.is_empty()).then(|| self.syscalls.contains(&block.syscall)),
            (!self.files.is_empty()).then(|| self.is_file(block)),
            (!self.kernel_functions.is_empty()).then(|| self.is_kernel(block)),
            (!self.functions.is_empty()).then(|| self.is_user(block)),
        ];
        let mut asked = kinds.into_iter().flatten();
        match self.combine {
            Combine::Any => asked.any(|matched| matched),
            Combine::All => asked.all(|matched| matched),
        }
    }

    fn is_file(&self, block: &Block<'_>) -> bool {
        block
            .file
            .is_some_and(|file| self.files.iter().any(|pattern| pattern.matches(file)))
    }

    fn is_kernel(&self, block: &Block<'_>) -> bool {
        let mut named = block.kernel.iter().filter(|frame| frame.is_named());
        named.any(|frame| {
            let name = without_suffix(&frame.name);
            self.kernel_functions.iter().any(|p| p.matches(name))
        })
    }

    fn is_user(&self, block: &Block<'_>) -> bool {
        self.functions.iter().any(|chain| {
            // From the outermost frame on, each function somewhere inside the one before it.
            let mut frames = block.user.iter().rev().filter(|frame| frame.is_named());
            chain
                .iter()
                .all(|pattern| frames.any(|frame| is_function(pattern, &frame.name)))
        })
    }
}

/// Whether a glob of a wait's `functions` matches a function's demangled name.
#[must_use]
pub fn function_matches(glob: &str, name: &str) -> bool {
    is_function(&Pattern::name(glob), name)
}

/// Whether a glob of a wait's `files` matches a path. A malformed glob matches nothing; profiles
/// with such are refused when they are read.
#[must_use]
pub fn file_matches(glob: &str, path: &str) -> bool {
    Pattern::file("", glob).is_ok_and(|pattern| pattern.matches(path))
}

/// A pattern may be the whole demangled name, or leave out the signature, or also the template
/// arguments.
fn is_function(pattern: &Pattern, name: &str) -> bool {
    pattern.matches(name)
        || pattern.matches(without_signature(name))
        || pattern.matches(&plain(name))
}

/// A glob over names, or one over paths.
#[derive(Debug)]
enum Pattern {
    /// Only `*` and `?` are special: C++ names are full of brackets.
    Name(String),
    Path(GlobMatcher),
}

impl Pattern {
    fn name(text: &str) -> Self {
        Self::Name(text.trim().to_owned())
    }

    fn file(wait: &str, text: &str) -> Result<Self> {
        let built = check_glob(text).map_err(Into::into).and_then(|()| {
            let glob = GlobBuilder::new(text).literal_separator(false).build();
            glob.map_err(Box::<dyn std::error::Error + Send + Sync>::from)
        });
        built
            .map(|glob| Self::Path(glob.compile_matcher()))
            .map_err(|error| {
                Error::usage(format!(
                    "`{text}` in `files` of the wait `{wait}` is no glob"
                ))
                .because(error)
            })
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Name(pattern) => glob_matches(pattern, name),
            Self::Path(glob) => glob.is_match(name),
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
