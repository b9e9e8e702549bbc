//! Messages for `-v`: the program's own, those of the kernel programs, and panics that end nothing, on
//! standard error.

use log::LevelFilter;

/// Starts the log. `RUST_LOG` overrides.
pub(super) fn start(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    };
    // A second start (in tests) changes nothing.
    let _ = env_logger::Builder::new()
        .filter_level(LevelFilter::Warn)
        .filter_module("reqtrace", level)
        .parse_default_env()
        .format(|out, record| {
            use std::io::Write as _;
            writeln!(out, "reqtrace: {}", record.args())
        })
        .try_init();
    reqtrace_binary::log_contained_panics();
}
