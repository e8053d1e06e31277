//! `txos.h` says what the source says. `TXOS_WRITE_HEADER=1 cargo test -p libtxos --test header` renews it.

use std::path::Path;

#[test]
fn header_is_the_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/flags.rs"))
        .with_src(root.join("src/api.rs"))
        .with_src(root.join("src/files/mod.rs"))
        .generate()
        .expect("bindings");
    let mut fresh = Vec::new();
    bindings.write(&mut fresh);
    let fresh = String::from_utf8(fresh).expect("text");
    let path = root.join("include/txos.h");
    if std::env::var_os("TXOS_WRITE_HEADER").is_some() {
        std::fs::write(&path, &fresh).expect("include/txos.h");
    }
    let stored = std::fs::read_to_string(&path).expect("include/txos.h");
    assert_eq!(stored, fresh, "include/txos.h is out of date; renew it with TXOS_WRITE_HEADER=1");
}

#[test]
fn header_compiles_by_itself() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for language in ["c", "c++"] {
        let compiled = std::process::Command::new("cc")
            .args(["-x", language, "-Wall", "-fsyntax-only"])
            .arg(root.join("include/txos.h"))
            .output()
            .expect("a C compiler (cc)");
        let complaint = String::from_utf8_lossy(&compiled.stderr);
        if language == "c++" && complaint.contains("cc1plus") {
            println!("Skip: the C compiler knows no C++");
            continue;
        }
        assert!(compiled.status.success(), "{language}:\n{complaint}");
    }
}
