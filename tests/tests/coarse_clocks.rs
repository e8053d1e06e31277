//! File systems whose times are too coarse to prove anything: there the bytes have to.
#![allow(clippy::unwrap_used)] // Reason: these are tests.

use std::fs;

use txos_tests::exec::LIMIT;
use txos_tests::gate::Gate;
use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::space::Space;
use txos_tests::txos::Txos;

/// Mounts what `make` makes of a file `image`, lets an outsider change things just after they were
/// read, all within one tick of the clock, and requires that each change is found.
fn changes_within_a_tick_are_found(make: &str, tool: &str) {
    txos_tests::needs_root!();
    if txos_tests::exec::find(tool).is_none() {
        skip!("no {tool}");
    }
    let changes = [
        ("content of the same size", "printf b >f"),
        ("content written in place", "printf b | dd of=f conv=notrunc status=none"),
        ("a replacement", "printf b >g; mv g f"),
        ("permissions of a directory", "chmod 700 d"),
        ("a name that was absent", "printf b >absent"),
        ("a listing", "printf b >d/new"),
    ];
    for (what, change) in changes {
        let scratch = Scratch::new();
        let setup = format!(
            "truncate -s 16M image; {make}; mount -o loop image inside; cd inside\n\
             printf a >f; mkdir d; printf a >d/old"
        );
        let space = match Space::new(&scratch, &setup) {
            Ok(space) => space,
            Err(why) => skip!("the file system can't be made or mounted: {why}"),
        };
        let tree = space.outside(&scratch.inside());
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        // The change is made right behind the reading, in the same second.
        let script = format!(
            "{}cat f; cat absent 2>/dev/null; ls d; reach read; await changed; echo x >mine",
            gate.functions()
        );
        let txos = Txos::new(&scratch).outer(space.prefix(&scratch.inside()));
        for early in [&["--no-early-doom"][..], &[]] {
            let mut options = vec!["--live", live.as_str(), "--no-retry"];
            options.extend(early);
            let reset = "rm -f absent mine d/new g; chmod 755 d; printf a >f";
            let sh = |script: &str| {
                let status = std::process::Command::new("sh")
                    .args(["-ec", script])
                    .current_dir(&tree)
                    .status()
                    .unwrap();
                assert!(status.success());
            };
            sh(reset);
            for mark in ["read", "changed"] {
                let _ = fs::remove_file(gate.mark(mark));
            }
            let running = txos.start_sh(&options, &script);
            gate.wait("read");
            sh(change);
            gate.open("changed");
            let ended = running.end(LIMIT);
            assert_eq!(ended.code(), 75, "{what}, {early:?}: {ended}");
            assert!(!tree.join("mine").exists(), "{what}");
        }
        // Nothing changed: nothing is made up.
        fs::remove_file(gate.mark("read")).unwrap();
        txos.sh(&["--live", &live, "--no-retry"], &script).expect(0);
        drop(space);
        assert_eq!(scratch.leftovers(), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn ext2_with_times_of_seconds() {
    changes_within_a_tick_are_found("mkfs.ext2 -q -I 128 image", "mkfs.ext2");
}

#[test]
fn ext3_with_times_of_seconds() {
    changes_within_a_tick_are_found("mkfs.ext3 -q -I 128 image", "mkfs.ext3");
}

#[test]
fn vfat_with_times_of_two_seconds() {
    changes_within_a_tick_are_found("mkfs.vfat image", "mkfs.vfat");
}
