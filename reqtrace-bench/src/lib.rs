//! What is measured for the manual and, in a small form, tested too: a simulated fleet, and an agent's long run.

pub mod fleet;
pub mod soak_agent;
