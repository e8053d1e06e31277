//! Journals of version 1.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| txos_store::fuzzing::first_journal(bytes));
