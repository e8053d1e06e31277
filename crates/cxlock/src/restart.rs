//! Why an attempt of a section came to nothing.

use std::fmt;

/// The reason of a restart, as the paper's transaction status word has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Another thread changed what the attempt had read, or holds what it wants to change.
    Conflict,
    /// The section wants mutual exclusion (`NEED_EXCLUSIVE`): input or output, or a nested
    /// `exclusive`.
    NeedExclusive,
    /// The attempt outgrew what the engine can keep.
    Overflow,
    /// A lock that the attempt wanted to enter is held; hardware cannot wait for it within a
    /// transaction.
    Busy,
    /// The hardware gave up for reasons of its own (an interrupt, a fault, a forbidden
    /// instruction), and sees no point in another attempt.
    Hardware,
    /// This machine or engine has no transactions.
    Unavailable,
}

impl Reason {
    /// Whether another optimistic attempt has no prospect.
    #[must_use]
    pub fn wants_exclusion(self) -> bool {
        match self {
            Self::NeedExclusive | Self::Overflow | Self::Hardware | Self::Unavailable => true,
            Self::Conflict | Self::Busy => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Conflict => "conflict with another thread",
            Self::NeedExclusive => "the section needs mutual exclusion",
            Self::Overflow => "the section is too large for a transaction",
            Self::Busy => "a lock on the way is held",
            Self::Hardware => "the hardware cancelled the transaction",
            Self::Unavailable => "no transactions on this machine",
        })
    }
}

/// The attempt is over and the section starts again: pass it on with `?`.
///
/// A section that swallows it gains nothing: the attempt is doomed and cannot commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("restart: {0}; return this error from the section so that it can run again")]
#[must_use = "pass the restart on with `?`"]
pub struct Restart(pub(crate) Reason);

impl Restart {
    /// Why.
    #[must_use]
    pub fn reason(self) -> Reason {
        self.0
    }
}
