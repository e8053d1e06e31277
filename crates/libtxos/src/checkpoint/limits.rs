//! Hard resource limits that the program lowers while a transaction runs that can be rolled back.
//!
//! Without `CAP_SYS_RESOURCE` nothing raises a hard limit again, so it is lowered only when no rollback can come any
//! more. Until then it is noted, by the [calls](crate::limit_calls) that change and show limits; the soft limit is
//! real at once. With that right both are: a rollback raises them.
//!
//! # Invariants
//!
//! - The notes are ordinary memory of the process, so a rollback takes them back. Outside a transaction, and in a
//!   child that was forked by the C library, there are none.
//! - What is noted is lower than what the kernel has, and the kernel's soft limit is not above it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::{
    fs::stat,
    io::Errno,
    thread::{CapabilitySet, capabilities},
};

use super::{facts::LIMITS, raw::syscall, signals};

/// A limit as the kernel knows it (`struct rlimit64`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) soft: u64,
    pub(crate) hard: u64,
}

/// Nothing is noted: there is no limit above this one.
const NOTHING: u64 = libc::RLIM_INFINITY;

/// The hard limits that are noted, by resource.
static NOTED: [AtomicU64; LIMITS] = [const { AtomicU64::new(NOTHING) }; LIMITS];

/// Whether children are told.
static HOOKED: AtomicBool = AtomicBool::new(false);

/// The number of the machine's first user namespace, whose rights count for limits (`PROC_USER_INIT_INO`).
const FIRST_USERS: u64 = 0xefff_fffd;

/// Has children that are forked lower their limits for real: nobody rolls them back.
///
/// # Errors
/// If there is no memory.
pub(crate) fn hook() -> Result<(), Errno> {
    if HOOKED.load(Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: the function is there as long as the library is; when that is unloaded, the C library forgets it.
    match unsafe { libc::pthread_atfork(None, None, Some(in_child)) } {
        0 => HOOKED.store(true, Ordering::Relaxed),
        error => return Err(Errno::from_raw_os_error(error)),
    }
    Ok(())
}

unsafe extern "C" fn in_child() {
    apply();
}

/// Gives the calling process's limit of a resource as it was, and sets it, if there is a new one.
///
/// # Errors
/// As prlimit(2), as a negative number.
pub(crate) fn exchange(resource: u32, new: Option<Limit>) -> Result<Limit, isize> {
    let noted = usize::try_from(resource).ok().and_then(|resource| NOTED.get(resource));
    let Some(noted) = noted.filter(|_| signals::is_watching()) else {
        return kernels(resource, new);
    };
    let real = kernels(resource, None)?;
    let before = Limit { hard: real.hard.min(noted.load(Ordering::Relaxed)), ..real };
    let Some(new) = new else { return Ok(before) };
    if new.soft > new.hard {
        return Err(refusal(Errno::INVAL));
    }
    let may_raise = may_raise();
    if new.hard > before.hard && !may_raise {
        return Err(refusal(Errno::PERM));
    }
    let waits = new.hard < real.hard && !may_raise;
    // What the kernel does not take so is left to it as it is.
    if waits && kernels(resource, Some(Limit { hard: real.hard, ..new })).is_ok() {
        noted.store(new.hard, Ordering::Relaxed);
        return Ok(before);
    }
    kernels(resource, Some(new))?;
    noted.store(NOTHING, Ordering::Relaxed);
    Ok(before)
}

/// Lowers for real what was noted: no rollback comes any more. The kernel refuses nobody that.
pub(crate) fn apply() {
    for (resource, noted) in (0..).zip(&NOTED) {
        let hard = noted.swap(NOTHING, Ordering::Relaxed);
        if hard != NOTHING
            && let Ok(real) = kernels(resource, None)
            && hard < real.hard
        {
            let _ = kernels(resource, Some(Limit { soft: real.soft.min(hard), hard }));
        }
    }
}

/// Whether the calling thread may raise hard limits.
fn may_raise() -> bool {
    capabilities(None).is_ok_and(|has| has.effective.contains(CapabilitySet::SYS_RESOURCE))
        && stat("/proc/self/ns/user").is_ok_and(|users| users.st_ino == FIRST_USERS)
}

/// The kernel's prlimit(2), for the calling process.
fn kernels(resource: u32, new: Option<Limit>) -> Result<Limit, isize> {
    let new = new.as_ref().map_or(0, |new| std::ptr::from_ref(new) as usize);
    let mut old = Limit { soft: 0, hard: 0 };
    let into: *mut Limit = &raw mut old;
    // SAFETY: the structures are the kernel's, and live as long as the call.
    match unsafe { syscall!(libc::SYS_prlimit64, 0, resource, new, into) } {
        0 => Ok(old),
        error => Err(error),
    }
}

fn refusal(errno: Errno) -> isize {
    -(errno.raw_os_error() as isize)
}
