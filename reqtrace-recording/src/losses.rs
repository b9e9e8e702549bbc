//! Names of what the tracer itself can lose, in [`crate::Event::Loss`]. Those of the kernel programs are
//! [`reqtrace_common::loss::Loss::name`].

/// Records that could not be decoded.
pub const MALFORMED: &str = "malformed";
/// Addresses that were not named because the report had to come.
pub const NAMES_LATE: &str = "names_late";
/// Perf maps that were not read to their end.
pub const PERF_MAPS_CUT: &str = "perf_maps_cut";

/// Mapped files that were not kept open.
pub const FILES_LEFT_OUT: &str = "files_left_out";
/// Files whose symbols were not all read.
pub const SYMBOLS_LEFT_OUT: &str = "symbols_left_out";
/// Files whose symbols or debug information were given up.
pub const SYMBOLS_GIVEN_UP: &str = "symbols_given_up";

/// Files whose unwind tables found no room.
pub const UNWIND_TABLES_LEFT_OUT: &str = "unwind_tables_left_out";

/// Processes that should have had probes and got none.
pub const PROCESSES_UNPROBED: &str = "processes_unprobed";
