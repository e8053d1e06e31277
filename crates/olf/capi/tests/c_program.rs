//! A C program, compiled against `include/olf.h` and linked with the static library, runs.

#![allow(clippy::unwrap_used)] // A test; its helpers too.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that cargo built together with this test.
fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let dir = exe.parent().unwrap();
    dir.join("libolf_c.a")
}

#[test]
fn c_program_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join("lists");
    let compiled = Command::new("cc")
        .args([
            "-std=c11",
            "-D_POSIX_C_SOURCE=200809L",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            "-pthread",
        ])
        .arg("-I")
        .arg(root.join("include"))
        .arg("-o")
        .arg(&program)
        .arg(root.join("tests/lists.c"))
        .arg(library())
        .args(["-ldl", "-lm"])
        .output();
    let Ok(compiled) = compiled else {
        eprintln!("Skip: there is no C compiler (cc)");
        return;
    };
    let complaint = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "the program does not compile:\n{complaint}");
    let ran = Command::new(&program).output().unwrap();
    let complaint = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "the program failed:\n{complaint}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "ok\n");
}
