//! `olf.h` says what the source says. `OLF_WRITE_HEADER=1 cargo test -p olf-capi --test header` renews it.

use std::path::Path;

#[test]
fn header_is_the_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/lib.rs"))
        .generate()
        .unwrap();
    let mut fresh = Vec::new();
    bindings.write(&mut fresh);
    let fresh = String::from_utf8(fresh).unwrap();
    let path = root.join("include/olf.h");
    if std::env::var_os("OLF_WRITE_HEADER").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    assert_eq!(stored, fresh, "include/olf.h is out of date; renew it with OLF_WRITE_HEADER=1");
}
