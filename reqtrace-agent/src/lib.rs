//! The agent: a configuration in; for each service that its rules name, a session that traces it as long as the agent
//! runs, and its figures at `/metrics`, out.
//!
//! ```text
//! config ──► rules ──► service ──► session (a thread each) ──► sink ──► metrics ──► listen (a thread)
//!              ▲                       ▲                         ├──► rows, rollups ──► records (a thread each)
//!              │                       │                         ├──► otlp (a thread)
//!          processes (/proc)       the kernel                     └──► profiles (two threads)
//! ```
//!
//! `listen`, and the writers and senders behind `records`, `otlp` and `profiles`, run in a `worker`: a process without privileges, which the one
//! that traces starts.
//!
//! What a session's model becomes is a `sink`'s matter; `simulated` feeds one without a kernel, for fleets of machines that
//! are not there.
//!
//! `ship` is another process, without privileges: files of rows in, what an engine has accepted out.

mod agent;
mod attaching;
mod check;
mod choice;
mod config;
mod http;
mod ids;
mod listen;
mod memory;
mod metrics;
mod moment;
mod obstacles;
mod open_windows;
mod otlp;
mod processes;
mod profiles;
mod records;
mod rights;
mod rollups;
mod rows;
mod rules;
mod service;
mod session;
#[cfg(feature = "ship")]
mod ship;
#[cfg(feature = "simulated")]
pub mod simulated;
mod sink;
mod spool;
mod systemd;
mod user;
mod worker;

pub use agent::{Arguments, check, run};
pub use attaching::attacher;
pub use config::{
    Agent, Config, Folder, GroupBy, Match, OffCpu, Otlp, Profiles, Rollups, Rows, Rule, Share,
    Traced,
};
#[cfg(feature = "ship")]
pub use ship::{ShipMode, ship};
pub use user::WORKER_USER;
pub use worker::run as worker;
