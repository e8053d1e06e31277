//! The transaction's terminal, with a person's terminal outside.
//!
//! Each test makes a pseudo-terminal, starts this program on it again as a small manager
//! (`--manager MODE ATTEMPTS END -- CMD…`), types, and looks at what the screen shows. The manager
//! has to be a process of its own because the outer terminal has to be its controlling one; so the
//! tests have a `main` of their own.
#![allow(unsafe_code, reason = "a child is set up between fork and exec")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use txos_effects::streams::{DEFAULT_LIMIT, Outcome, Outer, OutputMode, Streams, StreamsSpec};

const PATIENCE: Duration = Duration::from_secs(60);

/// The manager's half: runs the command on a transaction's streams.
fn manage(args: &[String]) -> ExitCode {
    let [mode, attempts, end, _, command @ ..] = args else { return ExitCode::FAILURE };
    let output = if mode == "live" { OutputMode::Live } else { OutputMode::Auto };
    let scratch = std::env::temp_dir();
    let spec = StreamsSpec { output, retries: true, scratch, spill_after: DEFAULT_LIMIT };
    let mut streams = Streams::new(spec, Outer::inherited().unwrap()).unwrap();
    let attempts: u32 = attempts.parse().unwrap();
    for attempt in 1..=attempts {
        let (mut stdio, plan) = streams.attempt().unwrap().into_stdio();
        // The view's part.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = ioctl_tiocgptpeer(&master, flags).unwrap();
        for (stream, on) in stdio.iter_mut().zip(plan.on_terminal) {
            if on {
                *stream = Stdio::from(slave.try_clone().unwrap());
            }
        }
        drop(slave);
        streams.adopt_terminal(master).unwrap();
        let [stdin, stdout, stderr] = stdio;
        let mut inner = Command::new(&command[0]);
        inner.args(&command[1..]).stdin(stdin).stdout(stdout).stderr(stderr);
        // SAFETY: `settle` only makes system calls on its good path.
        unsafe { inner.pre_exec(move || plan.settle().map_err(std::io::Error::other)) };
        let mut child = inner.spawn().unwrap();
        streams.show_terminal().unwrap();
        // It keeps copies of the ends that the child has; without this no pump would see the end.
        drop(inner);
        let status = child.wait().unwrap();
        match end.as_str() {
            "panic" => panic!("part of a test"),
            "exit" => std::process::exit(7),
            _ if attempt < attempts => streams.finish(Outcome::Retry),
            _ if status.success() => streams.finish(Outcome::Commit),
            _ => streams.finish(Outcome::Failed),
        };
        if attempt == attempts {
            return ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1));
        }
    }
    ExitCode::FAILURE
}

/// A person's terminal with a manager on it.
struct Screen {
    master: OwnedFd,
    slave: OwnedFd,
    before: Termios,
    child: Child,
    shown: Receiver<Vec<u8>>,
    text: String,
}

impl Screen {
    fn start(options: [&str; 3], command: &[&str]) -> Screen {
        Screen::start_with(options, command, None, false)
    }

    /// With standard output elsewhere, or with the manager in the background.
    fn start_with(
        [mode, attempts, end]: [&str; 3],
        command: &[&str],
        stdout: Option<Stdio>,
        background: bool,
    ) -> Screen {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = ioctl_tiocgptpeer(&master, flags).unwrap();
        resize(&master, 33, 101);
        let before = tcgetattr(&slave).unwrap();
        let this = std::env::current_exe().unwrap();
        let mut start = if background {
            let mut shell = Command::new("bash");
            shell.args(["-c", "set -m; \"$@\" & wait $!", "bash"]).arg(this);
            shell
        } else {
            Command::new(this)
        };
        start.args(["--manager", mode, attempts, end, "--"]).args(command);
        let own = || Stdio::from(slave.try_clone().unwrap());
        start.stdin(own()).stdout(stdout.unwrap_or_else(own)).stderr(own());
        let session = || {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            Ok(())
        };
        // SAFETY: `session` only makes system calls.
        unsafe { start.pre_exec(session) };
        let child = start.spawn().unwrap();
        let (send, shown) = channel();
        let mut reader = File::from(master.try_clone().unwrap());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                if send.send(bytes[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Screen { master, slave, before, child, shown, text: String::new() }
    }

    /// Waits until the screen shows `what` after what was seen before; returns what came with it.
    fn see(&mut self, what: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.text.find(what) {
                let rest = self.text.split_off(at + what.len());
                return std::mem::replace(&mut self.text, rest);
            }
            match self.shown.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.text.push_str(&String::from_utf8_lossy(&bytes)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.child.kill().unwrap();
                    panic!("{what:?} was not shown, only {:?}", self.text);
                }
            }
        }
    }

    fn type_in(&self, keys: &str) {
        File::from(self.master.try_clone().unwrap()).write_all(keys.as_bytes()).unwrap();
    }

    fn local_modes(&self) -> LocalModes {
        tcgetattr(&self.slave).unwrap().local_modes
    }

    /// Waits for the end: the exit status, and whether the terminal is as it was.
    fn end(mut self) -> (Option<i32>, bool) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            self.text
                .extend(self.shown.try_iter().map(|b| String::from_utf8_lossy(&b).into_owned()));
            if Instant::now() > deadline {
                self.child.kill().unwrap();
                panic!("it does not end; on the screen: {:?}", self.text);
            }
            thread::sleep(Duration::from_millis(5));
        };
        let after = tcgetattr(&self.slave).unwrap();
        let same = after.local_modes == self.before.local_modes
            && after.input_modes == self.before.input_modes
            && after.output_modes == self.before.output_modes;
        (status.code(), same)
    }
}

fn resize(terminal: impl AsFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}

const ONCE: [&str; 3] = ["auto", "1", "finish"];

fn the_command_has_a_terminal_of_its_own_and_of_the_same_size() {
    let script = "test -t 0 && test -t 1 && test -t 2 && : </dev/tty && stty size && tty";
    let mut screen = Screen::start(ONCE, &["sh", "-c", script]);
    screen.see("33 101\r\n/dev/pts/");
    assert_eq!(screen.end(), (Some(0), true));
}

fn keys_make_signals_inside_only() {
    let script = "trap 'echo stopped; exit 9' INT; echo ready; while :; do sleep 0.05; done";
    let mut screen = Screen::start(ONCE, &["sh", "-c", script]);
    screen.see("ready");
    assert!(!screen.local_modes().contains(LocalModes::ICANON), "raw outside");
    screen.type_in("\x03");
    screen.see("stopped");
    assert_eq!(screen.end(), (Some(9), true));
}

fn a_new_size_goes_in() {
    let script = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done";
    let mut screen = Screen::start(ONCE, &["sh", "-c", script]);
    screen.see("ready");
    resize(&screen.master, 20, 60);
    screen.see("20 60");
    assert_eq!(screen.end(), (Some(0), true));
}

fn a_shell_has_job_control() {
    let mut screen = Screen::start(ONCE, &["env", "PS1=next> ", "bash", "--norc", "-i"]);
    screen.see("next> ");
    screen.type_in("echo rea'dy'; cat\r");
    screen.see("ready\r\n");
    // The job has the terminal when it repeats what is typed.
    screen.type_in("once\r");
    screen.see("once\r\nonce\r\n");
    screen.type_in("\x1a");
    screen.see("Stopped");
    screen.see("next> ");
    screen.type_in("fg\r");
    screen.see("fg\r\n");
    screen.type_in("twice\r");
    screen.see("twice\r\n");
    screen.type_in("\x03");
    screen.see("next> ");
    screen.type_in("exit 4\r");
    assert_eq!(screen.end(), (Some(4), true));
}

fn the_mode_comes_back_however_it_ends() {
    for (end, status) in [("panic", 101), ("exit", 7)] {
        let mut screen = Screen::start(["auto", "1", end], &["sh", "-c", "echo on; read go"]);
        screen.see("on");
        assert!(!screen.local_modes().contains(LocalModes::ICANON));
        screen.type_in("go\r");
        assert_eq!(screen.end(), (Some(status), true), "{end}");
    }
}

fn what_was_typed_is_typed_again_on_a_retry() {
    let script = "echo ready; read line; echo \"[$line]\"";
    let mut screen = Screen::start(["auto", "2", "finish"], &["sh", "-c", script]);
    screen.see("ready");
    screen.type_in("hello\r");
    screen.see("[hello]");
    screen.see("[hello]");
    assert_eq!(screen.end(), (Some(0), true));
}

fn with_output_elsewhere_the_outer_terminal_edits_the_lines() {
    let (mut read, write) = std::io::pipe().unwrap();
    let script = "echo ready >/dev/tty; cat";
    let mut screen = Screen::start_with(ONCE, &["sh", "-c", script], Some(write.into()), false);
    screen.see("ready\r\n");
    assert!(screen.local_modes().contains(LocalModes::ICANON | LocalModes::ECHO));
    screen.type_in("helo\x7flo\r");
    // Echoed once, by the outer terminal.
    let echoed = screen.see("\n");
    screen.type_in("\x04");
    let mut out = String::new();
    read.read_to_string(&mut out).unwrap();
    assert_eq!(out, "hello\n");
    assert_eq!(echoed.matches("hel").count(), 1, "{echoed:?}");
    assert_eq!(screen.end(), (Some(0), true));
}

fn in_the_background_it_runs_and_leaves_the_terminal_alone() {
    let script = "sleep 0.5; echo done";
    let mut screen = Screen::start_with(ONCE, &["sh", "-c", script], None, true);
    thread::sleep(Duration::from_millis(200));
    assert!(screen.local_modes().contains(LocalModes::ICANON));
    screen.see("done");
    assert_eq!(screen.end(), (Some(0), true));
}

fn much_output_comes_whole() {
    let mut screen = Screen::start(ONCE, &["seq", "1", "50000"]);
    let text = screen.see("\n50000\r\n");
    assert_eq!(text.lines().count(), 50_000);
    assert_eq!(screen.end(), (Some(0), true));
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--manager") {
        return manage(&args[at + 1..]);
    }
    let tests: &[(&str, fn())] = &[
        ("a terminal of its own", the_command_has_a_terminal_of_its_own_and_of_the_same_size),
        ("keys make signals", keys_make_signals_inside_only),
        ("a new size goes in", a_new_size_goes_in),
        ("job control", a_shell_has_job_control),
        ("the mode comes back", the_mode_comes_back_however_it_ends),
        ("typed again on a retry", what_was_typed_is_typed_again_on_a_retry),
        ("output elsewhere", with_output_elsewhere_the_outer_terminal_edits_the_lines),
        ("background", in_the_background_it_runs_and_leaves_the_terminal_alone),
        ("much output", much_output_comes_whole),
    ];
    let mut failed = 0;
    for (name, test) in tests {
        let ok = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        failed += u8::from(!ok);
    }
    ExitCode::from(failed)
}
