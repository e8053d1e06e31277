use rustix::{
    io::Errno,
    thread::{CapabilitySet, remove_capability_from_bounding_set},
};

use crate::{Result, ViewError};

/// What no command may have inside a transaction, because it acts on the machine and not on what
/// the view holds. `CAP_SYS_PTRACE` goes so that init cannot be reached; the rest backs up what
/// the system call filter refuses.
const DROPPED: CapabilitySet = CapabilitySet::SYS_PTRACE
    .union(CapabilitySet::SYS_MODULE)
    .union(CapabilitySet::SYS_RAWIO)
    .union(CapabilitySet::SYS_BOOT)
    .union(CapabilitySet::SYS_TIME)
    .union(CapabilitySet::SYS_PACCT)
    .union(CapabilitySet::SYSLOG)
    .union(CapabilitySet::WAKE_ALARM)
    .union(CapabilitySet::BLOCK_SUSPEND)
    .union(CapabilitySet::MAC_ADMIN)
    .union(CapabilitySet::MAC_OVERRIDE)
    .union(CapabilitySet::AUDIT_CONTROL)
    .union(CapabilitySet::AUDIT_READ)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::CHECKPOINT_RESTORE);

/// Takes the capabilities of [`DROPPED`] out of the bounding set, so that the next `execve(2)`
/// and all after it come without them. Where the network is the host's (`--allow net`), it may be
/// used and not changed: `CAP_NET_ADMIN` goes too.
pub(crate) fn drop_dangerous(private_network: bool) -> Result<()> {
    let network = if private_network { CapabilitySet::empty() } else { CapabilitySet::NET_ADMIN };
    for capability in DROPPED.union(network).iter() {
        match remove_capability_from_bounding_set(capability) {
            // Unknown to an older kernel: nothing to drop.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(ViewError::step("drop capabilities", errno)),
        }
    }
    Ok(())
}
