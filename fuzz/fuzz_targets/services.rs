//! Requests to the service manager that members of a transaction have recorded.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| txos_effects::services::fuzz(bytes));
