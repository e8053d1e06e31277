//! Effects: what a transaction does that cannot be versioned, and how it is kept in hand.
//!
//! Files are versioned by the view; this crate takes care of the rest. What becomes of each system
//! call stands in one [`table`]; six mechanisms, independent of one another, make it true:
//!
//! * [`filter`]: the system call filter, installed in the child that becomes the command.
//! * [`supervisor`]: the thread in the manager that answers what the filter asks.
//! * [`streams`]: standard input, output and error: recorded, held, or shown on a terminal.
//! * [`services`]: requests to the service manager: recorded inside, made after commit.
//! * [`syslog`]: messages to the system log: kept inside, sent after commit.
//! * [`ipc`]: objects of System V and POSIX communication: private inside, made outside after commit.
//!
//! # How a manager uses it
//!
//! ```no_run
//! # use std::os::unix::net::UnixStream;
//! # use txos_effects::{*, filter::*, streams::*, supervisor::*};
//! # fn spawn(_: [std::process::Stdio; 3], _: ChildPlan, _: Policy, _: UnixStream) {}
//! # fn wait() -> bool { true }
//! # fn main() -> Result<(), Error> {
//! let policy = Policy::default();
//! let spec = StreamsSpec {
//!     output: OutputMode::Auto,
//!     retries: true,
//!     scratch: "/var/lib/txos/scratch".into(),
//!     spill_after: DEFAULT_LIMIT,
//! };
//! // Held until the transaction ends, after its commit.
//! let locks = Locks::default();
//! let mut streams = Streams::new(spec, Outer::inherited()?)?;
//! loop {
//!     // An attempt: the child gets stdio, plan and policy, and one half of a socket.
//!     let (stdio, plan) = streams.attempt()?.into_stdio();
//!     let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
//!     spawn(stdio, plan, policy.clone(), theirs);
//!     let hooks = Hooks {
//!         notice: Box::new(|notice| eprint!("txos: {notice}{}", line_end())),
//!         abort: Box::new(|_refusal| { /* kill the transaction */ }),
//!         locks: locks.clone(),
//!         signals: Signals::default(),
//!         numbers: Box::new(|| None),
//!         gateway: Gateway::default(),
//!         tapes: Tapes::default(),
//!     };
//!     let supervisor = Supervisor::start(recv_fd(&ours)?, policy.clone(), hooks, 1)?;
//!     // If `plan.stdin_file` is set: streams.adopt_stdin(recv_fd(&ours)?);
//!     let committed = wait(); // until the last process has ended, and the commit is done
//!     let effects = supervisor.finish();
//!     let output = streams.finish(if committed { Outcome::Commit } else { Outcome::Retry });
//!     # drop((effects, output));
//!     if committed { break }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The order in which `streams` and the commit end matters: [`streams::Streams::finish`] with
//! [`streams::Outcome::Commit`] comes after the commit record, since it shows the held output.
//!
//! # What the child does
//!
//! In the fresh, single-threaded child, once its namespaces and mounts are there, as pid 1 of the
//! new pid namespace:
//!
//! 1. with `--allow net`: [`filter::close_abstract_sockets`];
//! 2. [`filter::Filter::install`] while `CAP_SYS_ADMIN` (in the child's user namespace) is still
//!    held, so that set-user-id programs keep working, and [`send_fd`] of the listener. Pid 1 has to
//!    be under the filter itself: a member could trace it and call through it;
//! 3. drop capabilities. The filter counts on these being gone from a transaction of root's:
//!    `CAP_NET_ADMIN` (with `--allow net` the network namespace is the host's), `CAP_SYS_ADMIN`,
//!    `CAP_SYS_RAWIO`, and `CAP_MKNOD` where devices can be opened;
//! 4. fork. The child of pid 1 will run the command: pid 1 itself would not get the terminal's
//!    signals, whose default action does nothing to it. In the child [`streams::ChildPlan::settle`]
//!    (new session, terminal, closed streams) and [`streams::ChildPlan::open_stdin`]; the descriptor
//!    that it gives goes to the manager with [`send_fd`];
//! 5. [`streams::seal_descriptors`], so that nothing that was open outside is open inside;
//! 6. run the command, by std's `CommandExt::exec`, which also gives `SIGPIPE` back its default
//!    action (every Rust program starts with it ignored). The socket and the listener must be closed by then (`send_fd` closes what it
//!    sends, std's sockets close on exec): whoever holds the listener can answer for everybody.
//!
//! The manager drops its copies of the child's ends as soon as the child is started (also those in
//! a [`std::process::Command`]): pumps end when the last writer does.
//!
//! # Signals in the manager
//!
//! Before it ends on a signal it calls [`streams::restore`], or `exit(3)`, or lets
//! [`streams::Streams`] be dropped: each gives the terminal back. A signal that kills it outright
//! (`SIGKILL`) leaves the terminal raw, as with every program.

mod error;
pub mod filter;
mod handover;
pub mod ipc;
mod policy;
pub mod services;
pub mod streams;
pub mod supervisor;
mod sys;
pub mod syslog;
pub mod table;

/// Questions of a filter and their answers, for whoever answers them in another way than
/// [`supervisor`]. Source: seccomp_unotify(2).
pub mod notify {
    pub use crate::sys::{
        Answer, Notified, notif_recv, notif_send, notif_sync_wake_up, notif_valid,
    };
}

pub use error::Error;
pub use handover::{recv_fd, send_fd};
pub use policy::{ENOTXSUPPORT, Host, OnUnsupported, Policy};
