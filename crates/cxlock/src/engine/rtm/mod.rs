//! The engine on Intel's restricted transactional memory, where the processor has it.
//!
//! Sections run in place: cells are read and written directly, the processor keeps the sets and
//! takes the writes back. A failed attempt comes back at `begin` with everything as it was there,
//! registers, stack and thread-locals included.
//!
//! Caveats:
//!
//! 1. The hardware promises no progress: after an abort that is no conflict the section is run
//!    under mutual exclusion, and after many conflicts too.
//! 2. A read of a held word would bring it into the read set, as there is no `xtest`; so a held
//!    word ends the attempt ([`Reason::Busy`]), and the wait happens outside of it.
//! 3. Every system call, most exceptions and interrupts abort: unannounced input or output is
//!    cancelled before it has an effect, exactly as the paper's table 3 wants it.
//! 4. Microcode can make every attempt fail while the processor still announces the feature. So
//!    detection reads the announcement of that, and then tries.

#[cfg(all(test, target_arch = "x86_64", target_os = "linux", not(miri), not(loom)))]
mod emulated;
pub(crate) mod instructions;

use super::{Engine, Instructions};
use crate::cell::Slot;
use crate::restart::Reason;
use crate::word::{Stamp, Word};
use std::sync::OnceLock;

/// Hardware transactions where they work, plain locking everywhere else.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rtm;

/// What this machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RtmSupport {
    /// Transactions commit.
    Works,
    /// Announced, but switched off or never successful.
    AlwaysAborts,
    /// The processor has none, or the crate is built for another architecture.
    Absent,
}

/// Empty attempts made before a machine is called unable; an interrupt can hit one or two.
const PROBES: u32 = 32;

impl Rtm {
    /// Looks once, by CPUID and by trying, and remembers.
    pub fn support() -> RtmSupport {
        #[cfg(all(test, target_arch = "x86_64", target_os = "linux", not(miri), not(loom)))]
        if emulated::active() {
            return RtmSupport::Works;
        }
        static SUPPORT: OnceLock<RtmSupport> = OnceLock::new();
        *SUPPORT.get_or_init(|| match instructions::announced() {
            None => RtmSupport::Absent,
            Some(instructions::Announced { always_aborts: true }) => RtmSupport::AlwaysAborts,
            Some(_) if (0..PROBES).any(|_| probe()) => RtmSupport::Works,
            Some(_) => RtmSupport::AlwaysAborts,
        })
    }
}

fn probe() -> bool {
    let started = instructions::begin() == instructions::STARTED;
    if started {
        instructions::end();
    }
    started
}

/// Starts a hardware transaction, or says why the last attempt or this one failed.
#[inline]
pub(crate) fn begin() -> Result<(), Reason> {
    match instructions::begin() {
        instructions::STARTED => Ok(()),
        status => Err(classify(status)),
    }
}

/// The reason within an abort status.
fn classify(status: u32) -> Reason {
    use instructions::{CAPACITY, CODE_BUSY, CODE_CONFLICT, CONFLICT, EXPLICIT, RETRY};
    if status & EXPLICIT != 0 {
        match status >> 24 {
            CODE_BUSY => Reason::Busy,
            CODE_CONFLICT => Reason::Conflict,
            _ => Reason::NeedExclusive,
        }
    } else if status & CAPACITY != 0 {
        Reason::Overflow
    } else if status & (CONFLICT | RETRY) != 0 {
        Reason::Conflict
    } else {
        Reason::Hardware
    }
}

impl Engine for Rtm {
    const NAME: &'static str = "rtm";

    #[inline]
    fn available() -> bool {
        Self::support() == RtmSupport::Works
    }
}

impl Instructions for Rtm {
    const VISIBLE: bool = false;
    const ATTEMPTS: u32 = 8;
    type Meta = ();
    type Tx<'c> = ();

    #[inline]
    fn begin((): &mut ()) -> Result<(), Reason> {
        if Self::available() { begin() } else { Err(Reason::Unavailable) }
    }

    #[inline]
    fn subscribe((): &mut (), word: &Word) -> Result<bool, Reason> {
        if word.load().is_held() {
            return Err(Self::restart(&mut (), Reason::Busy));
        }
        Ok(true)
    }

    #[inline]
    fn read((): &mut (), slot: &Slot<()>) -> Result<u64, Reason> {
        Ok(slot.load())
    }

    #[inline]
    fn write((): &mut (), slot: &Slot<()>, value: u64) -> Result<(), Reason> {
        slot.store(value);
        Ok(())
    }

    fn restart((): &mut (), reason: Reason) -> Reason {
        match reason {
            Reason::Busy => instructions::abort::<{ instructions::CODE_BUSY }>(),
            Reason::Conflict => instructions::abort::<{ instructions::CODE_CONFLICT }>(),
            _ => instructions::abort::<{ instructions::CODE_NEED_EXCLUSIVE }>(),
        }
        // Only outside of a transaction does an abort come here.
        reason
    }

    #[inline]
    fn commit((): &mut ()) -> Result<(), Reason> {
        instructions::end();
        Ok(())
    }

    #[inline]
    fn acquire(word: &Word, seen: Stamp) -> bool {
        word.try_hold(seen)
    }

    #[inline]
    fn release(word: &Word) -> Stamp {
        word.free(0)
    }

    #[inline]
    fn read_held(slot: &Slot<()>) -> u64 {
        slot.load()
    }

    #[inline]
    fn write_held(slot: &Slot<()>, value: u64) {
        slot.store(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_become_reasons() {
        use instructions::*;
        for (status, reason) in [
            (EXPLICIT | (CODE_NEED_EXCLUSIVE << 24), Reason::NeedExclusive),
            (EXPLICIT | RETRY | (CODE_BUSY << 24), Reason::Busy),
            (EXPLICIT | (CODE_CONFLICT << 24), Reason::Conflict),
            (EXPLICIT | (0x17 << 24), Reason::NeedExclusive),
            (CONFLICT | RETRY, Reason::Conflict),
            (CAPACITY | RETRY, Reason::Overflow),
            (RETRY, Reason::Conflict),
            (0, Reason::Hardware),
        ] {
            assert_eq!(classify(status), reason, "status {status:#x}");
        }
    }

    /// Skips with a word where there is no RTM: then only the detection is tested.
    #[test]
    fn hardware_takes_writes_back() {
        if !Rtm::available() {
            assert_eq!(begin_if_available(), Err(Reason::Unavailable));
            eprintln!("Skip: this processor has no working RTM ({:?})", Rtm::support());
            return;
        }
        let slot = Slot::<()>::default();
        let aborted = (0..1000).any(|_| match begin() {
            Ok(()) => {
                slot.store(7);
                Rtm::restart(&mut (), Reason::NeedExclusive);
                unreachable!("an abort within a transaction does not return");
            }
            Err(reason) => reason == Reason::NeedExclusive,
        });
        assert!(aborted);
        assert_eq!(slot.load(), 0);
    }

    fn begin_if_available() -> Result<(), Reason> {
        Rtm::begin(&mut ())
    }
}
