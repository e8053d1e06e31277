//! The C interface: `include/olf.h`.
//!
//! Statuses: `OLF_OK` is 0, errors are negative, and `OLF_RETRY` (1) asks to run the section's body again.
//! A function called out of turn answers `OLF_BUSY` or null rather than doing harm; pointers are
//! trusted, as everywhere in C.

#![allow(unsafe_code)] // Pointers from C. Each function states what it trusts.
#![allow(non_camel_case_types)] // C names.

use core::mem::{align_of, size_of};
use core::ptr::{self, NonNull};
use olf::{End, Error, Group, Member, Node, Place, Read, Write};

/// Success.
pub const OLF_OK: i32 = 0;
/// An older writer interfered; the body of the section has to run again.
pub const OLF_RETRY: i32 = 1;
/// The node is on a list already.
pub const OLF_LINKED: i32 = -1;
/// The node is on no list.
pub const OLF_NOT_LINKED: i32 = -2;
/// The node was used with another group.
pub const OLF_FOREIGN: i32 = -3;
/// The section changes more nodes than the log holds (128).
pub const OLF_LOG_FULL: i32 = -4;
/// The member has another section open, or none.
pub const OLF_BUSY: i32 = -5;
/// The member was reported as failed and undone by another thread: leave, and join anew.
pub const OLF_EVICTED: i32 = -6;

/// A list node or head, to be embedded in an object. Initialise with OLF_NODE_INIT or olf_node_init.
#[repr(C, align(64))]
pub struct olf_node {
    opaque: [u64; 16],
}

const _: () = assert!(size_of::<olf_node>() == size_of::<Node>());
const _: () = assert!(align_of::<olf_node>() == align_of::<Node>());

/// Lists that share counters; room for 64 members.
pub struct olf_group(Group<64, 128>);

/// A thread's seat in a group.
#[repr(C)]
pub struct olf_member {
    /// Read by olf_write_step: what `Write::glance_words` said after the last operation.
    glance_below: u64,
    group: u64,
    member: Member<'static>,
    /// What is open, and the epoch of a read section.
    open: Open,
    epoch: u64,
}

#[derive(PartialEq)]
enum Open {
    Nothing,
    Read,
    Write,
}

fn status(result: Result<(), Error>) -> i32 {
    match result {
        Ok(()) => OLF_OK,
        Err(Error::Retry) => OLF_RETRY,
        Err(Error::AlreadyLinked) => OLF_LINKED,
        Err(Error::NotLinked) => OLF_NOT_LINKED,
        Err(Error::Foreign) => OLF_FOREIGN,
        Err(Error::LogFull) => OLF_LOG_FULL,
        Err(Error::Evicted) => OLF_EVICTED,
        Err(_) => OLF_BUSY,
    }
}

/// # Safety
///
/// `node` is initialised and stays where it is until the section ends.
unsafe fn place<'a>(node: *const olf_node) -> Option<Place<'a>> {
    // SAFETY: same size and alignment; the contents are those of a `Node`, by `olf_node_init`.
    NonNull::new(node.cast_mut()).map(|n| unsafe { Place::new(n.cast()) })
}

fn out(place: Place<'_>) -> *mut olf_node {
    place.as_ptr().cast()
}

/// Runs `f` with the member's open write section.
///
/// # Safety
///
/// `member` came from `olf_join` and is used by this thread alone.
unsafe fn writing<T>(
    member: *mut olf_member,
    f: impl FnOnce(&mut Write<'_, 'static>) -> T,
) -> Option<T> {
    // SAFETY: contract.
    let m = unsafe { member.as_mut() }?;
    if m.open != Open::Write {
        return None;
    }
    // SAFETY: a write section is open; C callers keep the promise of `begin` by the header's words.
    let mut w = unsafe { Write::reopen(&mut m.member) };
    let result = f(&mut w);
    let (below, group) = w.glance_words();
    w.leave_open();
    (m.glance_below, m.group) = (below, group as u64);
    Some(result)
}

/// Links `node` beside `at` in the way of `link`, which may rely upon the contract of its caller.
///
/// # Safety
///
/// As [`olf_list_add`].
unsafe fn put(
    member: *mut olf_member,
    node: *mut olf_node,
    at: *mut olf_node,
    link: impl for<'m> FnOnce(&mut Write<'m, 'static>, Place<'m>, Place<'m>) -> Result<(), Error>,
) -> i32 {
    // SAFETY: contract.
    unsafe {
        let (Some(node), Some(at)) = (place(node), place(at)) else { return OLF_BUSY };
        writing(member, |w| link(w, at, node)).map_or(OLF_BUSY, status)
    }
}

/// One step from `node` as the write section sees it.
///
/// # Safety
///
/// As [`olf_write_next`].
unsafe fn step(
    member: *mut olf_member,
    node: *const olf_node,
    to: impl for<'m> FnOnce(&mut Write<'m, 'static>, Place<'m>) -> Result<Place<'m>, Error>,
) -> *mut olf_node {
    // SAFETY: contract.
    unsafe {
        let Some(at) = place(node) else { return ptr::null_mut() };
        let reached = writing(member, |w| to(w, at).map(out)).and_then(Result::ok);
        reached.unwrap_or(ptr::null_mut())
    }
}

/// Makes `node` a node on no list.
///
/// # Safety
///
/// `node` is writable, and no section can see it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_node_init(node: *mut olf_node) {
    // SAFETY: contract; the layouts agree.
    unsafe { node.cast::<Node>().write(Node::new()) };
}

/// A new group; NULL never. Free it with olf_group_free.
#[unsafe(no_mangle)]
pub extern "C" fn olf_group_new() -> *mut olf_group {
    Box::into_raw(Box::new(olf_group(Group::new())))
}

/// Frees a group.
///
/// # Safety
///
/// All members have left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_group_free(group: *mut olf_group) {
    if !group.is_null() {
        // SAFETY: made by `olf_group_new`; unused by contract.
        drop(unsafe { Box::from_raw(group) });
    }
}

/// Takes a seat; NULL if all 64 are taken. Give it back with olf_leave.
///
/// # Safety
///
/// The group outlives the member.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_join(group: *const olf_group) -> *mut olf_member {
    // SAFETY: contract.
    let joined = unsafe { group.as_ref() }.and_then(|g| g.0.join().ok());
    joined.map_or(ptr::null_mut(), |member| {
        Box::into_raw(Box::new(olf_member {
            glance_below: 0,
            group: 0,
            member,
            open: Open::Nothing,
            epoch: 0,
        }))
    })
}

/// Gives a seat back. An open section is ended, without effect.
///
/// # Safety
///
/// `member` came from olf_join and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_leave(member: *mut olf_member) {
    if member.is_null() {
        return;
    }
    // SAFETY: contract.
    let mut m = unsafe { Box::from_raw(member) };
    match m.open {
        Open::Nothing => {}
        // SAFETY: that section is open.
        Open::Read => drop(unsafe { Read::reopen(&mut m.member, m.epoch) }),
        // SAFETY: as above.
        Open::Write => drop(unsafe { Write::reopen(&mut m.member) }),
    }
}

/// Begins a read section. OLF_BUSY if a section is open; OLF_EVICTED if the member was reported dead.
///
/// # Safety
///
/// `member` came from olf_join.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_read_begin(member: *mut olf_member) -> i32 {
    // SAFETY: contract.
    let Some(m) = (unsafe { member.as_mut() }) else { return OLF_BUSY };
    if m.open != Open::Nothing {
        return OLF_BUSY;
    }
    if m.member.is_evicted() {
        return OLF_EVICTED;
    }
    m.epoch = m.member.read().leave_open();
    m.open = Open::Read;
    OLF_OK
}

/// Ends a read section: pointers that it handed out must not be used any more.
///
/// # Safety
///
/// `member` came from olf_join.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_read_end(member: *mut olf_member) -> i32 {
    // SAFETY: contract.
    let Some(m) = (unsafe { member.as_mut() }) else { return OLF_BUSY };
    if m.open != Open::Read {
        return OLF_BUSY;
    }
    m.open = Open::Nothing;
    // SAFETY: that section is open.
    drop(unsafe { Read::reopen(&mut m.member, m.epoch) });
    OLF_OK
}

/// The node behind `node` in the read section's view: `node` itself if it is an empty head.
///
/// # Safety
///
/// A read section is open, and `node` is a head of its group or was reached in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_read_next(
    member: *mut olf_member,
    node: *const olf_node,
) -> *mut olf_node {
    // SAFETY: contract.
    unsafe {
        let m = &mut *member;
        let read = Read::reopen(&mut m.member, m.epoch);
        let next = place(node).map_or(ptr::null_mut(), |at| out(read.next(at)));
        read.leave_open();
        next
    }
}

/// The node before `node`; see olf_read_next.
///
/// # Safety
///
/// As olf_read_next.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_read_prev(
    member: *mut olf_member,
    node: *const olf_node,
) -> *mut olf_node {
    // SAFETY: contract.
    unsafe {
        let m = &mut *member;
        let read = Read::reopen(&mut m.member, m.epoch);
        let prev = place(node).map_or(ptr::null_mut(), |at| out(read.prev(at)));
        read.leave_open();
        prev
    }
}

/// Begins a write section. OLF_BUSY if a section is open; OLF_EVICTED if the member was reported dead.
///
/// # Safety
///
/// `member` came from olf_join.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_write_begin(member: *mut olf_member) -> i32 {
    // SAFETY: contract.
    let Some(m) = (unsafe { member.as_mut() }) else { return OLF_BUSY };
    if m.open != Open::Nothing {
        return OLF_BUSY;
    }
    if m.member.is_evicted() {
        return OLF_EVICTED;
    }
    // SAFETY: C callers promise what `begin` asks for by the header's words.
    unsafe { m.member.begin() }.leave_open();
    m.open = Open::Write;
    OLF_OK
}

/// # Safety
///
/// As olf_write_end.
unsafe fn end(member: *mut olf_member, keep: bool) -> i32 {
    // SAFETY: contract.
    let answer = match unsafe { writing(member, |w| w.end(keep)) } {
        None => return OLF_BUSY,
        Some(Ok(End::Again)) => return OLF_RETRY,
        Some(Ok(End::Done(epoch))) => {
            // SAFETY: `writing` found a member there.
            unsafe { (*member).epoch = epoch };
            OLF_OK
        }
        Some(Err(e)) => status(Err(e)),
    };
    // SAFETY: as above.
    unsafe { (*member).open = Open::Nothing };
    answer
}

/// Commits. OLF_RETRY: nothing happened, run the body again and then call this again.
///
/// # Safety
///
/// `member` came from olf_join. After any other answer than OLF_RETRY, pointers that the section
/// handed out are not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_write_end(member: *mut olf_member) -> i32 {
    // SAFETY: contract.
    unsafe { end(member, true) }
}

/// Gives the section up. OLF_RETRY: what it saw was out of date; run the body again.
///
/// # Safety
///
/// As olf_write_end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_write_abort(member: *mut olf_member) -> i32 {
    // SAFETY: contract.
    unsafe { end(member, false) }
}

/// The epoch of the section that is open, or of the last write section: for olf_may_free.
///
/// # Safety
///
/// `member` came from olf_join.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_epoch(member: *mut olf_member) -> u64 {
    // SAFETY: contract.
    unsafe { writing(member, |w| w.epoch()).unwrap_or((*member).epoch) }
}

/// Whether memory of a node that was unlinked at `epoch` may be freed or reused for something else.
///
/// # Safety
///
/// `member` came from olf_join.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_may_free(member: *const olf_member, epoch: u64) -> bool {
    // SAFETY: contract.
    unsafe { (*member).member.may_free(epoch) }
}

/// Puts `node` behind `at`: at the front of the list, if `at` is its head.
///
/// # Safety
///
/// `member` came from olf_join. From here on both nodes stay where they are, and their memory is not
/// freed before olf_may_free agrees for the epoch of the section that unlinked them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_list_add(
    member: *mut olf_member,
    node: *mut olf_node,
    at: *mut olf_node,
) -> i32 {
    // SAFETY: contract.
    unsafe { put(member, node, at, |w, at, node| w.link_after(at, node)) }
}

/// Puts `node` before `at`: at the back of the list, if `at` is its head.
///
/// # Safety
///
/// `member` came from olf_join. From here on both nodes stay where they are, and their memory is not
/// freed before olf_may_free agrees for the epoch of the section that unlinked them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_list_add_tail(
    member: *mut olf_member,
    node: *mut olf_node,
    at: *mut olf_node,
) -> i32 {
    // SAFETY: contract.
    unsafe { put(member, node, at, |w, at, node| w.link_before(at, node)) }
}

/// Puts `node` behind `at` in a singly linked list.
///
/// # Safety
///
/// `member` came from olf_join. From here on both nodes stay where they are, and their memory is not
/// freed before olf_may_free agrees for the epoch of the section that unlinked them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_chain_add(
    member: *mut olf_member,
    node: *mut olf_node,
    at: *mut olf_node,
) -> i32 {
    // SAFETY: contract.
    unsafe { put(member, node, at, |w, at, node| w.chain_after(at, node)) }
}

/// Takes `node` off its doubly linked list.
///
/// # Safety
///
/// `member` came from olf_join; `node` is initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_list_del(member: *mut olf_member, node: *mut olf_node) -> i32 {
    // SAFETY: contract.
    let Some(node) = (unsafe { place(node) }) else { return OLF_BUSY };
    // SAFETY: as above.
    unsafe { writing(member, |w| w.unlink(node)) }.map_or(OLF_BUSY, status)
}

/// Takes `node` off its list and puts it behind `at`.
///
/// # Safety
///
/// As olf_list_add.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_list_move(
    member: *mut olf_member,
    node: *mut olf_node,
    at: *mut olf_node,
) -> i32 {
    // SAFETY: contract.
    match unsafe { olf_list_del(member, node) } {
        // SAFETY: as above.
        OLF_OK => unsafe { olf_list_add(member, node, at) },
        error => error,
    }
}

/// Takes the node behind `at` off its singly linked list. `at` must not be the last node.
///
/// # Safety
///
/// As olf_list_del.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_chain_del_after(member: *mut olf_member, at: *mut olf_node) -> i32 {
    // SAFETY: contract.
    let Some(at) = (unsafe { place(at) }) else { return OLF_BUSY };
    // SAFETY: as above.
    unsafe { writing(member, |w| w.unchain_after(at).map(drop)) }.map_or(OLF_BUSY, status)
}

/// The node behind `node` as the write section sees it. NULL: go to the end of the section, which
/// will ask for another run (or was not open).
///
/// # Safety
///
/// `member` came from olf_join; `node` is a head or was reached in this section.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_write_next(
    member: *mut olf_member,
    node: *const olf_node,
) -> *mut olf_node {
    // SAFETY: contract.
    unsafe { step(member, node, |w, at| w.next(at)) }
}

/// The node before `node`; see olf_write_next.
///
/// # Safety
///
/// `member` came from olf_join; `node` is a head or was reached in this section.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_write_prev(
    member: *mut olf_member,
    node: *const olf_node,
) -> *mut olf_node {
    // SAFETY: contract.
    unsafe { step(member, node, |w, at| w.prev(at)) }
}

/// As olf_write_next, but not checked at commit: for searches, after which the section changes the
/// nodes that its decision rests on.
///
/// # Safety
///
/// `member` came from olf_join; `node` is a head or was reached in this section.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_write_glance(
    member: *mut olf_member,
    node: *const olf_node,
) -> *mut olf_node {
    // SAFETY: contract.
    unsafe { step(member, node, |w, at| w.glance(at)) }
}

/// The number of the member's seat, for olf_report_failed.
///
/// # Safety
///
/// `member` came from olf_join.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_seat(member: *const olf_member) -> usize {
    // SAFETY: contract.
    unsafe { (*member).member.seat() }
}

/// Reports that the thread at `seat` is dead; olf_recover then ends its section.
///
/// # Safety
///
/// It is: it takes no further step, and its member is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_report_failed(group: *const olf_group, seat: usize) {
    // SAFETY: contract.
    if let Some(group) = unsafe { group.as_ref() } {
        // SAFETY: as above.
        unsafe { group.0.report_failed(seat) };
    }
}

/// Ends the sections of all members reported as dead; returns how many seats became free.
///
/// # Safety
///
/// `member` came from olf_join and has no section open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn olf_recover(member: *mut olf_member) -> usize {
    // SAFETY: contract.
    unsafe { (*member).member.recover() }
}
