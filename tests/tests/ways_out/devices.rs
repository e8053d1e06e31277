//! Disks, raw memory and other devices, by nodes that are there or made inside.

use super::*;

#[test]
fn block_devices_and_raw_memory() {
    as_root!();
    let victim = Victim::new();
    let mut tried = 0;
    for entry in std::fs::read_dir("/dev").expect("/dev").flatten() {
        let path = entry.path().to_string_lossy().into_owned();
        let name = entry.file_name().to_string_lossy().into_owned();
        let raw = ["mem", "kmem", "port", "nvram", "snapshot"];
        let kind = rustix::fs::FileType::from_raw_mode(entry.metadata().map_or(0, |m| m.mode()));
        if raw.contains(&name.as_str()) || kind.is_block_device() {
            // A missing medium makes the test meaningless for this device.
            if std::fs::File::open(&path).is_err() {
                continue;
            }
            victim.shut(&["open-read", &path]);
            victim.shut(&["open", &path]);
            tried += 1;
        }
        if tried > 6 {
            break;
        }
    }
    for path in ["/proc/kcore", "/dev/kmsg"] {
        if std::fs::File::open(path).is_ok() {
            victim.shut(&["open", path]);
            tried += 1;
        }
    }
    if tried == 0 {
        skip!("this machine opens no block device or raw memory for root either");
    }
}

#[test]
fn what_the_view_shows_of_the_hosts_devices_and_programs() {
    as_root!();
    let victim = Victim::new();
    // The nodes' own attributes, and the programs behind the helpers, are the host's.
    let state = || {
        let of = |path: &str| {
            std::fs::metadata(path).map(|m| (m.mode(), m.uid(), m.mtime(), m.mtime_nsec())).ok()
        };
        let nodes = ["null", "zero", "full", "random", "urandom", "tty"];
        nodes.map(|name| of(&format!("/dev/{name}")))
    };
    let before = state();
    let script = "for f in /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/txos/*; do \
                  [ $f = /dev/txos/requests ] && continue; \
                  chmod o+t $f && echo mode of $f; chown 1 $f && echo owner of $f; touch -d @1 $f && echo time of $f; \
                  setfattr -n user.x $f && echo attribute of $f; rm -f $f && echo name of $f; done 2>/dev/null; \
                  for f in /dev/txos/*; do [ $f = /dev/txos/requests ] || { printf '' >>$f && echo opened $f; }; done 2>/dev/null; \
                  echo written >/dev/null && head -c 1 /dev/zero >/dev/null || echo unusable; exit 7";
    let out = Txos::new(&victim.scratch).sh(&[], script);
    assert_eq!(out.expect(7).stdout, "", "{out}");
    assert_eq!(state(), before);
}

#[test]
fn device_nodes_made_inside_or_lying_in_the_tree() {
    as_root!();
    let victim = Victim::new();
    let root = std::fs::metadata("/").expect("/").dev();
    let (major, minor) = (rustix::fs::major(root), rustix::fs::minor(root));
    let setup = format!("mknod disk b {major} {minor}; mknod kmem c 1 1; mknod null c 1 3");
    let txos = Txos::new(&victim.scratch);
    exec::run(txos.command("sh".as_ref(), ["-ec", &setup])).expect(0);
    let script = format!(
        "mknod disk2 b {major} {minor}; mknod mem2 c 1 1; live='{}'; mknod $live/disk3 b {major} {minor}; \
         for f in disk kmem disk2 mem2 $live/disk3; do if head -c1 $f >/dev/null; then echo $f is open; fi; done; exit 7",
        victim.scratch.live().display()
    );
    let live = victim.scratch.live().display().to_string();
    for options in [&[][..], &["--live", live.as_str()]] {
        let out = Txos::new(&victim.scratch).sh(options, &script);
        assert_eq!(out.expect(7).stdout, "", "{out}");
    }
}

/// The device controller keeps the nodes closed for whoever is in its group, so all have to be.
#[test]
fn every_process_of_a_view_is_in_its_control_groups() {
    as_root!();
    let victim = Victim::new();
    let of = "-E '^[0-9]+:([a-z,]*,)?(devices|pids)(,|:)' /proc/1/cgroup /proc/self/cgroup";
    // With cgroup v2 alone one line names all, and a program of the kernel's guards the devices.
    let v1 = std::fs::read_to_string("/proc/self/cgroup").is_ok_and(|all| all.contains(":devices"));
    for _ in 0..8 {
        let options = ["--max-processes", "1000"];
        let out = Txos::new(&victim.scratch).sh(&options, &format!("grep {of}; exit 7"));
        for line in out.expect(7).stdout.lines() {
            assert!(line.contains("/txos-"), "outside of its group: {line}");
        }
        assert!(!out.stdout.is_empty() || !v1, "no group is named: {out}");
    }
}

#[test]
fn device_nodes_of_the_host_are_used_and_not_changed() {
    as_root!();
    let victim = Victim::new();
    // The host's node is one that the test made, should it be changed after all.
    let node = victim.scratch.live().join("null");
    let node = node.display();
    let script = format!(
        "mknod -m 666 {node} c 1 3; touch -d @1000 {node}; mount --bind {node} /dev/null; exec \"$@\""
    );
    let outer = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", &script, "sh"];
    let txos = Txos::new(&victim.scratch).outer(outer.map(Into::into).to_vec());
    let program = std::fs::metadata(txos.program()).expect("txos");
    let before = (program.mode(), program.uid(), program.mtime());
    let script = "echo >/dev/null || exit 1; for f in /dev/null /dev/txos/*; do
        chmod 600 $f; chown 5 $f; touch -d @5 $f; setfattr -n trusted.x -v 1 $f; rm -f $f; done 2>&1
        exit 7";
    txos.sh(&[], script).expect(7);
    let now = std::fs::symlink_metadata(victim.scratch.live().join("null")).expect("it is there");
    assert_eq!((now.mode() & 0o777, now.uid(), now.mtime()), (0o666, 0, 1000));
    let program = std::fs::metadata(txos.program()).expect("txos");
    assert_eq!((program.mode(), program.uid(), program.mtime()), before);
}
