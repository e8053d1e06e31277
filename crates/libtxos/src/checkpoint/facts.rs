//! What the snapshot knows besides memory: fork(2) copied it, so the snapshot simply says what it has.

use super::{
    files::Set,
    raw::{die, syscall},
};

pub(super) const SIGNALS: usize = 65;
/// Processors that an affinity can name.
const PROCESSORS: usize = 8192;
const LIMITS: usize = 16;
const GROUPS: usize = 1024;

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
    umask: u32,
    dumpable: i32,
    scheduling: Scheduling,
    affinity: [u64; PROCESSORS / 64],
    affinity_size: usize,
    session: i32,
    group: i32,
    name: [u8; 16],
    /// Real, effective, saved; user and group.
    users: [u32; 3],
    groups: [u32; 3],
    further: [u32; GROUPS],
    further_count: usize,
    capabilities: [u32; 6],
    actions: [Action; SIGNALS],
    alternate_stack: [u64; 3],
    limits: [[u64; 2]; LIMITS],
}

/// Header of capget(2), version 3, for the calling thread.
const CAPABILITIES: [u32; 2] = [0x2008_0522, 0];

impl Facts {
    /// Fills everything in, for the calling process, which has these descriptors.
    pub(super) fn collect(&mut self, open: &Set) {
        // SAFETY: each call is given a structure of its own size, in `self`.
        unsafe {
            self.brk = syscall!(libc::SYS_brk, 0) as u64;
            for fd in open.iter() {
                let flags = syscall!(libc::SYS_fcntl, fd, libc::F_GETFD);
                self.cloexec.put(fd, flags > 0);
            }
            self.umask = syscall!(libc::SYS_umask, 0) as u32;
            syscall!(libc::SYS_umask, self.umask);
            self.dumpable = syscall!(libc::SYS_prctl, libc::PR_GET_DUMPABLE) as i32;
            self.scheduling = Scheduling::now();
            let (size, into) = (size_of_val(&self.affinity), self.affinity.as_mut_ptr());
            self.affinity_size =
                syscall!(libc::SYS_sched_getaffinity, 0, size, into).max(0) as usize;
            self.session = syscall!(libc::SYS_getsid, 0) as i32;
            self.group = syscall!(libc::SYS_getpgid, 0) as i32;
            syscall!(libc::SYS_prctl, libc::PR_GET_NAME, self.name.as_mut_ptr());
            let [real, effective, saved] = &mut self.users;
            syscall!(
                libc::SYS_getresuid,
                real as *mut u32,
                effective as *mut u32,
                saved as *mut u32
            );
            let [real, effective, saved] = &mut self.groups;
            syscall!(
                libc::SYS_getresgid,
                real as *mut u32,
                effective as *mut u32,
                saved as *mut u32
            );
            let count = syscall!(libc::SYS_getgroups, GROUPS, self.further.as_mut_ptr());
            self.further_count = count.max(0) as usize;
            let mut header = CAPABILITIES;
            syscall!(libc::SYS_capget, header.as_mut_ptr(), self.capabilities.as_mut_ptr());
            for signal in 1..SIGNALS {
                self.actions[signal] = action(signal);
            }
            syscall!(libc::SYS_sigaltstack, 0, self.alternate_stack.as_mut_ptr());
            for (resource, limit) in self.limits.iter_mut().enumerate() {
                syscall!(libc::SYS_prlimit64, 0, resource, 0, limit.as_mut_ptr());
            }
        }
    }

    /// Gives the calling process its credentials and limits back, before anything that needs them.
    pub(super) fn restore_rights(&self) {
        // SAFETY: what is read goes to local structures of the size that each call takes, what is set
        // comes from `self`, which such calls have filled.
        unsafe {
            let mut ids = [0u32; 6];
            let [ru, eu, su, rg, eg, sg] = &mut ids;
            syscall!(libc::SYS_getresuid, ru as *mut u32, eu as *mut u32, su as *mut u32);
            syscall!(libc::SYS_getresgid, rg as *mut u32, eg as *mut u32, sg as *mut u32);
            let [users, groups] = [&ids[..3], &ids[3..]];
            if users != self.users || groups != self.groups {
                // The effective user first: what has to be set needs its rights.
                let [real, effective, saved] = self.users;
                let keep = u32::MAX;
                syscall!(libc::SYS_setresuid, keep, effective, keep);
                let [group, effective_group, saved_group] = self.groups;
                let group = syscall!(libc::SYS_setresgid, group, effective_group, saved_group);
                let further =
                    syscall!(libc::SYS_setgroups, self.further_count, self.further.as_ptr());
                let user = syscall!(libc::SYS_setresuid, real, effective, saved);
                let may = self.users[1] == 0;
                if group < 0 || user < 0 || (may && further < 0) {
                    die(b"it gave rights up for good");
                }
            }
            let mut header = CAPABILITIES;
            let mut now = [0u32; 6];
            syscall!(libc::SYS_capget, header.as_mut_ptr(), now.as_mut_ptr());
            if now != self.capabilities {
                let set =
                    syscall!(libc::SYS_capset, header.as_mut_ptr(), self.capabilities.as_ptr());
                if set < 0 {
                    die(b"it gave capabilities up for good");
                }
            }
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

    /// Gives it back what needs no rights: signal handlers, umask, name, whether it may be dumped.
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
            syscall!(libc::SYS_sigaltstack, self.alternate_stack.as_ptr(), 0);
            syscall!(libc::SYS_umask, self.umask);
            // A change of users takes it away (PR_SET_DUMPABLE(2const)).
            syscall!(libc::SYS_prctl, libc::PR_SET_DUMPABLE, self.dumpable);
            self.restore_place();
            syscall!(libc::SYS_prctl, libc::PR_SET_NAME, self.name.as_ptr());
        }
    }
}

impl Facts {
    /// Puts the process back into its group, its scheduling class and onto its processors.
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
            let now = Scheduling::now();
            if now != self.scheduling {
                let wanted: *const Scheduling = &raw const self.scheduling;
                if syscall!(libc::SYS_sched_setattr, 0, wanted, 0) < 0 {
                    die(b"it changed its scheduling for good");
                }
            }
            let affinity = self.affinity.as_ptr();
            syscall!(libc::SYS_sched_setaffinity, 0, self.affinity_size, affinity);
        }
    }
}

/// The first members of `struct sched_attr` (sched_setattr(2)): policy, nice value, priority, deadlines.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Scheduling {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    deadline: [u64; 3],
}

impl Scheduling {
    /// That of the calling thread.
    fn now() -> Scheduling {
        const SIZE: usize = size_of::<Scheduling>();
        let mut now = Scheduling::default();
        let into: *mut Scheduling = &raw mut now;
        // SAFETY: the structure has the size that is given.
        unsafe { syscall!(libc::SYS_sched_getattr, 0, into, SIZE, 0) };
        now
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
