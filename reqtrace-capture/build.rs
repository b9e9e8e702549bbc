//! Builds the kernel programs and puts their object where `reqtrace_capture::attach` includes it.

#[path = "build/kernel_programs.rs"]
mod kernel_programs;

fn main() -> anyhow::Result<()> {
    kernel_programs::build()
}
