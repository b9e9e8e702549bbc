//! What is measured for the manual and, in a small form, tested too: a simulated fleet.

pub mod fleet;
