//! Each cell of the paper's tables 2 and 3, written out, and that there are no others.

use cxlock::machine::{
    Action, Admission, Call, Event, LockState, Manager, Meaning, Mode, Step, Waiting, meaning, step,
};

use Action::{
    AdmitExclusive, AdmitOptimistic, Invalid, Leave, Proceed, RestartOthers, RestartSelf, Wait,
};
use LockState::{Exclusive, Free, Transactional};

const NOBODY: Waiting = Waiting { exclusive: 0, optimistic: 0 };

fn cell(state: LockState, event: Event, manager: Manager) -> (Action, LockState) {
    let Step { action, next } = step(state, event, manager, NOBODY, Admission::ExclusiveFirst);
    (action, next)
}

#[test]
fn table_3() {
    use Event::{End, Io, Optimistic};
    for manager in [Manager::Restart, Manager::Wait] {
        let cell = |state, event| cell(state, event, manager);
        assert_eq!(cell(Free, Event::Exclusive), (Proceed, Exclusive));
        assert_eq!(cell(Free, Optimistic), (Proceed, Transactional(1)));
        assert_eq!(cell(Free, End), (Invalid, Free));
        assert_eq!(cell(Free, Io), (Invalid, Free));

        assert_eq!(cell(Transactional(1), Optimistic), (Proceed, Transactional(2)));
        assert_eq!(cell(Transactional(1), End), (Leave, Free));
        assert_eq!(cell(Transactional(2), End), (Leave, Transactional(1)));
        assert_eq!(cell(Transactional(1), Io), (RestartSelf, Free));
        assert_eq!(cell(Transactional(2), Io), (RestartSelf, Transactional(1)));

        assert_eq!(cell(Exclusive, Event::Exclusive), (Wait, Exclusive));
        assert_eq!(cell(Exclusive, Optimistic), (Wait, Exclusive));
        assert_eq!(cell(Exclusive, End), (Leave, Free));
        assert_eq!(cell(Exclusive, Io), (Proceed, Exclusive));
    }
    let contended = |manager| cell(Transactional(3), Event::Exclusive, manager);
    assert_eq!(contended(Manager::Restart), (RestartOthers, Exclusive));
    assert_eq!(contended(Manager::Wait), (Wait, Transactional(3)));
}

#[test]
fn table_3_who_is_let_in() {
    let end = |state, exclusive, optimistic, admission| {
        let waiting = Waiting { exclusive, optimistic };
        let Step { action, next } = step(state, Event::End, Manager::Wait, waiting, admission);
        (action, next)
    };
    for first in [Admission::ExclusiveFirst, Admission::OptimisticFirst] {
        // The last transaction lets one exclusive waiter in; no transaction ever waits for one.
        assert_eq!(end(Transactional(1), 2, 0, first), (AdmitExclusive, Exclusive));
        assert_eq!(end(Transactional(2), 2, 0, first), (Leave, Transactional(1)));
        assert_eq!(end(Exclusive, 1, 0, first), (AdmitExclusive, Exclusive));
        assert_eq!(end(Exclusive, 0, 3, first), (AdmitOptimistic, Transactional(3)));
    }
    assert_eq!(end(Exclusive, 1, 3, Admission::ExclusiveFirst), (AdmitExclusive, Exclusive));
    assert_eq!(
        end(Exclusive, 1, 3, Admission::OptimisticFirst),
        (AdmitOptimistic, Transactional(3))
    );
}

/// Over all arguments: the count of transactions changes by who comes and goes, a holder is
/// replaced only at its end, nobody proceeds into a held lock.
#[test]
fn every_cell_keeps_the_counts() {
    let states = [Free, Transactional(1), Transactional(2), Transactional(7), Exclusive];
    let count = |state| if let Transactional(n) = state { n } else { 0 };
    for state in states {
        for event in [Event::Exclusive, Event::Optimistic, Event::End, Event::Io] {
            for manager in [Manager::Restart, Manager::Wait] {
                for (exclusive, optimistic) in [(0, 0), (1, 0), (0, 2), (2, 1)] {
                    for first in [Admission::ExclusiveFirst, Admission::OptimisticFirst] {
                        let waiting = Waiting { exclusive, optimistic };
                        let Step { action, next } = step(state, event, manager, waiting, first);
                        match action {
                            Wait | Invalid => assert_eq!(next, state),
                            Proceed if event == Event::Optimistic => {
                                assert_eq!(count(next), count(state) + 1);
                                assert_ne!(state, Exclusive);
                            }
                            Proceed if event == Event::Exclusive => assert_eq!(state, Free),
                            Proceed => assert_eq!((event, state), (Event::Io, Exclusive)),
                            RestartOthers => {
                                assert!(manager == Manager::Restart && count(state) > 0);
                                assert_eq!(next, Exclusive);
                            }
                            RestartSelf => assert_eq!(count(next) + 1, count(state)),
                            Leave => assert_eq!(count(next), count(state).saturating_sub(1)),
                            AdmitExclusive => assert!(exclusive > 0 && next == Exclusive),
                            AdmitOptimistic => assert_eq!(count(next), optimistic),
                        }
                        assert_ne!(next, Transactional(0));
                    }
                }
            }
        }
    }
    let nonsense = Transactional(0);
    assert_eq!(cell(nonsense, Event::End, Manager::Restart), (Invalid, nonsense));
}

#[test]
fn table_2() {
    use Mode::{Exclusive, Optimistic};
    for (call, in_transaction, ending, means) in [
        (Call::Optimistic, 0, None, Meaning::Begin),
        (Call::Optimistic, 2, None, Meaning::Join),
        (Call::Exclusive, 0, None, Meaning::Take),
        (Call::Exclusive, 1, None, Meaning::Restart),
        (Call::Io, 0, None, Meaning::Allowed),
        (Call::Io, 3, None, Meaning::Restart),
        (Call::End, 1, Some(Optimistic), Meaning::Commit),
        (Call::End, 2, Some(Optimistic), Meaning::LeaveNested),
        (Call::End, 0, Some(Exclusive), Meaning::Free),
        (Call::End, 1, Some(Exclusive), Meaning::FreeAtCommit),
        (Call::End, 0, None, Meaning::Invalid),
        (Call::End, 1, None, Meaning::Invalid),
        (Call::End, 0, Some(Optimistic), Meaning::Invalid),
    ] {
        assert_eq!(meaning(call, in_transaction, ending), means, "{call:?} {in_transaction}");
    }
}
