//! The one place that decides whose atomics the algorithm runs on: the processor's, loom's (weak
//! memory, exhaustive) or shuttle's (sequentially consistent, randomized).
//!
//! The model checkers' atomics cannot be built in constant expressions, so `const_fn!` and `array!`
//! drop the `const` under them.

#![allow(unsafe_code)] // An empty assembly template.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

/// A function that is `const` wherever the atomics are. (At most one const parameter.)
macro_rules! const_fn {
    ($(#[$m:meta])* $v:vis const fn $n:ident $(<const $p:ident: $pt:ty>)? ($($a:tt)*) -> $r:ty $b:block) => {
        #[cfg(not(any(loom, shuttle)))]
        $(#[$m])*
        $v const fn $n $(<const $p: $pt>)? ($($a)*) -> $r $b

        #[cfg(any(loom, shuttle))]
        $(#[$m])*
        $v fn $n $(<const $p: $pt>)? ($($a)*) -> $r $b
    };
}
pub(crate) use const_fn;

/// An array of equal values that need not be `Copy`.
#[cfg(not(any(loom, shuttle)))]
macro_rules! array {
    ($e:expr) => {
        [const { $e }; _]
    };
}
/// An array of equal values that need not be `Copy`.
#[cfg(any(loom, shuttle))]
macro_rules! array {
    ($e:expr) => {
        core::array::from_fn(|_| $e)
    };
}
pub(crate) use array;

/// One short pause of a spinning thread; a scheduling point under the model checkers.
#[inline]
pub(crate) fn spin() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::hint::spin_loop();
    #[cfg(not(any(loom, shuttle)))]
    core::hint::spin_loop();
}

/// A full barrier after a store to a location of one's own, before loads of others' locations.
///
/// `store(value)` followed by `fence(SeqCst)`, which the C++20 model orders against the `SeqCst`
/// fences of the other side. On x86 an atomic exchange is such a barrier too (Intel SDM vol. 3,
/// 8.2.3.9) and takes about half of the time of `mfence`; the compiler must not move later loads
/// above it, which the compiler fence sees to. Checkers get the portable pair.
#[inline]
pub(crate) fn store_then_fence(at: &AtomicU64, value: u64) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    {
        at.swap(value, Ordering::SeqCst);
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
    {
        at.store(value, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

/// Keeps the compiler from turning the branch that this stands in into a conditional move.
#[inline(always)]
pub(crate) fn keep_branch() {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    // SAFETY: there is no instruction.
    unsafe {
        core::arch::asm!("", options(nomem, nostack, preserves_flags));
    }
}
