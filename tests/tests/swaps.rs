//! An attacker who swaps a directory for a symbolic link, in and out as fast as he can, while
//! transactions write below it: nothing ever gets through the link.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use txos_tests::scratch::{MARK, Scratch};
use txos_tests::skip;
use txos_tests::stop::StopOnDrop;
use txos_tests::tree::Tree;
use txos_tests::txos::{Txos, native_only};
use txos_tests::who::{USER, Who, am_root};

/// How many transactions: `TXOS_TEST_ROUNDS`, or few.
fn rounds() -> u32 {
    std::env::var("TXOS_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(25)
}

/// Looks before it goes through `d`, as a careful program does: what it saw then must still be so at
/// the commit.
const CAREFUL: &str = "[ -L d ] && exit 9; [ -d d/e ] || exit 9; \
                       echo $$ >d/e/f && mkdir -p d/e/n && echo $$ >>d/e/n/log || exit 9";

/// Makes a tree with a directory to write to, and a trap outside it to which `link` leads.
fn lay_out(scratch: &Scratch) {
    let trap = scratch.base().join("trap");
    for dir in [scratch.inside().join("d/e"), trap.join("e")] {
        std::fs::create_dir_all(dir).expect("directories");
    }
    std::fs::write(trap.join("e/f"), "not to be touched").expect("a file");
    std::os::unix::fs::symlink(&trap, scratch.inside().join("link")).expect("a link");
}

/// Gives the scratch to the ordinary user, and these things below it too.
fn give(scratch: &Scratch, paths: &[&str]) {
    scratch.give_to(Who::User);
    for path in paths {
        std::os::unix::fs::chown(scratch.base().join(path), Some(USER), Some(USER))
            .expect("the scratch is this test's");
    }
}

/// Runs transactions, which may lose, or find the link and give up; gives how many committed.
fn transactions(scratch: &Scratch, txos: &Txos<'_>, trap: &Tree) -> u32 {
    let mut commits = 0;
    for round in 0..rounds() {
        let out = txos.sh(&["--retries", "2"], CAREFUL);
        assert!([0, 9, 75].contains(&out.code()), "round {round}: {out}");
        commits += u32::from(out.code() == 0);
        let now = Tree::of(&scratch.base().join("trap")).expect("a tree");
        assert_eq!(trap.changes(&now), Vec::<String>::new(), "round {round}: {out}");
    }
    commits
}

#[test]
fn by_another_process_of_the_same_user() {
    if native_only() {
        skip!("nothing to compare natively");
    }
    for who in [Who::Root, Who::User] {
        if let Some(why) = who.impossible() {
            println!("Skip: {why}");
            continue;
        }
        let scratch = Scratch::new();
        lay_out(&scratch);
        if who == Who::User && am_root() {
            give(&scratch, &["inside/d", "inside/d/e", "trap", "trap/e", "trap/e/f"]);
        }
        let trap = Tree::of(&scratch.base().join("trap")).unwrap();
        let (dir, link) = (scratch.inside().join("d"), scratch.inside().join("link"));
        let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
        let commits = thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                    let swap = swaps.fetch_add(1, Ordering::Relaxed);
                    // The directory stays for a while, each time another one, so that a
                    // transaction meets a swap at any of its steps.
                    if swap % 2 == 1 {
                        thread::sleep(Duration::from_millis(swap * 37 % 900));
                    }
                }
            });
            let ended = StopOnDrop(&stop);
            let commits = transactions(&scratch, &Txos::by(&scratch, who), &trap);
            drop(ended);
            commits
        });
        println!("{who:?}: {} swaps, {commits} of {} committed", swaps.into_inner(), rounds());
    }
}

/// The attacker owns the tree; the trap is root's, and so is the transaction.
#[test]
fn by_another_user_against_root() {
    txos_tests::needs_root!();
    let scratch = Scratch::new();
    lay_out(&scratch);
    let trap = Tree::of(&scratch.base().join("trap")).unwrap();
    give(&scratch, &["inside/d", "inside/d/e"]);
    let attacker = Attacker::start(&scratch);
    let state = scratch.base().join("state-of-root");
    let commits = transactions(&scratch, &Txos::new(&scratch).state(state), &trap);
    drop(attacker);
    println!("{commits} of {} committed", rounds());
}

/// A process of an ordinary user.
struct Attacker(Child);

impl Attacker {
    fn start(scratch: &Scratch) -> Attacker {
        // As above: the directory stays for a while.
        let script = "while :; do for pause in 0 0.02 0.3 0.05 0.15 0.1; do \
                      mv -T d away && mv -T link d; mv -T d link; mv -T away d; sleep $pause; \
                      done; done";
        let child = Command::new("sh")
            .args(["-c", script])
            .current_dir::<&Path>(&scratch.inside())
            .env(MARK, format!("attacker-{}", scratch.mark()))
            .uid(USER)
            .gid(USER)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        Attacker(child)
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
