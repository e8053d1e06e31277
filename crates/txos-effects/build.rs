//! The build fails when the kernel headers of this machine know a system call that the table does not:
//! nobody has said then what becomes of it in a transaction.
//!
//! (A call that is newer than the table is absent inside a transaction, so an old table is safe, but not
//! complete. Who cannot wait for a new table sets `TXOS_NEWER_HEADERS=1`.)
#![allow(clippy::unwrap_used, reason = "a build script ends by panicking")]

use std::env;
use std::fs;

#[path = "src/filter/numbers.rs"]
#[allow(dead_code, reason = "the same file as in the crate")]
mod numbers;

/// Where machines keep their headers, and the column of the table that their numbers are of.
const HEADERS: [(&str, usize); 3] = [
    ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", 0),
    ("/usr/include/aarch64-linux-gnu/asm/unistd_64.h", 1),
    ("/usr/aarch64-linux-gnu/include/asm/unistd_64.h", 1),
];

fn main() {
    println!("cargo::rerun-if-changed=src/filter/numbers.rs");
    println!("cargo::rerun-if-env-changed=TXOS_NEWER_HEADERS");
    println!("cargo::rerun-if-env-changed=TXOS_KERNEL_HEADER");
    // For the test of this script: one more header, of the first column.
    let given = env::var("TXOS_KERNEL_HEADER").ok();
    let headers = HEADERS.into_iter().map(|(path, column)| (path.to_owned(), column));
    for (path, column) in headers.chain(given.map(|path| (path, 0))) {
        let Ok(header) = fs::read_to_string(&path) else { continue };
        println!("cargo::rerun-if-changed={path}");
        let unknown: Vec<&str> = header.lines().filter_map(|line| unknown(line, column)).collect();
        if unknown.is_empty() {
            continue;
        }
        let said = format!(
            "{path} knows system calls that txos has no row for: {}; give them numbers in \
             src/filter/numbers.rs and rows in src/table/rows, or set TXOS_NEWER_HEADERS=1 (they are \
             absent inside transactions then)",
            unknown.join(", ")
        );
        match env::var_os("TXOS_NEWER_HEADERS") {
            Some(_) => println!("cargo::warning={said}"),
            None => println!("cargo::error={said}"),
        }
    }
}

/// The name that a line defines, if the table does not have it with that number.
fn unknown(line: &str, column: usize) -> Option<&str> {
    let mut words = line.split_whitespace();
    let (Some("#define"), Some(name), Some(number)) = (words.next(), words.next(), words.next())
    else {
        return None;
    };
    let name = name.strip_prefix("__NR_")?;
    let number: u32 = number.parse().ok()?;
    let known =
        numbers::NUMBERS.iter().any(|row| row.0 == name && [row.1, row.2][column] == number);
    (!known).then_some(name)
}
