//! What the snapshot knows besides memory: fork(2) copied it, so the snapshot simply says what it has.

use super::files::Set;
use crate::{
    own::Own,
    raw::{die, syscall},
};

pub(super) const SIGNALS: usize = 65;
pub(super) const LIMITS: usize = 16;

/// `struct sigaction` of the kernel (rt_sigaction(2)), x86-64.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) handler: u64,
    pub(super) flags: u64,
    restorer: u64,
    mask: u64,
}

/// What a process has, but for memory.
#[repr(C)]
pub(super) struct Facts {
    /// The end of the heap.
    pub(super) brk: u64,
    /// The descriptors that close on exec.
    pub(super) cloexec: Set,
    own: Own,
    dumpable: i32,
    session: i32,
    group: i32,
    actions: [Action; SIGNALS],
    limits: [[u64; 2]; LIMITS],
}

impl Facts {
    /// Fills everything in, for the calling process, which has these descriptors.
    pub(super) fn collect(&mut self, open: &Set) {
        self.own.collect();
        // SAFETY: each call is given a structure of its own size, in `self`.
        unsafe {
            self.brk = syscall!(libc::SYS_brk, 0) as u64;
            for fd in open.iter() {
                let flags = syscall!(libc::SYS_fcntl, fd, libc::F_GETFD);
                self.cloexec.put(fd, flags > 0);
            }
            self.dumpable = syscall!(libc::SYS_prctl, libc::PR_GET_DUMPABLE) as i32;
            self.session = syscall!(libc::SYS_getsid, 0) as i32;
            self.group = syscall!(libc::SYS_getpgid, 0) as i32;
            for signal in 1..SIGNALS {
                self.actions[signal] = action(signal);
            }
            for (resource, limit) in self.limits.iter_mut().enumerate() {
                syscall!(libc::SYS_prlimit64, 0, resource, 0, limit.as_mut_ptr());
            }
        }
    }

    /// Gives the calling process its credentials and limits back, before anything that needs them.
    pub(super) fn restore_rights(&self) {
        self.own.restore_rights().unwrap_or_else(|why| die(why.as_bytes()));
        // SAFETY: what is read goes to a local structure of the call's size, what is set comes from `self`, which
        // such calls have filled.
        unsafe {
            for (resource, limit) in self.limits.iter().enumerate() {
                let mut now = [0u64; 2];
                syscall!(libc::SYS_prlimit64, 0, resource, 0, now.as_mut_ptr());
                if now != *limit
                    && syscall!(libc::SYS_prlimit64, 0, resource, limit.as_ptr(), 0) < 0
                {
                    die(b"it lowered a limit for good");
                }
            }
        }
    }

    /// Gives it back what needs no rights: signal handlers, whether it may be dumped, and what is its thread's own.
    pub(super) fn restore_rest(&self) {
        // SAFETY: each call is given what the same call, or its counterpart, has put into `self`: handlers
        // and the alternate stack are those that the program had set itself.
        unsafe {
            for signal in 1..SIGNALS {
                let wanted = &self.actions[signal];
                if action(signal) != *wanted {
                    wanted.set(signal);
                }
            }
            // A change of users takes it away (PR_SET_DUMPABLE(2const)).
            syscall!(libc::SYS_prctl, libc::PR_SET_DUMPABLE, self.dumpable);
            self.restore_place();
        }
        self.own.restore_rest().unwrap_or_else(|why| die(why.as_bytes()));
    }
}

impl Facts {
    /// Puts the process back into its group.
    fn restore_place(&self) {
        // SAFETY: plain numbers, and structures that the same calls, or their counterparts, have filled.
        unsafe {
            if syscall!(libc::SYS_getsid, 0) as i32 != self.session {
                die(b"it began a session of its own (setsid(2))");
            }
            let group = syscall!(libc::SYS_getpgid, 0) as i32;
            // The snapshot is in the group, so it is there.
            if group != self.group && syscall!(libc::SYS_setpgid, 0, self.group) < 0 {
                die(b"it left its process group for good");
            }
        }
    }
}

impl Action {
    /// What the calling process does with a signal.
    pub(super) fn of(signal: usize) -> Option<Action> {
        let mut action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
        let into: *mut Action = &raw mut action;
        // SAFETY: the structure is the kernel's, and the mask has 8 bytes.
        let got = unsafe { syscall!(libc::SYS_rt_sigaction, signal, 0, into, 8) };
        (got == 0).then_some(action)
    }

    /// Whether it calls a handler.
    pub(super) fn calls(&self) -> bool {
        ![libc::SIG_DFL, libc::SIG_IGN].contains(&(self.handler as usize))
    }

    /// Makes it what the calling process does with a signal.
    pub(super) fn set(&self, signal: usize) {
        let from: *const Action = self;
        // SAFETY: the structure is one that the kernel gave, with a handler that takes what it is given.
        unsafe { syscall!(libc::SYS_rt_sigaction, signal, from, 0, 8) };
    }
}

fn action(signal: usize) -> Action {
    Action::of(signal).unwrap_or(Action { handler: 0, flags: 0, restorer: 0, mask: 0 })
}
