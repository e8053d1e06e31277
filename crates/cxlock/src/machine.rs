//! The state machine of a cooperative transactional lock, as pure functions.
//!
//! Sources: TxLinux (SOSP 2007), table 2 (what a call does inside and outside of a transaction)
//! and table 3 (free, transactional, exclusive), with the gaps of the paper closed here:
//!
//! * Table 3 counts nobody; [`LockState::Transactional`] carries how many transactions are inside,
//!   so that "no other threads" can be decided.
//! * "Thread waits, or restart the transactions" is the contention manager's choice. It is
//!   [`Manager`], an argument, never hidden state.
//! * Who is let in at an end is a choice where threads of both kinds wait; [`Admission`] makes it
//!   an argument. A lock whose waiters compete for a free lock (the one in this crate) makes the
//!   choice afterwards; every such run is a run of this machine with the release split in two.
//!
//! The lock asks [`step`] before each `xcas` and [`meaning`] at each end; the other rows of table 2
//! are the types of [`Section`](crate::Section)'s methods. Tests compare the lock with [`step`] over
//! every sequence of calls, walk every cell, and run whole programs of several threads and locks on
//! these functions in an explicit-state explorer.

/// What a lock is, as all threads could agree on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockState {
    /// Nobody is inside.
    Free,
    /// That many transactions are inside; at least one.
    Transactional(u32),
    /// One thread holds the lock itself.
    Exclusive,
}

/// What a thread asks of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// `cx_exclusive` by a thread outside of every transaction.
    Exclusive,
    /// `cx_optimistic`, at the moment of the test that would let the thread in.
    Optimistic,
    /// `cx_end` by a thread that is inside.
    End,
    /// Input or output by a thread that is inside.
    Io,
}

/// How the contention manager judges a non-transactional thread against the transactions inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Manager {
    /// The transactions restart, the thread gets the lock.
    Restart,
    /// The thread waits until the transactions have ended.
    Wait,
}

/// How many threads wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Waiting {
    /// Threads that called `cx_exclusive`.
    pub exclusive: u32,
    /// Threads that called `cx_optimistic`.
    pub optimistic: u32,
}

/// Which kind of waiter an end prefers where both wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Admission {
    /// One exclusive waiter first.
    ExclusiveFirst,
    /// All optimistic waiters first.
    OptimisticFirst,
}

/// What the thread does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// It goes on.
    Proceed,
    /// It waits and asks again.
    Wait,
    /// The transactions inside restart, and it goes on.
    RestartOthers,
    /// Its own transaction restarts and will want the lock exclusively.
    RestartSelf,
    /// It leaves, nobody is let in.
    Leave,
    /// It leaves, and one exclusive waiter is let in.
    AdmitExclusive,
    /// It leaves, and all optimistic waiters are let in.
    AdmitOptimistic,
    /// The event makes no sense in this state: the caller is at fault.
    Invalid,
}

/// One cell of table 3: what the thread does and what the lock is afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    /// What the thread does.
    pub action: Action,
    /// The lock's state after it.
    pub next: LockState,
}

/// Table 3, for one event at one lock.
///
/// `waiting` and `admission` matter for [`Event::End`] alone, `manager` for [`Event::Exclusive`].
/// [`Event::Io`] in a transaction takes that transaction out of the lock; the paper's "next state:
/// exclusive" is reached when the restarted thread takes the lock.
#[must_use]
#[inline]
pub fn step(
    state: LockState,
    event: Event,
    manager: Manager,
    waiting: Waiting,
    admission: Admission,
) -> Step {
    use LockState::{Exclusive, Free, Transactional};
    let (action, next) = match (state, event) {
        (Transactional(0), _) | (Free, Event::End | Event::Io) => (Action::Invalid, state),
        (Free, Event::Exclusive) => (Action::Proceed, Exclusive),
        (Free, Event::Optimistic) => (Action::Proceed, Transactional(1)),

        (Transactional(_), Event::Exclusive) => match manager {
            Manager::Wait => (Action::Wait, state),
            Manager::Restart => (Action::RestartOthers, Exclusive),
        },
        (Transactional(n), Event::Optimistic) => (Action::Proceed, Transactional(n + 1)),
        (Transactional(1), Event::End) => match waiting.exclusive {
            0 => (Action::Leave, Free),
            _ => (Action::AdmitExclusive, Exclusive),
        },
        (Transactional(n), Event::End) => (Action::Leave, Transactional(n - 1)),
        (Transactional(1), Event::Io) => (Action::RestartSelf, Free),
        (Transactional(n), Event::Io) => (Action::RestartSelf, Transactional(n - 1)),

        (Exclusive, Event::Exclusive | Event::Optimistic) => (Action::Wait, state),
        (Exclusive, Event::Io) => (Action::Proceed, Exclusive),
        (Exclusive, Event::End) => match (waiting.exclusive, waiting.optimistic, admission) {
            (0, 0, _) => (Action::Leave, Free),
            (_, 0, _) | (1.., _, Admission::ExclusiveFirst) => (Action::AdmitExclusive, Exclusive),
            (_, n, _) => (Action::AdmitOptimistic, Transactional(n)),
        },
    };
    Step { action, next }
}

/// A call that a thread makes, before any lock is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// `cx_optimistic`.
    Optimistic,
    /// `cx_exclusive`.
    Exclusive,
    /// `cx_end`.
    End,
    /// Input or output.
    Io,
}

/// What a call means for the thread that makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// Start a transaction and enter the lock with it.
    Begin,
    /// Enter the lock with the transaction that runs already (flat nesting).
    Join,
    /// Take the lock itself.
    Take,
    /// Restart the outermost transaction; it will want exclusion.
    Restart,
    /// Leave a lock that the running transaction entered and keep it in the transaction's sets.
    LeaveNested,
    /// Commit: the last lock that the transaction entered ends.
    Commit,
    /// Free the lock.
    Free,
    /// Free the lock when the running transaction commits: its writes are not visible earlier.
    FreeAtCommit,
    /// Just do it.
    Allowed,
    /// The caller is at fault: it is not inside.
    Invalid,
}

/// How a thread is inside of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// Within a transaction.
    Optimistic,
    /// As the holder of the lock.
    Exclusive,
}

/// Table 2, for one call of a thread that has `optimistic` locks entered by its transaction (0: no
/// transaction runs), where the call is an end, of a lock in mode `ending`.
#[must_use]
#[inline]
pub fn meaning(call: Call, optimistic: u32, ending: Option<Mode>) -> Meaning {
    match (call, optimistic, ending) {
        (Call::Optimistic, 0, _) => Meaning::Begin,
        (Call::Optimistic, _, _) => Meaning::Join,
        (Call::Exclusive, 0, _) => Meaning::Take,
        (Call::Io, 0, _) => Meaning::Allowed,
        (Call::Exclusive | Call::Io, _, _) => Meaning::Restart,
        (Call::End, _, None) | (Call::End, 0, Some(Mode::Optimistic)) => Meaning::Invalid,
        (Call::End, 1, Some(Mode::Optimistic)) => Meaning::Commit,
        (Call::End, _, Some(Mode::Optimistic)) => Meaning::LeaveNested,
        (Call::End, 0, Some(Mode::Exclusive)) => Meaning::Free,
        (Call::End, _, Some(Mode::Exclusive)) => Meaning::FreeAtCommit,
    }
}
