//! What is known of a transaction (meta.json).
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| txos_store::fuzzing::meta(bytes));
