//! What waits for the commit, beside the changes: objects of communication, signals to processes outside,
//! messages to the system log.
//!
//! A transaction that is kept has no processes and no descriptors: it carries a [`Record`] of this, and
//! `txos commit ID` releases what the record says.

use serde::{Deserialize, Serialize};
use txos_effects::{
    ipc,
    supervisor::{Signals, Waiting},
    syslog::{self, Message},
};

/// What waits.
#[derive(Debug, Default)]
pub struct Deferred {
    /// Objects of communication that were left, to be made outside.
    pub objects: Vec<ipc::Object>,
    /// Signals to processes outside.
    pub signals: Signals,
    /// Messages to the system log.
    pub messages: Vec<Message>,
}

/// The same, as a kept transaction carries it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Record {
    objects: Vec<ipc::Object>,
    signals: Vec<Waiting>,
    messages: Vec<Message>,
}

impl Deferred {
    /// Why there can be no commit, if so: an object that was absent for the transaction is there.
    pub fn in_the_way(&self) -> Option<String> {
        ipc::in_the_way(&self.objects).first().map(|object| {
            format!(
                "{object}: one is there outside, which the transaction did not see; remove it \
                 (ipcrm(1)), or have the command remove its own"
            )
        })
    }

    /// Makes all of it real, after the commit. Gives a line for each that failed.
    pub fn release(&self) -> Vec<String> {
        let mut failed = Vec::from_iter(syslog::deliver(&self.messages));
        failed.extend(self.signals.send());
        failed.extend(ipc::publish(&self.objects));
        failed
    }

    /// What a kept transaction carries.
    pub fn record(&self) -> Record {
        Record {
            objects: self.objects.clone(),
            signals: self.signals.waiting(),
            messages: self.messages.clone(),
        }
    }

    /// What a kept transaction has carried; and a line for each signal whose receiver can't be found from
    /// here.
    pub fn of(record: Record) -> (Deferred, Vec<String>) {
        let (signals, lost) = Signals::again(&record.signals);
        (Deferred { objects: record.objects, signals, messages: record.messages }, lost)
    }
}
