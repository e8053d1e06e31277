//! Records of the journal, and the plans in them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| txos_store::fuzzing::records(bytes));
