//! A stand-in: a thread of the kernel that goes on in the place of another one, with a table of descriptors of
//! its own.
//!
//! A thread can leave the table of descriptors that it shares with others, and never come back to it. So the thread
//! that begins a transaction stays where it is and sleeps, and a new one goes on at the same point, on the same
//! stack and with the same thread pointer: to the program it is the same thread. It has a copy of the table. At
//! the end the first one goes on from where the stand-in is, and the stand-in is gone.
//!
//! ```text
//!   the thread  ── start ─┐ sleeps, on a stack of its own       ┌──▶ goes on
//!                         │     │ ▲ does what it is asked to    │
//!   its stand-in          └─────┴─┴── the transaction ─── end ──┘
//! ```
//!
//! # Invariants
//!
//! - One of both runs the program's code, on the program's stack, and it is the stand-in between [`StandIn::start`]
//!   and [`StandIn::end`]. The other one runs [`wait`] alone, on a stack of its own, or what it is asked to do while
//!   the stand-in waits for it: so both can use the memory that a thread has for itself.
//! - No signal runs a handler in the one that sleeps, except the one by which the C library changes the rights of
//!   all threads: that handler returns.
//! - What a thread has for itself in the kernel (rights, umask, scheduling, alternate stack, restartable
//!   sequences) is the stand-in's from the start, and what the stand-in made of it is the thread's after the end.
//! - In a process that was forked inside there is no thread that sleeps: there the end is nothing.
//!
//! # Limits
//!
//! - `gettid(2)` is another one inside. The C library keeps the first, so its locks do not notice, but for those with
//!   priority inheritance, which the kernel and the C library hold together.
//! - What is sent to the thread itself waits for the end.
//! - What the kernel counts or keeps for a thread alone begins anew: its processor time, its keyring, and the
//!   parent-death signal of what it starts, which comes at the end.
#![allow(unsafe_code)] // threads whose stacks and thread pointers are one

use std::{
    ptr::null,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::{
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap_anonymous, munmap},
    process::getpid,
    thread::{futex, gettid},
};

use crate::{
    own::Own,
    raw::syscall,
    registers::{self, Registers},
    rseq::Area,
    sys,
};

/// Size of the stack of the one that sleeps.
const STACK: usize = 256 * 1024;

/// What [`Room::word`] says. The kernel writes 0 when the stand-in ends without having handed over.
const ENDED: u32 = 0;
/// There is nothing to do.
const IDLE: u32 = 1;
/// [`Room::work`] is to be done.
const WORK: u32 = 2;
/// It is time to go on.
const GO_ON: u32 = 3;

/// The signal by which the C library changes the rights of all threads (nptl(7)): it waits until each has.
const CHANGES_RIGHTS: u32 = 33;

/// What both threads share besides the program's memory.
#[repr(C, align(4096))]
struct Room {
    registers: Registers,
    word: AtomicU32,
    work: Option<Work>,
    stack: [u8; STACK],
}

/// A call that the one that sleeps is to make: a function and its argument.
type Work = (unsafe fn(*mut ()), *mut ());

/// See the module. It belongs to the stand-in.
#[derive(Debug)]
pub(crate) struct StandIn {
    room: *mut Room,
    /// The process in which the other one sleeps.
    process: i32,
    /// The thread that sleeps.
    thread: i32,
    area: Option<Area>,
    before: Box<Own>,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Own")
    }
}

impl StandIn {
    /// Has a stand-in go on from here, with a copy of the table of descriptors and of the file system attributes.
    /// All signals are blocked.
    ///
    /// # Errors
    /// If there is no memory or no thread left.
    pub(crate) fn start() -> Result<StandIn, Errno> {
        let mut before = Box::new(Own::new());
        before.collect();
        let area = Area::here();
        let (process, thread) = (getpid().as_raw_pid(), gettid().as_raw_pid());
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::STACK;
        // SAFETY: a new mapping, of which nobody else knows; it is all zeros, which is what its members may be but
        // for those that are written here. What the other task runs, `wait`, keeps to the stack in it.
        unsafe {
            let room = mmap_anonymous(std::ptr::null_mut(), size_of::<Room>(), protection, flags)?;
            let room = room.cast::<Room>();
            let main: unsafe extern "C" fn(*mut Room) -> ! = wait;
            (*room).registers.other_main = main as usize as u64;
            (*room).registers.other_argument = room as u64;
            let stack = &raw mut (*room).stack;
            (*room).registers.other_stack = (stack as u64 + STACK as u64) & !15;
            (*room).word.store(IDLE, Ordering::Relaxed);
            (&raw mut (*room).work).write(None);
            let word = (*room).word.as_ptr();
            // The area is one thread's at a time: who sleeps would disturb it whenever it wakes.
            if let Some(area) = area {
                area.unregister();
            }
            let split = registers::split_here(&raw mut (*room).registers, word);
            if split < 0 {
                if let Some(area) = area {
                    area.register();
                }
                let _ = munmap(room.cast(), size_of::<Room>());
                return Err(Errno::from_raw_os_error(-split as i32));
            }
            // The stand-in, from here on.
            if let Some(area) = area {
                area.register();
            }
            syscall!(libc::SYS_sigaltstack, before.alternate_stack().as_ptr(), 0);
            // What it did not inherit is nothing that was done inside.
            before.collect();
            Ok(StandIn { room, process, thread, area, before })
        }
    }

    /// The thread that sleeps.
    pub(crate) fn thread(&self) -> i32 {
        self.thread
    }

    /// Whether there is one that sleeps: not so in a process that was forked inside.
    pub(crate) fn is_here(&self) -> bool {
        self.process == getpid().as_raw_pid()
    }

    /// Has the thread that sleeps do something, with its table of descriptors, and waits for it.
    pub(crate) fn outside<R>(&self, work: impl FnOnce() -> R) -> R {
        let mut both = (Some(work), None);
        /// Calls the function of a pair, and leaves its result there.
        unsafe fn call<R, F: FnOnce() -> R>(both: *mut ()) {
            // SAFETY: it is the pair below, which outlives the call.
            let both = unsafe { &mut *both.cast::<(Option<F>, Option<R>)>() };
            both.1 = both.0.take().map(|work| work());
        }
        fn of<R, F: FnOnce() -> R>(_: &(Option<F>, Option<R>)) -> unsafe fn(*mut ()) {
            call::<R, F>
        }
        let function = of(&both);
        let argument = (&raw mut both).cast();
        // SAFETY: the room is mapped until the end; the other one reads `work` only after the word says so, and this
        // one waits until the word says that it is done.
        unsafe {
            (*self.room).work = Some((function, argument));
            let word = &(*self.room).word;
            tell(word, WORK);
            while word.load(Ordering::Acquire) == WORK {
                sleep(word, WORK);
            }
        }
        both.1.unwrap_or_else(|| sys::end_process("the thread that began has not answered"))
    }

    /// The thread goes on from here. Whatever is open in the stand-in's table alone is closed.
    pub(crate) fn end(self) {
        if !self.is_here() {
            self.unmap();
            return;
        }
        let mut now = Box::new(Own::new());
        now.collect();
        // What the rest of this function needs is taken by the thread itself.
        let changed = (now != self.before).then_some(now);
        if let Some(area) = self.area {
            area.unregister();
        }
        // SAFETY: the numbers are plain, and the table is this thread's own by then; the room is mapped. The other
        // one sleeps, and goes on after the handing over, when this one touches no memory any more.
        unsafe {
            syscall!(libc::SYS_set_tid_address, null::<u32>());
            syscall!(libc::SYS_close_range, 0, u32::MAX, libc::CLOSE_RANGE_UNSHARE);
            let word = (*self.room).word.as_ptr();
            registers::hand_over(&raw mut (*self.room).registers, word, GO_ON);
        }
        self.unmap();
        if let Some(area) = self.area {
            area.register();
        }
        if let Some(now) = changed
            && let Err(why) = now.restore_rights().and_then(|()| now.restore_rest())
        {
            sys::end_process(&format!("a thread cannot go on as it was inside: {why}"));
        }
    }

    fn unmap(&self) {
        // SAFETY: nobody runs on the stack in it: not in this process, or not any more.
        let _ = unsafe { munmap(self.room.cast(), size_of::<Room>()) };
    }
}

/// What the thread does that sleeps.
///
/// # Safety
/// The room is mapped; the calling thread is on the stack in it.
unsafe extern "C" fn wait(room: *mut Room) -> ! {
    let blocked = !(1u64 << (CHANGES_RIGHTS - 1));
    // SAFETY: the set has the size that is given; the room is mapped as long as this runs, and the registers in it
    // are those of the stand-in, which has handed over when the word says so.
    unsafe {
        syscall!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const blocked, 0, 8);
        let word = &(*room).word;
        loop {
            match word.load(Ordering::Acquire) {
                WORK => {
                    if let Some((function, argument)) = (*room).work.take() {
                        function(argument);
                    }
                    tell(word, IDLE);
                }
                GO_ON => registers::resume(&raw const (*room).registers, 0),
                // It ended by the bare call, as this thread would have.
                ENDED => {
                    syscall!(libc::SYS_exit, 0);
                }
                other => sleep(word, other),
            }
        }
    }
}

// Not as private futexes: the kernel, which tells of the end of a thread, wakes those alone that are not.

fn tell(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Release);
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

fn sleep(word: &AtomicU32, value: u32) {
    let _ = futex::wait(word, futex::Flags::empty(), value, None);
}
