//! Messages: words in, a line on standard error out, if somebody reads it.

/// Prints a line on standard error. `eprintln!` panics when nobody can read it any more: the terminal is
/// gone, or the program behind a pipe has left. Names in it are those of others, and are cleaned.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let text = format!($($words)*);
        let _ = writeln!(std::io::stderr(), "{}", $crate::plain::Plain::lines(&text));
    }};
}
