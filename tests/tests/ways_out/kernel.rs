//! What belongs to the whole kernel: parameters, mounts, keyrings.

use super::*;

#[test]
fn kernel_parameters() {
    as_root!();
    let victim = Victim::new();
    victim.shut(&["rewrite", "/proc/sys/vm/swappiness"]);
    victim.shut(&["rewrite", "/proc/sys/kernel/core_pattern"]);
    victim.shut_here(&["open", "/proc/sysrq-trigger"]);
    for path in ["/sys/kernel/mm/transparent_hugepage/khugepaged/defrag", "/sys/power/pm_async"] {
        if PathBuf::from(path).exists() {
            victim.shut_here(&["rewrite", path]);
        }
    }
    let makes = "mkdir /sys/fs/cgroup/*/txos-probe-$$ /sys/fs/cgroup/txos-probe-$$; exit 7";
    Txos::new(&victim.scratch).sh(&[], makes).expect(7);
    let find = "for d in /sys/fs/cgroup/*/txos-probe-* /sys/fs/cgroup/txos-probe-*; do rmdir $d && echo $d; done";
    let found = exec::run(Txos::new(&victim.scratch).command("sh".as_ref(), ["-c", find]));
    assert_eq!(found.stdout, "", "control groups were made outside");
}

#[test]
fn mounts_and_other_calls_are_refused_by_name() {
    as_root!();
    let victim = Victim::new();
    let out = victim.run(&[], &["calls"]);
    out.expect(7);
    let mut open = Vec::new();
    for line in out.stdout.lines() {
        // E97: the kernel has no such sockets at all.
        if !line.ends_with(" ENOTXSUPPORT") && !line.ends_with(" E97") {
            open.push(line.to_owned());
        }
    }
    assert_eq!(open, Vec::<String>::new(), "{out}");
    out.says(&["mount", "reboot", "--on-unsupported allow"]);
    assert_eq!(victim.probe(&[], &["uring"]), "ENOSYS");
}

#[test]
fn mounting_by_the_ordinary_programs_fails() {
    as_root!();
    let victim = Victim::new();
    let script = format!(
        "mount -t tmpfs none . && echo mounted; mount --bind '{v}' . && echo bound; \
         unshare -m mount -t tmpfs none . && echo unshared; unshare -Urm mount --bind '{v}' . && echo nested; \
         umount -l . ; umount -l /proc && echo unmounted; chroot / umount /sys && echo unmounted2; exit 7",
        v = victim.file().parent().expect("dir").display()
    );
    // Should a way be open, it is open in a mount namespace of this test alone.
    let space = match Space::new(&victim.scratch, ":") {
        Ok(space) => space,
        Err(why) => skip!("no mount namespace: {why}"),
    };
    let table = space.mounts();
    let txos = Txos::new(&victim.scratch).outer(space.prefix(&victim.scratch.inside()));
    let out = txos.sh(&[], &script);
    assert_eq!(out.expect(7).stdout, "", "{out}");
    assert_eq!(space.mounts(), table);
    victim.untouched();
}

#[test]
fn kernel_keyrings() {
    as_root!();
    let victim = Victim::new();
    let name = format!("txos-test-{}", victim.scratch.mark());
    victim.probe(&[], &["key", &name]);
    let found = probes::find_key(&name);
    probes::remove_key(&name);
    assert!(found.is_err(), "a key came out");
}
