//! seccomp user notification: the few calls that a transaction defers or refuses.

use crate::child::{At, in_child, reap};
use crate::report::Probe;
use crate::sys;

const NOTIFY: &str = "seccomp notification";
const SYNC: &str = "seccomp sync wake-up";

/// A child installs a filter, its own child makes the call, the first answers it.
pub(super) fn notification() -> Probe {
    let tried = in_child(|| {
        let listener = sys::notify_of_getppid().at("seccomp(SECCOMP_FILTER_FLAG_NEW_LISTENER)")?;
        match sys::fork().at("fork")? {
            None => {
                sys::raw_getppid();
                sys::exit_now()
            }
            Some(caller) => {
                sys::notify_answer_one(&listener).at("ioctl(SECCOMP_IOCTL_NOTIF_RECV)")?;
                reap(caller);
                Ok(0)
            }
        }
    });
    match tried {
        Ok(_) => Probe::ok(NOTIFY, "a call was held and let go on"),
        Err(failed) => Probe::missing(
            NOTIFY,
            failed.to_string(),
            "Linux 5.5 or newer with CONFIG_SECCOMP_FILTER; in a container, allow seccomp in its \
             profile; under another program's listener none can be added",
        ),
    }
}

/// Whether a notified call costs one wake-up less.
pub(super) fn sync_wake_up() -> Probe {
    let tried = in_child(|| {
        let listener = sys::notify_of_getppid().at("seccomp(SECCOMP_FILTER_FLAG_NEW_LISTENER)")?;
        sys::notify_sync_wake_up(&listener).at("ioctl(SECCOMP_IOCTL_NOTIF_SET_FLAGS)")?;
        Ok(0)
    });
    match tried {
        Ok(_) => Probe::ok(SYNC, "works: notified calls are answered on the caller's processor"),
        Err(failed) => Probe::limited(
            SYNC,
            format!("{failed}; notified calls are slower"),
            "Linux 6.6 or newer",
        ),
    }
}
