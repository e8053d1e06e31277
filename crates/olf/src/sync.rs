//! The one place that decides whose atomics the algorithm runs on: the processor's, loom's (weak
//! memory, exhaustive) or shuttle's (sequentially consistent, randomized).
//!
//! The model checkers' atomics cannot be built in constant expressions, so `const_fn!` and `array!`
//! drop the `const` under them.

#![allow(unsafe_code)] // An empty assembly template; a cell of loom's.

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

/// Stores to a location of one's own, then loads another one, in this order for everybody who puts a
/// `SeqCst` fence between a store to (or load of) the second and a load of the first: not both sides can miss
/// what the other has stored. The load acquires.
///
/// An atomic exchange and a load, both `SeqCst`, take about half of the time of a store, a fence and a load
/// on x86, where the exchange is an `xchg` and the load a plain one. In the C++20 model they do as well. Let
/// `A` be the exchange, `B` the load, `F` the other side's fence, behind a load (or store) `X` of `look` and
/// before a load `Y` of `at`, and let `Y` miss `A` and `B` miss what `X` saw. Then `Y` is coherence-ordered
/// before `A`, so `F` comes before `A` in the single order; `B` is coherence-ordered before `X`, which
/// happens before `F`, so `B` comes before `F`; and `A` comes before `B`, as it is sequenced before it.
/// That is a circle.
///
/// Loom takes `SeqCst` accesses for acquire and release only, and would find fault with that, so the model
/// checkers get the fence. What they cannot see is checked by Miri, which knows the `SeqCst` order, and by
/// the test below, on the processor itself.
#[inline]
pub(crate) fn store_then_load(at: &AtomicU64, value: u64, look: &AtomicU64) -> u64 {
    #[cfg(not(any(loom, shuttle)))]
    {
        at.swap(value, Ordering::SeqCst);
        look.load(Ordering::SeqCst)
    }
    #[cfg(any(loom, shuttle))]
    {
        at.store(value, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        look.load(Ordering::Acquire)
    }
}

/// Under loom: checks that plain accesses in the places where this is read and written would be no data
/// race. The links of a slot are atomics only for those who look at a slot that is being taken over, and
/// then discard what they saw; all others claim to be ordered, and this holds them to it. Else nothing.
pub(crate) struct Watch(#[cfg(loom)] loom::cell::UnsafeCell<()>);

// SAFETY: there is nothing in it; loom reports accesses that are not ordered.
#[cfg(loom)]
unsafe impl Sync for Watch {}
// SAFETY: as above.
#[cfg(loom)]
unsafe impl Send for Watch {}

impl Watch {
    const_fn! {
        pub(crate) const fn new() -> Self {
            Self(#[cfg(loom)] loom::cell::UnsafeCell::new(()))
        }
    }

    /// The slot is read by somebody to whom it cannot change.
    #[inline]
    pub(crate) fn read(&self) {
        #[cfg(loom)]
        self.0.with(|_| ());
    }

    /// The slot is written by its owner.
    #[inline]
    pub(crate) fn write(&self) {
        #[cfg(loom)]
        self.0.with_mut(|_| ());
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::thread;

    /// The store-buffer litmus test: in no round do both sides miss the other. Runs for `OLF_LITMUS_MS`
    /// (200 unless set). With a plain store instead of the exchange it fails, on x86 too; mutant 20 does.
    #[test]
    fn one_side_sees_the_other() {
        let ms = std::env::var("OLF_LITMUS_MS").ok().and_then(|ms| ms.parse().ok()).unwrap_or(200);
        let end = std::time::Instant::now() + std::time::Duration::from_millis(ms);
        let mut rounds = 0;
        loop {
            let some = if cfg!(miri) { 50 } else { 2000 };
            let missed = both_missed(some);
            assert_eq!(missed, 0, "both sides missed the other, {missed} times in {some} rounds");
            rounds += some;
            if cfg!(miri) || std::time::Instant::now() > end {
                break;
            }
        }
        std::println!("{rounds} rounds");
    }

    /// In how many of so many rounds of two threads both sides missed the other.
    fn both_missed(rounds: u64) -> usize {
        let [at, look, a_done, b_done] = [const { crate::epoch::Padded(AtomicU64::new(0)) }; 4];
        let meet = |mine: &AtomicU64, other: &AtomicU64, round: u64| {
            mine.store(round, Ordering::Release);
            let mut looks = 0;
            while other.load(Ordering::Acquire) < round {
                looks += 1;
                if cfg!(miri) || looks > 500 {
                    thread::yield_now()
                } else {
                    core::hint::spin_loop()
                }
            }
        };
        thread::scope(|s| {
            let b = s.spawn(|| {
                let one = |round| {
                    meet(&b_done.0, &a_done.0, 2 * round - 1);
                    look.0.store(round, Ordering::Relaxed);
                    fence(Ordering::SeqCst);
                    let saw = at.0.load(Ordering::Acquire) == round;
                    meet(&b_done.0, &a_done.0, 2 * round);
                    saw
                };
                (1..=rounds).map(one).collect::<std::vec::Vec<bool>>()
            });
            let one = |round| {
                meet(&a_done.0, &b_done.0, 2 * round - 1);
                // Not always at the same distance from the other side.
                (0..round % 8).for_each(|_| core::hint::spin_loop());
                let saw = store_then_load(&at.0, round, &look.0) == round;
                meet(&a_done.0, &b_done.0, 2 * round);
                saw
            };
            let a_saw: std::vec::Vec<bool> = (1..=rounds).map(one).collect();
            let b_saw = b.join().expect("no panic");
            a_saw.iter().zip(&b_saw).filter(|(a, b)| !**a && !**b).count()
        })
    }
}
