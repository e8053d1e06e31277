//! The lock against its state machine: every sequence of calls by three threads, up to a length.
//!
//! The parts of an attempt are called one by one, so that one thread can play three, and each
//! answer of the real lock is compared with [`step`]'s. Each transaction writes a cell of its own:
//! one that only reads may commit although it was restarted, at the moment of its snapshot, when it
//! was not yet.

use crate::cell::TCell;
use crate::engine::{Instructions, Stm};
use crate::lock::CxLock;
use crate::machine::{Action, Admission, Event, LockState, Manager, Step, Waiting, step};
use crate::raw::{Acquired, Policy};
use crate::restart::Reason;
use crate::section::Running;

const PLAYERS: usize = 3;
const LENGTH: usize = if cfg!(miri) { 2 } else { 5 };
const EVENTS: [Event; 4] = [Event::Exclusive, Event::Optimistic, Event::End, Event::Io];

/// How a player is inside.
enum Player<'l> {
    Outside,
    Inside(Running<'l, Stm>),
    /// Restarted by another, and does not know it yet.
    Doomed(Running<'l, Stm>),
    Holder,
}

struct Game<'l> {
    lock: &'l CxLock<Stm>,
    cells: &'l [TCell<u32, Stm>; PLAYERS],
    manager: Manager,
    state: LockState,
    players: [Player<'l>; PLAYERS],
}

impl<'l> Game<'l> {
    fn new(lock: &'l CxLock<Stm>, cells: &'l [TCell<u32, Stm>; PLAYERS], manager: Manager) -> Self {
        let players = [const { Player::Outside }; PLAYERS];
        Self { lock, cells, manager, state: LockState::Free, players }
    }

    /// Makes the call, if the player can make it now.
    fn play(&mut self, player: usize, event: Event) {
        let waiting = Waiting::default();
        let expected = step(self.state, event, self.manager, waiting, Admission::ExclusiveFirst);
        let before = std::mem::replace(&mut self.players[player], Player::Outside);
        let after = match (before, event) {
            (Player::Outside, Event::Optimistic) => self.optimistic(player, expected),
            (Player::Outside, Event::Exclusive) => self.exclusive(expected),
            (Player::Inside(running), Event::End | Event::Io) => {
                self.leave(running, event, expected);
                Player::Outside
            }
            (Player::Holder, Event::End) => {
                assert_eq!(expected.action, Action::Leave);
                self.lock.raw.release::<Stm>();
                self.state = expected.next;
                Player::Outside
            }
            (Player::Holder, Event::Io) => {
                assert_eq!(expected, Step { action: Action::Proceed, next: LockState::Exclusive });
                Player::Holder
            }
            (Player::Doomed(mut running), Event::End) => {
                assert_eq!(running.finish(Ok(())), Err(Reason::Conflict), "a doomed commit");
                Player::Outside
            }
            (unable, _) => unable,
        };
        self.players[player] = after;
        self.compare();
    }

    fn optimistic(&mut self, player: usize, expected: Step) -> Player<'l> {
        let mut running = Running::default();
        if expected.action == Action::Wait {
            Stm::begin(&mut running.tx).expect("software always begins");
            let entered = Stm::subscribe(&mut running.tx, &self.lock.raw.word);
            assert_eq!(entered, Ok(false), "entered a held lock");
            return Player::Outside;
        }
        assert_eq!(expected.action, Action::Proceed);
        running.begin(&self.lock.raw).expect("nothing read yet");
        Stm::write(&mut running.tx, &self.cells[player].slot, 1).expect("still alive");
        self.state = expected.next;
        Player::Inside(running)
    }

    fn exclusive(&mut self, expected: Step) -> Player<'l> {
        let doomed = self.doomed();
        match (self.lock.raw.try_acquire::<Stm>(0), expected.action) {
            // The lock counts those who were restarted until they know it, and so may wait longer.
            (Acquired::Transactions, Action::Proceed) if doomed > 0 => return Player::Outside,
            (Acquired::Transactions, Action::Wait) => return Player::Outside,
            (Acquired::Held, Action::Wait) if self.state == LockState::Exclusive => {
                return Player::Outside;
            }
            (Acquired::Yes, Action::Proceed) => {}
            (Acquired::Yes, Action::RestartOthers) => {
                for player in &mut self.players {
                    *player = match std::mem::replace(player, Player::Outside) {
                        Player::Inside(running) => Player::Doomed(running),
                        other => other,
                    };
                }
            }
            other => panic!("lock and machine disagree: {other:?} in {:?}", self.state),
        }
        self.state = expected.next;
        Player::Holder
    }

    fn leave(&mut self, mut running: Running<'l, Stm>, event: Event, expected: Step) {
        if event == Event::End {
            assert_eq!(expected.action, Action::Leave);
            assert_eq!(running.finish(Ok(())), Ok(()));
        } else {
            assert_eq!(expected.action, Action::RestartSelf);
            let restart = running.restart(Reason::NeedExclusive);
            assert_eq!(running.finish::<()>(Err(restart)), Err(Reason::NeedExclusive));
        }
        self.state = expected.next;
    }

    fn doomed(&self) -> u32 {
        self.players.iter().map(|p| u32::from(matches!(p, Player::Doomed(_)))).sum()
    }

    fn compare(&self) {
        let seen = self.lock.raw.state::<Stm>(self.lock.raw.word.load());
        let expected = match (self.manager, self.state, self.doomed()) {
            (_, LockState::Exclusive, _) => LockState::Exclusive,
            // Who is inside is counted only where the manager needs it.
            (Manager::Restart, _, _) | (_, LockState::Free, 0) => LockState::Free,
            (Manager::Wait, LockState::Free, doomed) => LockState::Transactional(doomed),
            (Manager::Wait, LockState::Transactional(n), doomed) => {
                LockState::Transactional(n + doomed)
            }
        };
        assert_eq!(seen, expected);
    }
}

fn every_sequence(policy: Policy, manager: Manager) -> usize {
    let moves = PLAYERS * EVENTS.len();
    let sequences = moves.pow(LENGTH as u32);
    for mut sequence in 0..sequences {
        let lock = CxLock::with_policy(policy);
        let cells = Default::default();
        let mut game = Game::new(&lock, &cells, manager);
        for _ in 0..LENGTH {
            let (player, event) = (sequence % PLAYERS, sequence / PLAYERS % EVENTS.len());
            game.play(player, EVENTS[event]);
            sequence /= moves;
        }
    }
    sequences
}

#[test]
fn exclusive_first_is_the_machine_with_a_manager_that_restarts() {
    assert!(every_sequence(Policy::ExclusiveFirst, Manager::Restart) > 100);
}

#[test]
fn transactions_first_is_the_machine_with_a_manager_that_waits() {
    let patient = Policy::TransactionsFirst { patience: u32::MAX };
    assert!(every_sequence(patient, Manager::Wait) > 100);
}
