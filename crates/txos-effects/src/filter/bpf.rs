//! A small assembler for classic BPF, as much of it as a seccomp filter needs.
//!
//! Invariant: a program is only made of forward jumps inside the block that makes them, and every
//! block ends in a `ret`; so no jump can leave its 8-bit range unseen, and a program always ends.
//! Source: seccomp(2), `linux/filter.h`, `linux/seccomp.h`.

/// One instruction, laid out as the kernel's `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Insn {
    /// Operation.
    pub code: u16,
    /// Instructions to skip when a condition holds.
    pub jt: u8,
    /// Instructions to skip when it does not.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

const LD_W_ABS: u16 = 0x20;
const JMP_JEQ_K: u16 = 0x15;
const JMP_JGE_K: u16 = 0x35;
const JMP_JSET_K: u16 = 0x45;
const RET_K: u16 = 0x06;

/// Offset of the call number in `struct seccomp_data`.
pub const NR: u32 = 0;
/// Offset of the architecture in `struct seccomp_data`.
pub const ARCH: u32 = 4;
/// Offset of the address after the calling instruction, low half first.
pub const CALLER: u32 = 8;

/// Offset of the low half of argument `index` (both architectures are little endian).
pub const fn arg_low(index: u8) -> u32 {
    16 + 8 * index as u32
}

/// Offset of the high half of argument `index`.
pub const fn arg_high(index: u8) -> u32 {
    arg_low(index) + 4
}

/// Loads the 32-bit word at `offset` of `struct seccomp_data`.
pub const fn load(offset: u32) -> Insn {
    Insn { code: LD_W_ABS, jt: 0, jf: 0, k: offset }
}

/// Skips `jt` instructions when the loaded word equals `k`, else `jf`.
pub const fn if_equal(k: u32, jt: u8, jf: u8) -> Insn {
    Insn { code: JMP_JEQ_K, jt, jf, k }
}

/// Skips `jt` instructions when the loaded word is at least `k` (unsigned), else `jf`.
pub const fn if_at_least(k: u32, jt: u8, jf: u8) -> Insn {
    Insn { code: JMP_JGE_K, jt, jf, k }
}

/// Skips `jt` instructions when any bit of `k` is set in the loaded word, else `jf`.
pub const fn if_any_bit(k: u32, jt: u8, jf: u8) -> Insn {
    Insn { code: JMP_JSET_K, jt, jf, k }
}

/// Ends the program with the seccomp answer `k`.
pub const fn ret(k: u32) -> Insn {
    Insn { code: RET_K, jt: 0, jf: 0, k }
}

/// What a filter sees of a call: `struct seccomp_data` without the instruction pointer.
#[cfg(test)]
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Call number.
    pub nr: u32,
    /// `AUDIT_ARCH_*`.
    pub arch: u32,
    /// Registers.
    pub args: [u64; 6],
}

/// Runs `program` as the kernel would: the reference for tests. `None` when it is not well formed
/// (a jump past its end, an unknown instruction, a load outside the data).
#[cfg(test)]
pub fn run(program: &[Insn], call: &Call) -> Option<u32> {
    let mut word = 0u32;
    let mut at = 0usize;
    loop {
        let insn = *program.get(at)?;
        at += 1;
        let mut branch = |taken: bool| at += usize::from(if taken { insn.jt } else { insn.jf });
        match insn.code {
            LD_W_ABS => {
                word = match insn.k {
                    NR => call.nr,
                    ARCH => call.arch,
                    16..64 if insn.k % 4 == 0 => {
                        let arg = call.args[(insn.k as usize - 16) / 8];
                        if insn.k % 8 == 0 { arg as u32 } else { (arg >> 32) as u32 }
                    }
                    _ => return None,
                }
            }
            JMP_JEQ_K => branch(word == insn.k),
            JMP_JGE_K => branch(word >= insn.k),
            JMP_JSET_K => branch(word & insn.k != 0),
            RET_K => return Some(insn.k),
            _ => return None,
        }
    }
}
