//! Recorded histories, and the checker that decides whether they were strictly serializable.
//!
//! Items wander between lists. Every section, committed or aborted, reports its epoch, what it did and
//! what it saw, and when it began and ended by one clock. The algorithm claims that epoch order is a
//! serial order, so the checker need not search for one: it replays the sections in epoch order on
//! plain vectors and compares everything that anybody saw, then checks the order against the clock.

use super::{Dice, thread};
use olf::{Double, Error, Group, Link, List, Member, Node};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Item<const K: usize> {
    id: usize,
    node: Node<K>,
}

pub enum Kind {}

// SAFETY: the offset is the compiler's; nothing else names the node.
#[allow(unsafe_code)]
unsafe impl<const K: usize> Link<K> for Kind {
    type Entry = Item<K>;
    type Shape = Double;
    const OFFSET: usize = std::mem::offset_of!(Item<K>, node);
}

type State = Vec<Vec<usize>>;

/// What a write section tried.
#[derive(Clone, Debug)]
enum Step {
    /// Put the item at the front or back of the list, wherever it was.
    Move { item: usize, to: usize, front: bool },
    /// Look for the item on the list by a nested read, and if it is there, move it.
    MoveIf { item: usize, from: usize, to: usize, found: bool },
    /// Exchange the first entries of two lists; what they were is recorded.
    Exchange { a: usize, b: usize, first: (Option<usize>, Option<usize>) },
}

#[derive(Clone, Debug)]
struct Event {
    epoch: u64,
    began: u64,
    ended: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Read(State),
    Wrote(Vec<Step>),
    /// Gave up after these steps: they must have seen the truth, and have no effect.
    Aborted(Vec<Step>),
}

/// The checkers' atomics are large; a small group keeps it off the end of the stack.
#[cfg(shuttle)]
type Counters = Group<10, 24>;
#[cfg(not(shuttle))]
type Counters = Group<16, 64>;

pub struct World<const K: usize> {
    group: Counters,
    lists: Vec<List<Kind, K>>,
    items: Vec<Item<K>>,
    clock: AtomicU64,
}

#[derive(Clone, Copy)]
pub struct Shape {
    pub items: usize,
    pub lists: usize,
    pub writers: usize,
    pub readers: usize,
    pub sections: usize,
    pub enter_tries: u32,
}

#[allow(unsafe_code)]
impl<const K: usize> World<K> {
    pub fn new(shape: Shape) -> Self {
        Self {
            group: Group::with_enter_tries(shape.enter_tries),
            lists: (0..shape.lists).map(|_| List::new()).collect(),
            items: (0..shape.items).map(|id| Item { id, node: Node::new() }).collect(),
            clock: AtomicU64::new(0),
        }
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Puts all items on list 0; epoch 2.
    fn fill(&self) -> State {
        let mut member = self.group.join().unwrap();
        member
            .write(|w| {
                for item in &self.items {
                    // SAFETY: the world outlives all members.
                    unsafe { w.push_back(&self.lists[0], item)? };
                }
                Ok::<_, Error>(())
            })
            .unwrap();
        let mut state = vec![Vec::new(); self.lists.len()];
        state[0] = (0..self.items.len()).collect();
        state
    }

    fn read(&self, member: &mut Member<'_>) -> Event {
        let began = self.tick();
        let r = member.read();
        let look =
            || -> State { self.lists.iter().map(|l| r.iter(l).map(|i| i.id).collect()).collect() };
        let state = look();
        for (list, forward) in self.lists.iter().zip(&state) {
            let mut back: Vec<usize> = r.iter_rev(list).map(|i| i.id).collect();
            back.reverse();
            assert_eq!(*forward, back, "forwards and backwards differ at epoch {}", r.epoch());
        }
        assert_eq!(state, look(), "a repeated read differs at epoch {}", r.epoch());
        let mut all: Vec<usize> = state.iter().flatten().copied().collect();
        all.sort_unstable();
        let every: Vec<usize> = (0..self.items.len()).collect();
        assert_eq!(all, every, "an item is lost or doubled at epoch {}: {state:?}", r.epoch());
        let epoch = r.epoch();
        drop(r);
        Event { epoch, began, ended: self.tick(), what: What::Read(state) }
    }

    fn write<'a>(&'a self, member: &mut Member<'a>, dice: &mut Dice) -> Event {
        let began = self.tick();
        let before = dice.clone();
        let mut steps = Vec::new();
        let mut epoch = 0;
        let result = member.write(|w| {
            // Each attempt throws the same dice.
            *dice = before.clone();
            steps.clear();
            epoch = w.epoch();
            for _ in 0..=dice.roll(2) {
                steps.push(self.step(w, dice)?);
            }
            if dice.roll(8) == 0 { Err(Error::Aborted) } else { Ok(()) }
        });
        let what = match result {
            Ok(()) => What::Wrote(steps),
            Err(Error::Aborted) => What::Aborted(steps),
            Err(e) => panic!("{e}"),
        };
        Event { epoch, began, ended: self.tick(), what }
    }

    fn step<'a>(&'a self, w: &mut olf::Write<'_, 'a>, dice: &mut Dice) -> Result<Step, Error> {
        let (item, to) = (dice.roll(self.items.len()), dice.roll(self.lists.len()));
        let other = dice.roll(self.lists.len());
        // SAFETY: the world outlives all members.
        unsafe {
            match dice.roll(3) {
                0 => {
                    let front = dice.roll(2) == 0;
                    let (list, it) = (&self.lists[to], &self.items[item]);
                    w.remove(list, it)?;
                    if front {
                        w.push_front(list, it)?
                    } else {
                        w.push_back(list, it)?
                    }
                    Ok(Step::Move { item, to, front })
                }
                1 => {
                    let mut found = false;
                    for entry in w.iter(&self.lists[other]) {
                        found |= entry?.id == item;
                    }
                    if found {
                        w.move_to_back(&self.lists[to], &self.items[item])?;
                    }
                    Ok(Step::MoveIf { item, from: other, to, found })
                }
                _ => {
                    let (a, b) = (&self.lists[to], &self.lists[other]);
                    let first = (w.front(a)?, w.front(b)?);
                    if let (Some(x), Some(y)) = first
                        && to != other
                    {
                        w.remove(a, x)?;
                        w.remove(b, y)?;
                        w.push_front(a, y)?;
                        w.push_front(b, x)?;
                    }
                    let first = (first.0.map(|i| i.id), first.1.map(|i| i.id));
                    Ok(Step::Exchange { a: to, b: other, first })
                }
            }
        }
    }
}

/// Applies a step to plain vectors; panics if it saw something else than they hold.
fn replay(state: &mut State, step: &Step) {
    let drop_item = |state: &mut State, item: usize| {
        for list in state.iter_mut() {
            list.retain(|&i| i != item);
        }
    };
    match *step {
        Step::Move { item, to, front } => {
            drop_item(state, item);
            let at = if front { 0 } else { state[to].len() };
            state[to].insert(at, item);
        }
        Step::MoveIf { item, from, to, found } => {
            assert_eq!(found, state[from].contains(&item), "a nested read lied: {step:?}");
            if found {
                drop_item(state, item);
                state[to].push(item);
            }
        }
        Step::Exchange { a, b, first } => {
            let truth = (state[a].first().copied(), state[b].first().copied());
            assert_eq!(first, truth, "a section saw a wrong first entry: {step:?}");
            if let (Some(x), Some(y)) = first
                && a != b
            {
                state[a][0] = y;
                state[b][0] = x;
            }
        }
    }
}

/// Panics unless the events are strictly serializable in epoch order, from `state` at epoch 2 on.
fn check(mut state: State, mut events: Vec<Event>) -> State {
    // A reader at epoch e comes behind the writer of e.
    let place = |e: &Event| (e.epoch, matches!(e.what, What::Read(_)));
    events.sort_by_key(place);
    let mut written = 2;
    let mut latest_begin = 0;
    for same in events.chunk_by(|a, b| place(a) == place(b)) {
        for e in same {
            match &e.what {
                What::Read(seen) => {
                    assert_eq!(*seen, state, "a reader at epoch {} saw another state", e.epoch);
                }
                What::Wrote(steps) => steps.iter().for_each(|step| replay(&mut state, step)),
                What::Aborted(steps) => {
                    let mut scratch = state.clone();
                    steps.iter().for_each(|step| replay(&mut scratch, step));
                }
            }
            if !matches!(e.what, What::Read(_)) {
                assert!(e.epoch > written, "two sections wrote epoch {}", e.epoch);
                written = e.epoch;
            }
            // Real time: nothing may come behind, in epoch order, what began after it had ended.
            assert!(e.ended > latest_begin, "epoch {} contradicts the clock", e.epoch);
        }
        latest_begin = same.iter().map(|e| e.began).fold(latest_begin, u64::max);
    }
    state
}

/// Runs a random history and checks it.
pub fn run<const K: usize>(shape: Shape, seed: u64) {
    let world = Arc::new(World::<K>::new(shape));
    let start = world.fill();
    let spawn = |n: usize, writer: bool| {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let mut dice = Dice::new(seed ^ ((n as u64 + 1) << 32));
            let mut member = world.group.join().unwrap();
            let section = |_| {
                if writer { world.write(&mut member, &mut dice) } else { world.read(&mut member) }
            };
            (0..shape.sections).map(section).collect::<Vec<_>>()
        })
    };
    let threads: Vec<_> =
        (0..shape.writers + shape.readers).map(|n| spawn(n, n < shape.writers)).collect();
    let events = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
    let end = check(start, events);
    let mut member = world.group.join().unwrap();
    let What::Read(last) = world.read(&mut member).what else { unreachable!() };
    assert_eq!(last, end, "the final state is not that of the replay");
    empty(&world, member);
}

/// Takes everything off the lists, so that the nodes may be dropped.
fn empty<'a, const K: usize>(world: &'a World<K>, mut member: Member<'a>) {
    for item in &world.items {
        member.write(|w| w.remove(&world.lists[0], item)).unwrap();
    }
}

/// The checker is worth something only if it finds fault.
#[cfg(not(shuttle))]
mod rejects {
    use super::*;

    fn event(epoch: u64, began: u64, what: What) -> Event {
        Event { epoch, began, ended: began + 1, what }
    }

    fn start() -> State {
        vec![vec![0, 1], vec![]]
    }

    fn moved(item: usize, to: usize) -> What {
        What::Wrote(vec![Step::Move { item, to, front: false }])
    }

    #[test]
    fn nothing_in_a_good_history() {
        let seen = What::Read(vec![vec![1], vec![0]]);
        let events = vec![event(6, 8, moved(1, 1)), event(4, 2, moved(0, 1)), event(4, 5, seen)];
        assert_eq!(check(start(), events), [vec![], vec![0, 1]]);
    }

    #[test]
    #[should_panic(expected = "saw another state")]
    fn a_torn_view() {
        let seen = What::Read(vec![vec![1], vec![]]);
        check(start(), vec![event(4, 2, moved(0, 1)), event(4, 5, seen)]);
    }

    #[test]
    #[should_panic(expected = "wrong first entry")]
    fn a_lost_update() {
        let exchange = Step::Exchange { a: 0, b: 1, first: (Some(0), None) };
        check(start(), vec![event(4, 2, moved(0, 1)), event(6, 5, What::Wrote(vec![exchange]))]);
    }

    #[test]
    #[should_panic(expected = "nested read lied")]
    fn a_false_nested_read() {
        let step = Step::MoveIf { item: 0, from: 0, to: 1, found: false };
        check(start(), vec![event(4, 2, What::Aborted(vec![step]))]);
    }

    #[test]
    #[should_panic(expected = "contradicts the clock")]
    fn a_stale_view() {
        let seen = What::Read(start());
        check(start(), vec![event(4, 2, moved(0, 1)), event(2, 5, seen)]);
    }

    #[test]
    #[should_panic(expected = "two sections wrote")]
    fn one_epoch_used_twice() {
        check(start(), vec![event(4, 2, moved(0, 1)), event(4, 3, moved(1, 1))]);
    }
}
