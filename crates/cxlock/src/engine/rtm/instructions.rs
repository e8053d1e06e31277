//! The four instructions of Intel RTM and their announcement by CPUID.
//!
//! Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 16, and volume
//! 2, XBEGIN, XEND, XABORT, CPUID leaf 7.
#![allow(unsafe_code)] // inline assembly: the intrinsics are not stable

/// What `begin` gives when the transaction runs.
pub(crate) const STARTED: u32 = !0;
/// Status bit: an `XABORT`; its code is in bits 24 to 31.
pub(crate) const EXPLICIT: u32 = 1;
/// Status bit: another attempt may succeed.
pub(crate) const RETRY: u32 = 1 << 1;
/// Status bit: another processor touched the sets.
pub(crate) const CONFLICT: u32 = 1 << 2;
/// Status bit: the sets did not fit.
pub(crate) const CAPACITY: u32 = 1 << 3;

/// Abort code: the section needs mutual exclusion.
pub(crate) const CODE_NEED_EXCLUSIVE: u32 = 0xe0;
/// Abort code: a lock on the way is held.
pub(crate) const CODE_BUSY: u32 = 0xb0;
/// Abort code: as after a conflict.
pub(crate) const CODE_CONFLICT: u32 = 0xc0;

/// What the processor says of its RTM.
pub(crate) struct Announced {
    /// `RTM_ALWAYS_ABORT`: microcode has switched it off.
    pub(crate) always_aborts: bool,
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod x86 {
    use super::Announced;
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    const LEAF_FEATURES: u32 = 7;
    const EBX_RTM: u32 = 1 << 11;
    const EDX_RTM_ALWAYS_ABORT: u32 = 1 << 11;

    /// RTM as announced; `None` where there is none.
    pub(crate) fn announced() -> Option<Announced> {
        // SAFETY: every x86-64 processor has CPUID. (A safe function since Rust 1.94.)
        #[allow(unused_unsafe)]
        let (highest, features) = unsafe { (__cpuid(0).eax, __cpuid_count(LEAF_FEATURES, 0)) };
        (highest >= LEAF_FEATURES && features.ebx & EBX_RTM != 0)
            .then_some(Announced { always_aborts: features.edx & EDX_RTM_ALWAYS_ABORT != 0 })
    }

    /// `XBEGIN`: `STARTED`, or the status of the attempt that failed. Only where RTM is announced.
    #[inline]
    pub(crate) fn begin() -> u32 {
        let status: u32;
        // SAFETY: callers have found RTM announced, else this would be an undefined instruction.
        // On an abort the processor restores all registers but EAX and all memory to what they
        // were at XBEGIN and goes on behind it: to the compiler that is this block giving another
        // value the first and only time. Memory is clobbered (no `nomem`), so no access moves
        // across.
        unsafe {
            asm!("xbegin 2f", "2:", inlateout("eax") super::STARTED => status, options(nostack));
        }
        status
    }

    /// `XEND`. Faults outside of a transaction.
    #[inline]
    pub(crate) fn end() {
        // SAFETY: callers are within a transaction that `begin` started on this thread.
        unsafe { asm!("xend", options(nostack)) }
    }

    /// `XABORT`: does not return within a transaction, does nothing outside of one.
    #[inline]
    pub(crate) fn abort<const CODE: u32>() {
        // SAFETY: callers have found RTM announced. The state goes back to `begin`'s.
        unsafe { asm!("xabort {}", const CODE, options(nostack)) }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
mod absent {
    use super::Announced;

    /// Never announced here, so nothing below is ever reached with a transaction running.
    pub(crate) fn announced() -> Option<Announced> {
        None
    }

    pub(crate) fn begin() -> u32 {
        0
    }

    pub(crate) fn end() {}

    pub(crate) fn abort<const CODE: u32>() {}
}

#[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
pub(crate) use absent::*;
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
pub(crate) use x86::*;
