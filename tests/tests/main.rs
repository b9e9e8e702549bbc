//! The end-to-end tests: real services, traced on the running kernel, checked against what they and their load
//! generators count themselves. One program, so that it is linked once and each fixture is compiled once.
//!
//! Needs root, a kernel with BPF, and the servers that `cargo xtask setup --for test` installs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attach;
mod bakery;
mod before;
mod beginning;
mod blame;
mod blame_servers;
mod blocks;
mod browser;
mod changes;
mod check;
mod cookbook;
mod do_command;
mod doctor;
mod end_sites;
mod endings;
mod errors;
mod eventloop;
mod exports;
mod faults;
mod files;
mod functions;
mod gate;
mod generated;
mod golden;
mod guard;
mod handed;
mod haproxy;
mod holders;
mod hostile;
mod idle;
mod incomplete;
mod labels;
mod live;
mod many_stacks;
mod mariadb;
mod mariadb_pool;
mod names;
mod nginx;
mod nginx_whole;
mod on_cpu;
mod outputs;
mod overflow;
mod page;
mod page_large;
mod places;
mod postgresql_waits;
mod processes;
mod proposal;
mod recording;
mod redis_blocked;
mod rotation;
mod sampling;
mod screen;
mod servers;
mod shop;
mod signals;
mod slo;
mod slow;
mod soak;
mod squid;
mod stacks;
mod statements;
mod surroundings;
mod survives;
mod terminal;
mod tracer;
mod truth;
mod usdt;
mod waits;
mod warnings;
mod web;
