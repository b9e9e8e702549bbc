//! Named waits of a profile: globs in, the kinds of matchers and how they are put together out.

/// What stands between two functions of a chain in [`WaitSpec::functions`]: the second was called
/// by the first, directly or not. It occurs in no demangled name.
pub const CALLS: &str = " => ";

/// How the kinds of matchers of a wait are put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Combine {
    /// One kind that matches is enough.
    #[default]
    Any,
    /// Every kind that is given must match.
    All,
}

/// One `[[wait]]`. Within a kind of matchers any is enough. Several may have one name: then they
/// are several ways to be that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitSpec {
    /// Its name; the CSV column is this with spaces as `_` and `_ns` appended.
    pub name: String,
    /// How the four kinds below are put together.
    pub combine: Combine,
    /// Globs over demangled names of user functions on the stack, or chains of them with
    /// [`CALLS`]; see [`reqtrace_base::text::glob_matches`].
    pub functions: Vec<String>,
    /// Globs over the path behind the descriptor of the blocking system call. Valid for the
    /// globset crate, in which `*` also matches a slash.
    pub files: Vec<String>,
    /// Globs over names of kernel functions on the stack; see [`reqtrace_base::text::glob_matches`].
    pub kernel_functions: Vec<String>,
    /// Names of system calls.
    pub syscalls: Vec<String>,
}
