//! The program: parses, runs, prints the error chain, sets the exit code.
fn main() {}
