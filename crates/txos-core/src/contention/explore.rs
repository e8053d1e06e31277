//! All interleavings of three transactions over three objects, and of the messages between them and
//! the arbiter.
//!
//! # The model
//!
//! Each transaction touches objects in some order and writes some of those it has touched. It and
//! the arbiter talk through a queue each way; a step is one touch, one write of an apply, or one
//! message taken out of a queue. Transactions know nothing but what they are told, and nothing
//! validates: what is checked is the arbiter alone.
//!
//! # What holds in every state
//!
//! - *No deadlock*: as long as one has not committed, there is a step.
//! - *No livelock*: no sequence of steps comes back to a state that it has been in. Commits never
//!   go back, so that a circle would be work for ever without one.
//! - *Serializable*: the graph of who read what whom wrote has no circle when all have committed.
//! - *Repeatable*: no two objects that one reads are from before and after one commit, also in an
//!   attempt that is going to lose (opacity).
//! - One that is granted is not doomed, and a loser does not begin again before the winner's end.
//!
//! Each rule is switched off in turn, and has to be missed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::{Action, Arbiter, FileLock, Hold, LockWait, Policy, Standing};
use crate::{Stamp, TxId};

/// A rule that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    /// A reader sets a hold up before it answers.
    HeldBeforeAsked,
    /// A grant waits for all answers.
    AllAnswer,
    /// What passes a hold has met it.
    PassIsMet,
    /// Of two, one outranks the other.
    TotalOrder,
    /// Who has read what a granted one writes is doomed.
    LosersAreDoomed,
    /// A loser rests until the winner has ended.
    LosersRest,
    /// A granted one comes first, whatever its rank.
    GrantedIsSafe,
    /// Who ends lets go of what it held.
    EndReleases,
    /// Who knows that it has lost touches nothing any more.
    DoomedTouchNothing,
    /// What may be passed may be passed in that attempt alone.
    PassesEnd,
}

const RULES: [Rule; 10] = [
    Rule::HeldBeforeAsked,
    Rule::AllAnswer,
    Rule::PassIsMet,
    Rule::TotalOrder,
    Rule::LosersAreDoomed,
    Rule::LosersRest,
    Rule::GrantedIsSafe,
    Rule::EndReleases,
    Rule::DoomedTouchNothing,
    Rule::PassesEnd,
];

const OBJECTS: usize = 3;

/// What one transaction does: the objects in the order of their touch, and whether it writes them.
type Program = Vec<(usize, bool)>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ToArbiter {
    Begin,
    Ready(u64),
    Answer(Hold, bool, u64),
    Touch(Hold, u64),
    Impatient,
    Stopped,
    End,
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Idle,
    Running,
    Blocked,
    Ready,
    /// So many of its writes are made.
    Granted(usize),
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    at: At,
    /// It has lost, and knows it.
    doomed: bool,
    /// Ready, it may still say that it has waited long enough.
    patient: bool,
    next: usize,
    /// What it has read in this attempt: whose version.
    seen: [Option<TxId>; OBJECTS],
    /// What is held, and whether it passes it.
    holds: BTreeMap<Hold, bool>,
    /// Whom it lost to, and who has not ended yet.
    lost_to: BTreeSet<TxId>,
    inbox: VecDeque<Action>,
    outbox: VecDeque<ToArbiter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    arbiter: Arbiter,
    clients: Vec<Client>,
    /// Whose version each object has, and all that it had.
    objects: [Vec<TxId>; OBJECTS],
    without: Option<Rule>,
}

struct World<'p> {
    programs: &'p [Program],
    policy: Policy,
    /// Whether who waits, ready, may lose patience.
    impatience: bool,
}

fn id(client: usize) -> TxId {
    TxId(client as u64 + 1)
}

impl World<'_> {
    fn standing(&self, client: usize) -> Standing {
        Standing {
            id: id(client),
            // The youngest has the highest priority, so that the policies differ.
            priority: client as i32,
            scheduling: 0,
            started: Stamp { sec: client as i64, nsec: 0 },
            size: 0,
            losses: 0,
            meek: false,
        }
    }

    fn start(&self, without: Option<Rule>) -> State {
        let client = Client {
            at: At::Idle,
            doomed: false,
            patient: false,
            next: 0,
            seen: [None; OBJECTS],
            holds: BTreeMap::new(),
            lost_to: BTreeSet::new(),
            inbox: VecDeque::new(),
            outbox: VecDeque::from([ToArbiter::Begin]),
        };
        let mut arbiter = Arbiter::new(self.policy);
        arbiter.without = without;
        State {
            arbiter,
            clients: vec![client; self.programs.len()],
            objects: std::array::from_fn(|_| vec![TxId(0)]),
            without,
        }
    }

    fn writes(&self, writer: TxId, object: usize) -> bool {
        self.programs[writer.0 as usize - 1].contains(&(object, true))
    }

    /// All states one step away.
    fn steps(&self, state: &State) -> Result<Vec<State>, String> {
        let mut next = Vec::new();
        for client in 0..state.clients.len() {
            let mut take = |step: fn(&Self, &mut State, usize) -> Result<bool, String>| {
                let mut after = state.clone();
                if step(self, &mut after, client)? {
                    next.push(after);
                }
                Ok::<(), String>(())
            };
            take(Self::act)?;
            take(Self::die)?;
            take(Self::hear)?;
            take(Self::tell)?;
        }
        Ok(next)
    }

    /// The transaction does something of its own.
    fn act(&self, state: &mut State, client: usize) -> Result<bool, String> {
        let program = &self.programs[client];
        let me = &mut state.clients[client];
        match me.at {
            At::Running => match program.get(me.next) {
                // Its first touches fail from then on.
                _ if me.doomed && state.without != Some(Rule::DoomedTouchNothing) => {
                    return Ok(false);
                }
                None if me.doomed => return Ok(false),
                None => {
                    me.at = At::Ready;
                    me.patient = self.impatience;
                    me.outbox.push_back(ToArbiter::Ready(me.next as u64));
                }
                Some((object, _)) => {
                    let held = me
                        .holds
                        .iter()
                        .find(|(hold, passed)| !**passed && self.writes(hold.writer, *object));
                    if let Some((hold, _)) = held {
                        me.outbox.push_back(ToArbiter::Touch(*hold, me.next as u64));
                        me.at = At::Blocked;
                    } else {
                        me.seen[*object] = state.objects[*object].last().copied();
                        me.next += 1;
                        self.repeatable(state, client)?;
                    }
                }
            },
            At::Ready if me.patient && !me.doomed => {
                me.patient = false;
                me.outbox.push_back(ToArbiter::Impatient);
            }
            At::Granted(made) => {
                let mut writes = program.iter().filter(|(_, write)| *write).skip(made);
                match writes.next() {
                    Some((object, _)) => {
                        state.objects[*object].push(id(client));
                        me.at = At::Granted(made + 1);
                    }
                    None => {
                        me.at = At::Done;
                        me.outbox.push_back(ToArbiter::Leave);
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A transaction that has lost ends, and wants to begin again.
    fn die(&self, state: &mut State, client: usize) -> Result<bool, String> {
        let me = &mut state.clients[client];
        if me.doomed {
            me.doomed = false;
            me.at = At::Idle;
            me.next = 0;
            me.seen = [None; OBJECTS];
            if state.without != Some(Rule::PassesEnd) {
                me.holds.values_mut().for_each(|passed| *passed = false);
            }
            me.outbox.extend([ToArbiter::End, ToArbiter::Begin]);
            return Ok(true);
        }
        Ok(false)
    }

    /// The transaction takes a message of the arbiter.
    fn hear(&self, state: &mut State, client: usize) -> Result<bool, String> {
        let without = state.without;
        let me = &mut state.clients[client];
        let Some(message) = me.inbox.pop_front() else { return Ok(false) };
        match message {
            Action::Ask { hold, .. } => {
                let met = (0..OBJECTS)
                    .any(|object| me.seen[object].is_some() && self.writes(hold.writer, object));
                if without != Some(Rule::HeldBeforeAsked) {
                    me.holds.insert(hold, false);
                }
                me.outbox.push_back(ToArbiter::Answer(hold, met, me.next as u64));
            }
            Action::Start { .. } => {
                if !me.lost_to.is_empty() {
                    return Err(format!("{client} begins again before its winner has ended"));
                }
                me.at = At::Running;
            }
            Action::Doom { winner, .. } => {
                if matches!(me.at, At::Granted(_) | At::Done) {
                    return Err(format!("{client} was granted, and is doomed"));
                }
                me.doomed = true;
                me.lost_to.insert(winner);
                me.outbox.push_back(ToArbiter::Stopped);
            }
            Action::Pass { hold, .. } => {
                if let Some(passed) = me.holds.get_mut(&hold) {
                    *passed = true;
                }
                if me.at == At::Blocked {
                    me.at = At::Running;
                }
            }
            Action::Release { hold } => {
                me.holds.remove(&hold);
                me.lost_to.remove(&hold.writer);
                if me.at == At::Blocked {
                    me.at = At::Running;
                }
            }
            Action::Grant { .. } => {
                if me.at != At::Ready {
                    return Err(format!("{client} is granted without being ready"));
                }
                me.at = At::Granted(0);
            }
            Action::Wait { .. } => {}
        }
        Ok(true)
    }

    /// The arbiter takes a message of the transaction.
    fn tell(&self, state: &mut State, client: usize) -> Result<bool, String> {
        let Some(message) = state.clients[client].outbox.pop_front() else { return Ok(false) };
        let (arbiter, me) = (&mut state.arbiter, id(client));
        let actions = match message {
            ToArbiter::Begin => arbiter.begin(self.standing(client)),
            ToArbiter::Ready(size) => arbiter.ready(me, size),
            ToArbiter::Answer(hold, met, size) => arbiter.answer(me, hold, met, size),
            ToArbiter::Touch(hold, size) => arbiter.touch(me, hold, size),
            ToArbiter::Impatient => arbiter.impatient(me),
            ToArbiter::Stopped => arbiter.stopped(me),
            ToArbiter::End => arbiter.end(me),
            ToArbiter::Leave => arbiter.leave(me),
        };
        for action in actions {
            let to: Vec<usize> = match &action {
                Action::Ask { reader, .. } | Action::Pass { reader, .. } => {
                    vec![reader.0 as usize - 1]
                }
                Action::Start { id }
                | Action::Wait { id, .. }
                | Action::Grant { id }
                | Action::Doom { id, .. } => vec![id.0 as usize - 1],
                Action::Release { .. } => (0..state.clients.len()).collect(),
            };
            for client in to {
                // What is said to one that has gone is lost.
                if state.clients[client].at != At::Done {
                    state.clients[client].inbox.push_back(action.clone());
                }
            }
        }
        Ok(true)
    }

    /// What a transaction has read was all there at one time: no commit is seen in part.
    fn repeatable(&self, state: &State, client: usize) -> Result<(), String> {
        let seen = &state.clients[client].seen;
        for (object, from) in seen.iter().enumerate() {
            let Some(from) = from else { continue };
            for (other, older) in seen.iter().enumerate() {
                let Some(older) = older else { continue };
                let history = &state.objects[other];
                let before = |tx: &TxId| history.iter().position(|version| version == tx);
                if let (Some(wrote), Some(read)) = (before(from), before(older))
                    && read < wrote
                {
                    return Err(format!(
                        "{client} sees {from}'s version of {object}, and {other} from before it"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Who comes before whom has no circle.
    fn serializable(&self, state: &State) -> Result<(), String> {
        let count = state.clients.len();
        let mut before = vec![vec![false; count + 1]; count + 1];
        for (object, history) in state.objects.iter().enumerate() {
            for pair in history.windows(2) {
                before[pair[0].0 as usize][pair[1].0 as usize] = true;
            }
            for (client, reader) in state.clients.iter().enumerate() {
                let Some(read) = reader.seen[object] else { continue };
                let me = client + 1;
                if read.0 as usize != me {
                    before[read.0 as usize][me] = true;
                }
                let at = history.iter().position(|version| *version == read).unwrap_or(0);
                for later in history[at + 1..].iter().filter(|tx| tx.0 as usize != me) {
                    before[me][later.0 as usize] = true;
                }
            }
        }
        for via in 0..=count {
            for from in 0..=count {
                for to in 0..=count {
                    before[from][to] |= before[from][via] && before[via][to];
                }
            }
        }
        match (0..=count).find(|tx| before[*tx][*tx]) {
            Some(tx) => Err(format!("{tx} comes before itself: {:?}", state.objects)),
            None => Ok(()),
        }
    }

    /// Goes through all states; how many there are, or what is wrong.
    fn explore(&self, without: Option<Rule>) -> Result<usize, String> {
        // Depth first, with what is on the way to the current state known: a step back to it is a
        // circle.
        let start = self.start(without);
        let mut done: HashMap<u64, bool> = HashMap::from([(mark(&start), false)]);
        let first = self.steps(&start)?;
        let mut way = vec![(start, first)];
        while let Some((_, ahead)) = way.last_mut() {
            let Some(next) = ahead.pop() else {
                if let Some((state, _)) = way.pop() {
                    done.insert(mark(&state), true);
                }
                continue;
            };
            let marked = mark(&next);
            match done.get(&marked) {
                Some(true) => continue,
                Some(false) => return Err("a circle without a commit".to_owned()),
                None => {}
            }
            let ahead = self.steps(&next)?;
            if ahead.is_empty() {
                if next.clients.iter().any(|client| client.at != At::Done) {
                    let at: Vec<At> = next.clients.iter().map(|client| client.at).collect();
                    return Err(format!("deadlock: {at:?}"));
                }
                self.serializable(&next)?;
            }
            done.insert(marked, false);
            way.push((next, ahead));
        }
        Ok(done.len())
    }
}

/// A state in 64 bits: what two states share by accident is about one run in a million.
///
/// Holds are counted from the last one back: with growing numbers no state would come twice.
fn mark(state: &State) -> u64 {
    let mut state = state.clone();
    let rounds = state.arbiter.forget_rounds();
    let back = |hold: &mut Hold| {
        let last = rounds.get(&hold.writer).copied().unwrap_or_default();
        hold.round = last.wrapping_sub(hold.round);
    };
    for client in &mut state.clients {
        let holds = std::mem::take(&mut client.holds).into_iter();
        client.holds = holds
            .map(|(mut hold, passed)| {
                back(&mut hold);
                (hold, passed)
            })
            .collect();
        for message in &mut client.inbox {
            if let Action::Ask { hold, .. } | Action::Pass { hold, .. } | Action::Release { hold } =
                message
            {
                back(hold);
            }
        }
        for message in &mut client.outbox {
            if let ToArbiter::Answer(hold, ..) | ToArbiter::Touch(hold, _) = message {
                back(hold);
            }
        }
    }
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// All that one transaction may do with at most `touches` of the objects.
fn programs(touches: usize) -> Vec<Program> {
    let mut all = vec![Vec::new()];
    let mut longest = all.clone();
    for _ in 0..touches {
        let mut longer = Vec::new();
        for program in &longest {
            for object in 0..OBJECTS {
                if program.iter().all(|(touched, _)| *touched != object) {
                    for write in [false, true] {
                        let mut next: Program = program.clone();
                        next.push((object, write));
                        longer.push(next);
                    }
                }
            }
        }
        all.extend(longer.iter().cloned());
        longest = longer;
    }
    all.retain(|program| !program.is_empty());
    all
}

/// All sets of three of these programs, but for those that differ only in the names of the objects.
fn sets(all: &[Program]) -> impl Iterator<Item = [Program; 3]> + '_ {
    let count = all.len();
    let triples = (0..count * count * count).map(move |number| {
        let pick = |place: usize| all[number / count.pow(place as u32) % count].clone();
        [pick(0), pick(1), pick(2)]
    });
    triples.filter(|triple| {
        let touched = triple.iter().flatten().map(|(object, _)| *object);
        // Of all ways to name the objects the one by their first touch.
        let mut named = 0;
        touched.into_iter().all(|object| {
            named = named.max(object + usize::from(object == named));
            object < named
        })
    })
}

/// Three seconds in CI; `TXOS_EXPLORE_SECONDS` gives more.
fn patience() -> Duration {
    let given = std::env::var("TXOS_EXPLORE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(3))
}

/// Sets that have brought faults to light, and the classics.
fn chosen() -> Vec<[Program; 3]> {
    const READ: bool = false;
    const WRITE: bool = true;
    vec![
        // Lost update.
        [vec![(0, WRITE)], vec![(0, WRITE)], vec![(0, WRITE)]],
        // Write skew, all around.
        [vec![(0, READ), (1, WRITE)], vec![(1, READ), (2, WRITE)], vec![(2, READ), (0, WRITE)]],
        // The anomaly of one that only reads.
        [vec![(0, READ), (1, WRITE)], vec![(0, WRITE)], vec![(1, READ), (0, READ)]],
        // One that has lost reads on.
        [vec![(2, WRITE), (1, WRITE)], vec![(1, READ), (2, WRITE)], vec![(0, READ), (1, WRITE)]],
        [vec![(0, WRITE), (2, WRITE)], vec![(2, READ), (0, WRITE)], vec![(1, READ)]],
        // A pass that outlives its attempt.
        [vec![(1, WRITE)], vec![(0, WRITE), (1, READ)], vec![(0, WRITE), (2, WRITE)]],
        // An answer about an earlier hold.
        [vec![(1, WRITE), (2, WRITE)], vec![(0, READ), (1, WRITE)], vec![(1, WRITE)]],
    ]
}

fn check(sets: impl Iterator<Item = [Program; 3]>, patience: Duration) {
    let (mut runs, mut states) = (0, 0);
    let start = Instant::now();
    for triple in sets.take_while(|_| start.elapsed() < patience) {
        for policy in Policy::ALL {
            let world = World { programs: &triple, policy, impatience: false };
            let found = world.explore(None);
            states += found.unwrap_or_else(|wrong| panic!("{triple:?} {policy}: {wrong}"));
            runs += 1;
        }
    }
    println!("{runs} sets of three, a policy each: {states} states, {:?}", start.elapsed());
}

#[test]
fn three_transactions_in_all_interleavings() {
    check(chosen().into_iter(), Duration::MAX);
}

#[test]
fn who_loses_patience_breaks_nothing() {
    // Two at a time: with three it would be minutes.
    let pairs = chosen()
        .into_iter()
        .flat_map(|[a, b, c]| [vec![a.clone(), b.clone()], vec![b, c.clone()], vec![c, a]]);
    for pair in pairs {
        for policy in Policy::ALL {
            let found = World { programs: &pair, policy, impatience: true }.explore(None);
            assert!(found.is_ok(), "{pair:?} {policy}: {found:?}");
        }
    }
}

#[test]
fn who_saw_what_is_granted_has_lost_and_who_comes_first_is_waited_for() {
    let programs = [vec![], vec![]];
    let world = World { programs: &programs, policy: Policy::OsPrio, impatience: false };
    let mut arbiter = Arbiter::new(Policy::OsPrio);
    // The second has the higher priority.
    (0..2).for_each(|client| drop(arbiter.begin(world.standing(client))));
    let hold = Hold { writer: id(0), round: 1 };
    assert_eq!(arbiter.ready(id(0), 1), [Action::Ask { reader: id(1), hold }]);
    assert_eq!(arbiter.saw(id(1), hold, 1), []);
    let waits = Action::Wait { id: id(0), winner: id(1) };
    assert_eq!(arbiter.answer(id(1), hold, false, 1), [waits]);
    let doomed = Action::Doom { id: id(1), winner: id(0) };
    assert_eq!(arbiter.impatient(id(0)), [doomed, Action::Grant { id: id(0) }]);
    arbiter.end(id(1));
    assert_eq!(arbiter.begin(world.standing(1)), []);
    assert_eq!(arbiter.end(id(0))[1], Action::Start { id: id(1) });
    // The same, seen once it is granted.
    arbiter.begin(world.standing(0));
    let hold = Hold { writer: id(0), round: 2 };
    arbiter.ready(id(0), 1);
    assert_eq!(arbiter.answer(id(1), hold, false, 1), [Action::Grant { id: id(0) }]);
    let doomed = Action::Doom { id: id(1), winner: id(0) };
    assert_eq!(arbiter.saw(id(1), hold, 1), [doomed]);
}

#[test]
fn who_waits_for_each_others_locks_is_found() {
    let programs = [vec![], vec![], vec![]];
    let world = World { programs: &programs, policy: Policy::Timestamp, impatience: false };
    let lock = |ino| FileLock { path: String::new(), dev: 1, ino, bytes: None, exclusive: true };
    let hangs = |holds: u64, wants: &[u64]| LockWait {
        wants: wants.iter().map(|ino| lock(*ino)).collect(),
        holds: vec![lock(holds)],
    };
    let mut arbiter = Arbiter::new(Policy::Timestamp);
    (0..3).for_each(|client| drop(arbiter.begin(world.standing(client))));
    // A chain, whose last one waits for an outsider.
    assert_eq!(arbiter.hangs(id(0), hangs(10, &[11])), []);
    assert_eq!(arbiter.hangs(id(1), hangs(11, &[12])), []);
    assert_eq!(arbiter.hangs(id(2), hangs(12, &[99])), []);
    // All around: the youngest loses, to the one that waits for it.
    let doomed = Action::Doom { id: id(2), winner: id(1) };
    assert_eq!(arbiter.hangs(id(2), hangs(12, &[99, 10])), [doomed]);
    arbiter.end(id(2));
    assert_eq!(arbiter.begin(world.standing(2)), [], "it rests");
    assert_eq!(arbiter.hangs(id(1), hangs(11, &[])), []);
    assert_eq!(arbiter.leave(id(1)), [Action::Start { id: id(2) }]);
}

/// Other sets at each run, as many as there is time for: over many runs all of them.
fn other_sets(most: usize) {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let given = std::env::var("TXOS_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(now);
    println!("TXOS_SEED={seed}");
    let sets: Vec<_> = sets(&programs(most)).collect();
    println!("{} sets of three that touch at most {most} objects each", sets.len());
    let first = seed as usize;
    // A prime, and so none comes twice.
    let order = (0..sets.len()).map(|number| (first + number * 999_983) % sets.len());
    check(order.map(|number| sets[number].clone()), patience());
}

#[test]
fn other_sets_at_each_run() {
    other_sets(2);
}

#[test]
#[ignore = "a minute for a set; TXOS_EXPLORE_SECONDS says how long"]
fn other_large_sets_at_each_run() {
    other_sets(3);
}

#[test]
#[ignore = "hours: every set of three that touch at most two objects"]
fn three_transactions_in_all_interleavings_without_gaps() {
    check(sets(&programs(2)), Duration::MAX);
}

#[test]
fn each_rule_is_missed() {
    for rule in RULES {
        let wrong = chosen().into_iter().find_map(|triple| {
            let worlds =
                Policy::ALL.map(|policy| World { programs: &triple, policy, impatience: false });
            worlds.iter().find_map(|world| world.explore(Some(rule)).err())
        });
        println!("without {rule:?}: {}", wrong.as_deref().unwrap_or("nothing is wrong"));
        assert!(wrong.is_some(), "nothing is wrong without {rule:?}");
    }
}
