//! The area of a thread that the kernel keeps up to date by itself (restartable sequences, rseq(2)).
#![allow(unsafe_code)] // the thread pointer, and a call that has no wrapper

use crate::raw::syscall;

/// What the C library registers with (sys/rseq.h), on x86-64.
const SIGNATURE: u32 = 0x5305_3053;
const UNREGISTER: u32 = 1;
/// The length that the C library registers where it names none: that of the first version of the area.
const LEAST: u32 = 32;

/// Its address; 0 where there is none.
pub(crate) fn area() -> u64 {
    // SAFETY: looks a symbol up, which is a number where the C library has it (since glibc 2.35).
    let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
    if offset.is_null() {
        return 0;
    }
    let thread: u64;
    // SAFETY: reads the thread pointer, which the ABI keeps at the start of the thread's block.
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) thread, options(nostack, readonly));
        thread.wrapping_add_signed(offset.cast::<i64>().read())
    }
}

/// The calling thread's area, if the C library has registered one: what another thread of the kernel needs to have
/// it kept up to date, too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    at: u64,
    length: u32,
}

impl Area {
    /// The area of the calling thread.
    pub(crate) fn here() -> Option<Area> {
        // SAFETY: as above.
        let size = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()) };
        // SAFETY: a number, where there is one.
        let size = if size.is_null() { 0 } else { unsafe { size.cast::<u32>().read() } };
        let at = area();
        (at != 0 && size != 0).then_some(Area { at, length: size.max(LEAST) })
    }

    /// Registers it for the calling thread, which has the same thread pointer. Gives whether the kernel took it.
    pub(crate) fn register(self) -> bool {
        self.call(0)
    }

    /// Has it no longer kept up to date for the calling thread.
    pub(crate) fn unregister(self) {
        self.call(UNREGISTER);
    }

    fn call(self, flags: u32) -> bool {
        // SAFETY: the area is the calling thread's as long as its thread pointer is.
        unsafe { syscall!(libc::SYS_rseq, self.at, self.length, flags, SIGNATURE) == 0 }
    }
}
