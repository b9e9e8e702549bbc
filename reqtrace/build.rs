//! Builds the kernel programs and puts their object where `reqtrace::attach` includes it. Without the
//! feature `capture` nothing includes it, and nothing is built.

#[cfg(not(feature = "capture"))]
fn main() {}

#[cfg(feature = "capture")]
fn main() -> anyhow::Result<()> {
    kernel_programs::build()
}

#[cfg(feature = "capture")]
#[path = "build/kernel_programs.rs"]
mod kernel_programs;
