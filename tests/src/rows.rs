//! The rows of the table of effects that the filter decides by registers, made as they stand there.
#![allow(unsafe_code, reason = "system calls by number")]

use rustix::io::Errno;
use txos_effects::filter::Arch;
use txos_effects::filter::rules::rule_of;
use txos_effects::table::{Fate, Sample, rows};

/// A call as a row or one of its cases has it.
#[derive(Clone, Copy, Debug)]
pub struct Try {
    /// The row's call.
    pub call: &'static str,
    /// The case; empty for the plain call.
    pub when: &'static str,
    /// What the table says becomes of it.
    pub fate: Fate,
    number: u32,
    arguments: [u64; 6],
}

/// All that are not made for real: refused, absent, deferred, or let through by a flag alone. Arguments are
/// those of the table, the others zero, so that a call that is made after all does no harm.
pub fn all() -> Vec<Try> {
    let mut tries = Vec::new();
    for row in rows().into_iter().filter(|row| rule_of(row.call).is_some()) {
        let Some(number) = Arch::HOST.number(row.call) else { continue };
        let mut add = |when, fate, registers: &[(u8, u64)]| {
            let mut arguments = [0; 6];
            for (at, value) in registers {
                arguments[usize::from(*at)] = *value;
            }
            tries.push(Try { call: row.call, when, fate, number, arguments });
        };
        // The supervisor reads a clock in the caller's place, and a socket without a family is the kernel's
        // to refuse.
        if !row.call.contains("adjtime") && !row.call.starts_with("socket") {
            add("", row.fate, &[]);
        }
        for case in row.cases {
            if let Sample::Registers(registers) = case.sample {
                add(case.when, case.fate, registers);
            }
        }
    }
    let unmade = [Fate::Refused, Fate::Absent, Fate::Deferred, Fate::Flag];
    tries.retain(|one| unmade.contains(&one.fate));
    tries
}

impl Try {
    /// Makes the call.
    ///
    /// # Errors
    /// The call's.
    pub fn make(&self) -> Result<u64, Errno> {
        // SAFETY: integers, zeros where pointers would be, and the table's samples, which point nowhere.
        unsafe { crate::raw::call(self.number.into(), self.arguments) }
    }

    /// Whether this answer is what the table says.
    pub fn is_right(&self, answer: &str) -> bool {
        let hidden = ["ENOSYS", "E93", "E97"];
        match self.fate {
            Fate::Deferred => answer == "0",
            Fate::Absent => hidden.contains(&answer) || answer == "ENOTXSUPPORT",
            _ => answer == "ENOTXSUPPORT",
        }
    }
}
