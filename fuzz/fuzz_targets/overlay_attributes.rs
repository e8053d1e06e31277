//! Extended attributes of shadow objects, which a command may have set.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| txos_store::fuzzing::overlay_attributes(bytes));
