//! Files that are reached by something else than their names in the view.

use super::*;

#[test]
fn attributes_of_outsiders() {
    as_root!();
    let victim = Victim::new();
    let pid = victim.pid();
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    let limits = || std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("limits");
    let nice = |stat: &str| stat.split(' ').nth(18).map(str::to_owned);
    let before = (nice(&stat()), limits());
    victim.probe(&[], &["nice", &pid.to_string()]);
    victim.probe(&[], &["limit", &pid.to_string()]);
    assert_eq!((nice(&stat()), limits()), before);
    victim.shut(&["rewrite", &format!("/proc/{pid}/oom_score_adj")]);
}

#[test]
fn file_handles() {
    as_root!();
    let victim = Victim::new();
    let handle = probes::handle_of(&victim.file()).expect("the file system has handles");
    let live = victim.scratch.live().display().to_string();
    assert_eq!(probes::open_by_handle(&handle, &victim.scratch.live()).as_deref(), Ok(SECRET));
    victim.shut(&["handle", &handle, &live]);
    for mount in ["/", "/proc"] {
        victim.shut_here(&["handle", &handle, mount]);
    }
    let answer = victim.probe(&["--live", &live], &["handle", &handle, &live]);
    assert!(!answer.starts_with("done"), "by a handle on a live path: {answer}");
    victim.untouched();
}

#[test]
fn descriptors_inherited_from_outside() {
    as_root!();
    let victim = Victim::new();
    let (txos, probe) = (txos_tests::txos::binary(), helper("probe"));
    let dir = victim.file().parent().expect("dir").display().to_string();
    let tries = [
        ("exec 7<>\"$1/file\"", "fd 7 gone"),
        ("exec 0<>\"$1/file\"", "fd 0 gone"),
        ("exec 9<\"$1\"", "dir-fd 9 file gone"),
        ("exec 9<\"$1\"", "write /proc/self/fd/9/file gone"),
        ("exec 9</", "write /proc/self/fd/9/VICTIM/file gone"),
        ("exec 8<>\"$1/file\"", "write /proc/self/fd/8 gone"),
    ];
    for (opening, words) in tries {
        let words = words.replace("VICTIM", dir.trim_start_matches('/'));
        let script = format!(
            "{opening}; exec '{}' run -- sh -c '{} {words}; exit 7'",
            txos.display(),
            probe.display()
        );
        let command =
            Txos::new(&victim.scratch).command("sh".as_ref(), ["-c", &script, "sh", &dir]);
        // What was open is opened again in the view: a write may succeed there, and stays there.
        exec::run(command).expect(7);
        victim.untouched();
    }
}

#[test]
fn a_live_directory_is_no_way_up() {
    as_root!();
    let victim = Victim::new();
    let live = victim.scratch.live().display().to_string();
    let script = format!("cd '{live}' && echo gone >../victim/file; exit 7");
    Txos::new(&victim.scratch).sh(&["--live", &live], &script).expect(7);
    victim.untouched();
}

#[test]
fn the_state_directory_and_the_capture_are_not_in_the_view() {
    if native_only() {
        skip!("nothing to hide natively");
    }
    for who in [Who::Root, Who::User] {
        if let Some(why) = who.impossible() {
            println!("Skip: {why}");
            continue;
        }
        let scratch = Scratch::new();
        std::fs::write(scratch.inside().join("f"), "1").expect("f");
        let base = scratch.base().display().to_string();
        if am_root() {
            std::os::unix::fs::chown(scratch.base(), Some(who.uid()), None).expect("chown");
            std::os::unix::fs::chown(scratch.inside(), Some(who.uid()), None).expect("chown");
        }
        let txos = Txos::by(&scratch, who);
        let script = format!(
            "echo changed >secret-change; ls -A '{base}/state' 2>/dev/null; \
             find '{base}' -xdev -name secret-change 2>/dev/null | grep -v '{base}/inside'; \
             touch '{base}/state/mine' 2>/dev/null; exit 7"
        );
        let out = txos.sh(&[], &script);
        out.expect(7);
        assert_eq!(out.stdout, "", "{who:?}: {out}");
        assert!(!scratch.state().join("mine").exists());
        assert_eq!(scratch.leftovers(), Vec::<String>::new());
    }
}
