//! Which calls the guard asks about, and which of them a transaction does not support.
//!
//! What `txos run` refuses by the table of effects is not supported here either. Besides, a thread that is in a
//! transaction has the network and the communication objects of the machine, where a command of `txos run`
//! has its own: so what reaches others through them is not supported. Data that goes through sockets and
//! pipes which are open already is not looked at: that would take a question for each call.

use txos_effects::{
    filter::{
        Arch, Filter,
        rules::{Action, Ask, NEW_NAMESPACE, rule_of},
    },
    notify::Notified,
};

use txos_protocol::NOTED;

use super::target::{Peer, Target};

/// Signals (see [`super::signals`]).
const SIGNALS: &[&str] =
    &["kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"];
/// Calls that reach somebody at an address.
const CONTACTS: &[(&str, usize, usize)] = &[("connect", 1, 2), ("bind", 1, 2), ("sendto", 4, 5)];
/// Messages and semaphores of the machine.
const MESSAGES: &[&str] =
    &["msgsnd", "msgrcv", "semop", "semtimedop", "mq_timedsend", "mq_timedreceive", "mq_unlink"];

/// Calls that take signals, which would not come again after a rollback.
const TAKING: &[&str] = &["rt_sigtimedwait", "signalfd", "signalfd4"];

/// What is said to a call inside a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Proceed,
    /// As if the kernel did not have it: programs fall back.
    Absent,
    Unsupported,
}

/// Whether the table of effects refuses it, or wants to look.
fn asks(action: Action) -> bool {
    matches!(action, Action::Ask(Ask::Refuse(_) | Ask::Clock))
}

/// The filter, which passes what is called from `gate`.
pub(super) fn filter(gate: u64) -> Filter {
    let further = SIGNALS.iter().chain(MESSAGES).chain(&["connect", "bind", "clone3"]);
    let further = further.chain(&["io_uring_setup"]).chain(TAKING);
    let further: Vec<&str> = further.copied().collect();
    Filter::asking(gate, &asks, &further, &["sendto"])
}

/// The name of a call; empty for one that the table does not know.
pub(super) fn name_of(number: u32) -> &'static str {
    Arch::HOST.name(number).unwrap_or_default()
}

/// Whether a call takes signals without the library's knowledge.
pub(super) fn takes_signals(name: &str, call: &Notified) -> bool {
    let noted = name == "rt_sigtimedwait" && call.args[4] == NOTED.cast_unsigned();
    TAKING.contains(&name) && !noted
}

pub(super) fn is_signal(name: &str) -> bool {
    SIGNALS.contains(&name)
}

/// What is said to a call that a member makes.
pub(super) fn judge(name: &str, call: &Notified, target: &Target<'_>) -> Verdict {
    let supported = |is: bool| if is { Verdict::Proceed } else { Verdict::Unsupported };
    if let Some((_, address, length)) = CONTACTS.iter().find(|contact| contact.0 == name) {
        return supported(match target.peer(call.args[*address], call.args[*length]) {
            // A path of the view: a socket of the machine is not to be had there.
            Peer::Path(path) => !path.starts_with(b"/dev/"),
            Peer::Own => true,
            Peer::Outside => false,
        });
    }
    match name {
        // Newer than the table, of which nobody can say what it does.
        "io_uring_setup" | "" => Verdict::Absent,
        // The flags are the first member of `struct clone_args`.
        "clone3" => supported(
            target.number(call.args[0]).is_none_or(|flags| flags & u64::from(NEW_NAMESPACE) == 0),
        ),
        // `modes` is the first member of `struct timex`: 0 only reads.
        "adjtimex" => supported(target.number(call.args[0]).is_some_and(|modes| modes as u32 == 0)),
        "clock_adjtime" => {
            supported(target.number(call.args[1]).is_some_and(|modes| modes as u32 == 0))
        }
        _ if MESSAGES.contains(&name) => Verdict::Unsupported,
        // See the caller.
        _ if TAKING.contains(&name) => Verdict::Proceed,
        _ => supported(!rule_of(name).is_some_and(|rule| asks(rule.decide(&call.args)))),
    }
}
