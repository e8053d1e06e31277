//! Signals to txos itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
        mpsc::Sender,
    },
    thread,
};

use anyhow::{Context, Result};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGIO, SIGQUIT, SIGTERM, SIGTSTP},
    iterator::Signals,
};

use super::attempt::Event;
use crate::inherited;

/// Listens for the signals that ask txos to end.
///
/// The first one is remembered: it aborts the transaction wherever it is before its commit
/// record. After the record the commit is finished first.
///
/// `SIGTSTP`, the terminal's key that stops, waits too: nobody is stopped half-way through a commit.
#[derive(Clone, Debug)]
pub struct Interrupts {
    first: Arc<AtomicI32>,
    stop: Arc<AtomicBool>,
}

impl Interrupts {
    /// Starts to listen, and tells `events` of each signal.
    ///
    /// Also takes `SIGIO` away from its default of ending the process: a lease that is asked for
    /// while someone opens the file for writing is broken with it (fcntl(2), `F_SETLEASE`).
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn listen(events: Sender<Event>) -> Result<Interrupts> {
        let ignored = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGIO, ignored).context("cannot handle SIGIO")?;
        // Whoever ignores one means it: nohup(1), or a shell without job control that puts a command
        // into the background.
        let caller = inherited::signals();
        let wanted = [SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGTSTP].into_iter();
        let wanted = wanted.filter(|signal| !caller.ignores(*signal));
        let mut signals = Signals::new(wanted).context("cannot handle signals")?;
        let first = Arc::new(AtomicI32::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, stopping) = (Arc::clone(&first), Arc::clone(&stop));
        thread::Builder::new()
            .name("txos-signals".into())
            .spawn(move || {
                for signal in signals.forever() {
                    if signal == SIGTSTP {
                        stopping.store(true, Ordering::SeqCst);
                        if events.send(Event::Stop).is_err() {
                            return;
                        }
                        continue;
                    }
                    let _ = seen.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
                    if events.send(Event::Signal(signal)).is_err() {
                        return;
                    }
                }
            })
            .context("cannot start the signal thread")?;
        Ok(Interrupts { first, stop })
    }

    /// Whether the key that stops has come since this was asked last.
    pub fn take_stop(&self) -> bool {
        self.stop.swap(false, Ordering::SeqCst)
    }

    /// The first signal that came, if any.
    pub fn pending(&self) -> Option<i32> {
        match self.first.load(Ordering::SeqCst) {
            0 => None,
            signal => Some(signal),
        }
    }
}
