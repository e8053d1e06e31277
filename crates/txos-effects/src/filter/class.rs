//! Why a call is refused, and what the user can do about it.

use crate::Policy;
use serde::{Deserialize, Serialize};

/// The reason for a refusal. One for each remedy and each sentence that a user can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Mounts, swap, quota, freezing: the state of whole file systems.
    Mount,
    /// A new or another namespace.
    Namespace,
    /// Files by handle, past every name.
    Handle,
    /// Kernel, modules, host name, accounting, ports.
    Machine,
    /// The clocks.
    Clock,
    /// Sockets that leave the transaction.
    Network,
    /// Kernel keyrings.
    Keyring,
    /// BPF, performance counters, fanotify, page faults by a user.
    Watching,
    /// Input put into somebody's terminal.
    Terminal,
    /// Processes outside, by descriptor.
    Process,
}

impl Class {
    /// Whether `policy` lets the class through by a flag of its own.
    pub fn allowed_by(self, policy: &Policy) -> bool {
        self == Class::Network && policy.allow_net
    }

    /// Why it is refused, as the end of a sentence.
    pub fn why(self) -> &'static str {
        match self {
            Class::Mount => "the state of mounts, swap and quota cannot be rolled back",
            Class::Namespace => "the view must not be left or changed",
            Class::Handle => "a file handle reaches past the view",
            Class::Machine => "it changes the running machine",
            Class::Clock => "it changes the machine's clock",
            Class::Network => "the network is outside the transaction",
            Class::Keyring => "kernel keyrings are outside the transaction",
            Class::Watching => "it reaches processes and files outside the transaction",
            Class::Terminal => "it types into a terminal outside the transaction",
            Class::Process => {
                "a descriptor of a process outside would lead out of the view; a signal by kill(2) reaches \
                 it at the commit"
            }
        }
    }

    /// What a call of this class does once `--on-unsupported allow` lets it through, as the end of a
    /// sentence: the view's own namespaces take in some of them, and end with it.
    pub fn when_allowed(self, call: &str) -> &'static str {
        match (self, call) {
            (Class::Mount, "ioctl" | "swapon" | "swapoff" | "quotactl" | "quotactl_fd") => {
                "it acts on the machine at once, and an abort does not undo it"
            }
            (Class::Mount, _) => {
                "it acts on the transaction's view alone; what is written to a file system that is \
                 mounted inside is no part of the commit, and that of a memory file system is lost"
            }
            (Class::Network, "socket" | "socketpair") => {
                "most families act in the transaction's own network, which is gone with it, and the others \
                 outside at once"
            }
            (Class::Namespace, _) | (Class::Machine, "sethostname" | "setdomainname") => {
                "it acts on the transaction's view alone, and is gone with it"
            }
            _ => "it acts outside the transaction at once, and an abort does not undo it",
        }
    }

    /// Whether `--on-unsupported allow` lets the call through: inside, a process outside has no number that
    /// a descriptor could be made of; and of the network only connections can be carried, since the
    /// transaction has one of its own.
    pub fn can_be_allowed(self, call: &str) -> bool {
        self != Class::Process && !(self == Class::Network && call.starts_with("send"))
    }

    /// The flag that would let it through; empty where none does.
    pub fn flag(self) -> &'static str {
        match self {
            Class::Process => "",
            Class::Network => "--allow net",
            _ => "--on-unsupported allow",
        }
    }
}
