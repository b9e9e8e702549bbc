//! The agent: a configuration in; for each service that its rules name, a session that traces it as long as the agent
//! runs, and its figures at `/metrics`, out.
//!
//! ```text
//! config ──► rules ──► service ──► session (a thread each) ──► metrics ──► listen
//!              ▲                       ▲   ├──► rows (a thread)           (a thread)
//!              │                       │   └──► otlp (a thread)
//!          processes (/proc)       the kernel
//! ```
//!
//! `ship` is another process, without privileges: files of rows in, what an engine has accepted out.

mod agent;
mod check;
mod choice;
mod config;
mod ids;
mod listen;
mod metrics;
mod open_windows;
mod otlp;
mod processes;
mod rows;
mod rules;
mod service;
mod session;
#[cfg(feature = "ship")]
mod ship;

pub use agent::{check, run};
pub use config::{Agent, Config, GroupBy, Match, Otlp, Profiles, Rows, Rule, Share, Traced};
#[cfg(feature = "ship")]
pub use ship::{ShipMode, ship};
