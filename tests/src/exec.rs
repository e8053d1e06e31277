//! Running a command with a time limit, and never leaving it behind.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take when nothing else is said. Generous: it is there against hangs.
pub const LIMIT: Duration = Duration::from_secs(60);

/// What came of a command.
#[derive(Debug)]
pub struct Outcome {
    /// Exit status, or signal.
    pub status: ExitStatus,
    /// All that it wrote to standard output.
    pub stdout: String,
    /// All that it wrote to standard error.
    pub stderr: String,
    /// From start to end.
    pub took: Duration,
}

impl Outcome {
    /// The exit status as a shell shows it: 128+N for signal N.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Requires this exit status.
    ///
    /// # Panics
    /// If it is another one, with all output.
    #[track_caller]
    pub fn expect(&self, code: i32) -> &Self {
        assert!(self.code() == code, "exit status {} instead of {code}\n{self}", self.code());
        self
    }

    /// Requires that standard error contains each of these texts.
    ///
    /// # Panics
    /// If one is missing.
    #[track_caller]
    pub fn says(&self, texts: &[&str]) -> &Self {
        for text in texts {
            assert!(self.stderr.contains(text), "standard error does not say {text:?}\n{self}");
        }
        self
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "status {} after {:?}\n--- stdout\n{}\n--- stderr\n{}\n---",
            self.code(),
            self.took,
            self.stdout,
            self.stderr
        )
    }
}

/// A command that runs.
pub struct Running {
    child: Child,
    start: Instant,
    stdout: Receiver<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
    line: String,
}

impl Running {
    /// Starts it, with `input` as its standard input.
    ///
    /// # Panics
    /// If it can't be started.
    pub fn start(mut command: Command, input: Option<Vec<u8>>) -> Running {
        let line = format!("{command:?}");
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{line}: {e}"));
        if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
            std::thread::spawn(move || pipe.write_all(&input));
        }
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        Running { child, start: Instant::now(), stdout, stderr, line }
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid(), signal);
    }

    /// Whether it has not ended yet.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end within `limit` (it is killed then), or something holds its output open
    /// for 5 s after it.
    #[track_caller]
    pub fn end(mut self, limit: Duration) -> Outcome {
        let mut pause = Duration::from_micros(200);
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if self.start.elapsed() < limit => std::thread::sleep(pause),
                other => {
                    self.signal(Signal::TERM);
                    std::thread::sleep(Duration::from_millis(500));
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    let tail = |r: &Receiver<Vec<u8>>| {
                        let data = r.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
                        String::from_utf8_lossy(&data).into_owned()
                    };
                    panic!(
                        "{other:?}: not ended after {limit:?}: {}\n--- stdout\n{}\n--- stderr\n{}",
                        self.line,
                        tail(&self.stdout),
                        tail(&self.stderr)
                    );
                }
            }
            pause = (pause * 2).min(Duration::from_millis(10));
        };
        let took = self.start.elapsed();
        let line = &self.line;
        let text = |r: &Receiver<Vec<u8>>| {
            let data = r.recv_timeout(LIMIT);
            let data =
                data.unwrap_or_else(|_| panic!("something still writes the output of {line}"));
            String::from_utf8_lossy(&data).into_owned()
        };
        Outcome { status, stdout: text(&self.stdout), stderr: text(&self.stderr), took }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.alive() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut data = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut data);
        }
        send.send(data)
    });
    receive
}

/// Runs a command to its end within [`LIMIT`].
///
/// # Panics
/// As [`Running::end`].
#[track_caller]
pub fn run(command: Command) -> Outcome {
    Running::start(command, None).end(LIMIT)
}

/// Writes a shell script that can be called as a program.
///
/// # Panics
/// If it can't be written.
pub fn write_script(path: &Path, script: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{script}\n")).expect("write");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("chmod");
}

/// The `PATH` of everything that tests start: the system's own directories, which everybody may
/// search, and nothing of whoever started the tests.
pub fn path() -> OsString {
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()
}

/// The program `name` in [`path`], if there.
pub fn find(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&path()).map(|d| d.join(name)).find(|p| p.is_file())
}
