//! System calls without a library: while memory is put back, or two threads have one thread's memory, nothing may be
//! used that keeps state in it.
#![allow(unsafe_code)] // raw system calls

use core::arch::asm;

/// Makes a system call. Gives what the kernel gives: an error number is negative.
///
/// # Safety
/// As the call itself: pointers among the arguments are what the call takes.
pub(crate) unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the registers are those of the kernel's calling convention (syscall(2)); what the call does
    // is the caller's affair.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// The same with up to six arguments.
macro_rules! syscall {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        let given = [$($argument as usize),*];
        let mut all = [0usize; 6];
        let mut index = 0;
        while index < given.len() {
            all[index] = given[index];
            index += 1;
        }
        $crate::raw::call($number, all)
    }};
}
pub(crate) use syscall;

/// Opens a path that ends with NUL, for reading. Gives a negative number on failure.
pub(crate) fn open(path: &[u8], flags: i32) -> i32 {
    debug_assert!(path.ends_with(b"\0"));
    // SAFETY: the path ends with NUL.
    unsafe {
        syscall!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC, 0) as i32
    }
}

/// Closes a number.
pub(crate) fn close(fd: i32) {
    // SAFETY: a plain number.
    unsafe { syscall!(libc::SYS_close, fd) };
}

/// Reads at an offset. Gives the length, or a negative number.
pub(crate) fn pread(fd: i32, into: &mut [u8], offset: u64) -> isize {
    // SAFETY: the buffer is valid for its length.
    unsafe { syscall!(libc::SYS_pread64, fd, into.as_mut_ptr(), into.len(), offset) }
}

/// Reads on. Gives the length, or a negative number.
pub(crate) fn read(fd: i32, into: &mut [u8]) -> isize {
    // SAFETY: the buffer is valid for its length.
    unsafe { syscall!(libc::SYS_read, fd, into.as_mut_ptr(), into.len()) }
}

/// A text that is put together without memory of its own.
pub(crate) struct Text {
    bytes: [u8; 96],
    length: usize,
}

impl Text {
    pub(crate) fn new() -> Text {
        Text { bytes: [0; 96], length: 0 }
    }

    pub(crate) fn add(mut self, text: &[u8]) -> Text {
        for byte in text {
            // The last one stays NUL.
            if self.length < self.bytes.len() - 1 {
                self.bytes[self.length] = *byte;
                self.length += 1;
            }
        }
        self
    }

    pub(crate) fn number(self, value: u64, base: u64) -> Text {
        let mut digits = [0u8; 20];
        let (mut at, mut rest) = (digits.len(), value);
        loop {
            at -= 1;
            digits[at] = b"0123456789abcdef"[(rest % base) as usize];
            rest /= base;
            if rest == 0 {
                break;
            }
        }
        self.add(&digits[at..])
    }

    /// With the NUL.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..=self.length]
    }
}

/// Says why the program cannot go on, and ends it: a program that is put back by half must not run.
pub(crate) fn die(why: &[u8]) -> ! {
    let to = crate::sys::errors();
    for text in [&b"libtxos: cannot roll the program back: "[..], why, b"\n"] {
        // SAFETY: the buffer is valid for its length.
        unsafe { syscall!(libc::SYS_write, to, text.as_ptr(), text.len()) };
    }
    crate::guard::kill_this_process()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let text = Text::new().add(b"/proc/").number(1205, 10).add(b"/").number(0xbeef, 16);
        assert_eq!(text.as_bytes(), b"/proc/1205/beef\0");
        assert_eq!(Text::new().number(0, 10).as_bytes(), b"0\0");
    }
}
