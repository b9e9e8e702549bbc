//! How the kernel programs are linked.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "bpf") {
        // Else the linker keeps the loads and stores of each copy together, as the JIT of a network card wants them, and leaves all
        // setting of memory to a function that sets byte by byte.
        println!("cargo:rustc-link-arg=--disable-expand-memcpy-in-order");
    }
}
