//! The snapshot: a process that sleeps, and says what it has when it is asked.

use core::sync::atomic::Ordering;

use super::{
    arena::Arena,
    files,
    raw::{close, die, read, syscall},
};

/// How often the program looks whether the snapshot is still there while it waits for its report.
const LOOK: [i64; 2] = [0, 100_000_000];

/// What the snapshot runs, on a stack in the arena.
///
/// # Safety
/// `arena` is the address of the arena of the process that forked this one.
pub(super) unsafe extern "C" fn main(arena: u64) -> ! {
    let arena = arena as *mut Arena;
    // SAFETY: the arena is shared with the program, which waits while the snapshot writes to it; nothing
    // else is written, and only system calls are made.
    unsafe {
        syscall!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let program = (*arena).owner;
        let [asked, asking] = (*arena).ask;
        close(asking);
        let mut byte = [0];
        while syscall!(libc::SYS_getppid) == program as isize {
            match read(asked, &mut byte) {
                1 => {
                    files::look(&mut *arena);
                    (*arena).facts.collect(&(*arena).files_then);
                    (*arena).reported.store(1, Ordering::Release);
                    syscall!(libc::SYS_futex, (*arena).reported.as_ptr(), libc::FUTEX_WAKE, 1);
                }
                interrupted if interrupted == -(libc::EINTR as isize) => {}
                // The program has ended, or is another one now (execve(2)).
                _ => break,
            }
        }
        loop {
            syscall!(libc::SYS_exit_group, 0);
        }
    }
}

/// Asks the snapshot for its report, and waits for that.
///
/// # Safety
/// The arena is mapped and has a snapshot.
pub(super) unsafe fn ask(arena: *mut Arena) {
    // SAFETY: see above; the wait is for a word in the arena.
    unsafe {
        let asking = (*arena).ask[1];
        (*arena).reported.store(0, Ordering::Relaxed);
        if syscall!(libc::SYS_write, asking, [1u8].as_ptr(), 1) != 1 {
            die(b"the snapshot cannot be asked");
        }
        while (*arena).reported.load(Ordering::Acquire) == 0 {
            let word = (*arena).reported.as_ptr();
            syscall!(libc::SYS_futex, word, libc::FUTEX_WAIT, 0, LOOK.as_ptr());
            let options = libc::WNOHANG | libc::__WCLONE;
            if syscall!(libc::SYS_wait4, (*arena).snapshot, 0, options, 0) != 0 {
                die(b"the snapshot was killed");
            }
        }
    }
}
