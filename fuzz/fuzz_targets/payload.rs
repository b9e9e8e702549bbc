#![no_main]
#![allow(
    missing_docs,
    reason = "a program without a main function has no place for them"
)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reqtrace_fuzz::guided("payload", bytes));
