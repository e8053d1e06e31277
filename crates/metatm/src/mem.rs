//! Simulated physical memory: a flat array of 32-bit words.
//!
//! The paper's machine is a 32-bit x86 with 1 GB. The host hands out zeroed pages lazily, so only
//! what guests touch costs host memory. Values live here alone; the caches hold states, not data.

use crate::error::{Result, SimError};

/// A byte address in simulated memory; words are 4 bytes and aligned.
pub type Addr = u32;

/// log2 of the line size (64 bytes).
pub const LINE_SHIFT: u32 = 6;

/// Bytes in a cache line.
pub const LINE: u32 = 1 << LINE_SHIFT;

/// Words of simulated memory.
pub struct Memory {
    words: Vec<u32>,
}

impl Memory {
    /// `bytes` of zeroed memory.
    ///
    /// # Errors
    /// `bytes` is no multiple of a line, is zero or above 1 GB.
    pub fn new(bytes: u64) -> Result<Self> {
        if bytes == 0 || bytes > 1 << 30 || !bytes.is_multiple_of(u64::from(LINE)) {
            return Err(SimError::Parameter {
                name: "mem_bytes".into(),
                value: bytes.to_string(),
                reason: "a multiple of 64 up to 1 GB (1073741824)".into(),
            });
        }
        Ok(Self { words: vec![0; (bytes / 4) as usize] })
    }

    /// Number of lines.
    pub fn lines(&self) -> usize {
        self.words.len() / 16
    }

    /// Why `a` cannot be accessed, if it cannot.
    pub fn fault(&self, a: Addr) -> Option<String> {
        if !a.is_multiple_of(4) {
            return Some(format!("unaligned access to {a:#x}"));
        }
        if a < LINE {
            return Some(format!("null pointer access at {a:#x}"));
        }
        if (a / 4) as usize >= self.words.len() {
            return Some(format!("access to {a:#x} beyond the end of memory"));
        }
        None
    }

    /// The word at `a`, which [`Self::fault`] has accepted.
    #[inline]
    pub fn get(&self, a: Addr) -> u32 {
        self.words[(a / 4) as usize]
    }

    /// Sets the word at `a`, which [`Self::fault`] has accepted.
    #[inline]
    pub fn set(&mut self, a: Addr, v: u32) {
        self.words[(a / 4) as usize] = v;
    }
}

/// Hands out simulated addresses while a kernel boots; nothing is ever given back.
#[derive(Debug)]
pub struct Bump {
    next: Addr,
    end: Addr,
}

impl Bump {
    /// Allocates from `start` (rounded up to a line) to `end`.
    pub fn new(start: Addr, end: Addr) -> Self {
        Self { next: start.max(LINE).next_multiple_of(LINE), end }
    }

    /// `bytes` on lines of their own.
    ///
    /// # Errors
    /// Memory is exhausted: raise `mem_bytes`.
    pub fn lines(&mut self, bytes: u32) -> Result<Addr> {
        let at = self.next;
        let size = bytes.max(1).next_multiple_of(LINE);
        match at.checked_add(size) {
            Some(next) if next <= self.end => {
                self.next = next;
                Ok(at)
            }
            _ => Err(SimError::Parameter {
                name: "mem_bytes".into(),
                value: self.end.to_string(),
                reason: format!("too small for this workload (wanted {bytes} more); raise it"),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_name_the_reason() {
        let m = Memory::new(4096).expect("memory");
        assert!(m.fault(0).expect("null").contains("null"));
        assert!(m.fault(66).expect("unaligned").contains("unaligned"));
        assert!(m.fault(4096).expect("end").contains("beyond"));
        assert_eq!(m.fault(4092), None);
        assert!(Memory::new(100).is_err());
        assert!(Memory::new(2 << 30).is_err());
    }

    #[test]
    fn bump_is_line_aligned_and_bounded() {
        let mut b = Bump::new(1, 256);
        assert_eq!(b.lines(1).expect("first"), 64);
        assert_eq!(b.lines(65).expect("second"), 128);
        assert!(b.lines(1).is_err());
    }
}
