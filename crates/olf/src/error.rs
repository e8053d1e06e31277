//! What an operation inside a write section can answer.

/// Why an operation of a write section did not take place.
///
/// Hand every error on with `?`: the section then decides. [`Error::Retry`] makes it run the closure
/// again; any other error aborts it (none of its changes is ever visible) and is returned to the
/// caller, after the section has made sure that the state which caused the error was a true one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An older writer changed what this section has read: the closure must run again.
    #[error("the section met a conflicting older writer and must run again; return this error")]
    Retry,
    /// The node already is on a list of this kind.
    #[error("the node is on a list of this kind already; unlink it first")]
    AlreadyLinked,
    /// The node is on no list.
    #[error("the node is on no list; link it first")]
    NotLinked,
    /// The node belongs to lists that use other counters.
    #[error("the node was used with another group; reset it, or share one group")]
    Foreign,
    /// The section touches more nodes than its group's log has room for.
    #[error("the section changes more nodes than the log holds; raise LOG of the group")]
    LogFull,
    /// Every seat of the group is taken.
    #[error("every seat of the group is taken; drop a member or raise SEATS of the group")]
    NoSeat,
    /// The section was declared dead and undone by another thread while its owner still ran.
    #[error(
        "the section was reported as failed and undone by another thread; drop this member and join anew"
    )]
    Evicted,
    /// A node of the group was freed while it was linked, so its lists cannot be followed any more.
    #[error("a node of this group was freed while it was linked; make a new group, and new lists")]
    Poisoned,
    /// The list's index or kind does not exist on this shelf.
    #[error("the shelf has no such list; use an id that it returned")]
    NoSuchList,
    /// The closure gave up.
    #[error("the section was aborted by its closure")]
    Aborted,
}
