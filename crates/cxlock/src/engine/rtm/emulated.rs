//! RTM played by processes, to run the hardware engine where there is no hardware.
//!
//! Without RTM its instructions are undefined and raise `SIGILL`. The handler plays them, on a
//! process with one thread:
//!
//! * `XBEGIN` forks. The child runs on as the transaction; the parent, which has memory and
//!   registers as they are now, waits.
//! * `XABORT` ends the child with a status; the parent goes on behind its `XBEGIN` with that status:
//!   nothing that the child did is left. That is what the processor does.
//! * `XEND` of the outermost transaction makes the child the process that goes on; the parent only
//!   passes its exit code on.
//!
//! Not played: other threads, so no true conflicts; attempts can be made to fail by a script
//! instead. What this can't show is how a processor that has RTM behaves beyond its manual.
#![allow(unsafe_code)] // signal handler, fork, shared memory: the stuff of an emulator

use super::instructions::{CAPACITY, CONFLICT, EXPLICIT, RETRY, announced};
use crate::engine::{Instructions, Rtm, RtmSupport};
use crate::machine::Mode;
use crate::{CxLock, CxMutex, TCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering::SeqCst};

/// Whether this process plays RTM; forked processes inherit it.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Nesting of the transaction that this process runs in.
static DEPTH: AtomicU32 = AtomicU32::new(0);
static BOARD: AtomicUsize = AtomicUsize::new(0);

/// In memory that all processes of a scenario share.
#[derive(Default)]
struct Board {
    /// Abort status of the child that ended last.
    status: AtomicU32,
    /// Statuses with which the next attempts fail; 0 after the last one.
    script: [AtomicU32; 16],
    scripted: AtomicUsize,
    begins: AtomicU32,
    commits: AtomicU32,
    aborts: AtomicU32,
    /// Effects that can't be taken back.
    effects: AtomicU32,
}

const ABORTED: i32 = 77;
const FAILED: i32 = 1;

pub(super) fn active() -> bool {
    ACTIVE.load(SeqCst)
}

fn board() -> &'static Board {
    // SAFETY: set once by `scenario` to a mapping that is never unmapped and large enough; zeroed
    // memory is a valid `Board`, and it has nothing but atomics in it.
    unsafe { &*std::ptr::with_exposed_provenance(BOARD.load(SeqCst)) }
}

extern "C" fn play(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives SA_SIGINFO handlers a valid context, ours alone until we return.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = registers[libc::REG_RIP as usize];
    // SAFETY: the bytes of the instruction that was just fetched; the longest one here has six.
    let code: [u8; 6] = unsafe { std::ptr::with_exposed_provenance::<[u8; 6]>(at as usize).read() };
    let (length, status) = match code {
        [0xc7, 0xf8, offset @ ..] => {
            let failed = begin();
            let jump = if failed.is_some() { i64::from(i32::from_le_bytes(offset)) } else { 0 };
            (6 + jump, failed)
        }
        [0xc6, 0xf8, code, ..] => {
            abort(code);
            (3, None)
        }
        [0x0f, 0x01, 0xd5, ..] => {
            end();
            (3, None)
        }
        // SAFETY: not one of ours: a real fault of the test, ended without any handler.
        _ => unsafe { libc::_exit(FAILED) },
    };
    registers[libc::REG_RIP as usize] = at + length;
    if let Some(status) = status {
        registers[libc::REG_RAX as usize] = i64::from(status);
    }
}

/// The status with which the attempt has failed, or `None` in the transaction.
fn begin() -> Option<u32> {
    let board = board();
    if DEPTH.load(SeqCst) > 0 {
        DEPTH.fetch_add(1, SeqCst);
        return None;
    }
    board.begins.fetch_add(1, SeqCst);
    let scripted = board.script[board.scripted.load(SeqCst)].load(SeqCst);
    if scripted != 0 {
        board.scripted.fetch_add(1, SeqCst);
        return Some(scripted);
    }
    // SAFETY: this process has one thread, so a copy of it is whole.
    match unsafe { libc::fork() } {
        0 => {
            DEPTH.store(1, SeqCst);
            None
        }
        child => match wait(child) {
            ABORTED => Some(board.status.load(SeqCst)),
            // It committed and has run the rest.
            // SAFETY: ends the process at once; nothing of it is needed any more.
            code => unsafe { libc::_exit(code) },
        },
    }
}

fn abort(code: u8) {
    if DEPTH.load(SeqCst) > 0 {
        board().aborts.fetch_add(1, SeqCst);
        board().status.store(u32::from(code) << 24 | EXPLICIT, SeqCst);
        // SAFETY: as above; all memory of this process is to be forgotten.
        unsafe { libc::_exit(ABORTED) }
    }
}

fn end() {
    match DEPTH.load(SeqCst) {
        // SAFETY: as above. The processor would fault.
        0 => unsafe { libc::_exit(FAILED) },
        1 => {
            board().commits.fetch_add(1, SeqCst);
            DEPTH.store(0, SeqCst);
        }
        depth => DEPTH.store(depth - 1, SeqCst),
    }
}

fn wait(child: i32) -> i32 {
    static STATUS: AtomicI32 = AtomicI32::new(0);
    // SAFETY: a child of this process, and a place for its status.
    let waited = unsafe { libc::waitpid(child, STATUS.as_ptr(), 0) };
    let status = STATUS.load(SeqCst);
    if waited == child && libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { FAILED }
}

/// Runs `f` in a process that plays RTM, in which the first attempts fail with the statuses of the
/// script, and checks that it ended well. Skips where there is real RTM.
fn scenario(script: &[u32], f: impl FnOnce()) {
    if announced().is_some() {
        eprintln!("Skip: this processor has RTM and does not fault");
        return;
    }
    // SAFETY: a fresh shared mapping, at an address of the kernel's choice.
    let shared = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Board>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(shared, libc::MAP_FAILED, "no memory to share");
    // SAFETY: the child goes on with a copy of this thread alone and leaves by `_exit`. The test
    // harness's other threads may hold locks in it: it needs none but the allocator's, which fork
    // takes care of, and that of stderr, if the scenario fails.
    match unsafe { libc::fork() } {
        0 => {
            BOARD.store(shared.expose_provenance(), SeqCst);
            for (at, status) in script.iter().enumerate() {
                board().script[at].store(*status, SeqCst);
            }
            // SAFETY: a zeroed `sigaction` is a valid one, and `play` has the signature that
            // SA_SIGINFO asks for. NODEFER, as the child of a fork never returns from its handler
            // before the next instruction is played.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = play as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
                libc::sigaction(libc::SIGILL, &raw const action, std::ptr::null_mut());
            }
            ACTIVE.store(true, SeqCst);
            let code = if catch_unwind(AssertUnwindSafe(f)).is_ok() { 0 } else { FAILED };
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(code) }
        }
        child => {
            assert_eq!(wait(child), 0, "the scenario failed");
            // SAFETY: our mapping, used by nobody any more.
            unsafe { libc::munmap(shared, size_of::<Board>()) };
        }
    }
}

#[test]
fn an_abort_takes_memory_back() {
    scenario(&[], || {
        assert_eq!(Rtm::support(), RtmSupport::Works);
        let lock = CxLock::<Rtm>::new().with_stats();
        let cell = TCell::<u32, Rtm>::new(1);
        let mut runs = 0;
        lock.optimistic(|s| {
            runs += 1;
            let n = s.read(&cell)?;
            assert_eq!(n, 1, "the write of the first attempt is still there");
            s.write(&cell, n + 1)?;
            s.io()?;
            assert_eq!(s.mode(), Mode::Exclusive);
            board().effects.fetch_add(1, SeqCst);
            Ok(())
        });
        // The count of the aborted attempt was taken back too.
        assert_eq!((runs, cell.peek()), (1, 2));
        assert_eq!(board().effects.load(SeqCst), 1);
        assert_eq!((board().aborts.load(SeqCst), board().commits.load(SeqCst)), (1, 0));
        let stats = lock.stats().expect("made with counters");
        assert_eq!((stats.escapes, stats.exclusive, stats.commits), (1, 1, 0));
    });
}

#[test]
fn sections_commit_and_nest_flat() {
    scenario(&[], || {
        let (a, b) = (CxLock::<Rtm>::new().with_stats(), CxLock::<Rtm>::new());
        let cell = TCell::<u32, Rtm>::new(0);
        for _ in 0..3 {
            a.optimistic(|s| {
                let n = s.read(&cell)?;
                s.optimistic(&b, |s| {
                    assert_eq!(s.mode(), Mode::Optimistic);
                    s.write(&cell, n + 1)
                })
            });
        }
        assert_eq!(cell.peek(), 3);
        assert_eq!((board().begins.load(SeqCst), board().commits.load(SeqCst)), (3, 3));
        assert_eq!(a.stats().expect("made with counters").commits, 3);
    });
}

#[test]
fn a_lock_is_given_back_at_the_commit() {
    scenario(&[], || {
        let (a, b) = (CxLock::<Rtm>::new(), CxLock::<Rtm>::new());
        let cell = TCell::<u32, Rtm>::new(0);
        let guard = a.exclusive();
        b.optimistic(|s| {
            s.end(&guard);
            assert!(a.raw.word.load().is_held());
            s.write(&cell, 1)
        });
        assert!(!a.raw.word.load().is_held());
        assert_eq!((cell.peek(), board().commits.load(SeqCst)), (1, 1));
    });
}

#[test]
fn a_panic_in_a_transaction_happens_again_under_the_lock() {
    scenario(&[], || {
        let (lock, cell) = (CxLock::<Rtm>::new(), TCell::<u32, Rtm>::new(0));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            lock.optimistic(|s| {
                s.write(&cell, 5)?;
                // Told apart from a failure of the scenario by what it leaves.
                std::panic::resume_unwind(Box::new(s.mode()));
                #[allow(unreachable_code)]
                Ok(())
            });
        }));
        let mode = outcome.expect_err("it unwinds").downcast::<Mode>().expect("our own");
        assert_eq!((*mode, cell.peek()), (Mode::Exclusive, 5));
        assert_eq!(board().aborts.load(SeqCst), 1);
        assert!(lock.try_exclusive().is_some());
    });
}

#[test]
fn lost_conflicts_lead_to_the_lock() {
    scenario(&[CONFLICT | RETRY; 9], || {
        let lock = CxLock::<Rtm>::new().with_stats();
        assert_eq!(lock.optimistic(|s| Ok(s.mode())), Mode::Exclusive);
        let stats = lock.stats().expect("made with counters");
        assert_eq!((stats.conflicts, stats.exclusive), (9, 1));
    });
    scenario(&[CONFLICT | RETRY; 2], || {
        let lock = CxLock::<Rtm>::new().with_stats();
        assert_eq!(lock.optimistic(|s| Ok(s.mode())), Mode::Optimistic);
        assert_eq!(lock.stats().expect("made with counters").conflicts, 2);
    });
    scenario(&[CAPACITY], || {
        let lock = CxLock::<Rtm>::new().with_stats();
        assert_eq!(lock.optimistic(|s| Ok(s.mode())), Mode::Exclusive);
        assert_eq!(lock.stats().expect("made with counters").overflows, 1);
    });
}

#[test]
fn a_held_lock_on_the_way_ends_the_attempt() {
    scenario(&[], || {
        let (a, b) = (CxLock::<Rtm>::new().with_stats(), CxLock::<Rtm>::new());
        let _held = b.exclusive();
        // Held by the only thread there is, which may enter it again: but not in hardware.
        let mode = a.optimistic(|s| s.optimistic(&b, |s| Ok(s.mode())));
        let stats = a.stats().expect("made with counters");
        let attempts = u64::from(Rtm::ATTEMPTS) + 1;
        assert_eq!((mode, stats.busy, stats.exclusive), (Mode::Exclusive, attempts, 1));
    });
}

#[test]
fn a_mutex_elides_itself_and_can_be_escaped_from() {
    scenario(&[], || {
        let mutex = CxMutex::new(vec![1]).with_stats();
        mutex.lock().push(2);
        assert_eq!(board().commits.load(SeqCst), 1, "not elided");
        {
            let mut guard = mutex.lock();
            guard.push(3);
            guard.io();
            board().effects.fetch_add(1, SeqCst);
        }
        assert_eq!(*mutex.lock(), [1, 2, 3]);
        assert_eq!((board().aborts.load(SeqCst), board().effects.load(SeqCst)), (1, 1));
        let stats = mutex.stats().expect("made with counters");
        assert_eq!((stats.commits, stats.exclusive, stats.escapes), (2, 1, 1));
    });
}

#[test]
fn mutex_guards_nest_and_end_in_any_order() {
    scenario(&[], || {
        let (a, b) = (CxMutex::new(1), CxMutex::new(2));
        let (mut first, mut second) = (a.lock(), b.lock());
        (*first, *second) = (10, 20);
        drop(first);
        assert_eq!(board().commits.load(SeqCst), 0, "the outer transaction still runs");
        drop(second);
        assert_eq!(board().commits.load(SeqCst), 1);

        // An exclusive lock, then a transaction, ended the other way round.
        let first = a.lock_exclusive();
        let second = b.lock();
        drop(first);
        assert!(a.try_lock().is_some(), "free within the transaction");
        drop(second);
        assert_eq!(board().commits.load(SeqCst), 2);
        assert_eq!((*a.lock(), *b.lock()), (10, 20));
    });
}

#[test]
fn an_exclusive_mutex_within_a_transaction_makes_that_exclusive() {
    scenario(&[], || {
        let (a, b) = (CxMutex::new(0).with_stats(), CxMutex::new(0));
        {
            let mut outer = a.lock();
            *outer += 1;
            *b.lock_exclusive() += 1;
        }
        let stats = a.stats().expect("made with counters");
        assert_eq!((stats.escapes, stats.exclusive, stats.commits), (1, 1, 0));
        assert_eq!((*a.lock_exclusive(), *b.lock_exclusive()), (1, 1));
    });
}

#[test]
fn a_mutex_that_hardware_cancels_pauses_elision() {
    scenario(&[CAPACITY], || {
        let mutex = CxMutex::new(0);
        for _ in 0..40 {
            *mutex.lock() += 1;
        }
        assert_eq!(*mutex.lock_exclusive(), 40);
        // One failed, sixteen were not tried, the others committed.
        assert_eq!(board().begins.load(SeqCst), 40 - 16);
        assert_eq!(board().commits.load(SeqCst), 40 - 17);
    });
}
