//! Signals that members send.
//!
//! Those to members, and to other threads of the sender's own process, go on at once. Those to anybody else
//! are kept, with a descriptor of their receiver, and sent after the commit, in order; an abort drops them.
//! Whether the sender may is looked at when it sends (kill(2)).
//!
//! A signal to a group in which there are others than members, or to everybody, is not supported.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};
use txos_effects::notify::{Answer, Notified};

use super::target::Target;
use crate::{
    control::{Control, namespace_of},
    sys::{self, Info},
};

/// `CAP_KILL`.
const CAP_KILL: u64 = 1 << 5;

/// A signal that waits for the commit.
#[derive(Debug)]
pub(crate) struct Deferred {
    receiver: OwnedFd,
    signal: i32,
    info: Option<Info>,
}

impl Deferred {
    /// Sends it; the receiver may have gone.
    pub(crate) fn send(&self) {
        if let Err(errno) = sys::send_signal(&self.receiver, self.signal, self.info.as_ref()) {
            tracing::debug!(%errno, "a signal after the commit");
        }
    }
}

/// What a call wants to do.
struct Wish {
    /// The process or thread; 0 or less for groups.
    to: i32,
    /// Whether it is the thread that is meant.
    thread: bool,
    signal: i32,
    /// Address of a `siginfo_t`.
    info: u64,
}

pub(super) fn answer(
    name: &str,
    call: &Notified,
    target: &Target<'_>,
    control: &Control,
) -> Answer {
    let [a, b, c, d, ..] = call.args;
    let int = |number: u64| number as i32;
    let wish = match name {
        "kill" => Wish { to: int(a), thread: false, signal: int(b), info: 0 },
        "tkill" => Wish { to: int(a), thread: true, signal: int(b), info: 0 },
        "tgkill" => Wish { to: int(b), thread: true, signal: int(c), info: 0 },
        "rt_sigqueueinfo" => Wish { to: int(a), thread: false, signal: int(b), info: c },
        "rt_tgsigqueueinfo" => Wish { to: int(b), thread: true, signal: int(c), info: d },
        _ => match process_of(target.task(), int(a)) {
            Some(to) => Wish { to, thread: false, signal: int(b), info: c },
            None => return Answer::Proceed,
        },
    };
    decide(&wish, target, control).unwrap_or_else(|errno| Answer::Errno(errno.raw_os_error()))
}

fn decide(wish: &Wish, target: &Target<'_>, control: &Control) -> Result<Answer, Errno> {
    // 0 only asks whether it is there.
    if wish.signal == 0 {
        return Ok(Answer::Proceed);
    }
    let own = leader_of(target.task());
    let is_inside = |task: i32| leader_of(task) == own || control.holds(task);
    if wish.to <= 0 {
        let own_group = || group_of(target.task()).map(|(group, _)| group);
        let group = if wish.to == 0 { own_group() } else { wish.to.checked_neg() };
        let members = group.filter(|_| wish.to != -1).map(processes_of);
        let all_inside = members.is_some_and(|members| members.into_iter().all(is_inside));
        return Ok(if all_inside { Answer::Proceed } else { super::unsupported(control, "kill") });
    }
    // One that has gone gets the kernel's answer.
    if namespace_of(wish.to).is_none() || is_inside(wish.to) {
        return Ok(Answer::Proceed);
    }
    if !may_send(target.task(), wish.to) {
        return Err(Errno::PERM);
    }
    let receiver = match wish.thread {
        true => sys::open_thread(wish.to)?,
        false => pidfd_open(Pid::from_raw(wish.to).ok_or(Errno::SRCH)?, PidfdFlags::empty())?,
    };
    let mut info: Info = [0; _];
    let given = wish.info != 0 && target.read(wish.info, &mut info) == info.len();
    let info = given.then_some(info);
    control.defer(Deferred { receiver, signal: wish.signal, info });
    Ok(Answer::Value(0))
}

/// A field of `/proc/TASK/status` (proc_pid_status(5)).
fn field(task: i32, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{task}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().to_owned())
}

/// The process that a thread belongs to.
fn leader_of(task: i32) -> Option<i32> {
    field(task, "Tgid:")?.parse().ok()
}

/// The process group of a thread's process, and whether that has ended and was not waited for
/// (proc_pid_stat(5)).
fn group_of(task: i32) -> Option<(i32, bool)> {
    let stat = std::fs::read_to_string(format!("/proc/{task}/stat")).ok()?;
    // The name may hold anything, also brackets and blanks. State, parent, group; then the number of threads: the
    // first one may have ended before the others.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let has_ended = matches!(*fields.first()?, "Z" | "X") && matches!(*fields.get(17)?, "0" | "1");
    Some((fields.get(2)?.parse().ok()?, has_ended))
}

/// The processes of a group that have not ended: on the others a signal has no effect.
fn processes_of(group: i32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.filter(|pid| group_of(*pid) == Some((group, false))).collect()
}

/// The process that a descriptor of a thread's stands for (pidfd_open(2)).
fn process_of(task: i32, fd: i32) -> Option<i32> {
    let of = sys::open_thread(task).or_else(|_| sys::open_thread(leader_of(task).unwrap_or(task)));
    let fd = pidfd_getfd(of.ok()?, fd, PidfdGetfdFlags::empty()).ok()?;
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    pid.trim().parse().ok().filter(|pid| *pid > 0)
}

/// Whether one may send signals to another (kill(2)): it has the privilege, or its real or effective user
/// is the real or saved one of the receiver.
fn may_send(from: i32, to: i32) -> bool {
    let capable = field(from, "CapEff:").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    let users = |task| {
        let text = field(task, "Uid:")?;
        let mut users = text.split_ascii_whitespace().map(|user| user.parse::<u32>().ok());
        Some([users.next()??, users.next()??, users.next()??])
    };
    match (users(from), users(to)) {
        (Some([real, effective, _]), Some([to_real, _, to_saved])) => {
            capable.is_some_and(|mask| mask & CAP_KILL != 0)
                || [real, effective].iter().any(|user| [to_real, to_saved].contains(user))
        }
        _ => false,
    }
}
