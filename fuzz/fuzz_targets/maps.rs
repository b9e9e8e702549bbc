#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reqtrace_fuzz::guided("maps", bytes));
