//! The decision table: what to do with an operation, given what is there.
//!
//! Each function is total over its arguments, and a test walks every combination. The rule behind
//! all rows: as before → do it; as after → it is done; anything else → someone outside was there,
//! and what they did stays.

/// What is bound to the name at which an operation aims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Nothing.
    Absent,
    /// What the operation displaces.
    Replaced,
    /// What the operation binds there.
    Ours,
    /// Something else.
    Other,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is done.
    Done,
    /// Bind the name, which is free.
    Bind,
    /// Exchange what is bound there for ours.
    Exchange,
    /// Leave theirs, and save ours aside.
    KeepTheirs,
    /// Ours was in place once and is not any more: someone has gone on from there.
    Overtaken,
}

/// For binding an object to a name: what is there, whether the object is where it waits, and
/// whether the operation displaces something.
pub(crate) fn bind(target: Target, waiting: bool, replaces: bool) -> Verdict {
    match (target, waiting, replaces) {
        (Target::Ours, _, _) => Verdict::Done,
        (_, false, _) => Verdict::Overtaken,
        (Target::Absent, true, false) => Verdict::Bind,
        (Target::Replaced, true, true) => Verdict::Exchange,
        // It should be displaced but is gone; or it is there, but nothing was; or a stranger.
        (Target::Absent, true, true) => Verdict::KeepTheirs,
        (Target::Replaced, true, false) => Verdict::KeepTheirs,
        (Target::Other, true, _) => Verdict::KeepTheirs,
    }
}

/// What to do about a name that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It is gone, or bound by this very commit to something new.
    Done,
    /// Remove it.
    Remove,
    /// Someone else bound it to something.
    KeepTheirs,
}

/// For removing a name: what is there (`Replaced` is what goes, `Ours` what the same commit puts
/// there).
pub(crate) fn remove(target: Target) -> Removal {
    match target {
        Target::Absent | Target::Ours => Removal::Done,
        Target::Replaced => Removal::Remove,
        Target::Other => Removal::KeepTheirs,
    }
}

/// What to do about a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// It is set.
    Done,
    /// Set it.
    Set,
    /// Someone else set it.
    KeepTheirs,
}

/// For an attribute: whether it is as before, and as after; `disturbed` says that other operations
/// of the same commit may have moved it.
pub(crate) fn set(as_before: bool, as_after: bool, disturbed: bool) -> Setting {
    match (as_before, as_after, disturbed) {
        (_, true, _) => Setting::Done,
        (true, false, _) | (false, false, true) => Setting::Set,
        (false, false, false) => Setting::KeepTheirs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: [Target; 4] = [Target::Absent, Target::Replaced, Target::Ours, Target::Other];

    #[test]
    fn every_combination_of_bind_has_its_row() {
        use Verdict::*;
        let rows = [
            // (absent, replaced, ours, other) for (waiting, replaces)
            ((false, false), [Overtaken, Overtaken, Done, Overtaken]),
            ((false, true), [Overtaken, Overtaken, Done, Overtaken]),
            ((true, false), [Bind, KeepTheirs, Done, KeepTheirs]),
            ((true, true), [KeepTheirs, Exchange, Done, KeepTheirs]),
        ];
        for ((waiting, replaces), verdicts) in rows {
            for (target, verdict) in TARGETS.into_iter().zip(verdicts) {
                assert_eq!(
                    bind(target, waiting, replaces),
                    verdict,
                    "{target:?} {waiting} {replaces}"
                );
            }
        }
    }

    #[test]
    fn every_combination_of_remove_and_set_has_its_row() {
        use Removal::*;
        for (target, row) in TARGETS.into_iter().zip([Done, Remove, Done, KeepTheirs]) {
            assert_eq!(remove(target), row);
        }
        for (before, after, disturbed, row) in [
            (false, false, false, Setting::KeepTheirs),
            (false, false, true, Setting::Set),
            (false, true, false, Setting::Done),
            (false, true, true, Setting::Done),
            (true, false, false, Setting::Set),
            (true, false, true, Setting::Set),
            (true, true, false, Setting::Done),
            (true, true, true, Setting::Done),
        ] {
            assert_eq!(set(before, after, disturbed), row);
        }
    }
}
