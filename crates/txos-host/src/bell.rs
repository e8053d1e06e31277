//! Bells: how one thread wakes others that poll.

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::{Errno, read, write},
};

/// Something to be polled for reading that becomes readable once it is rung: an event
/// (`eventfd(2)`).
///
/// It has been rung when `ring` returns, whatever happens to the call that does it: a thread that is
/// told to end is waited for afterwards, and a ring that got lost would be waited for in vain.
#[derive(Debug)]
pub struct Bell(OwnedFd);

/// How often ringing is tried where the kernel says something that it has no reason to say.
const TRIES: usize = 64;

impl Bell {
    /// A bell that was not rung.
    ///
    /// # Errors
    /// If no descriptor is to be had.
    pub fn new() -> Result<Bell, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Bell)
    }

    /// Rings it: it is readable from now on.
    ///
    /// # Errors
    /// What `write(2)` gives, again and again. Whoever listens has not heard it then.
    pub fn ring(&self) -> Result<(), Errno> {
        until_rung(|| write(&self.0, &1u64.to_ne_bytes()))
    }

    /// Waits until it is rung, or a signal comes, and makes it silent again.
    pub fn wait(&self) {
        let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None);
        let _ = read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn until_rung(mut write: impl FnMut() -> Result<usize, Errno>) -> Result<(), Errno> {
    let mut failed = 0;
    loop {
        match write() {
            // It was rung so often that it can count no further: it is readable.
            Ok(_) | Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => {
                failed += 1;
                if failed == TRIES {
                    return Err(errno);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::time::Timespec;

    fn rung(bell: &Bell) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&now)).expect("poll") == 1
    }

    #[test]
    fn it_is_heard_by_all_and_silent_after_a_wait() {
        let bell = Bell::new().expect("a bell");
        assert!(!rung(&bell));
        bell.ring().expect("ring");
        bell.ring().expect("ring again");
        assert!(rung(&bell) && rung(&bell));
        bell.wait();
        assert!(!rung(&bell));
    }

    #[test]
    fn who_waits_hears_it_from_another_thread() {
        let bell = Bell::new().expect("a bell");
        std::thread::scope(|scope| {
            scope.spawn(|| bell.ring().expect("ring"));
            bell.wait();
        });
        assert!(!rung(&bell));
    }

    #[test]
    fn one_that_was_rung_too_often_to_count_is_rung() {
        let bell = Bell::new().expect("a bell");
        write(&bell, &(u64::MAX - 1).to_ne_bytes()).expect("count as far as it goes");
        bell.ring().expect("ring");
        assert!(rung(&bell));
    }

    /// A call that fails in a way that `fates` say, one after the other, and then does not.
    fn after(fates: &[Errno]) -> (Result<(), Errno>, usize) {
        let mut calls = 0;
        let outcome = until_rung(|| {
            calls += 1;
            fates.get(calls - 1).map_or(Ok(8), |errno| Err(*errno))
        });
        (outcome, calls)
    }

    #[test]
    fn no_failure_that_passes_loses_it() {
        assert_eq!(after(&[Errno::INTR; 1000]), (Ok(()), 1001));
        assert_eq!(after(&[Errno::IO, Errno::INTR, Errno::NOSPC]), (Ok(()), 4));
        assert_eq!(after(&[Errno::IO, Errno::AGAIN]), (Ok(()), 2));
        assert_eq!(after(&[Errno::BADF; 1000]), (Err(Errno::BADF), TRIES));
    }
}
