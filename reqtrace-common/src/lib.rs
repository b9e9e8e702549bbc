//! What crosses the boundary between the kernel programs and user space.
//!
//! In: nothing; these are plain types. Out: the layout of every map and ring record, the attach
//! cookie, the causes of loss, and [`thread::Thread`], the state machine of one traced
//! thread. The same code runs in the kernel programs and in the tests, so it is `no_std`, never
//! panics, and every loop has a constant bound.

#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]
#![cfg_attr(not(test), no_std)]

pub mod before;
pub mod call;
pub mod clocks;
pub mod config;
pub mod cookie;
pub mod cost;
pub mod cpu;
pub mod disk;
pub mod filter;
pub mod futex;
pub mod histogram;
pub mod keyed;
pub mod label;
mod layout;
pub mod limits;
pub mod loss;
pub mod marker;
pub mod origin;
pub mod passed;
pub mod record;
pub mod recovered;
pub mod registers;
pub mod sums;
pub mod syscall;
pub mod thread;
pub mod unwind;

/// Version of everything in this crate that crosses the kernel boundary. The loader refuses an
/// object built from another version.
pub const ABI_VERSION: u32 = 14;
