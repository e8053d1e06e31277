//! Worksets, behind a checksum that fits.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    use txos_core::Workset;
    let mut file = b"txosws\0\x02".to_vec();
    file.extend((bytes.len() as u64).to_le_bytes());
    file.extend_from_slice(bytes);
    file.extend(xxhash_rust::xxh3::xxh3_64(bytes).to_le_bytes());
    if let Ok(workset) = Workset::decode(&file) {
        assert!(Workset::decode(&workset.encode()).is_ok());
    }
});
