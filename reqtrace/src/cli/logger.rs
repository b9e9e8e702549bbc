//! Messages for `-v`: the program's own, those of the kernel programs, and panics that end nothing, on
//! standard error.

use log::{Level, LevelFilter};

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
        // Cleaned; held back while the live view has the screen, but for what would push warnings out.
        .format(|_, record| {
            if record.level() <= Level::Info || !reqtrace_base::say::is_held() {
                reqtrace_base::say!("reqtrace: {}", record.args());
            }
            Ok(())
        })
        .try_init();
    reqtrace_binary::log_contained_panics();
}
