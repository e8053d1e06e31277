//! A terminal of the transaction's own, shown on the outer one.
//!
//! The members get the slave of a fresh pseudo-terminal; one thread carries both ways, sizes too.
//! Two modes:
//! * *raw*, when standard input and output are both the terminal: every key goes in unread, the
//!   inner terminal does the line editing, the signals and the job control;
//! * *lines*, when output goes elsewhere (`txos run x | less`): somebody else may be using the outer
//!   terminal, so its mode is left alone; it does the editing and the echo, the inner one echoes
//!   nothing.
//!
//! Invariants:
//! * Outside is read only while we are in the foreground: a read from the background would stop the
//!   manager, and the transaction with it (SIGTTIN).
//! * Before the manager is stopped ([`Pause`]) all that the members have written is shown, and the
//!   outer terminal has its own mode again.
//!
//! Source: pty(7), termios(3), tty_ioctl(4).

use super::input::Record;
use super::pump::{CHUNK, Control, gone, lock, readable, wait, write_all};
use super::terminal;
use crate::Error;
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize,
    tcsetattr, tcsetwinsize,
};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// How long a terminal that takes nothing may hold up that the manager is stopped.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the manager and the thread that carries agree on before the manager is stopped.
#[derive(Debug)]
pub(super) struct Pause {
    asked: OwnedFd,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Bytes are carried.
    Carrying,
    /// They are to rest.
    Asked,
    /// They rest, and the outer terminal is as it was.
    Resting,
}

impl Pause {
    pub(super) fn new() -> Result<Pause, Error> {
        let asked = eventfd(0, EventfdFlags::CLOEXEC).map_err(Error::system("make an event"))?;
        Ok(Pause { asked, state: Mutex::new(State::Carrying), changed: Condvar::new() })
    }

    /// Asks for rest and waits for it.
    pub(super) fn begin(&self) {
        *lock(&self.state) = State::Asked;
        let _ = rustix::io::write(&self.asked, &1u64.to_ne_bytes());
        let resting = |state: &mut State| *state == State::Asked;
        // Late or not, what follows is the same.
        let _ = self.changed.wait_timeout_while(lock(&self.state), PATIENCE, resting);
    }

    /// Goes on.
    pub(super) fn end(&self) {
        *lock(&self.state) = State::Carrying;
        self.changed.notify_all();
    }

    /// Rests until it goes on, after `last` things to do. Nothing to do if nobody waits for it any more.
    fn rest(&self, last: impl FnOnce()) {
        let _ = rustix::io::read(&self.asked, &mut [0; 8]);
        if *lock(&self.state) != State::Asked {
            return;
        }
        last();
        let mut state = lock(&self.state);
        if *state == State::Asked {
            *state = State::Resting;
            self.changed.notify_all();
            let resting = |state: &mut State| *state == State::Resting;
            drop(self.changed.wait_while(state, resting));
        }
    }
}

const VEOF: SpecialCodeIndex = SpecialCodeIndex::VEOF;

/// How often a transaction in the background looks whether it has come to the foreground.
const BACKGROUND_TICK_MS: i64 = 200;

/// The outer terminal, as far as the standard streams are it.
#[derive(Debug, Clone)]
pub(super) struct OuterTerminal {
    /// Where keys come from, if standard input is the terminal.
    pub(super) input: Option<Arc<OwnedFd>>,
    /// Where the transaction's terminal output goes.
    pub(super) output: Arc<OwnedFd>,
    /// Whether raw mode is right.
    pub(super) raw: bool,
    /// How the terminal was before anything was changed: what the inner one starts with.
    pub(super) mode: Option<Termios>,
}

impl OuterTerminal {
    pub(super) fn new(input: Option<Arc<OwnedFd>>, output: Arc<OwnedFd>, raw: bool) -> Self {
        let mode = tcgetattr(&**input.as_ref().unwrap_or(&output)).ok();
        let output = writable(&output).map_or(output, Arc::new);
        OuterTerminal { input, output, raw, mode }
    }
}

/// The terminal opened for writing, when `terminal` (standard input alone) is only open for reading:
/// prompts that the command writes to `/dev/tty` have to get there.
fn writable(terminal: &OwnedFd) -> Option<OwnedFd> {
    let flags = fcntl_getfl(terminal).ok()?;
    if flags & OFlags::ACCMODE != OFlags::RDONLY {
        return None;
    }
    let name = format!("/proc/self/fd/{}", terminal.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let open = |name: &str| rustix::fs::open(name, flags, Mode::empty());
    open(&name).or_else(|_| open("/dev/null")).ok()
}

/// Makes a fresh terminal look like `outer`: same size, same keys. What is set on the master holds
/// for the slave (tty_ioctl(4)).
pub(super) fn set_up(master: &OwnedFd, outer: &OuterTerminal) -> Result<(), Error> {
    if let Some(mut mode) = outer.mode.clone() {
        if !outer.raw {
            // The outer terminal does both already.
            mode.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL);
            mode.output_modes.remove(OutputModes::OPOST);
        }
        tcsetattr(master, OptionalActions::Now, &mode)
            .map_err(Error::system("set up the new terminal"))?;
    }
    rustix::io::ioctl_fionbio(master, true).map_err(Error::system("set up the new terminal"))?;
    copy_size(outer, master);
    Ok(())
}

fn copy_size(outer: &OuterTerminal, master: &OwnedFd) {
    if let Ok(size) = tcgetwinsize(&*outer.output) {
        // Only a hung-up terminal refuses; then nobody looks at its size.
        let _ = tcsetwinsize(master, size);
    }
}

/// A socket that gets a byte when the size may have changed or the process was continued.
#[derive(Debug)]
pub(super) struct SizeChanges {
    pub(super) socket: OwnedFd,
    ids: Vec<signal_hook::SigId>,
}

impl Drop for SizeChanges {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// Starts to watch for SIGWINCH and SIGCONT.
pub(super) fn size_changes() -> Result<SizeChanges, Error> {
    let (ours, theirs) = UnixStream::pair().map_err(Error::system("make a signal socket"))?;
    ours.set_nonblocking(true).map_err(Error::system("set up a signal socket"))?;
    let mut ids = Vec::new();
    for signal in [libc::SIGWINCH, libc::SIGCONT] {
        let end = theirs.try_clone().map_err(Error::system("make a signal socket"))?;
        let id = signal_hook::low_level::pipe::register(signal, end)
            .map_err(Error::system("watch the terminal's size"))?;
        ids.push(id);
    }
    Ok(SizeChanges { socket: ours.into(), ids })
}

/// What goes in: the recorded keys first, then new ones.
struct Keys<'a> {
    record: &'a Mutex<Record>,
    /// Position in the whole input of what goes in next.
    fed: u64,
    /// Bytes that could not be kept and wait for room.
    loose: Vec<u8>,
    /// The outer terminal has hung up: there will be no more keys.
    over: bool,
}

/// Carries both ways until the last member has closed the terminal, or the end is raised and
/// nothing is left.
pub(super) fn carry_terminal(
    master: &OwnedFd,
    outer: &OuterTerminal,
    record: &Mutex<Record>,
    signals: &OwnedFd,
    (control, pause): (&Control, &Pause),
) {
    let mut keys = Keys { record, fed: 0, loose: Vec::new(), over: false };
    let mut bytes = vec![0; CHUNK];
    let mut ended = false;
    let (mut look, mut active) = (true, false);
    loop {
        if look && !ended {
            active = activate(outer);
            copy_size(outer, master);
        }
        let to_feed = keys.pending();
        let input = outer.input.as_deref().filter(|_| active && !to_feed && !keys.over);
        let master_events = if to_feed { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let fds = [
            (Some(master), master_events),
            (input, PollFlags::IN),
            (Some(signals), PollFlags::IN),
            (Some(&pause.asked), PollFlags::IN),
        ];
        // In the background nobody tells us when we come to the foreground.
        look = !active && outer.input.is_some();
        let timeout = if ended { Some(0) } else { look.then_some(BACKGROUND_TICK_MS) };
        let ready = wait(control, !ended, fds, timeout);
        if ready.cancelled {
            return;
        }
        if !ready.on[3].is_empty() {
            pause.rest(|| {
                while let Ok(read @ 1..) = rustix::io::read(master, &mut *bytes) {
                    if write_all(&outer.output, &bytes[..read], control).is_err() {
                        break;
                    }
                }
                terminal::restore();
            });
            look = true;
            continue;
        }
        if !ready.on[2].is_empty() {
            while rustix::io::read(signals, &mut bytes[..64]).is_ok_and(|n| n == 64) {}
            // After a stop the shell has set a mode of its own.
            look = true;
        }
        if readable(ready.on[0]) {
            match rustix::io::read(master, &mut *bytes) {
                Ok(read) if read > 0 => {
                    if write_all(&outer.output, &bytes[..read], control).is_err() {
                        return;
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                // EIO: the last slave is closed.
                Ok(_) | Err(_) => return,
            }
        } else if ended {
            return;
        }
        ended |= ready.ended;
        if to_feed && ready.on[0].contains(PollFlags::OUT) {
            keys.feed(master, &mut bytes);
        }
        if let Some(input) = input
            && readable(ready.on[1])
        {
            keys.read(input, master, gone(ready.on[1]), &mut bytes);
        }
    }
}

/// Takes the outer terminal if we are in its foreground. Whether it may be read now.
fn activate(outer: &OuterTerminal) -> bool {
    match &outer.input {
        Some(input) if terminal::in_foreground(input) => {
            if outer.raw {
                // A terminal that refuses is still better read line by line than not at all.
                let _ = terminal::enter_raw(input);
            }
            true
        }
        _ => false,
    }
}

impl Keys<'_> {
    /// Whether something waits to go in.
    fn pending(&self) -> bool {
        !self.loose.is_empty() || self.fed < lock(self.record).spool.len()
    }

    fn feed(&mut self, master: &OwnedFd, bytes: &mut [u8]) {
        let kept = lock(self.record).spool.read_at(self.fed, bytes).unwrap_or(0);
        if kept > 0 {
            self.fed += rustix::io::write(master, &bytes[..kept]).unwrap_or(0) as u64;
        } else if !self.loose.is_empty() {
            let written = rustix::io::write(master, &self.loose).unwrap_or(0);
            self.loose.drain(..written);
        }
    }

    fn read(&mut self, input: &OwnedFd, master: &OwnedFd, hung_up: bool, bytes: &mut [u8]) {
        match rustix::io::read(input, &mut *bytes) {
            Ok(read) if read > 0 => self.take(&bytes[..read]),
            Err(Errno::AGAIN | Errno::INTR) if !hung_up => {}
            // The end of the file, typed outside, is typed inside; so a retry gets it again.
            Ok(_) | Err(_) => {
                let key = tcgetattr(master).map_or(4, |mode| mode.special_codes[VEOF]);
                self.take(&[key]);
                self.over = hung_up;
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        if !lock(self.record).take(bytes) {
            self.loose.extend_from_slice(bytes);
        }
    }
}
