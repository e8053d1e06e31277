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
    consts::{SIGHUP, SIGINT, SIGIO, SIGQUIT, SIGTERM},
    iterator::Signals,
};

use super::attempt::Event;
use crate::inherited;

/// Listens for the signals that ask txos to end.
///
/// The first one is remembered: it aborts the transaction wherever it is before its commit
/// record. After the record the commit is finished first.
#[derive(Clone, Debug)]
pub struct Interrupts {
    first: Arc<AtomicI32>,
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
        let wanted = [SIGINT, SIGTERM, SIGQUIT, SIGHUP].into_iter();
        let wanted = wanted.filter(|signal| !caller.ignores(*signal));
        let mut signals = Signals::new(wanted).context("cannot handle signals")?;
        let first = Arc::new(AtomicI32::new(0));
        let seen = Arc::clone(&first);
        thread::Builder::new()
            .name("txos-signals".into())
            .spawn(move || {
                for signal in signals.forever() {
                    let _ = seen.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
                    if events.send(Event::Signal(signal)).is_err() {
                        return;
                    }
                }
            })
            .context("cannot start the signal thread")?;
        Ok(Interrupts { first })
    }

    /// The first signal that came, if any.
    pub fn pending(&self) -> Option<i32> {
        match self.first.load(Ordering::SeqCst) {
            0 => None,
            signal => Some(signal),
        }
    }
}
