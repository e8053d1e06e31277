//! Records of transactions that wait for a decision, without their checksum.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| txos_store::fuzzing::prepared(bytes));
