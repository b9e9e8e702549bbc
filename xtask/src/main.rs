//! Set-up, demo, tests, VM tier and benchmarks of reqtrace.
fn main() {}
