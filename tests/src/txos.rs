//! Finding and calling the binary under test and this package's helpers.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::exec::{self, Outcome, Running};
use crate::scratch::{MARK, Scratch};
use crate::who::Who;

/// Whether `TXOS_TEST_NATIVE` asks to run everything natively.
pub fn native_only() -> bool {
    std::env::var_os("TXOS_TEST_NATIVE").is_some_and(|v| v != "0")
}

/// The binary under test: `TXOS_BIN`, or what the workspace built last for release or for debugging.
///
/// # Panics
/// If there is none.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("TXOS_BIN") {
        return PathBuf::from(path);
    }
    let target = target();
    let built = |path: &PathBuf| path.metadata().and_then(|about| about.modified()).ok();
    ["release/txos", "debug/txos"]
        .iter()
        .map(|p| target.join(p))
        .filter(|path| built(path).is_some())
        .max_by_key(built)
        .unwrap_or_else(|| {
            panic!("no txos in {}: build it first (`make build`) or set TXOS_BIN", target.display())
        })
}

/// The target directory: the test binaries lie in `<target>/<profile>/deps`.
fn target() -> PathBuf {
    let me = std::env::current_exe().expect("the path of this test");
    me.ancestors().nth(3).expect("<target>/<profile>/deps").to_owned()
}

/// One of this package's helper binaries (`oplist`, `probe`).
///
/// # Panics
/// If it was not built (`cargo test` builds it).
pub fn helper(name: &str) -> PathBuf {
    let me = std::env::current_exe().expect("the path of this test");
    let path = me.ancestors().nth(2).expect("<target>/<profile>").join(name);
    assert!(path.is_file(), "{} was not built", path.display());
    path
}

/// How `txos` is called by one test.
pub struct Txos<'a> {
    scratch: &'a Scratch,
    who: Who,
    outer: Vec<OsString>,
    dir: PathBuf,
    state: PathBuf,
    binary: Option<PathBuf>,
    input: Option<Vec<u8>>,
    env: Vec<(OsString, OsString)>,
}

impl<'a> Txos<'a> {
    /// As root, in the scratch's tree `inside`, with its own state directory.
    pub fn new(scratch: &'a Scratch) -> Txos<'a> {
        Txos::by(scratch, Who::Root)
    }

    /// The same for another user.
    pub fn by(scratch: &'a Scratch, who: Who) -> Txos<'a> {
        Txos {
            scratch,
            who,
            outer: Vec::new(),
            dir: scratch.inside(),
            state: scratch.state(),
            binary: None,
            input: None,
            env: Vec::new(),
        }
    }

    /// With `input` as standard input (default: nothing).
    #[must_use]
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// In another working directory.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = dir.into();
        self
    }

    /// With another state directory.
    #[must_use]
    pub fn state(mut self, state: impl Into<PathBuf>) -> Self {
        self.state = state.into();
        self
    }

    /// With this binary instead of the one found.
    #[must_use]
    pub fn binary(mut self, binary: PathBuf) -> Self {
        self.binary = Some(binary);
        self
    }

    /// With one more variable in the environment.
    #[must_use]
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// With words before the command, for instance those of a [`crate::space::Space`].
    #[must_use]
    pub fn outer(mut self, words: Vec<OsString>) -> Self {
        self.outer = words;
        self
    }

    /// The command for any program in this surrounding.
    pub fn command(
        &self,
        program: &Path,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Command {
        // Signals end it also where the tests run in the background of a script, which ignores some.
        let mut words: Vec<OsString> = vec!["env".into(), "--default-signal=INT,QUIT,HUP".into()];
        words.extend(self.outer.iter().cloned());
        words.extend(self.who.prefix(self.scratch.base()));
        words.push(program.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(args).current_dir(&self.dir);
        command.env("TXOS_STATE", &self.state).env(MARK, self.scratch.mark());
        command.env("PATH", exec::path()).env("LC_ALL", "C").env_remove("TXOS_BIN");
        // The contention manager ends soon after the last transaction, and is no leftover then.
        command.env("TXOS_MANAGER_GRACE", "50");
        // Who is asked for by number or as this machine is asked, not a proxy that the network has.
        let here = "localhost,127.0.0.1,::1,192.0.2.1";
        command.env("no_proxy", here).env("NO_PROXY", here);
        // Cargo's, by which every program would look for its libraries in the build directory.
        command.env_remove("LD_LIBRARY_PATH");
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        command
    }

    /// Starts `txos` with these arguments.
    pub fn start(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Running {
        Running::start(self.command(&self.program(), args), self.input.clone())
    }

    /// Runs `txos` with these arguments to its end.
    #[track_caller]
    pub fn call(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Outcome {
        self.start(args).end(exec::LIMIT)
    }

    /// `txos run OPTIONS -- sh -c SCRIPT`.
    #[track_caller]
    pub fn sh(&self, options: &[&str], script: &str) -> Outcome {
        self.call(sh_args(options, script))
    }

    /// The same, not waited for.
    pub fn start_sh(&self, options: &[&str], script: &str) -> Running {
        self.start(sh_args(options, script))
    }

    /// The binary under test as this one may execute it: an ordinary user gets a copy of his own, since
    /// he may not reach the original.
    pub fn program(&self) -> PathBuf {
        match self.who {
            _ if self.binary.is_some() => self.binary.clone().unwrap_or_default(),
            Who::Root => binary(),
            Who::User => copy_for_users(self.scratch, &binary()),
        }
    }
}

fn sh_args<'s>(options: &[&'s str], script: &'s str) -> Vec<&'s str> {
    let mut args = vec!["run"];
    args.extend(options);
    args.extend(["--", "sh", "-c", script]);
    args
}

/// A copy of a program in the scratch directory, for users who can't reach the original.
///
/// # Panics
/// If it can't be copied.
pub fn copy_for_users(scratch: &Scratch, program: &Path) -> PathBuf {
    if !crate::who::am_root() {
        return program.to_owned();
    }
    let copy = scratch.base().join(program.file_name().unwrap_or(OsStr::new("program")));
    if !copy.exists() {
        let part = copy.with_extension("part");
        copy_program(program, &part);
        std::fs::rename(&part, &copy).expect("copy of the program");
    }
    copy
}

/// Copies a program that is to be executed, by a process of its own: a child that another test forks
/// meanwhile would hold our descriptor, and the copy could not be executed (ETXTBSY).
///
/// # Panics
/// If it can't be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").args([from, to]).status().expect("cp");
    assert!(copied.success(), "copy of {}", from.display());
}

/// Runs `test` for root and for an ordinary user, each in a scratch directory of his own, and
/// requires that nothing is left of it.
///
/// # Panics
/// As the test, or if something is left.
#[track_caller]
pub fn for_both(test: impl Fn(&Scratch, Txos<'_>)) {
    if native_only() {
        crate::skip!("nothing to compare natively");
    }
    for who in [Who::Root, Who::User] {
        for_one(who, &test);
    }
}

/// The same for one of them.
///
/// # Panics
/// As [`for_both`].
#[track_caller]
pub fn for_one(who: Who, test: impl Fn(&Scratch, Txos<'_>)) {
    if native_only() {
        crate::skip!("nothing to compare natively");
    }
    if let Some(why) = who.impossible() {
        crate::skip!("{why}");
    }
    let scratch = Scratch::new();
    scratch.give_to(who);
    test(&scratch, Txos::by(&scratch, who));
    assert_eq!(scratch.leftovers(), Vec::<String>::new(), "{who:?}");
}
