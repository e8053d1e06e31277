//! Ways out of the view, each tried as root by a program inside.
//!
//! What counts is what outsiders see: every try is followed by an abort, and the outside has to be
//! as it was. Where a call could hand over an outsider's secret, the secret must not come out.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use txos_tests::exec::{self, Outcome};
use txos_tests::probes;
use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::space::Space;
use txos_tests::txos::{Txos, binary, copy_for_users, helper, native_only};
use txos_tests::who::{Who, am_root};

/// The content of the outsider's file.
const SECRET: &str = "outsiders-secret";

/// A process outside, with a working directory, a file and a descriptor on it.
struct Victim {
    scratch: Scratch,
    child: Child,
}

impl Victim {
    fn new() -> Victim {
        let scratch = Scratch::new();
        let dir = scratch.base().join("victim");
        std::fs::create_dir(&dir).expect("mkdir");
        std::fs::write(dir.join("file"), SECRET).expect("write");
        // Descriptor 5 is open on the file; the file is also mapped by nobody but it.
        let child = Command::new("sh")
            .args(["-c", "exec 5<>file; exec sleep 300"])
            .current_dir(&dir)
            .env(txos_tests::scratch::MARK, format!("victim-{}", scratch.mark()))
            .stdin(Stdio::null())
            .spawn()
            .expect("sh");
        let (fd, start) = (format!("/proc/{}/fd/5", child.id()), Instant::now());
        while std::fs::read_link(&fd).is_err() {
            assert!(start.elapsed() < exec::LIMIT, "the victim opens no file");
            std::thread::sleep(Duration::from_millis(2));
        }
        Victim { scratch, child }
    }

    fn file(&self) -> PathBuf {
        self.scratch.base().join("victim/file")
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs `probe WORDS` inside and then aborts; the answer is the probe's line.
    fn probe(&self, options: &[&str], words: &[&str]) -> String {
        let out = self.run(options, words);
        out.expect(7);
        out.stdout.trim_end().to_owned()
    }

    fn run(&self, options: &[&str], words: &[&str]) -> Outcome {
        let probe = helper("probe");
        let mut args = vec!["run"];
        args.extend(options);
        args.extend(["--", "sh", "-c", "\"$@\"; exit 7", "sh"]);
        let probe = probe.to_string_lossy().into_owned();
        args.push(&probe);
        args.extend(words);
        Txos::new(&self.scratch).call(args)
    }

    /// The try, which works natively, must not have worked: the file has its old content, and the
    /// secret was not seen.
    #[track_caller]
    fn shut(&self, words: &[&str]) {
        let mut natively = Command::new(helper("probe"));
        natively.args(words).env(txos_tests::scratch::MARK, self.scratch.mark());
        let natively = exec::run(natively).stdout;
        std::fs::write(self.file(), SECRET).expect("the file");
        assert!(
            natively.starts_with("done") || natively.contains(SECRET),
            "{words:?} does not work natively: {natively}"
        );
        self.shut_here(words);
    }

    /// The same where this machine may not have what is tried.
    #[track_caller]
    fn shut_here(&self, words: &[&str]) {
        let answer = self.probe(&[], words);
        assert!(!answer.contains(SECRET), "{words:?} reads the outsider's file: {answer}");
        assert!(!answer.starts_with("done"), "{words:?} is possible: {answer}");
        self.untouched();
    }

    #[track_caller]
    fn untouched(&self) {
        assert_eq!(std::fs::read_to_string(self.file()).expect("file"), SECRET);
        assert_eq!(self.scratch.leftovers(), Vec::<String>::new());
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks the binary under test who it is.
fn version_command() -> Command {
    let mut command = Command::new(binary());
    command.arg("--version");
    command
}

macro_rules! as_root {
    () => {
        if native_only() {
            skip!("a way out exists natively");
        }
        // A stand-in for the binary would do all of this to the machine.
        let version = exec::run(version_command());
        assert!(version.stdout.starts_with("txos "), "not txos: {version}");
        if let Some(why) = Who::Root.impossible() {
            skip!("{why}");
        }
    };
}

mod devices;
mod files;
mod kernel;
mod processes;
mod talk;
