//! Each call that `txos run` makes fails once, or is the last that it lives to make: whatever becomes of
//! it, what its exit status says is true.
//!
//! strace(1) lets calls of the running process fail, so this is the real binary from outside; the
//! store's own tests (`crates/txos-store/src/tests/failures.rs`) do the same to each of its calls from
//! inside, with short counts, too. Only the process that commits is traced, not the command.
//!
//! | exit status | what must be there at once | and after a recovery |
//! |---|---|---|
//! | 0 | all of it | all of it |
//! | 74 | | all of it, or nothing |
//! | killed | | all of it, or nothing |
//! | any other | nothing of it | nothing of it |
//!
//! A run takes some cases with a fresh seed, which it prints. `TXOS_FAULTS=all` takes all of them: each
//! call that changes something with each fate, each other one with one of them (half an hour).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use txos_tests::exec;
use txos_tests::random::Random;
use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::tree::Tree;
use txos_tests::txos::{Txos, for_one};
use txos_tests::who::Who;

/// Calls that change something, or make it lasting.
const CHANGING: &str = "mkdir,mkdirat,unlink,unlinkat,rename,renameat2,linkat,symlinkat,mknodat,\
                        write,pwrite64,ftruncate,fallocate,fsync,fdatasync,syncfs,fchmod,fchmodat,\
                        fchownat,fsetxattr,lsetxattr,utimensat,flock,mount,umount2";
/// Calls that look at something, or are on the way to a change.
const LOOKING: &str = "openat,openat2,read,pread64,statx,newfstatat,fstat,getdents64,readlink,lseek,\
                       fstatfs,statfs,llistxattr,lgetxattr,flistxattr,fgetxattr,ioctl,fcntl,\
                       eventfd2,pipe2,socket,connect,sendmsg,recvmsg,memfd_create,clone3,mmap";

const FATES: [&str; 5] =
    ["error=EIO", "error=ENOSPC", "error=EDQUOT", "error=EINTR", "signal=KILL"];

/// A bit of everything.
const SCRIPT: &str = "echo more >>f && echo x >n && mkdir d && ln n d/n && mv r s && rm t && \
                      chmod 600 u && ln -s n l";

fn prepare(inside: &Path) {
    for entry in std::fs::read_dir(inside).expect("the tree") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.is_symlink() {
            std::fs::remove_dir_all(path).expect("remove a directory");
        } else {
            std::fs::remove_file(path).expect("remove a file");
        }
    }
    for name in ["f", "r", "t", "u"] {
        std::fs::write(inside.join(name), name.repeat(5000)).expect("make a file");
    }
}

/// What is there, but for times and inodes.
fn look(inside: &Path) -> BTreeMap<String, String> {
    let tree = Tree::of(inside).expect("the tree");
    let line = |entry: &txos_tests::tree::Entry| {
        let (kind, mode, links) = (entry.kind, entry.mode, entry.links);
        format!("{kind:?} {mode:o} {} {links} {}", entry.size, entry.content)
    };
    tree.entries.iter().map(|(path, entry)| (path.clone(), line(entry))).collect()
}

fn traced(scratch: &Scratch, options: &[&str]) -> Vec<OsString> {
    let trace = scratch.base().join("trace");
    let mut words: Vec<OsString> = vec!["strace".into(), "-o".into(), trace.into()];
    words.extend(options.iter().map(OsString::from));
    words.push("--".into());
    words
}

/// How often each call of `set` was made.
fn counts(scratch: &Scratch) -> BTreeMap<String, usize> {
    let trace = std::fs::read_to_string(scratch.base().join("trace")).expect("the trace");
    let mut counts = BTreeMap::new();
    for line in trace.lines() {
        if let Some((name, _)) = line.split_once('(') {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    counts
}

struct Case {
    call: String,
    number: usize,
    fate: &'static str,
}

fn cases(counts: &BTreeMap<String, usize>, rng: &mut Random) -> Vec<Case> {
    let changing: Vec<&str> = CHANGING.split(',').collect();
    let mut cases = Vec::new();
    for (call, count) in counts {
        for number in 1..=*count {
            let one = [*rng.one(&FATES)];
            let fates = if changing.contains(&call.as_str()) { &FATES[..] } else { &one };
            cases.extend(fates.iter().map(|fate| Case { call: call.clone(), number, fate }));
        }
    }
    cases
}

/// Runs one case; whether all of it was there in the end.
fn meet(scratch: &Scratch, case: &Case, before: &Look, after: &Look) -> bool {
    let inside = scratch.inside();
    prepare(&inside);
    let what = format!("{} number {} with {}", case.call, case.number, case.fate);
    let inject = format!("inject={}:{}:when={}", case.call, case.fate, case.number);
    let trace = format!("trace={}", case.call);
    let txos = Txos::new(scratch).outer(traced(scratch, &["-e", &trace, "-e", &inject]));
    let out = txos.start(["run", "--", "sh", "-c", SCRIPT]).end(Duration::from_secs(180));
    let now = look(&inside);
    let recovered = Txos::new(scratch).call(["recover"]);
    assert_eq!(recovered.code(), 0, "{what}: recovery\n{recovered}\n{out}");
    let last = look(&inside);
    let whole = last == *after;
    assert!(whole || last == *before, "{what}: half of it\n{out}\n{recovered}\n{last:#?}");
    match out.code() {
        0 => assert!(whole && now == *after, "{what}: said to be committed\n{out}"),
        74 | 137 => {}
        _ => assert!(!whole && now == *before, "{what}: said not to be committed\n{out}"),
    }
    let left = std::fs::read_dir(scratch.state().join("tx")).expect("tx").count();
    assert_eq!(left, 0, "{what}: left over\n{out}\n{recovered}");
    whole
}

type Look = BTreeMap<String, String>;

#[test]
fn the_exit_status_is_true_whichever_call_fails() {
    if exec::find("strace").is_none() {
        skip!("no strace here");
    }
    for_one(Who::Root, |scratch, txos| {
        let inside = scratch.inside();
        prepare(&inside);
        let before = look(&inside);
        let set = format!("trace={CHANGING},{LOOKING}");
        // The first makes the state directory; the second is the model of all others.
        txos.sh(&[], "true").expect(0);
        let traced = Txos::new(scratch).outer(traced(scratch, &["-e", &set]));
        let model = traced.start(["run", "--", "sh", "-c", SCRIPT]).end(exec::LIMIT);
        if model.stderr.contains("ptrace") {
            skip!("nothing may be traced here: {model}");
        }
        model.expect(0);
        let after = look(&inside);
        assert_ne!(before, after);
        let seed = std::env::var("TXOS_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| {
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
        });
        println!("TXOS_SEED={seed}");
        let mut rng = Random::new(seed);
        let mut cases = cases(&counts(scratch), &mut rng);
        assert!(cases.len() > 500, "only {} cases", cases.len());
        let all = std::env::var_os("TXOS_FAULTS").is_some_and(|value| value == "all");
        if !all {
            let mut one = || {
                let at = rng.below(cases.len() as u64) as usize;
                cases.swap_remove(at)
            };
            cases = (0..24).map(|_| one()).collect();
        }
        let (start, mut committed) = (Instant::now(), 0);
        for case in &cases {
            committed += usize::from(meet(scratch, case, &before, &after));
        }
        println!("{} cases, {committed} committed, in {:.0?}", cases.len(), start.elapsed());
    });
}
