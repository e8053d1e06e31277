//! Signals to processes outside: kept while the transaction runs, sent in order after its commit.
//!
//! A member knows an outsider by a number that it read somewhere (a pid file, say). In the view's pid
//! namespace that number names nobody, or a member. Invariants:
//!
//! * A number that a member has had, whether it lives or not, is left to the kernel, so that a stale
//!   one never hits an outsider. The view's init knows the greatest that was given ([`Numbers`]); a
//!   greater one was never a member's, and is looked up in the manager's own pid namespace.
//! * Who may signal whom is what the kernel would say of the caller (kill(2)): its real or effective
//!   user is the receiver's real or saved one, or it has `CAP_KILL` in the manager's user namespace.
//! * What is kept is a pidfd, taken at the call: the signal reaches the process that had the number
//!   then, or nobody.
//! * What is dropped without [`Signals::send`] (an abort, a retry) was never sent.
//!
//! Source: kill(2), pidfd_send_signal(2), credentials(7).

use super::target::{Target, printable};
use super::{Shared, lock};
use crate::sys::{self, Answer, Notified};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::readlink;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Tells the greatest process number that members have had so far, `None` if nobody knows. It may
/// take a message to the view and back.
pub type Numbers = Box<dyn Fn() -> Option<u32> + Send + Sync>;

/// Signals that one transaction may keep; for more, kill(2) fails with `EAGAIN`.
const MAX_SIGNALS: usize = 1000;
/// Greatest signal number.
const LAST_SIGNAL: i32 = 64;
/// Bit of `CAP_KILL` in a set of capabilities.
const CAP_KILL: u32 = 5;

/// The signals that wait for the commit. Clones are one.
#[derive(Debug, Clone, Default)]
pub struct Signals(Arc<Mutex<Vec<Kept>>>);

#[derive(Debug)]
struct Kept {
    process: OwnedFd,
    signal: i32,
    told: String,
}

impl Signals {
    /// Sends all, in order, and forgets them; gives a line for each that could not be sent. A process
    /// that has ended meanwhile is none: the signal would have come as late natively.
    pub fn send(&self) -> Vec<String> {
        let kept = std::mem::take(&mut *lock(&self.0));
        let failed = |kept: Kept| match sys::send_signal(kept.process.as_fd(), kept.signal) {
            Ok(()) => None,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => None,
            Err(error) => Some(format!("{} could not be sent: {error}", kept.told)),
        };
        kept.into_iter().filter_map(failed).collect()
    }

    fn keep(&self, kept: Kept) -> bool {
        let mut all = lock(&self.0);
        let room = all.len() < MAX_SIGNALS;
        if room {
            all.push(kept);
        }
        room
    }
}

impl Shared {
    /// The answer to kill(2) with a number above 1.
    pub(super) fn signal(&self, call: &Notified, target: &Target<'_>) -> Answer {
        let (number, signal) = (call.args[0] as u32, call.args[1] as i32);
        if !(0..=LAST_SIGNAL).contains(&signal) || self.was_a_members(number) {
            return Answer::Proceed;
        }
        match self.outsider(number, target) {
            Ok(_) if signal == 0 => Answer::Value(0),
            Ok(process) => {
                let comm = fs::read(format!("/proc/{number}/comm")).unwrap_or_default();
                let told = format!("signal {signal} to process {number} ({})", printable(&comm));
                if !self.hooks.signals.keep(Kept { process, signal, told: told.clone() }) {
                    return Answer::Errno(libc::EAGAIN);
                }
                lock(&self.collected).signal(told);
                Answer::Value(0)
            }
            Err(errno) => Answer::Errno(errno.raw_os_error()),
        }
    }

    /// Whether a member has or had this number; yes, if nobody knows.
    fn was_a_members(&self, number: u32) -> bool {
        if number <= self.used.load(Ordering::Relaxed) {
            return true;
        }
        let Some(used) = (self.hooks.numbers)() else { return true };
        self.used.fetch_max(used, Ordering::Relaxed);
        number <= used
    }

    /// The process outside with this number, if the caller may signal it.
    fn outsider(&self, number: u32, target: &Target<'_>) -> Result<OwnedFd, Errno> {
        let pid = i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| Errno::SRCH)?;
        let receiver = Identity::of(number).ok_or(Errno::SRCH)?;
        let caller = Identity::of(target.pid()).filter(|_| target.waits()).ok_or(Errno::SRCH)?;
        // Members and the manager have no such number as far as a member can know.
        if receiver.namespace == caller.namespace || number == std::process::id() {
            return Err(Errno::SRCH);
        }
        if caller.may_signal(&receiver) { Ok(process) } else { Err(Errno::PERM) }
    }
}

/// What kill(2) looks at, of one process.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    /// Its pid namespace.
    namespace: Vec<u8>,
    /// Real, effective and saved user, as the manager's user namespace has them.
    users: [u32; 3],
    /// Whether it has `CAP_KILL` in the manager's user namespace.
    may_all: bool,
}

impl Identity {
    fn of(pid: u32) -> Option<Identity> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let link = |pid: &str, kind: &str| {
            readlink(format!("/proc/{pid}/ns/{kind}"), Vec::new()).ok().map(|l| l.into_bytes())
        };
        let pid = pid.to_string();
        // Of a process of another user a user is told no namespaces; then it is no member of his.
        let namespace = link(&pid, "pid").unwrap_or_default();
        let same_users = link(&pid, "user").is_some_and(|own| Some(own) == link("self", "user"));
        let (users, capabilities) = read_status(&status)?;
        Some(Identity {
            namespace,
            users,
            may_all: same_users && capabilities & (1 << CAP_KILL) != 0,
        })
    }

    fn may_signal(&self, receiver: &Identity) -> bool {
        let [real, effective, _] = self.users;
        let [their_real, _, their_saved] = receiver.users;
        let same = [real, effective].iter().any(|user| [their_real, their_saved].contains(user));
        self.may_all || same
    }
}

/// Users and effective capabilities in the text of `/proc/PID/status`.
fn read_status(status: &str) -> Option<([u32; 3], u64)> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let mut users = field("Uid:")?.split_ascii_whitespace().map(str::parse);
    let mut next = || users.next()?.ok();
    let users = [next()?, next()?, next()?];
    Some((users, u64::from_str_radix(field("CapEff:")?.trim(), 16).ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    fn identity(users: [u32; 3], may_all: bool) -> Identity {
        Identity { namespace: Vec::new(), users, may_all }
    }

    #[test]
    fn who_may_signal_whom_is_as_natively() {
        let status = "Name:\tx\nUid:\t7\t8\t9\t10\nCapEff:\t0000000000000020\n";
        assert_eq!(read_status(status), Some(([7, 8, 9], 32)));
        assert_eq!(read_status("Uid:\t7\n"), None);
        let user = identity([7, 8, 9], false);
        for (receiver, may) in
            [([7, 1, 1], true), ([1, 1, 8], true), ([1, 8, 1], false), ([9, 9, 9], false)]
        {
            assert_eq!(user.may_signal(&identity(receiver, false)), may, "{receiver:?}");
        }
        assert!(identity([0, 0, 0], true).may_signal(&identity([1, 1, 1], false)));
        assert!(!identity([0, 0, 0], false).may_signal(&identity([1, 1, 1], false)));
        assert!(Identity::of(std::process::id()).is_some());
        assert_eq!(Identity::of(u32::MAX), None);
    }

    #[test]
    fn what_is_kept_is_sent_in_order_and_what_is_dropped_is_not() {
        for send in [true, false] {
            let mut child = Command::new("sleep").arg("60").spawn().unwrap();
            let pid = Pid::from_child(&child);
            let signals = Signals::default();
            for signal in [libc::SIGCONT, libc::SIGUSR1, libc::SIGTERM] {
                let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
                assert!(signals.keep(Kept { process, signal, told: String::new() }));
            }
            if send {
                assert_eq!(signals.send(), Vec::<String>::new());
                // The first that ends it.
                assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR1));
                assert_eq!(signals.send(), Vec::<String>::new());
            } else {
                drop(signals);
                assert_eq!(child.try_wait().unwrap(), None);
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
    }
}
