use std::path::Path;

use rustix::{
    io::Errno,
    thread::{CapabilitySet, remove_capability_from_bounding_set},
};

use crate::{Result, ViewError, ViewSpec};

/// What no command may have inside a transaction, because it acts on the machine and not on what
/// the view holds. `CAP_SYS_PTRACE` goes so that init cannot be reached.
const DROPPED: CapabilitySet = CapabilitySet::SYS_PTRACE
    .union(CapabilitySet::WAKE_ALARM)
    .union(CapabilitySet::BLOCK_SUSPEND)
    .union(CapabilitySet::MAC_ADMIN)
    .union(CapabilitySet::MAC_OVERRIDE)
    .union(CapabilitySet::AUDIT_CONTROL)
    .union(CapabilitySet::AUDIT_READ)
    .union(CapabilitySet::CHECKPOINT_RESTORE);

/// What backs up the system call filter: the calls that need these are refused, unless the user has them
/// let through.
const REFUSED: CapabilitySet = CapabilitySet::SYS_MODULE
    .union(CapabilitySet::SYS_RAWIO)
    .union(CapabilitySet::SYS_BOOT)
    .union(CapabilitySet::SYS_TIME)
    .union(CapabilitySet::SYS_PACCT)
    .union(CapabilitySet::SYSLOG)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::BPF);

/// Takes the capabilities of [`DROPPED`] and [`REFUSED`] out of the bounding set, so that the next `execve(2)`
/// and all after it come without them. Where the network is the host's (`--allow net`), it may be
/// used and not changed: `CAP_NET_ADMIN` goes too. Where the kernel's log is let through, `CAP_SYSLOG`
/// stays, which its readers need (`kernel.dmesg_restrict`).
pub(crate) fn drop_dangerous(spec: &ViewSpec) -> Result<()> {
    let mut dropped = DROPPED;
    dropped.set(REFUSED, !spec.acts_on_machine);
    dropped.set(CapabilitySet::NET_ADMIN, !spec.private_network);
    let log_is_live = spec.live.iter().any(|path| path == Path::new("/dev/kmsg"));
    if log_is_live {
        dropped.remove(CapabilitySet::SYSLOG);
    }
    for capability in dropped.iter() {
        match remove_capability_from_bounding_set(capability) {
            // Unknown to an older kernel: nothing to drop.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(ViewError::step("drop capabilities", errno)),
        }
    }
    Ok(())
}
