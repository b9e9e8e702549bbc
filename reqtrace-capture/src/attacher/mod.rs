//! Tracing by two processes: a small one that may attach, and one that parses what belongs to the traced processes, and may
//! nothing.
//!
//! ```text
//! tracing process (no privileges)                      attacher (privileges; `serve`)
//!   resolves, unwinds, names, counts                     opens what of a process only it may
//!   asks ([`Attacher`]) ─── socket: [`message`] ──►      loads its own kernel programs, sets probes, takes samples
//!        ◄────────────── tables, files, as descriptors
//! ```
//!
//! Of a traced process's files the attacher reads the instruction at a probe, and the notes of USDT probes if one is to be
//! switched on. It opens only what of a process its [`Owner`] lets it, and sets probes only in files that it has handed over: for
//! all that run it in a program, else for processes of its owner's. All that is attached is its own, so that it is gone when
//! either process ends: the one sees the other's socket close.

mod by_another;
mod client;
mod handed;
mod message;
mod probeable;
mod semaphores;
mod serve;
#[cfg(test)]
mod tests;

pub use by_another::attach_by;
pub use client::Attacher;
pub use serve::{Owner, serve};
