//! Messages: words in, a line on standard error out, if somebody reads it.

/// Prints a line on standard error. `eprintln!` panics when nobody can read it any more: the terminal is
/// gone, or the program behind a pipe has left.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}
