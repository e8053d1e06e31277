//! What a thread has for itself, besides registers and memory: rights, umask, scheduling, name.
#![allow(unsafe_code)] // raw system calls

use crate::raw::syscall;

/// Processors that an affinity can name.
const PROCESSORS: usize = 8192;
const GROUPS: usize = 1024;

/// Header of capget(2), version 3, for the calling thread.
const CAPABILITIES: [u32; 2] = [0x2008_0522, 0];

/// Why something cannot be put back.
pub(crate) type Gone = &'static str;

/// All of it.
#[repr(C)]
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Own {
    rights: Rights,
    umask: u32,
    scheduling: Scheduling,
    affinity: [u64; PROCESSORS / 64],
    affinity_size: usize,
    name: [u8; 16],
    alternate_stack: [u64; 3],
}

/// Who the thread is, and what it may do.
#[repr(C)]
#[derive(Clone, PartialEq, Eq)]
struct Rights {
    /// Real, effective, saved; user and group.
    users: [u32; 3],
    groups: [u32; 3],
    further: [u32; GROUPS],
    further_count: usize,
    capabilities: [u32; 6],
}

impl Own {
    /// Nothing yet.
    pub(crate) const fn new() -> Own {
        Own {
            rights: Rights {
                users: [0; 3],
                groups: [0; 3],
                further: [0; GROUPS],
                further_count: 0,
                capabilities: [0; 6],
            },
            umask: 0,
            scheduling: Scheduling {
                size: 0,
                policy: 0,
                flags: 0,
                nice: 0,
                priority: 0,
                deadline: [0; 3],
            },
            affinity: [0; PROCESSORS / 64],
            affinity_size: 0,
            name: [0; 16],
            alternate_stack: [0; 3],
        }
    }

    /// Fills everything in, for the calling thread.
    pub(crate) fn collect(&mut self) {
        // SAFETY: each call is given a structure of its own size, in `self`.
        unsafe {
            self.umask = syscall!(libc::SYS_umask, 0) as u32;
            syscall!(libc::SYS_umask, self.umask);
            self.scheduling = Scheduling::now();
            let (size, into) = (size_of_val(&self.affinity), self.affinity.as_mut_ptr());
            self.affinity_size =
                syscall!(libc::SYS_sched_getaffinity, 0, size, into).max(0) as usize;
            syscall!(libc::SYS_prctl, libc::PR_GET_NAME, self.name.as_mut_ptr());
            syscall!(libc::SYS_sigaltstack, 0, self.alternate_stack.as_mut_ptr());
        }
        self.rights.collect();
    }

    /// The stack for signal handlers (sigaltstack(2)).
    pub(crate) fn alternate_stack(&self) -> &[u64; 3] {
        &self.alternate_stack
    }

    /// Gives the calling thread its rights back, before anything that needs them.
    ///
    /// # Errors
    /// If it gave up for good what it had.
    pub(crate) fn restore_rights(&self) -> Result<(), Gone> {
        self.rights.restore()
    }

    /// Gives it back what needs no rights.
    ///
    /// # Errors
    /// If its scheduling was changed for good.
    pub(crate) fn restore_rest(&self) -> Result<(), Gone> {
        // SAFETY: each call is given what the same call, or its counterpart, has put into `self`: the alternate
        // stack is one that the program had set itself.
        unsafe {
            syscall!(libc::SYS_sigaltstack, self.alternate_stack.as_ptr(), 0);
            syscall!(libc::SYS_umask, self.umask);
            let now = Scheduling::now();
            if now != self.scheduling {
                let wanted: *const Scheduling = &raw const self.scheduling;
                if syscall!(libc::SYS_sched_setattr, 0, wanted, 0) < 0 {
                    return Err("it changed its scheduling for good");
                }
            }
            let affinity = self.affinity.as_ptr();
            syscall!(libc::SYS_sched_setaffinity, 0, self.affinity_size, affinity);
            syscall!(libc::SYS_prctl, libc::PR_SET_NAME, self.name.as_ptr());
        }
        Ok(())
    }
}

impl Rights {
    fn collect(&mut self) {
        // SAFETY: each call is given a structure of its own size, in `self`.
        unsafe {
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
        }
    }

    fn restore(&self) -> Result<(), Gone> {
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
                    return Err("it gave rights up for good");
                }
            }
            let mut header = CAPABILITIES;
            let mut now = [0u32; 6];
            syscall!(libc::SYS_capget, header.as_mut_ptr(), now.as_mut_ptr());
            if now != self.capabilities {
                let set =
                    syscall!(libc::SYS_capset, header.as_mut_ptr(), self.capabilities.as_ptr());
                if set < 0 {
                    return Err("it gave capabilities up for good");
                }
            }
        }
        Ok(())
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
