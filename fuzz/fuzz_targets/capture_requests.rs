//! Requests to the capture server, one after the other.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| txos_capture::fuzzing::requests(bytes));
