//! The harness of the end-to-end tests: real services started, traced, and held against what they
//! say about themselves.
//!
//! In: the `reqtrace` program, the example shop, servers with their load generators, and small C++ programs.
//! Out: what a trace wrote, and checks of it: [`brackets`] and [`ledger`] hold for every request,
//! never only on average.
//!
//! Nothing in here skips: what is missing on the machine is an error that names the command to
//! run. All waiting is bounded, and every program started is stopped by its own number.

pub mod apache;
pub mod blamed;
pub mod brackets;
pub mod chains;
pub mod collector;
pub mod corpus;
pub mod covered;
pub mod engine;
pub mod faults;
pub mod fixtures;
pub mod go;
pub mod goroutine_checks;
pub mod goroutines;
pub mod held;
pub mod held_up;
pub mod http;
pub mod hyper;
pub mod jobs;
pub mod ledger;
pub mod limited;
pub mod load;
pub mod mariadb;
pub mod nginx;
pub mod noise;
pub mod perfetto;
pub mod php_fpm;
pub mod pprof;
pub mod prepared;
pub mod probed;
pub mod process;
pub mod profiles;
pub mod programs;
pub mod prometheus;
pub mod protobuf;
pub mod redis;
pub mod reqtrace;
pub mod rows;
pub mod scraped;
pub mod servers;
pub mod shop;
pub mod slow_link;
pub mod summary;
pub mod sysbench;
pub mod task_checks;
pub mod tasks;
pub mod truth;
pub mod unkind;
pub mod workspace;
pub mod xml;
