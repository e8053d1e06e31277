//! The transaction status word, which `xbegin` returns.

/// Code of `xrestart` (and of the hardware, for I/O) that asks for mutual exclusion.
pub const NEED_EXCLUSIVE: u32 = 1;

/// Why a transaction restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Reason {
    /// It lost a conflict against another transaction or a judged `xcas`.
    Conflict = 1,
    /// A non-transactional access touched its set.
    Asymmetric = 2,
    /// It executed `xrestart`.
    User = 3,
    /// It tried I/O, which was cancelled.
    Io = 4,
    /// It outgrew L1 on hardware without virtualization.
    Overflow = 5,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 5] =
        [Self::Conflict, Self::Asymmetric, Self::User, Self::Io, Self::Overflow];

    /// Position in arrays of counters.
    pub fn index(self) -> usize {
        self as usize - 1
    }
}

/// The status word: a first run, or the reason of the last restart with a user's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// `None` on the first run.
    pub reason: Option<Reason>,
    /// The code given to `xrestart`, else 0.
    pub code: u32,
}

impl Status {
    /// The word as the register holds it: reason in the low 8 bits, code above.
    pub fn word(self) -> u32 {
        self.code << 8 | self.reason.map_or(0, |r| r as u32)
    }

    /// True if the region must run under mutual exclusion now.
    pub fn need_exclusive(self) -> bool {
        match self.reason {
            Some(Reason::Io | Reason::Overflow) => true,
            Some(Reason::User) => self.code == NEED_EXCLUSIVE,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_keeps_reason_and_code_apart() {
        assert_eq!(Status::default().word(), 0);
        let words: std::collections::HashSet<u32> = Reason::ALL
            .iter()
            .flat_map(|r| (0..3).map(|code| Status { reason: Some(*r), code }.word()))
            .collect();
        assert_eq!(words.len(), 15);
        assert!(Status { reason: Some(Reason::Io), code: 0 }.need_exclusive());
        assert!(Status { reason: Some(Reason::User), code: NEED_EXCLUSIVE }.need_exclusive());
        assert!(!Status { reason: Some(Reason::User), code: 7 }.need_exclusive());
        assert!(!Status { reason: Some(Reason::Conflict), code: NEED_EXCLUSIVE }.need_exclusive());
    }
}
