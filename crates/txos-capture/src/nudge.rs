//! Getting a thread out of a blocking system call.
//!
//! A signal with a handler that does nothing makes the call end with `EINTR`. The signal is a
//! real-time one near the upper end of their range, which neither the C library nor Rust's uses,
//! and is sent to threads of this crate only. The handler is installed at the first capture of the
//! process and stays; programs that the process executes do not inherit it (`execve(2)`).

#![allow(unsafe_code)] // signal dispositions and masks have no safe interface

use std::{
    mem,
    os::unix::thread::JoinHandleExt,
    ptr,
    sync::Once,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Between two nudges, at first and at most: a signal that comes just before the call begins is lost
/// on it.
const FIRST_PATIENCE: Duration = Duration::from_micros(30);
const PATIENCE: Duration = Duration::from_millis(1);

fn signal() -> libc::c_int {
    libc::SIGRTMAX() - 3
}

extern "C" fn nothing(_: libc::c_int) {}

/// Makes nudges possible in this process.
pub(crate) fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        // SAFETY: a zeroed sigaction is valid (no flags, so that calls are not restarted; an empty
        // mask), and a handler that does nothing is safe in signal context.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            libc::sigaction(signal(), &action, ptr::null_mut());
        }
    });
}

/// Lets the calling thread be nudged, whatever signal mask it inherited.
pub(crate) fn allow() {
    // SAFETY: the set lives on this stack and is initialized by sigemptyset before it is used.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal());
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut());
    }
}

/// Nudges a thread once.
pub(crate) fn nudge<T>(thread: &JoinHandle<T>) {
    // SAFETY: the thread is not joined yet, so that its id is valid, also if it has just ended.
    unsafe { libc::pthread_kill(thread.as_pthread_t(), signal()) };
}

/// Nudges a thread until it has ended, and gives its result; gives the thread back if it has not
/// ended by `deadline`.
pub(crate) fn until_ended<T>(
    thread: JoinHandle<T>,
    deadline: Instant,
) -> Result<thread::Result<T>, JoinHandle<T>> {
    let mut patience = FIRST_PATIENCE;
    while !thread.is_finished() {
        if Instant::now() >= deadline {
            return Err(thread);
        }
        nudge(&thread);
        thread::park_timeout(patience);
        patience = (patience * 2).min(PATIENCE);
    }
    Ok(thread.join())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_blocked_read_ends() {
        install();
        let (input, _output) = rustix::pipe::pipe().unwrap();
        let thread = thread::spawn(move || {
            allow();
            rustix::io::read(input.as_fd(), &mut [0; 1])
        });
        let soon = Instant::now() + Duration::from_secs(10);
        let ended = until_ended(thread, soon).expect("it ends").unwrap();
        assert_eq!(ended, Err(rustix::io::Errno::INTR));
    }

    #[test]
    fn a_thread_that_does_not_listen_is_given_back() {
        install();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            allow();
            stopped.recv()
        });
        let soon = Instant::now() + Duration::from_millis(20);
        let thread = until_ended(thread, soon).expect_err("it does not end");
        drop(stop);
        assert!(thread.join().unwrap().is_err());
    }
}
