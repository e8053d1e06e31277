//! A command on a terminal of its own, with somebody who types.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::exec::LIMIT;

/// The terminal, seen from the typing side.
pub struct Terminal {
    keys: File,
    shown: Arc<Mutex<Vec<u8>>>,
    screen: JoinHandle<()>,
    child: Child,
}

impl Terminal {
    /// Runs `command` with a new terminal as its controlling one, by setsid(1). Keys interrupt it also
    /// where the tests themselves run in the background of a script, which ignores SIGINT.
    ///
    /// # Panics
    /// If the machine has no pseudo-terminals.
    pub fn run(command: &Command) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&master).expect("grantpt");
        unlockpt(&master).expect("unlockpt");
        let name = ptsname(&master, Vec::new()).expect("ptsname");
        let open = || -> OwnedFd {
            rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("pts")
        };
        let mut session = Command::new("setsid");
        session.args(["--ctty", "env", "--default-signal=INT,QUIT,HUP"]);
        session.arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => session.env(key, value),
                None => session.env_remove(key),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            session.current_dir(dir);
        }
        session.env("TERM", "xterm").stdin(Stdio::from(open())).stdout(Stdio::from(open()));
        let child = session.stderr(Stdio::from(open())).spawn().expect("setsid");
        let keys = File::from(master);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut screen, sink) = (keys.try_clone().expect("dup"), Arc::clone(&shown));
        let screen = std::thread::spawn(move || {
            let mut some = [0; 4096];
            // A terminal whose last user has gone gives EIO.
            while let Ok(n @ 1..) = screen.read(&mut some) {
                sink.lock().expect("screen").extend(&some[..n]);
            }
        });
        Terminal { keys, shown, screen, child }
    }

    /// Types.
    ///
    /// # Panics
    /// If the terminal is gone.
    pub fn keys(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).expect("keys");
    }

    /// Sends the command a signal.
    ///
    /// # Panics
    /// If it cannot be sent.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("kill");
    }

    /// All that was shown so far.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("screen")).into_owned()
    }

    /// Waits until a text is shown.
    ///
    /// # Panics
    /// If it is not within [`LIMIT`].
    #[track_caller]
    pub fn expect(&self, text: &str) {
        let start = Instant::now();
        while !self.shown().contains(text) {
            let late = start.elapsed() > LIMIT;
            assert!(!late, "the terminal does not show {text:?} but\n{}", self.shown());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the command's end.
    ///
    /// # Panics
    /// If it does not end within [`LIMIT`].
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                // All that was shown is there when the last user has gone.
                while !self.screen.is_finished() && start.elapsed() < LIMIT {
                    std::thread::sleep(Duration::from_millis(2));
                }
                return status;
            }
            let late = start.elapsed() > LIMIT;
            assert!(!late, "the command on the terminal does not end\n{}", self.shown());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
