//! Arguments of system calls that the filter asks about, and the memory that they point to.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    txos_effects::supervisor::fuzzing::call_arguments(bytes);
});
