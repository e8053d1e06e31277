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
//!   then, or nobody. One that is meant for a thread has a descriptor of the thread; one that carries a
//!   value is sent with it. A transaction that is kept for a later decision holds no descriptors: it notes
//!   the number with the time at which its process began, and only that process gets the signal.
//! * What is dropped without [`Signals::send`] (an abort, a retry) was never sent.
//!
//! Source: kill(2), tgkill(2), rt_sigqueueinfo(2), pidfd_send_signal(2), credentials(7).

use super::target::{Target, printable};
use super::{Shared, lock};
use crate::ipc::Bytes;
use crate::sys::{self, Answer, INFO_SIZE, Notified};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::readlink;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
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
/// Where a `siginfo_t` has its number and its code.
const INFO_SIGNAL: usize = 0;
const INFO_CODE: usize = 8;
/// `SI_TKILL`: the code of tgkill(2), which nobody else may use.
const SI_TKILL: i32 = -6;

/// The signals that wait for the commit. Clones are one.
#[derive(Debug, Clone, Default)]
pub struct Signals(Arc<Mutex<Vec<Kept>>>);

#[derive(Debug)]
struct Kept {
    process: OwnedFd,
    waiting: Waiting,
}

/// A signal that waits for the commit, as a kept transaction carries it: by a number, and by what tells
/// whether its receiver still is who had that number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Number of the process or thread.
    pid: u32,
    /// Whether the thread alone is meant.
    thread: bool,
    /// When it began, in ticks since the machine's start.
    began: u64,
    place: Place,
    signal: i32,
    /// The `siginfo_t` that its sender gave.
    info: Option<Bytes>,
    told: String,
}

/// Where a process number means something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// The machine's start.
    boot: String,
    /// The pid namespace.
    namespace: String,
}

impl Signals {
    /// Sends all, in order, and forgets them; gives a line for each that could not be sent. A process
    /// that has ended meanwhile is none: the signal would have come as late natively.
    pub fn send(&self) -> Vec<String> {
        let kept = std::mem::take(&mut *lock(&self.0));
        let failed = |kept: Kept| {
            let Waiting { signal, thread, info, told, .. } = kept.waiting;
            let info = info.and_then(|info| info.0.try_into().ok());
            match sys::send_signal(kept.process.as_fd(), thread, signal, info.as_ref()) {
                Ok(()) => None,
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => None,
                Err(error) => Some(format!("{told} could not be sent: {error}")),
            }
        };
        kept.into_iter().filter_map(failed).collect()
    }

    /// What waits, for a transaction that is kept.
    pub fn waiting(&self) -> Vec<Waiting> {
        lock(&self.0).iter().map(|kept| kept.waiting.clone()).collect()
    }

    /// What a kept transaction carried. Receivers that have ended meanwhile are left out; a line for each
    /// that cannot be found from here.
    pub fn again(waiting: &[Waiting]) -> (Signals, Vec<String>) {
        let (mut kept, mut lost) = (Vec::new(), Vec::new());
        let here = Place::here();
        // After a new start of the machine nobody is left of those who were meant.
        let boot = here.as_ref().map(|here| here.boot.as_str());
        for waiting in waiting.iter().filter(|waiting| Some(&*waiting.place.boot) == boot) {
            if here.as_ref() != Some(&waiting.place) {
                let told = &waiting.told;
                lost.push(format!(
                    "{told} could not be sent: it was kept in another pid namespace"
                ));
                continue;
            }
            let process = open(waiting.pid, waiting.thread);
            // Looked at after the opening: what is held open keeps its number.
            if let Ok(process) = process
                && began(waiting.pid) == Some(waiting.began)
            {
                kept.push(Kept { process, waiting: waiting.clone() });
            }
        }
        (Signals(Arc::new(Mutex::new(kept))), lost)
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

/// What a call wants to do.
struct Wish {
    /// The process that is named, if one is.
    process: Option<u32>,
    /// The thread that is named, if one is.
    thread: Option<u32>,
    signal: i32,
    /// Address of a `siginfo_t`, if the call has one.
    info: Option<u64>,
}

impl Wish {
    fn of(name: &str, args: &[u64; 6]) -> Wish {
        let [a, b, c, d, ..] = *args;
        let (number, int) = (|value: u64| Some(value as u32), |value: u64| value as i32);
        match name {
            "tkill" => Wish { process: None, thread: number(a), signal: int(b), info: None },
            "tgkill" => Wish { process: number(a), thread: number(b), signal: int(c), info: None },
            "rt_sigqueueinfo" => {
                Wish { process: number(a), thread: None, signal: int(b), info: Some(c) }
            }
            "rt_tgsigqueueinfo" => {
                Wish { process: number(a), thread: number(b), signal: int(c), info: Some(d) }
            }
            _ => Wish { process: number(a), thread: None, signal: int(b), info: None },
        }
    }

    /// The number by which the receiver is found.
    fn number(&self) -> u32 {
        self.thread.or(self.process).unwrap_or(0)
    }
}

impl Shared {
    /// The answer to kill(2) and its kind, where the number is above 1.
    pub(super) fn signal(
        self: &Arc<Self>,
        name: &str,
        call: &Notified,
        target: &Target<'_>,
    ) -> Answer {
        let wish = Wish::of(name, &call.args);
        let number = wish.number();
        let numbers = [wish.process, wish.thread].into_iter().flatten();
        if numbers.into_iter().any(|number| self.was_a_members(number)) {
            return Answer::Proceed;
        }
        match self.keep_signal(&wish, number, target) {
            Ok(()) => Answer::Value(0),
            Err(errno) => Answer::Errno(errno.raw_os_error()),
        }
    }

    fn keep_signal(&self, wish: &Wish, number: u32, target: &Target<'_>) -> Result<(), Errno> {
        // In the kernel's order: a pointer that leads nowhere, what nobody may say, who is not there.
        let info = wish.info.map(|at| read_info(at, wish.signal, target)).transpose()?;
        let process = self.outsider(number, wish.thread.is_some(), target);
        if let (Some(process), Some(thread)) = (wish.process, wish.thread)
            && leader_of(thread) != Some(process)
        {
            return Err(Errno::SRCH);
        }
        let process = match process {
            Ok(_) | Err(Errno::PERM) if !(0..=LAST_SIGNAL).contains(&wish.signal) => {
                return Err(Errno::INVAL);
            }
            found => found?,
        };
        if wish.signal == 0 {
            return Ok(());
        }
        let (Some(began), Some(place)) = (began(number), Place::here()) else {
            return Err(Errno::SRCH);
        };
        let comm = fs::read(format!("/proc/{number}/comm")).unwrap_or_default();
        let (signal, thread) = (wish.signal, wish.thread.is_some());
        let what = if thread { "thread" } else { "process" };
        let told = format!("signal {signal} to {what} {number} ({})", printable(&comm));
        let info = info.map(|info| Bytes(info.to_vec()));
        let waiting =
            Waiting { pid: number, thread, began, place, signal, info, told: told.clone() };
        if !self.hooks.signals.keep(Kept { process, waiting }) {
            return Err(Errno::AGAIN);
        }
        lock(&self.collected).signal(told);
        Ok(())
    }

    /// Whether pidfd_open(2) would name a process outside, of which kill(2) says that it is there.
    pub(super) fn names_outsider(self: &Arc<Self>, number: u32, target: &Target<'_>) -> bool {
        let there = || match self.outsider(number, false, target) {
            Ok(_) | Err(Errno::PERM) => true,
            Err(_) => false,
        };
        !self.was_a_members(number) && there()
    }

    /// Whether a member has or had this number; yes, if nobody knows.
    fn was_a_members(self: &Arc<Self>, number: u32) -> bool {
        if number <= self.used.load(Ordering::Relaxed) {
            return true;
        }
        // It takes a message to the view and back.
        self.hand_over();
        let Some(used) = (self.hooks.numbers)() else { return true };
        self.used.fetch_max(used, Ordering::Relaxed);
        number <= used
    }

    /// The process or thread outside with this number, if the caller may signal it.
    fn outsider(&self, number: u32, thread: bool, target: &Target<'_>) -> Result<OwnedFd, Errno> {
        let process = open(number, thread)?;
        let receiver = Identity::of(number).ok_or(Errno::SRCH)?;
        let caller = Identity::of(target.pid()).filter(|_| target.waits()).ok_or(Errno::SRCH)?;
        // Members and the manager have no such number as far as a member can know.
        let own = leader_of(number) == Some(std::process::id());
        if receiver.namespace == caller.namespace || own {
            return Err(Errno::SRCH);
        }
        if caller.may_signal(&receiver) { Ok(process) } else { Err(Errno::PERM) }
    }
}

/// A descriptor of a process, or of a thread.
fn open(number: u32, thread: bool) -> Result<OwnedFd, Errno> {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    let open = |flags| pidfd_open(pid, flags);
    match thread {
        false => open(PidfdFlags::empty()).map_err(|_| Errno::SRCH),
        true => match open(sys::OF_THREAD) {
            // Before Linux 6.9 threads have no descriptors: refused, and not sent to the whole process.
            Err(Errno::INVAL) => Err(Errno::from_raw_os_error(crate::ENOTXSUPPORT)),
            opened => opened.map_err(|_| Errno::SRCH),
        },
    }
}

/// The `siginfo_t` of a call, as rt_sigqueueinfo(2) takes it: it may not look like a signal of the kernel's,
/// of kill(2) or tgkill(2).
fn read_info(at: u64, signal: i32, target: &Target<'_>) -> Result<[u8; INFO_SIZE], Errno> {
    let mut info = [0; INFO_SIZE];
    if !matches!(target.read(at, &mut info), Ok(INFO_SIZE)) {
        return Err(Errno::FAULT);
    }
    let code = info[INFO_CODE..].first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
    if code >= 0 || code == SI_TKILL {
        return Err(Errno::PERM);
    }
    info[INFO_SIGNAL..][..size_of::<i32>()].copy_from_slice(&signal.to_ne_bytes());
    Ok(info)
}

/// The process that a thread belongs to.
fn leader_of(number: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{number}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// When a process or thread began, in ticks since the machine's start (proc_pid_stat(5), field 22).
fn began(number: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

impl Place {
    fn here() -> Option<Place> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let namespace = readlink("/proc/self/ns/pid", Vec::new()).ok()?;
        Some(Place { boot, namespace: namespace.to_string_lossy().into_owned() })
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

    fn waiting(pid: u32, signal: i32) -> Waiting {
        Waiting {
            pid,
            thread: false,
            began: began(pid).unwrap(),
            place: Place::here().unwrap(),
            signal,
            info: None,
            told: format!("signal {signal}"),
        }
    }

    #[test]
    fn a_record_names_the_process_that_was_meant_and_no_other() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let meant = waiting(child.id(), libc::SIGTERM);
        let text = serde_json::to_string(&meant).unwrap();
        let read: Waiting = serde_json::from_str(&text).unwrap();
        assert_eq!(read, meant);
        let mut later = meant.clone();
        later.began += 1;
        let mut earlier = meant.clone();
        earlier.place.boot = "another".to_owned();
        let mut elsewhere = meant.clone();
        elsewhere.place.namespace = "pid:[1]".to_owned();
        for other in [later, earlier] {
            let (signals, lost) = Signals::again(&[other]);
            assert_eq!((signals.waiting(), lost), (Vec::new(), Vec::new()));
        }
        let (_, lost) = Signals::again(&[elsewhere]);
        assert!(lost[0].contains("signal 15 could not be sent"), "{lost:?}");
        let (signals, lost) = Signals::again(&[read]);
        assert_eq!(lost, Vec::<String>::new());
        assert_eq!(signals.send(), Vec::<String>::new());
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        // Whoever has ended is none.
        let (signals, lost) = Signals::again(&[meant]);
        assert_eq!((signals.waiting(), lost), (Vec::new(), Vec::new()));
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
                assert!(signals.keep(Kept { process, waiting: waiting(child.id(), signal) }));
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
