use crate::{Group, Hierarchy, Result, hierarchy::make_group};

/// Moves the calling process, with all its threads, out of every domain, into the group of running
/// transactions; what it starts from then on begins there. Does nothing, and costs one reading of a
/// file, for a process that is in no domain, unless it `always` must be in that group (a domain that
/// is the whole system). Gives whether it was moved.
///
/// # Errors
/// If the groups are not available, or the kernel refuses the move.
pub fn leave(hierarchy: &Hierarchy, always: bool) -> Result<bool> {
    let own = hierarchy.own();
    let there = hierarchy.transactions();
    if own == there || !always && !own.starts_with(hierarchy.domains()) {
        return Ok(false);
    }
    make_group(&there)?;
    Group::open(&there)?.add(std::process::id())?;
    Ok(true)
}
