//! Whether a pattern of a wait fits: a glob of a profile and a name or a path in, yes or no out.

use globset::{GlobBuilder, GlobMatcher};

use reqtrace_base::error::{Error, Result};
use reqtrace_base::names::{plain, without_signature};
use reqtrace_base::text::{check_glob, glob_matches};

/// Whether a glob of a wait's `functions` matches a function's demangled name.
#[must_use]
pub fn function_matches(glob: &str, name: &str) -> bool {
    Pattern::name(glob).matches_function(name)
}

/// Whether a glob of a wait's `files` matches a path. A malformed glob matches nothing; profiles
/// with such are refused when they are read.
#[must_use]
pub fn file_matches(glob: &str, path: &str) -> bool {
    Pattern::file("", glob).is_ok_and(|pattern| pattern.matches(path))
}

/// A glob over names, or one over paths.
#[derive(Debug)]
pub struct Pattern(Kind);

#[derive(Debug)]
enum Kind {
    /// Only `*` and `?` are special: C++ names are full of brackets.
    Name(String),
    Path(GlobMatcher),
}

impl Pattern {
    /// A glob over names of functions.
    #[must_use]
    pub fn name(text: &str) -> Self {
        Self(Kind::Name(text.trim().to_owned()))
    }

    /// A glob over paths.
    ///
    /// # Errors
    ///
    /// A usage error with the name of the wait, for a malformed glob.
    pub fn file(wait: &str, text: &str) -> Result<Self> {
        let built = check_glob(text).map_err(Into::into).and_then(|()| {
            let glob = GlobBuilder::new(text).literal_separator(false).build();
            glob.map_err(Box::<dyn std::error::Error + Send + Sync>::from)
        });
        built
            .map(|glob| Self(Kind::Path(glob.compile_matcher())))
            .map_err(|error| {
                Error::usage(format!(
                    "`{text}` in `files` of the wait `{wait}` is no glob"
                ))
                .because(error)
            })
    }

    /// Whether it fits a name or a path.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match &self.0 {
            Kind::Name(pattern) => glob_matches(pattern, name),
            Kind::Path(glob) => glob.is_match(name),
        }
    }

    /// Whether it fits a function: it may be the whole demangled name, or leave out the signature, or also
    /// the template arguments.
    #[must_use]
    pub fn matches_function(&self, name: &str) -> bool {
        self.matches(name) || self.matches(without_signature(name)) || self.matches(&plain(name))
    }
}
