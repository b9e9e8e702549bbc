//! An example service to trace.
fn main() {}
