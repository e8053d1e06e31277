//! C programs of `tests/c`, compiled against the header and linked with the library that was built along
//! with this package.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::exec::{self, Outcome};
use crate::scratch::Scratch;
use crate::txos::{Txos, binary};

/// Whoever calls the tests may have files open, which a program could not carry, or threads of it would share.
const CLOSE: &str = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-";

/// One compilation at a time: the outputs of the same program would meet.
static COMPILING: Mutex<()> = Mutex::new(());

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// The directory with the libraries: cargo puts them beside the test.
fn libraries() -> PathBuf {
    let me = std::env::current_exe().expect("the path of this test");
    me.parent().expect("a directory").to_owned()
}

/// Compiles `tests/c/NAME.c` and gives the program; it is linked with the static library where `fixed`.
///
/// # Panics
/// If it doesn't compile.
pub fn compiled(scratch: &Scratch, name: &str, fixed: bool) -> PathBuf {
    let _one = COMPILING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let program = scratch.base().join(format!("{name}{}", if fixed { ".static" } else { "" }));
    let libraries = libraries();
    let mut command = Command::new("cc");
    command
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"])
        .arg("-I")
        .arg(root().join("crates/libtxos/include"))
        .arg("-o")
        .arg(&program)
        .arg(root().join(format!("tests/c/{name}.c")));
    if fixed {
        command.arg(libraries.join("libtxos.a"));
    } else {
        command.arg("-L").arg(&libraries).arg("-ltxos");
        command.arg(format!("-Wl,-rpath,{}", libraries.display()));
    }
    let out = command.args(["-ldl", "-lm"]).output().expect("a C compiler (cc)");
    let complaint = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{name}.c does not compile:\n{complaint}");
    program
}

/// Runs a compiled program to its end, as root, in the scratch's tree `inside`.
#[track_caller]
pub fn run(
    scratch: &Scratch,
    program: &Path,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Outcome {
    let txos = Txos::new(scratch).env("TXOS_PROGRAM", binary());
    let close = format!("{CLOSE}; exec \"$0\" \"$@\"");
    let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
    let words = ["-c".into(), close.into(), program.as_os_str().to_owned()];
    let command = txos.command(Path::new("sh"), words.into_iter().chain(args));
    crate::exec::Running::start(command, None).end(exec::LIMIT)
}

/// Compiles `tests/c/NAME.c` and calls it with each of its cases (the lines that it prints when it is
/// called with `list`), in a scratch directory of its own; each has to end with status 0 and to leave
/// nothing.
///
/// # Panics
/// If one fails.
#[track_caller]
pub fn cases(name: &str) {
    if crate::txos::native_only() {
        crate::skip!("nothing to compare natively");
    }
    if let Some(why) = crate::who::Who::Root.impossible() {
        crate::skip!("{why} (an ordinary user needs a session of txos exec)");
    }
    let scratch = Scratch::new();
    let program = compiled(&scratch, name, false);
    let list = run(&scratch, &program, ["list"]);
    list.expect(0);
    assert!(!list.stdout.is_empty(), "{name} has no cases");
    let mut failed = Vec::new();
    for case in list.stdout.lines() {
        let place = Scratch::new();
        let outcome = run(&place, &program, [case]);
        for line in outcome.stdout.lines().filter(|line| line.starts_with("Skip: ")) {
            println!("{line} ({case})");
        }
        if outcome.code() != 0 {
            failed.push(format!("{name} {case}: {outcome}"));
        }
        let left = place.leftovers();
        if !left.is_empty() {
            failed.push(format!("{name} {case} leaves {left:?}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Calls `tests/c/NAME.c` with some of its cases as an ordinary user, under `txos exec`.
///
/// # Panics
/// If one fails.
#[track_caller]
pub fn cases_of_a_user(name: &str, cases: &[&str]) {
    if crate::txos::native_only() {
        crate::skip!("nothing to compare natively");
    }
    crate::txos::for_one(crate::who::Who::User, |scratch, txos| {
        let program = compiled(scratch, name, true);
        for case in cases {
            let script = format!("{CLOSE}; mkdir $1 && cd $1 && exec \"$0\" $1");
            let words = ["exec", "--", "sh", "-c", &script].map(OsStr::new);
            let words = words.into_iter().chain([program.as_os_str(), OsStr::new(case)]);
            let txos = Txos::by(scratch, crate::who::Who::User).env("TXOS_PROGRAM", txos.program());
            txos.call(words).expect(0);
        }
    });
}
