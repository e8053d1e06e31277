//! The system call filter: a classic BPF program compiled from the [rules], for seccomp(2).
//!
//! The program answers by call number first and looks at arguments only for the few calls whose
//! rules need them. Calls of another architecture (i386 or x32 on x86-64, arm on arm64) are absent
//! (`ENOSYS`): never let through unfiltered; so are calls that are newer than the table of numbers,
//! since nobody can say what they do. The one number that passes although it looks foreign
//! is −1: a tracer of members writes it to skip a call, and no kernel has a call there.

pub mod bpf;
pub mod class;
pub mod numbers;
pub mod rules;

use crate::{Error, Policy, sys};
use bpf::{
    ARCH, CALLER, Insn, NR, arg_high, arg_low, if_any_bit, if_at_least, if_equal, load, ret,
};
use numbers::{NONE, NUMBERS};
use rules::{Action, Ask, Case, RULES, Rule, Test};
use std::os::fd::OwnedFd;

const RET_ALLOW: u32 = 0x7fff_0000;
const RET_ERRNO: u32 = 0x0005_0000;
const RET_USER_NOTIF: u32 = 0x7fc0_0000;
const SKIPPED: u32 = u32::MAX;
const ABSENT: u32 = RET_ERRNO | libc::ENOSYS as u32;

/// The architecture that a filter is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// x86-64.
    X86_64,
    /// arm64.
    Aarch64,
}

impl Arch {
    /// The architecture that this program was built for.
    #[cfg(target_arch = "x86_64")]
    pub const HOST: Arch = Arch::X86_64;
    /// The architecture that this program was built for.
    #[cfg(target_arch = "aarch64")]
    pub const HOST: Arch = Arch::Aarch64;

    /// `AUDIT_ARCH_*` of `linux/audit.h`.
    pub fn audit(self) -> u32 {
        match self {
            Arch::X86_64 => 0xC000_003E,
            Arch::Aarch64 => 0xC000_00B7,
        }
    }

    /// The number of a call, or `None` when the architecture does not have it.
    pub fn number(self, call: &str) -> Option<u32> {
        let at = NUMBERS.binary_search_by_key(&call, |row| row.0).ok()?;
        Some(self.pick(&NUMBERS[at])).filter(|&number| number != NONE)
    }

    /// The name of a call, or `None` for a number that the table does not know.
    pub fn name(self, number: u32) -> Option<&'static str> {
        NUMBERS.iter().find(|row| number != NONE && self.pick(row) == number).map(|row| row.0)
    }

    /// The lowest number that is newer than every call of the table. The kernel gives new calls the
    /// same next number on all architectures.
    pub fn first_unknown(self) -> u32 {
        let known = NUMBERS.iter().map(|row| self.pick(row)).filter(|&number| number != NONE);
        known.max().map_or(0, |last| last + 1)
    }

    fn pick(self, row: &(&str, u32, u32)) -> u32 {
        match self {
            Arch::X86_64 => row.1,
            Arch::Aarch64 => row.2,
        }
    }
}

/// A compiled filter, ready to be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    program: Vec<Insn>,
}

impl Filter {
    /// The filter of `policy` for the running machine.
    pub fn new(policy: &Policy) -> Filter {
        Filter::for_arch(Arch::HOST, policy)
    }

    /// The filter of `policy` for `arch`.
    pub fn for_arch(arch: Arch, policy: &Policy) -> Filter {
        let mut program = vec![load(ARCH), if_equal(arch.audit(), 1, 0), ret(ABSENT), load(NR)];
        // Above the table: newer calls, and on x86-64 those with the x32 bit.
        let unknown = if_at_least(arch.first_unknown(), 0, 1);
        program.extend([if_equal(SKIPPED, 2, 0), unknown, ret(ABSENT)]);
        for rule in RULES {
            let Some(number) = arch.number(rule.call) else { continue };
            let body = compile(rule, &|action| under_policy(action, policy));
            let skip = u8::try_from(body.len()).expect("a rule is far shorter than 255 steps");
            program.push(if_equal(number, 0, skip));
            program.extend(body);
        }
        program.push(ret(RET_ALLOW));
        Filter { program }
    }

    /// A filter for the running machine that refuses nothing by itself: it asks about calls whose rule
    /// `asks`, about those of `further`, and about those of `addressed` that name an address in their fifth
    /// argument; and about what is called in another architecture's way, or newer than every call of the
    /// table. Everything else goes through; so does whatever is called from the instruction before `gate`.
    pub fn asking(
        gate: u64,
        asks: &dyn Fn(Action) -> bool,
        further: &[&str],
        addressed: &[&str],
    ) -> Filter {
        const ASK: &[Case] = &[Case { when: &[], then: Action::Ask(Ask::Contact) }];
        const ADDRESSED: &[Case] =
            &[Case { when: &[Test::Given(4)], then: Action::Ask(Ask::Contact) }];
        let mut program = vec![load(ARCH), if_equal(Arch::HOST.audit(), 1, 0), ret(RET_USER_NOTIF)];
        let (low, high) = (gate as u32, (gate >> 32) as u32);
        program.extend([load(CALLER), if_equal(low, 0, 3), load(CALLER + 4)]);
        program.extend([if_equal(high, 0, 1), ret(RET_ALLOW), load(NR)]);
        let unknown = if_at_least(Arch::HOST.first_unknown(), 0, 1);
        program.extend([if_equal(SKIPPED, 2, 0), unknown, ret(RET_USER_NOTIF)]);
        let mut add = |call: &str, body: Vec<Insn>| {
            if let Some(number) = Arch::HOST.number(call) {
                let skip = u8::try_from(body.len()).expect("a rule is far shorter than 255 steps");
                program.push(if_equal(number, 0, skip));
                program.extend(body);
            }
        };
        let always = |action| action;
        for (calls, cases) in [(further, ASK), (addressed, ADDRESSED)] {
            calls.iter().for_each(|call| add(call, compile(&Rule { call: "", cases }, &always)));
        }
        let named = |rule: &&Rule| !further.contains(&rule.call) && !addressed.contains(&rule.call);
        let asked = |rule: &&Rule| rule.cases.iter().any(|case| asks(case.then));
        for rule in RULES.iter().filter(named).filter(asked) {
            let verdict = |action| if asks(action) { action } else { Action::Allow };
            add(rule.call, compile(rule, &verdict));
        }
        program.push(ret(RET_ALLOW));
        Filter { program }
    }

    /// Installs the filter for the calling thread and all that it will start, for good, and returns
    /// the listener on which the supervisor answers. Only for a single-threaded process: other
    /// threads would stay outside.
    ///
    /// The caller must still hold `CAP_SYS_ADMIN` in its user namespace, or have set
    /// `no_new_privs`; with the first, set-user-id programs keep working inside.
    ///
    /// # Errors
    ///
    /// [`Error::FilterDenied`] without that right, [`Error::ListenerTaken`] when a filter with a
    /// listener is installed already (a transaction inside a transaction), [`Error::System`] else.
    ///
    /// Source: seccomp(2), `SECCOMP_SET_MODE_FILTER`.
    pub fn install(&self) -> Result<OwnedFd, Error> {
        sys::seccomp_install(&self.program).map_err(|error| match error.raw_os_error() {
            Some(libc::EACCES) => Error::FilterDenied,
            Some(libc::EBUSY) => Error::ListenerTaken,
            _ => Error::System { what: "install the system call filter", error },
        })
    }

    /// The instructions.
    pub fn program(&self) -> &[Insn] {
        &self.program
    }
}

/// Keeps the calling thread, and all that it will start, from abstract local sockets of outsiders.
///
/// Needed under `--allow net` alone: without it the transaction has a network namespace of its own,
/// and abstract names belong to that. Call it right before [`Filter::install`], under the same
/// conditions. `false` where the kernel cannot (before Linux 6.12, or without Landlock): then the
/// report has to say that abstract sockets are open.
///
/// # Errors
///
/// [`Error::System`].
pub fn close_abstract_sockets() -> Result<bool, Error> {
    sys::scope_abstract_sockets().map_err(Error::system("close the abstract sockets of outsiders"))
}

/// The action as `policy` has it: a class that a flag lets through is simply allowed, and so is
/// what would be asked about without a reason.
pub fn under_policy(action: Action, policy: &Policy) -> Action {
    match action {
        Action::Ask(Ask::Refuse(class)) if class.allowed_by(policy) => Action::Allow,
        Action::Ask(Ask::Hide) if policy.hidden_attribute.is_none() => Action::Allow,
        other => other,
    }
}

/// The block of a rule. Each case jumps to the next one where a test fails; the end allows.
fn compile(rule: &Rule, verdict: &dyn Fn(Action) -> Action) -> Vec<Insn> {
    let mut body = Vec::new();
    for case in rule.cases {
        let answer = ret(match verdict(case.then) {
            Action::Allow => RET_ALLOW,
            Action::Errno(errno) => RET_ERRNO | u32::from(errno),
            Action::Ask(_) => RET_USER_NOTIF,
        });
        let lengths: usize = case.when.iter().map(|test| test_length(*test)).sum();
        let mut left = lengths;
        for test in case.when {
            left -= test_length(*test);
            let next_case = u8::try_from(left + 1).expect("a case is far shorter than 255 steps");
            match *test {
                Test::Bits(arg, mask) => {
                    body.extend([load(arg_low(arg)), if_any_bit(mask, 0, next_case)]);
                }
                Test::Is(arg, value) => {
                    body.extend([load(arg_low(arg)), if_equal(value, 0, next_case)]);
                }
                Test::AtLeast(arg, value) => {
                    body.extend([load(arg_low(arg)), if_at_least(value, 0, next_case)]);
                }
                Test::Given(arg) => body.extend([
                    load(arg_low(arg)),
                    if_equal(0, 0, 2),
                    load(arg_high(arg)),
                    if_equal(0, next_case, 0),
                ]),
            }
        }
        body.push(answer);
    }
    if rule.cases.last().is_none_or(|case| !case.when.is_empty()) {
        body.push(ret(RET_ALLOW));
    }
    body
}

/// Instructions that a test compiles to.
fn test_length(test: Test) -> usize {
    match test {
        Test::Bits(..) | Test::Is(..) | Test::AtLeast(..) => 2,
        Test::Given(_) => 4,
    }
}

#[cfg(test)]
mod test;
