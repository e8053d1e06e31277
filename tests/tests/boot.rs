//! The unit that recovers at boot: `make install` puts it in place, systemd takes it, and what it
//! executes finishes what a death left.

use std::path::{Path, PathBuf};
use std::process::Command;

use txos_tests::exec;
use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::space::Space;
use txos_tests::txos::{Txos, binary};

/// Installs the binary under test below `prefix`, and gives the unit's path.
fn install(prefix: &Path) -> Option<PathBuf> {
    let library = binary().with_file_name("libtxos.so");
    if !library.is_file() {
        return None;
    }
    let mut make = Command::new("make");
    make.args([
        "--no-print-directory",
        "-C",
        concat!(env!("CARGO_MANIFEST_DIR"), "/.."),
        "install",
    ]);
    make.arg(format!("PREFIX={}", prefix.display()));
    make.arg(format!("TXOS={}", binary().display()));
    make.arg(format!("LIBTXOS={}", library.display()));
    make.arg("DESTDIR=").env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    exec::run(make).expect(0);
    Some(prefix.join("lib/systemd/system/txos-recover.service"))
}

/// The words after `ExecStart=`.
fn executed(unit: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(unit).expect("the unit");
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart="));
    line.expect("ExecStart").split(' ').map(str::to_owned).collect()
}

#[test]
fn what_the_unit_executes_finishes_what_a_death_left() {
    txos_tests::needs_root!();
    if exec::find("make").is_none() || exec::find("strace").is_none() {
        skip!("no make or no strace here");
    }
    let scratch = Scratch::new();
    let Some(unit) = install(&scratch.base().join("prefix")) else {
        skip!("libtxos was not built beside txos");
    };
    let words = executed(&unit);
    assert_eq!(words[0], scratch.base().join("prefix/bin/txos").display().to_string());
    if exec::find("systemd-analyze").is_some() {
        let mut verify = Command::new("systemd-analyze");
        // Of manual pages that are not in the manual's own path it would complain, too.
        let out = exec::run({
            verify.args(["verify", "--man=no"]).arg(&unit);
            verify
        });
        out.expect(0);
        assert!(!out.stderr.contains("txos-recover"), "{out}");
    }
    // A /var/lib of its own: where the unit's state directory is.
    let space = match Space::new(&scratch, "mount -t tmpfs -o mode=755 none /var/lib") {
        Ok(space) => space,
        Err(why) => skip!("no mount namespace: {why}"),
    };
    let f = scratch.inside().join("f");
    std::fs::write(&f, "old\n").expect("a file");
    let inside = space.prefix(&scratch.inside());
    let run = |outer: &[&str], args: &[&str]| {
        let mut prefix = inside.clone();
        prefix.extend(outer.iter().map(Into::into));
        let txos = Txos::new(&scratch).outer(prefix);
        let mut command = txos.command(Path::new(&words[0]), args);
        command.env_remove("TXOS_STATE");
        exec::run(command)
    };
    run(&[], &["run", "--", "true"]).expect(0);
    // Killed when it is about to flush the commit record, which is written by then.
    let trace = scratch.base().join("trace").display().to_string();
    let kill = ["strace", "-o", &trace, "-e", "trace=fdatasync", "-e"];
    let kill = [&kill[..], &["inject=fdatasync:signal=KILL:when=1", "--"]].concat();
    let out = run(&kill, &["run", "--", "sh", "-c", "echo new >f; mkdir d; echo x >d/n"]);
    assert_eq!(out.code(), 137, "{out}");
    assert_eq!(std::fs::read_to_string(&f).expect("f"), "old\n");
    assert!(!scratch.inside().join("d").exists());
    let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let out = run(&[], &arguments);
    out.expect(0);
    assert_eq!(std::fs::read_to_string(&f).expect("f"), "new\n", "{out}");
    assert_eq!(std::fs::read_to_string(scratch.inside().join("d/n")).expect("d/n"), "x\n");
    let left = std::fs::read_dir(space.outside(Path::new("/var/lib/txos/tx"))).expect("tx").count();
    assert_eq!(left, 0, "{out}");
    run(&[], &arguments).expect(0);
}
