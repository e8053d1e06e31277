//! The guard: what the session says to calls that a transaction cannot isolate or undo.
//!
//! The threads of a program that begins transactions, and all that they start, have a filter on their
//! system calls (seccomp_unotify(2)), from their first transaction to their end. It asks about few calls, and
//! of those only what is made inside a transaction matters; the same call outside goes on.
//!
//! ```text
//! rules     which calls are asked about, and which of them a transaction does not support
//! target    what can be learnt about the caller: its memory, its rights
//! signals   signals to outsiders wait for the commit
//! ```
//!
//! # Invariants
//!
//! - Each question is answered once: one that cannot be judged fails with `ENOTXSUPPORT`.
//! - A question is answered without waiting for anything: nobody is held up by another's.
//! - The session lives as long as anybody has the filter: its calls would fail without an answer.

mod rules;
mod signals;
mod target;

use std::{
    io::Write,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{MemfdFlags, SeekFrom, memfd_create, seek},
    io::Errno,
    process::{PidfdGetfdFlags, pidfd_getfd},
};
use txos_effects::filter::Arch;
use txos_effects::notify::{Answer, Notified, notif_recv, notif_send, notif_sync_wake_up};
use txos_protocol::ASKED;

pub(crate) use self::signals::Deferred;
use self::{rules::Verdict, target::Target};
use crate::{
    control::{Control, Controls, GivenUp},
    sys,
};

/// Flags of a transaction about what it does not support.
const ERROR_UNSUPPORTED: u32 = 8;
const LIVE_DANGEROUSLY: u32 = 16;
/// `ENOTXSUPPORT`.
pub(crate) const UNSUPPORTED: i32 = txos_effects::ENOTXSUPPORT;

/// The filter's program, for a library whose own calls come from `gate`, in a file without a name.
///
/// # Errors
/// If there is no memory.
pub(crate) fn program(gate: u64) -> Result<OwnedFd, Errno> {
    let file = memfd_create("guard", MemfdFlags::CLOEXEC)?;
    let bytes: Vec<u8> = rules::filter(gate)
        .program()
        .iter()
        .flat_map(|i| {
            let ([a, b], [c, d, e, f]) = (i.code.to_ne_bytes(), i.k.to_ne_bytes());
            [a, b, i.jt, i.jf, c, d, e, f]
        })
        .collect();
    let mut file = std::fs::File::from(file);
    file.write_all(&bytes).map_err(|_| Errno::NOMEM)?;
    seek(&file, SeekFrom::Start(0))?;
    Ok(file.into())
}

/// Takes the listener that a thread has under a number.
///
/// # Errors
/// If the thread has gone, or has none there.
pub(crate) fn listener(task: i32, process: i32, number: u64) -> Result<OwnedFd, Errno> {
    let number = i32::try_from(number).map_err(|_| Errno::BADF)?;
    // Its table of descriptors may be its own; before Linux 6.9 it is taken for the process's.
    let of = sys::open_thread(task).or_else(|_| sys::open_thread(process))?;
    pidfd_getfd(of, number, PidfdGetfdFlags::empty())
}

/// Answers on a listener until nobody has its filter any more.
pub(crate) fn answer_all(listener: &OwnedFd, name: &str, controls: &Controls) {
    notif_sync_wake_up(listener.as_fd());
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN)];
        if poll(&mut fds, None).is_err_and(|errno| errno != Errno::INTR) {
            return;
        }
        let events = fds[0].revents();
        if events.contains(PollFlags::IN) {
            // Who has gone meanwhile needs no answer.
            if let Ok(call) = notif_recv(listener.as_fd()) {
                let answer = answer(listener, &call, name, controls);
                let _ = notif_send(listener.as_fd(), call.id, answer);
            }
        } else if !events.is_empty() {
            return;
        }
    }
}

fn answer(listener: &OwnedFd, call: &Notified, session: &str, controls: &Controls) -> Answer {
    let target = Target::new(listener.as_fd(), call);
    // A program for 32 bits, say: its numbers mean other calls.
    if call.arch != Arch::HOST.audit() {
        let control = controls.of_process(target.task());
        return control.map_or(Answer::Proceed, |control| unsupported(&control, "another way"));
    }
    let name = rules::name_of(call.nr);
    if name == "tgkill" && call.args[0] as i32 == ASKED {
        return tell_name(&target, call, session);
    }
    let Some(control) = controls.of_process(target.task()) else { return Answer::Proceed };
    if rules::is_signal(name) {
        return signals::answer(name, call, &target, &control);
    }
    // The library's own way back, in a program that was started by one with the guard: whose gate is not
    // its own.
    if name == "setns" && control.is_way_back(target.task(), call.args[0] as i32) {
        return Answer::Proceed;
    }
    if rules::takes_signals(name, call) && control.rolls_back(target.task()) {
        return unsupported(&control, name);
    }
    match rules::judge(name, call, &target) {
        Verdict::Proceed => Answer::Proceed,
        Verdict::Absent => Answer::Errno(libc::ENOSYS),
        Verdict::Unsupported => unsupported(&control, name),
    }
}

/// What becomes of a call that the transaction does not support: as its flags say.
fn unsupported(control: &Control, name: &str) -> Answer {
    if control.flags & LIVE_DANGEROUSLY != 0 {
        return Answer::Proceed;
    }
    tracing::debug!(transaction = control.id, call = name, "not supported");
    if control.flags & ERROR_UNSUPPORTED == 0 {
        control.give_up(GivenUp::Unsupported);
    }
    Answer::Errno(UNSUPPORTED)
}

/// A thread asks who answers for it.
fn tell_name(target: &Target<'_>, call: &Notified, session: &str) -> Answer {
    let fits = call.args[2] >= session.len() as u64;
    match fits && target.write(call.args[1], session.as_bytes()) {
        true => Answer::Value(session.len() as i64),
        false => Answer::Errno(libc::EINVAL),
    }
}
