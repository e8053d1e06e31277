//! Names in reports.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| txos_store::fuzzing::shown_names(bytes));
