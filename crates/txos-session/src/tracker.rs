//! Which processes belong to a transaction: those that members start, and how they end.
//!
//! With privilege the kernel tells of every fork and exit as it happens (the process connector,
//! `linux/cn_proc.h`). The message about a fork is in the queue when the call returns, so that who drains
//! the queue after a member's request knows of all who were born before. The message about an exit comes
//! a moment after the parent could wait for the process: it has to be waited for. Without privilege, processes that were born since the
//! beginning are looked for in `/proc` by their mount namespace.
//!
//! # Invariants
//!
//! - A process that a member forks is a member until it ends, or has left the view's namespace.
//! - Where the queue has overflowed, `/proc` decides who is alive; how somebody ended is not known then,
//!   and counts as an exit.
#![allow(unsafe_code)] // a netlink address that no safe wrapper makes

use std::{
    collections::{HashMap, HashSet},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send, sockopt::set_socket_recv_buffer_size_force},
};

/// Bytes of events that may wait.
const QUEUE: usize = 4 << 20;

/// A running transaction, by its id.
type Id = u64;

#[derive(Default)]
struct Known {
    /// Threads that began or joined, with their processes.
    entered: HashMap<i32, (Id, i32)>,
    /// Processes that were born in a transaction.
    born: HashMap<i32, Id>,
    /// Those of them that have ended.
    gone: HashMap<i32, Id>,
    /// Threads, with their processes, that were born while another thread of the process was inside. The
    /// kernel does not say which thread started them; their namespace does.
    threads: HashMap<i32, i32>,
    /// Transactions of which a member was killed by a signal.
    killed: HashSet<Id>,
    /// Transactions in which a process or a thread was started.
    started: HashSet<Id>,
    /// The queue has overflowed: some ends will never be told.
    lost: bool,
}

/// The members of all transactions of a session.
pub(crate) struct Tracker {
    events: Option<OwnedFd>,
    known: Mutex<Known>,
}

/// An event that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Fork { parent: [i32; 2], child: [i32; 2] },
    Exit { task: [i32; 2], status: i32 },
}

impl Tracker {
    pub(crate) fn new() -> Tracker {
        let events = listen().inspect_err(|errno| {
            tracing::debug!(%errno, "the kernel does not tell of forks and exits here");
        });
        Tracker { events: events.ok(), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(events) = &self.events {
            drain(events, &mut known);
        }
        known
    }

    /// Whether the kernel tells.
    pub(crate) fn is_told(&self) -> bool {
        self.events.is_some()
    }

    /// A thread of a process begins a transaction, or joins one.
    pub(crate) fn enter(&self, thread: i32, process: i32, transaction: Id) {
        self.known().entered.insert(thread, (transaction, process));
    }

    /// A thread has left its transaction.
    pub(crate) fn leave(&self, thread: i32) {
        self.known().entered.remove(&thread);
    }

    /// The processes that were born in a transaction and are alive, as far as the kernel tells.
    pub(crate) fn born(&self, transaction: Id) -> Vec<i32> {
        self.known().of(transaction).collect()
    }

    /// Whether a process was born in a transaction, also one that has ended, as far as the kernel tells.
    pub(crate) fn was_born(&self, transaction: Id, process: i32) -> bool {
        let known = self.known();
        [&known.born, &known.gone].iter().any(|known| known.get(&process) == Some(&transaction))
    }

    /// Whether the kernel will tell how somebody ended who was born in a transaction and is not alive any
    /// more, as `is_alive` knows.
    pub(crate) fn will_hear(&self, transaction: Id, is_alive: impl Fn(i32) -> bool) -> bool {
        let mut known = self.known();
        let dead: Vec<i32> = known.of(transaction).filter(|pid| !is_alive(*pid)).collect();
        if dead.is_empty() {
            return false;
        }
        // The news may have come since.
        if let Some(events) = &self.events {
            drain(events, &mut known);
        }
        !known.lost && dead.iter().any(|pid| known.born.contains_key(pid))
    }

    /// The threads of a process that may have been started inside, and are alive.
    pub(crate) fn threads(&self, process: i32) -> Vec<i32> {
        let known = self.known();
        let of = known.threads.iter().filter(|(_, of)| **of == process);
        of.map(|(thread, _)| *thread).collect()
    }

    /// Whether a thread began or joined a transaction, and is in it.
    pub(crate) fn has_entered(&self, thread: i32) -> bool {
        self.known().entered.contains_key(&thread)
    }

    /// Whether a member was killed by a signal.
    pub(crate) fn has_killed(&self, transaction: Id) -> bool {
        self.known().killed.contains(&transaction)
    }

    /// Whether a process or a thread was started in a transaction, or may have been.
    pub(crate) fn has_started(&self, transaction: Id) -> bool {
        let known = self.known();
        !self.is_told() || known.lost || known.started.contains(&transaction)
    }

    /// The transaction is over.
    pub(crate) fn forget(&self, transaction: Id) {
        let mut known = self.known();
        known.entered.retain(|_, (id, _)| *id != transaction);
        known.born.retain(|_, id| *id != transaction);
        known.gone.retain(|_, id| *id != transaction);
        known.killed.remove(&transaction);
        known.started.remove(&transaction);
    }
}

impl Known {
    /// Processes that were born in a transaction, and of whose end nothing is known.
    fn of(&self, transaction: Id) -> impl Iterator<Item = i32> {
        let of = move |(task, id): (&i32, &Id)| (*id == transaction).then_some(*task);
        self.born.iter().filter_map(of)
    }

    fn take(&mut self, event: Event) {
        match event {
            // Of a new thread the kernel names the parent of its process.
            Event::Fork { child: [thread, process], .. } if thread != process => {
                let of = self.entered.values().filter(|(_, of)| *of == process);
                let inside: Vec<Id> = of.map(|(id, _)| *id).collect();
                if !inside.is_empty() {
                    self.threads.insert(thread, process);
                }
                self.started.extend(inside);
            }
            Event::Fork { parent: [thread, process], child: [child, _] } => {
                let entered = self.entered.get(&thread).map(|(id, _)| *id);
                if let Some(id) = entered.or_else(|| self.born.get(&process).copied()) {
                    self.born.insert(child, id);
                    self.started.insert(id);
                }
            }
            Event::Exit { task: [task, leader], status } => {
                self.entered.remove(&task);
                self.threads.remove(&task);
                let Some(id) = self.born.remove(&task) else { return };
                self.gone.insert(task, id);
                if task == leader && libc::WIFSIGNALED(status) {
                    self.killed.insert(id);
                }
            }
        }
    }
}

fn drain(events: &OwnedFd, known: &mut Known) {
    let mut bytes = [0; 1024];
    loop {
        match recv(events, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((_, length)) => {
                if let Some(event) = parse(&bytes[..length]) {
                    known.take(event);
                }
            }
            // Some were lost: what is known is looked at again by who asks.
            Err(Errno::NOBUFS) => known.lost = true,
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// `struct nlmsghdr`, `struct cn_msg`, `struct proc_event`.
fn parse(bytes: &[u8]) -> Option<Event> {
    const HEADERS: usize = 16 + 20;
    const FORK: i32 = 1;
    const EXIT: i32 = 0x8000_0000_u32.cast_signed();
    let event = bytes.get(HEADERS..)?;
    let word = |index: usize| {
        let bytes = event.get(index * 4..index * 4 + 4)?;
        bytes.try_into().ok().map(i32::from_ne_bytes)
    };
    match word(0)? {
        FORK => Some(Event::Fork { parent: [word(4)?, word(5)?], child: [word(6)?, word(7)?] }),
        EXIT => Some(Event::Exit { task: [word(4)?, word(5)?], status: word(6)? }),
        _ => None,
    }
}

/// Asks the kernel for forks and exits.
fn listen() -> Result<OwnedFd, Errno> {
    const NETLINK_CONNECTOR: i32 = 11;
    const CN_IDX_PROC: u32 = 1;
    const LISTEN: u32 = 1;
    const WANTED: u32 = 1 | 0x8000_0000;
    let last = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: plain numbers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, NETLINK_CONNECTOR) };
    if fd < 0 {
        return Err(last());
    }
    // SAFETY: the kernel just made it for us.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: a structure of integers, for which zero is a value.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups = CN_IDX_PROC;
    let size = size_of_val(&address) as u32;
    // SAFETY: the address is valid for its size.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) };
    if bound != 0 {
        return Err(last());
    }
    // More than others may have; with less, more is lost under load.
    let _ = set_socket_recv_buffer_size_force(&socket, QUEUE);
    // Since Linux 6.6 a listener says which events it wants; before, the second word is passed over.
    let words = [
        16 + 20 + 8, // struct nlmsghdr: length, type and flags, sequence, port
        3,
        0,
        0,
        CN_IDX_PROC, // struct cn_msg: id, value, sequence, ack, length and flags
        1,
        0,
        0,
        8,
        LISTEN,
        WANTED,
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
    send(&socket, &bytes, SendFlags::empty())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_follows_forks_and_ends() {
        let mut known = Known::default();
        known.entered.insert(10, (1, 9));
        known.take(Event::Fork { parent: [10, 9], child: [20, 20] });
        known.take(Event::Fork { parent: [10, 9], child: [21, 20] }); // a thread
        known.take(Event::Fork { parent: [21, 20], child: [30, 30] });
        known.take(Event::Fork { parent: [11, 9], child: [40, 40] }); // another thread's child
        known.take(Event::Fork { parent: [1, 1], child: [12, 9] }); // the owner's new thread
        let mut born: Vec<_> = known.born.keys().copied().collect();
        born.sort_unstable();
        assert_eq!(born, [20, 30]);
        assert_eq!(known.threads.remove(&12), Some(9));
        assert!(known.threads.is_empty());
        known.take(Event::Exit { task: [30, 30], status: 0x300 });
        assert!(known.killed.is_empty());
        known.take(Event::Exit { task: [20, 20], status: libc::SIGKILL });
        assert!(known.killed.contains(&1));
        assert!(known.born.is_empty() && known.entered.len() == 1);
    }

    #[test]
    fn the_kernel_tells() {
        let tracker = Tracker::new();
        if !tracker.is_told() {
            println!("Skip: the process connector needs privilege");
            return;
        }
        let me = rustix::thread::gettid().as_raw_pid();
        tracker.enter(me, std::process::id().cast_signed(), 7);
        let run = |script: &str| {
            let status = std::process::Command::new("sh").args(["-c", script]).status();
            status.expect("a shell")
        };
        run("sh -c 'exit 3'; true");
        assert!(tracker.has_entered(me) && tracker.born(7).is_empty());
        assert!(!tracker.has_killed(7));
        run("sh -c 'kill -9 $$'; true");
        assert!(tracker.has_killed(7));
        tracker.forget(7);
        assert!(!tracker.has_entered(me) && !tracker.has_killed(7));
    }
}
