//! The outer terminal's mode: raw while a transaction's own terminal is shown on it.
//!
//! Invariant: from [`enter_raw`] on, the mode that was there before is kept in one place of the
//! process, and every way out gives it back: [`restore`] by the owner, by the manager's signal
//! handling, by a panic, or by `exit`. Giving it back twice does nothing.

use crate::{Error, sys};
use rustix::fd::OwnedFd;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

struct Saved {
    terminal: OwnedFd,
    mode: Termios,
}

static SAVED: Mutex<Option<Saved>> = Mutex::new(None);
static RAW: AtomicBool = AtomicBool::new(false);
static HOOKS: Once = Once::new();

extern "C" fn restore_at_exit() {
    restore();
}

/// Puts the terminal in raw mode and remembers how it was.
pub(super) fn enter_raw(terminal: &OwnedFd) -> Result<(), Error> {
    let mut saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner);
    let current = tcgetattr(terminal).map_err(Error::system("read the terminal's mode"))?;
    HOOKS.call_once(|| {
        // Without room for one more function the other ways out remain.
        let _ = sys::at_exit(restore_at_exit);
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
    let own = terminal.try_clone().map_err(Error::system("keep the terminal"))?;
    let mut raw = current.clone();
    raw.make_raw();
    tcsetattr(terminal, OptionalActions::Drain, &raw)
        .map_err(Error::system("put the terminal in raw mode"))?;
    saved.get_or_insert(Saved { terminal: own, mode: current });
    RAW.store(true, Ordering::Relaxed);
    Ok(())
}

/// Gives the terminal its mode back, if a transaction had changed it. For every way out of the
/// manager, its handling of SIGINT, SIGTERM and SIGHUP included: call it from the thread that takes
/// the signals, not from a handler itself (it takes a lock).
pub fn restore() {
    let saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Saved { terminal, mode }) = saved {
        // A terminal that has hung up has no mode to give back.
        let _ = tcsetattr(&terminal, OptionalActions::Now, &mode);
    }
    RAW.store(false, Ordering::Relaxed);
}

/// What ends a line that the manager prints itself: a raw terminal does not go back to the first
/// column by a line feed alone.
pub fn line_end() -> &'static str {
    if RAW.load(Ordering::Relaxed) { "\r\n" } else { "\n" }
}

/// Whether this process is in the terminal's foreground group, so that it may read from it and
/// change its mode without being stopped.
pub(super) fn in_foreground(terminal: &OwnedFd) -> bool {
    tcgetpgrp(terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}
