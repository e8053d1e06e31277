//! A command on a terminal of its own, with somebody who types.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// The terminal, seen from the typing side.
pub struct Terminal {
    keys: File,
    shown: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

impl Terminal {
    /// Runs `command` with a new terminal as its controlling one, by setsid(1).
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
        session.arg("--ctty").arg(command.get_program()).args(command.get_args());
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
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            // A terminal whose last user has gone gives EIO.
            while let Ok(n @ 1..) = screen.read(&mut some) {
                sink.lock().expect("screen").extend(&some[..n]);
            }
        });
        Terminal { keys, shown, child }
    }

    /// Types.
    ///
    /// # Panics
    /// If the terminal is gone.
    pub fn keys(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).expect("keys");
    }

    /// All that was shown so far.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("screen")).into_owned()
    }

    /// Waits until a text is shown.
    ///
    /// # Panics
    /// If it is not within 20 s.
    #[track_caller]
    pub fn expect(&self, text: &str) {
        let start = Instant::now();
        while !self.shown().contains(text) {
            let late = start.elapsed() > Duration::from_secs(20);
            assert!(!late, "the terminal does not show {text:?} but\n{}", self.shown());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the command's end.
    ///
    /// # Panics
    /// If it does not end within 30 s.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                std::thread::sleep(Duration::from_millis(20));
                return status;
            }
            let late = start.elapsed() > Duration::from_secs(30);
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
