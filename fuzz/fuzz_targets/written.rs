//! What a transaction tells the contention manager that it writes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    use txos_core::contention::Written;
    if let Ok(written) = Written::decode(bytes) {
        assert_eq!(Written::decode(&written.encode()).ok(), Some(written));
    }
});
