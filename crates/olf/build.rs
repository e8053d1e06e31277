//! Declares the two configurations under which the atomics come from a model checker.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(loom)");
    println!("cargo::rustc-check-cfg=cfg(shuttle)");
    println!("cargo::rerun-if-changed=build.rs");
}
