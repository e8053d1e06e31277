//! Programs of several threads and locks on the state machine, one step at a time.
//!
//! The model adds to `cxlock::machine` what the machine leaves out: programs, transactions that
//! span locks (flat nesting keeps a lock in the sets after its end), restarts, and the choices of
//! the design as parameters, also the bad ones: the tests show what goes wrong with them.

use cxlock::machine::{
    Action, Admission, Call, Event, LockState, Manager, Meaning, Mode, Waiting, meaning, step,
};

pub type Lock = u8;
pub const LOCKS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    Optimistic(Lock),
    Exclusive(Lock),
    End(Lock),
    Io,
    /// A transaction that does not look at the status word.
    Begin,
    /// Its end.
    Commit,
}

/// How an end finds out what it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Each thread knows its mode in each lock.
    ByMode,
    /// As in the paper's figure 2: commit if in a transaction, else free.
    ByTransaction,
}

/// Where a restart goes that wants exclusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To the outermost section, at once.
    Outermost,
    /// To each section on the way out, one restart a level (section 7.4 of the paper).
    EachLevel,
}

#[derive(Debug, Clone, Copy)]
pub struct Design {
    pub manager: Manager,
    /// A transaction that waits for a lock loses against those who want its locks (section 5.3).
    pub waiting_loses: bool,
    /// A transaction that owes a lock and waits for another restarts exclusively.
    pub debtors_restart: bool,
    pub ends: Ends,
    pub target: Target,
}

impl Design {
    pub const OURS: Self = Self {
        manager: Manager::Restart,
        waiting_loses: true,
        debtors_restart: true,
        ends: Ends::ByMode,
        target: Target::Outermost,
    };
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Thread {
    pc: u8,
    /// Sections that the thread is in.
    entries: Vec<(Lock, Mode)>,
    /// The same when the running transaction began.
    entries_before: Vec<(Lock, Mode)>,
    /// Places where sections of the running transaction began, outermost first, and whether that
    /// section looks at the status word.
    levels: Vec<(u8, bool)>,
    /// Locks that the running transaction has been in.
    subscribed: [bool; LOCKS],
    /// Locks to be freed at the commit.
    owed: [bool; LOCKS],
    /// The transaction is on its way out to its outermost section.
    leaving: bool,
    /// The section at `pc` was restarted because it needs exclusion.
    need_exclusive: bool,
    /// Waits in `xtest`.
    waiting: bool,
    /// How often I/O was done.
    io: u8,
    /// Restarts for exclusion, levels counted.
    restarts: u8,
}

impl Thread {
    fn in_transaction(&self) -> bool {
        !self.levels.is_empty()
    }

    fn optimistic(&self) -> u32 {
        self.levels.len() as u32
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct World {
    pub threads: Vec<Thread>,
    holders: [Option<u8>; LOCKS],
}

impl World {
    pub fn new(threads: usize) -> Self {
        Self { threads: vec![Thread::default(); threads], holders: [None; LOCKS] }
    }

    pub fn is_done(&self, programs: &[&[Op]]) -> bool {
        self.threads.iter().zip(programs).all(|(t, p)| usize::from(t.pc) == p.len())
    }

    /// Restarts for exclusion of all threads.
    pub fn restarts(&self) -> u8 {
        self.threads.iter().map(|t| t.restarts).sum()
    }

    /// What must hold in every state.
    pub fn check(&self, programs: &[&[Op]]) -> Result<(), String> {
        for (lock, holder) in self.holders.iter().enumerate() {
            let inside: Vec<usize> = self.inside(lock, true).collect();
            if holder.is_some() && !inside.is_empty() {
                return Err(format!("lock {lock} is held while {inside:?} are inside"));
            }
        }
        if self.is_done(programs) {
            if let Some(lock) = self.holders.iter().position(Option::is_some) {
                return Err(format!("lock {lock} is held at the end"));
            }
            for (t, (thread, program)) in self.threads.iter().zip(programs).enumerate() {
                if thread.in_transaction() || !thread.entries.is_empty() {
                    return Err(format!("thread {t} is still inside at the end"));
                }
                let asked = program.iter().filter(|op| **op == Op::Io).count();
                if usize::from(thread.io) != asked {
                    return Err(format!("thread {t} did I/O {} times, not {asked}", thread.io));
                }
            }
        }
        Ok(())
    }

    /// Threads whose transaction is in `lock`; those that wait elsewhere only if asked for.
    fn inside(&self, lock: usize, waiting_too: bool) -> impl Iterator<Item = usize> {
        let inside = move |t: &Thread| t.subscribed[lock] && (waiting_too || !t.waiting);
        self.threads.iter().enumerate().filter(move |(_, t)| inside(t)).map(|(i, _)| i)
    }

    fn state(&self, lock: usize, design: &Design) -> LockState {
        match (self.holders[lock], self.inside(lock, !design.waiting_loses).count()) {
            (Some(_), _) => LockState::Exclusive,
            (None, 0) => LockState::Free,
            (None, n) => LockState::Transactional(n as u32),
        }
    }

    /// The state after thread `t`'s next step; `None` if it can only wait, or has ended.
    pub fn next(
        &self,
        t: usize,
        programs: &[&[Op]],
        design: &Design,
    ) -> Option<Result<Self, String>> {
        let mut next = self.clone();
        let thread = &self.threads[t];
        if thread.leaving {
            next.threads[t].leave_level();
            return Some(Ok(next));
        }
        let op = *programs[t].get(usize::from(thread.pc))?;
        let outcome = match op {
            Op::Optimistic(lock) if thread.need_exclusive && !thread.in_transaction() => {
                next.acquire(t, lock, design)
            }
            Op::Optimistic(lock) => next.enter(t, lock, design),
            Op::Exclusive(lock) => match meaning(Call::Exclusive, thread.optimistic(), None) {
                Meaning::Take => next.acquire(t, lock, design),
                _ => next.need_exclusion(t, design),
            },
            Op::End(lock) => match next.end(t, lock, design) {
                Ok(()) => Progress::Made,
                Err(fault) => return Some(Err(fault)),
            },
            Op::Io => match meaning(Call::Io, thread.optimistic(), None) {
                Meaning::Allowed => {
                    next.threads[t].io += 1;
                    next.threads[t].pc += 1;
                    Progress::Made
                }
                _ => next.need_exclusion(t, design),
            },
            Op::Begin => {
                next.threads[t].begin_level(false);
                Progress::Made
            }
            Op::Commit => {
                next.end_level(t);
                next.threads[t].pc += 1;
                Progress::Made
            }
        };
        match outcome {
            Progress::Made => Some(Ok(next)),
            Progress::None => (next != *self).then_some(Ok(next)),
        }
    }

    /// `cx_optimistic`, no exclusion wanted.
    fn enter(&mut self, t: usize, lock: Lock, design: &Design) -> Progress {
        let l = usize::from(lock);
        let state = self.state(l, design);
        let waiting = Waiting::default();
        let entered = step(state, Event::Optimistic, design.manager, waiting, ADMISSION);
        let thread = &mut self.threads[t];
        if entered.action == Action::Wait {
            if design.debtors_restart && thread.owed.contains(&true) {
                return self.need_exclusion(t, design);
            }
            thread.waiting = true;
            return Progress::None;
        }
        thread.begin_level(true);
        thread.entries.push((lock, Mode::Optimistic));
        thread.subscribed[l] = true;
        Progress::Made
    }

    /// `cx_exclusive` outside of a transaction, also for a section that was optimistic at first.
    fn acquire(&mut self, t: usize, lock: Lock, design: &Design) -> Progress {
        let l = usize::from(lock);
        let state = self.state(l, design);
        let taken =
            step(state, Event::Exclusive, design.manager, Waiting::default(), ADMISSION).action;
        if taken == Action::Wait {
            return Progress::None;
        }
        // Those inside restart: also the waiting ones, which the state does not show.
        let inside: Vec<usize> = self.inside(l, true).collect();
        for other in inside {
            self.threads[other].restart();
        }
        self.holders[l] = Some(t as u8);
        let thread = &mut self.threads[t];
        thread.need_exclusive = false;
        thread.entries.push((lock, Mode::Exclusive));
        thread.pc += 1;
        Progress::Made
    }

    fn end(&mut self, t: usize, lock: Lock, design: &Design) -> Result<(), String> {
        let thread = &mut self.threads[t];
        let at = thread.entries.iter().rposition(|(l, _)| *l == lock);
        let mode = at.map(|at| thread.entries[at].1);
        let mut means = meaning(Call::End, thread.optimistic(), mode);
        if design.ends == Ends::ByTransaction {
            means = match thread.levels.len() {
                0 => Meaning::Free,
                1 => Meaning::Commit,
                _ => Meaning::LeaveNested,
            };
        }
        if let Some(at) = at {
            thread.entries.remove(at);
        }
        thread.pc += 1;
        match means {
            Meaning::Free => self.holders[usize::from(lock)] = None,
            Meaning::FreeAtCommit => thread.owed[usize::from(lock)] = true,
            Meaning::LeaveNested | Meaning::Commit => self.end_level(t),
            _ => return Err(format!("thread {t} ends lock {lock}, in which it is not")),
        }
        Ok(())
    }

    /// Ends the innermost level of a transaction, and with the last one commits.
    fn end_level(&mut self, t: usize) {
        let thread = &mut self.threads[t];
        thread.levels.pop();
        if thread.levels.is_empty() {
            thread.subscribed = [false; LOCKS];
            let owed = std::mem::take(&mut thread.owed);
            for (holder, _) in self.holders.iter_mut().zip(owed).filter(|(_, owed)| *owed) {
                *holder = None;
            }
        }
    }

    /// `xrestart(NEED_EXCLUSIVE)`.
    fn need_exclusion(&mut self, t: usize, design: &Design) -> Progress {
        match design.target {
            Target::Outermost => self.threads[t].restart_outermost(),
            Target::EachLevel => self.threads[t].leaving = true,
        }
        Progress::Made
    }
}

impl Thread {
    fn begin_level(&mut self, looks_at_status: bool) {
        if self.levels.is_empty() {
            self.entries_before.clone_from(&self.entries);
        }
        self.levels.push((self.pc, looks_at_status));
        self.waiting = false;
        self.need_exclusive = false;
        self.pc += 1;
    }

    /// One level of a restart that visits each.
    fn leave_level(&mut self) {
        if self.levels.len() > 1 {
            self.count_restart();
            self.levels.pop();
        } else {
            self.restart_outermost();
        }
    }

    /// The status word will say `NEED_EXCLUSIVE`, to a section that looks.
    fn restart_outermost(&mut self) {
        self.count_restart();
        let looks = self.levels.first().is_some_and(|(_, looks)| *looks);
        self.restart();
        self.need_exclusive = looks;
    }

    /// Back to the outermost begin, with everything as it was there.
    fn restart(&mut self) {
        if let Some((start, _)) = self.levels.first().copied() {
            self.entries.clone_from(&self.entries_before);
            self.levels.clear();
            self.subscribed = [false; LOCKS];
            self.owed = [false; LOCKS];
            self.leaving = false;
            self.waiting = false;
            self.pc = start;
        }
    }

    /// Bounded, so that a loop of restarts is a cycle of states.
    fn count_restart(&mut self) {
        self.restarts = (self.restarts + 1).min(MAX_RESTARTS);
    }
}

const ADMISSION: Admission = Admission::ExclusiveFirst;
const MAX_RESTARTS: u8 = 8;

enum Progress {
    Made,
    /// Nothing but perhaps the fact that the thread waits.
    None,
}
