//! Named waits: a profile's `[[wait]]` in, a matcher over blocks out.

use super::{Block, syscalls};
use crate::error::{Error, Result};
use crate::profile::matching::Pattern;
use crate::profile::{CALLS, Combine, WaitSpec};
use crate::symbolize::names::without_suffix;

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
                .all(|pattern| frames.any(|frame| pattern.matches_function(&frame.name)))
        })
    }
}

fn unknown_syscall(wait: &str, name: &str) -> Error {
    let nearest = syscalls::names()
        .map(|known| (strsim::damerau_levenshtein(known, name), known))
        .min();
    let error = Error::usage(format!(
        "the wait `{wait}` names the system call `{name}`, which x86-64 does not have"
    ));
    match nearest {
        Some((distance, known)) if distance <= 3 => error.next(format!(
            "did you mean `{known}`? A number (x86-64) is taken as well"
        )),
        _ => error.next("give its number on x86-64 instead"),
    }
}
