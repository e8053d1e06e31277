//! Plans as the journal holds them, without the checksum that keeps damage out.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| txos_store::fuzzing::plans(bytes));
