//! The arbiter: a state machine that is told what happens and says what is to be done.

use std::collections::{BTreeMap, BTreeSet};

use super::{FileLock, LockWait, Policy, Standing};
use crate::TxId;

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It has not begun, or has lost and may not begin again yet.
    Resting,
    /// Its command runs.
    Running,
    /// It is ready, and those who may have read what it writes are asked.
    Asking,
    /// It is ready, and waits for the end of others.
    Waiting,
    /// It may validate and apply.
    Granted,
    /// It has lost, and has not ended yet.
    Doomed,
}

/// What a writer holds, and which time it is that it does: what is said of an earlier hold says
/// nothing of a later one.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Hold {
    /// Whose writes.
    pub writer: TxId,
    /// How many times it has held before.
    pub round: u32,
}

/// What is to be done. Those for one transaction must reach it in the order given.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// `reader` sets a hold up, and then says whether it has read of it.
    Ask {
        /// Who answers.
        reader: TxId,
        /// Of what.
        hold: Hold,
    },
    /// `id` may run.
    Start {
        /// Who.
        id: TxId,
    },
    /// `id`, ready, waits for others; told again when they change.
    Wait {
        /// Who.
        id: TxId,
        /// For whom: the highest of them.
        winner: TxId,
    },
    /// `id` may validate and apply.
    Grant {
        /// Who.
        id: TxId,
    },
    /// `id` has lost: it reads nothing new any more, says so, and ends at once.
    Doom {
        /// Who.
        id: TxId,
        /// To whom.
        winner: TxId,
    },
    /// `reader` goes on as if the hold were not there: it comes first.
    Pass {
        /// Who.
        reader: TxId,
        /// What it need not mind.
        hold: Hold,
    },
    /// What was held is free, for everybody.
    Release {
        /// What.
        hold: Hold,
    },
}

/// A transaction as the arbiter sees it, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// Its rank.
    pub standing: Standing,
    /// How far it is.
    pub phase: Phase,
    /// For whom it waits.
    pub waits_for: Vec<TxId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Member {
    standing: Standing,
    phase: Phase,
    /// Whether it wants to run, while it rests.
    wants: bool,
    /// Writers whose held writes meet what it has read in this attempt.
    met: BTreeSet<TxId>,
    /// Writers whose held writes one of its touches waits for.
    blocked: BTreeSet<TxId>,
    /// Of those, the ones whose held writes it may pass.
    passed: BTreeSet<TxId>,
    /// As a writer: readers who have not answered yet.
    asked: BTreeSet<TxId>,
    /// Whom it lost to: it rests until they have ended.
    after: BTreeSet<TxId>,
    /// As a writer: for whom it was last said to wait.
    told: Option<TxId>,
    /// Whether it waits for something outside the order.
    stuck: bool,
    /// For which file locks its members wait, and which it holds.
    hangs: LockWait,
    /// Whether it waits no more for those who only come first by their rank.
    impatient: bool,
    /// How many times it has held.
    round: u32,
}

impl Member {
    fn holds(&self) -> bool {
        matches!(self.phase, Phase::Asking | Phase::Waiting | Phase::Granted)
    }

    fn reads(&self) -> bool {
        self.holds() || self.phase == Phase::Running
    }
}

/// Decides conflicts between the transactions of one state directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Arbiter {
    policy: Policy,
    members: BTreeMap<TxId, Member>,
    /// What is held, also by those who have lost and not ended yet.
    held: BTreeSet<Hold>,
    /// What a test has switched off.
    #[cfg(test)]
    pub(super) without: Option<super::explore::Rule>,
}

impl Arbiter {
    /// An arbiter without transactions.
    pub fn new(policy: Policy) -> Arbiter {
        Arbiter { policy, ..Arbiter::default() }
    }

    /// The policy in force.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether there is no transaction.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// All transactions, by id.
    pub fn overview(&self) -> Vec<Overview> {
        let overview = |(id, member): (&TxId, &Member)| Overview {
            standing: member.standing.clone(),
            phase: member.phase,
            waits_for: match member.phase {
                Phase::Resting => member.after.iter().copied().collect(),
                Phase::Running => member.blocked.iter().copied().collect(),
                Phase::Asking | Phase::Waiting => self.obstacles(*id),
                Phase::Granted | Phase::Doomed => Vec::new(),
            },
        };
        self.members.iter().map(overview).collect()
    }

    /// A transaction comes, and wants to run. `standing` replaces what was known of its rank.
    pub fn begin(&mut self, standing: Standing) -> Vec<Action> {
        let id = standing.id;
        let mut actions = Vec::new();
        match self.members.get_mut(&id) {
            Some(member) => {
                let losses = member.standing.losses.max(standing.losses);
                member.standing = Standing { losses, ..standing };
                member.wants = true;
            }
            None => {
                self.members.insert(id, Member::new(standing));
                actions
                    .extend(self.held.iter().map(|hold| Action::Ask { reader: id, hold: *hold }));
            }
        }
        self.settle(&mut actions);
        actions
    }

    /// A transaction is ready, with so many objects read, and holds what it writes.
    pub fn ready(&mut self, id: TxId, size: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        let readers = self.members.iter().filter(|(other, _)| **other != id);
        // Who has lost may read on for a moment: it, too, sets the hold up first.
        let answering = readers.clone().filter(|(_, member)| member.phase != Phase::Resting);
        let answering: BTreeSet<TxId> = answering.map(|(other, _)| *other).collect();
        let all: Vec<TxId> = readers.map(|(other, _)| *other).collect();
        let Some(member) = self.members.get_mut(&id) else { return actions };
        if member.phase != Phase::Running {
            return actions;
        }
        member.phase = Phase::Asking;
        member.standing.size = size;
        member.asked = answering;
        member.blocked.clear();
        member.round += 1;
        let hold = Hold { writer: id, round: member.round };
        self.held.insert(hold);
        actions.extend(all.into_iter().map(|reader| Action::Ask { reader, hold }));
        #[cfg(test)]
        if self.without == Some(super::explore::Rule::AllAnswer) {
            self.silence_now(id);
        }
        self.settle(&mut actions);
        actions
    }

    /// `reader` has set a hold up; `met` if it had read of it, `size` objects in all.
    pub fn answer(&mut self, reader: TxId, hold: Hold, met: bool, size: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        let writer = hold.writer;
        let Some(member) = self.members.get_mut(&writer) else { return actions };
        if member.round != hold.round || !member.asked.remove(&reader) {
            return actions;
        }
        if let Some(member) = self.members.get_mut(&reader)
            && member.reads()
        {
            if member.phase == Phase::Running {
                member.standing.size = size;
            }
            if met {
                member.met.insert(writer);
            }
        }
        self.settle(&mut actions);
        actions
    }

    /// Those whom `writer` has asked and who have not answered are given up.
    pub fn silence(&mut self, writer: TxId) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(member) = self.members.get_mut(&writer) {
            member.asked.clear();
        }
        self.settle(&mut actions);
        actions
    }

    /// Sets all rounds to 0, and gives what they were: states that differ in them alone behave alike.
    #[cfg(test)]
    pub(super) fn forget_rounds(&mut self) -> BTreeMap<TxId, u32> {
        let rounds: BTreeMap<TxId, u32> =
            self.members.iter_mut().map(|(id, m)| (*id, std::mem::take(&mut m.round))).collect();
        let held = self.held.iter().map(|hold| Hold { round: 0, ..*hold }).collect();
        self.held = held;
        rounds
    }

    #[cfg(test)]
    fn silence_now(&mut self, writer: TxId) {
        if let Some(member) = self.members.get_mut(&writer) {
            member.asked.clear();
        }
    }

    /// `reader` is about to read what is held, and waits to be let pass, or for the release.
    pub fn touch(&mut self, reader: TxId, hold: Hold, size: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        if !self.held.contains(&hold) {
            // It was released meanwhile, and that is on its way.
            return actions;
        }
        let writer = hold.writer;
        let Some(member) = self.members.get_mut(&reader) else { return actions };
        if member.phase == Phase::Running {
            member.standing.size = size;
            member.blocked.insert(writer);
        }
        self.settle(&mut actions);
        actions
    }

    /// `reader` has read what is held without waiting for anybody: it has met the writer. Of one that
    /// is granted it may have seen a part, and has lost.
    pub fn saw(&mut self, reader: TxId, hold: Hold, size: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        let granted = self.members.get(&hold.writer).map(|writer| writer.phase == Phase::Granted);
        if self.held.contains(&hold)
            && let Some(granted) = granted
            && let Some(member) = self.members.get_mut(&reader)
            && member.phase == Phase::Running
        {
            member.standing.size = size;
            member.met.insert(hold.writer);
            if granted {
                self.doom(reader, hold.writer, &mut actions);
            }
        }
        self.settle(&mut actions);
        actions
    }

    /// `id`, ready, has waited long enough for those who have read what it writes: who of them is not
    /// granted is no reason for it to wait any more.
    pub fn impatient(&mut self, id: TxId) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(member) = self.members.get_mut(&id)
            && member.holds()
        {
            member.impatient = true;
        }
        self.settle(&mut actions);
        actions
    }

    /// Whether `id` waits for something outside the order.
    pub fn stuck(&mut self, id: TxId, stuck: bool) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(member) = self.members.get_mut(&id) {
            member.stuck = stuck;
        }
        self.settle(&mut actions);
        actions
    }

    /// Members of `id` wait for these file locks, while it holds those.
    pub fn hangs(&mut self, id: TxId, hangs: LockWait) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(member) = self.members.get_mut(&id) {
            member.stuck = !hangs.wants.is_empty();
            member.hangs = hangs;
        }
        self.settle(&mut actions);
        actions
    }

    /// The lock that `holder` has and `waiting` waits for.
    pub fn contended(&self, holder: TxId, waiting: TxId) -> Option<&FileLock> {
        self.members.get(&waiting)?.hangs.needs(&self.members.get(&holder)?.hangs)
    }

    /// `id`, which has lost, reads nothing new any more.
    pub fn stopped(&mut self, id: TxId) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(member) = self.members.get_mut(&id) {
            member.passed.clear();
        }
        self.settle(&mut actions);
        actions
    }

    /// The attempt of `id` is over, one way or the other; its writes are made or forgotten.
    pub fn end(&mut self, id: TxId) -> Vec<Action> {
        let mut actions = Vec::new();
        self.ended(id, &mut actions);
        self.settle(&mut actions);
        actions
    }

    /// `id` is over for good, or its process is.
    pub fn leave(&mut self, id: TxId) -> Vec<Action> {
        let mut actions = Vec::new();
        self.ended(id, &mut actions);
        self.members.remove(&id);
        self.settle(&mut actions);
        actions
    }

    /// Another policy is in force: all that wait are looked at again.
    pub fn set_policy(&mut self, policy: Policy) -> Vec<Action> {
        let mut actions = Vec::new();
        self.policy = policy;
        self.settle(&mut actions);
        actions
    }

    fn ended(&mut self, id: TxId, actions: &mut Vec<Action>) {
        if let Some(member) = self.members.get_mut(&id) {
            member.phase = Phase::Resting;
            member.wants = false;
            member.standing.size = 0;
            member.stuck = false;
            member.impatient = false;
            member.hangs = LockWait::default();
            member.met.clear();
            member.passed.clear();
            member.blocked.clear();
            member.asked.clear();
            member.told = None;
        }
        for member in self.members.values_mut() {
            member.met.remove(&id);
            member.passed.remove(&id);
            member.blocked.remove(&id);
            member.asked.remove(&id);
            member.after.remove(&id);
        }
        #[cfg(test)]
        if self.without == Some(super::explore::Rule::EndReleases) {
            return;
        }
        if let Some(hold) = self.held_by(id) {
            self.held.remove(&hold);
            actions.push(Action::Release { hold });
        }
    }

    /// Decides all that can be decided.
    fn settle(&mut self, actions: &mut Vec<Action>) {
        self.start(actions);
        while let Some((loser, winner)) = self.circle() {
            self.doom(loser, winner, actions);
        }
        self.pass(actions);
        // Each turn grants one, or dooms at least one and gives it an obstacle.
        while let Some(writer) = self.next_granted() {
            self.grant(writer, actions);
        }
        // Who waited for one that has just lost need not wait for its end.
        self.pass(actions);
        self.tell_waits(actions);
    }

    /// Of those who wait for each other's locks, all around, the lowest, and one who waits for it.
    fn circle(&self) -> Option<(TxId, TxId)> {
        let mut hang: Vec<TxId> = self
            .members
            .iter()
            .filter(|(_, member)| member.phase == Phase::Running && !member.hangs.wants.is_empty())
            .map(|(id, _)| *id)
            .collect();
        let next = |id: TxId, among: &[TxId]| {
            among.iter().copied().find(|other| *other != id && self.contended(*other, id).is_some())
        };
        // Who waits for none of them is in no circle.
        loop {
            let left: Vec<TxId> =
                hang.iter().copied().filter(|id| next(*id, &hang).is_some()).collect();
            if left.len() == hang.len() {
                break;
            }
            hang = left;
        }
        // Each of the rest waits for one of the rest: a way along them comes back to itself.
        let mut way = vec![*hang.first()?];
        loop {
            let following = next(*way.last()?, &hang)?;
            if let Some(at) = way.iter().position(|id| *id == following) {
                let circle = way.split_off(at);
                let lowest = self.lowest(&circle)?;
                let at = circle.iter().position(|id| *id == lowest)?;
                let before = circle[(at + circle.len() - 1) % circle.len()];
                return Some((lowest, before));
            }
            way.push(following);
        }
    }

    fn lowest(&self, ids: &[TxId]) -> Option<TxId> {
        ids.iter().copied().reduce(|low, id| {
            match (self.members.get(&low), self.members.get(&id)) {
                (Some(one), Some(other))
                    if self.policy.outranks(&one.standing, &other.standing) =>
                {
                    id
                }
                _ => low,
            }
        })
    }

    fn start(&mut self, actions: &mut Vec<Action>) {
        for (id, member) in &mut self.members {
            if member.phase == Phase::Resting && member.wants && member.after.is_empty() {
                member.phase = Phase::Running;
                actions.push(Action::Start { id: *id });
            }
        }
    }

    /// Lets touches through whose reader comes first (rule 5).
    fn pass(&mut self, actions: &mut Vec<Action>) {
        let blocked = self.members.iter().flat_map(|(reader, member)| {
            member.blocked.iter().map(move |writer| (*reader, *writer))
        });
        let passes: Vec<(TxId, TxId)> =
            blocked.filter(|(reader, writer)| self.passes(*reader, *writer)).collect();
        for (reader, writer) in passes {
            if let Some(member) = self.members.get_mut(&reader) {
                member.blocked.remove(&writer);
                member.passed.insert(writer);
                member.met.insert(writer);
                #[cfg(test)]
                if self.without == Some(super::explore::Rule::PassIsMet) {
                    member.met.remove(&writer);
                }
                if let Some(hold) = self.held_by(writer) {
                    actions.push(Action::Pass { reader, hold });
                }
            }
        }
    }

    fn held_by(&self, writer: TxId) -> Option<Hold> {
        self.held.iter().find(|hold| hold.writer == writer).copied()
    }

    fn passes(&self, reader: TxId, writer: TxId) -> bool {
        let (Some(reader), Some(holder)) = (self.members.get(&reader), self.members.get(&writer))
        else {
            return false;
        };
        match holder.phase {
            Phase::Asking | Phase::Waiting => {
                self.outranks(&reader.standing, &holder.standing) || reader.met.contains(&writer)
            }
            // Its writes will not be made; it has not said yet that it has ended.
            Phase::Doomed => true,
            _ => false,
        }
    }

    fn outranks(&self, one: &Standing, other: &Standing) -> bool {
        #[cfg(test)]
        if self.without == Some(super::explore::Rule::TotalOrder) {
            return true;
        }
        self.policy.outranks(one, other)
    }

    /// The readers that `writer` meets.
    fn rivals(&self, writer: TxId) -> impl Iterator<Item = (&TxId, &Member)> {
        self.members
            .iter()
            .filter(move |(_, member)| member.reads() && member.met.contains(&writer))
    }

    /// Those of them who come first, and those who have lost and may still pass.
    fn obstacles(&self, writer: TxId) -> Vec<TxId> {
        let Some(holder) = self.members.get(&writer) else { return Vec::new() };
        let first = self.rivals(writer).filter(|(_, reader)| {
            self.is_granted(reader)
                || !reader.stuck
                    && !holder.impatient
                    && self.outranks(&reader.standing, &holder.standing)
        });
        first.map(|(id, _)| *id).chain(self.passing(writer)).collect()
    }

    fn passing(&self, writer: TxId) -> impl Iterator<Item = TxId> {
        let passing = self.members.iter().filter(move |(_, member)| {
            member.phase == Phase::Doomed && member.passed.contains(&writer)
        });
        passing.map(|(id, _)| *id)
    }

    fn is_granted(&self, member: &Member) -> bool {
        #[cfg(test)]
        if self.without == Some(super::explore::Rule::GrantedIsSafe) {
            return false;
        }
        member.phase == Phase::Granted
    }

    /// The highest writer that nothing keeps any more.
    fn next_granted(&self) -> Option<TxId> {
        let free = self.members.iter().filter(|(id, member)| {
            matches!(member.phase, Phase::Asking | Phase::Waiting)
                && member.asked.is_empty()
                && self.obstacles(**id).is_empty()
        });
        self.highest(free.map(|(id, _)| *id).collect())
    }

    fn grant(&mut self, writer: TxId, actions: &mut Vec<Action>) {
        let losers: Vec<TxId> = self.rivals(writer).map(|(id, _)| *id).collect();
        for loser in losers {
            self.doom(loser, writer, actions);
        }
        // Those who may pass it have to be stopped first.
        if self.passing(writer).next().is_some() {
            return;
        }
        if let Some(member) = self.members.get_mut(&writer) {
            member.phase = Phase::Granted;
            actions.push(Action::Grant { id: writer });
        }
    }

    fn doom(&mut self, loser: TxId, winner: TxId, actions: &mut Vec<Action>) {
        #[cfg(test)]
        if self.without == Some(super::explore::Rule::LosersAreDoomed) {
            return;
        }
        if let Some(member) = self.members.get_mut(&loser) {
            member.phase = Phase::Doomed;
            member.standing.losses += 1;
            member.asked.clear();
            member.blocked.clear();
            member.after.insert(winner);
            #[cfg(test)]
            if self.without == Some(super::explore::Rule::LosersRest) {
                member.after.clear();
            }
            actions.push(Action::Doom { id: loser, winner });
        }
    }

    fn tell_waits(&mut self, actions: &mut Vec<Action>) {
        let ready = self.members.iter().filter(|(_, member)| {
            matches!(member.phase, Phase::Asking | Phase::Waiting) && member.asked.is_empty()
        });
        let waits: Vec<(TxId, Option<TxId>)> =
            ready.map(|(id, _)| (*id, self.highest(self.obstacles(*id)))).collect();
        for (id, winner) in waits {
            let Some(member) = self.members.get_mut(&id) else { continue };
            member.phase = Phase::Waiting;
            if let Some(winner) = winner.filter(|winner| member.told != Some(*winner)) {
                member.told = Some(winner);
                actions.push(Action::Wait { id, winner });
            }
        }
    }

    fn highest(&self, ids: Vec<TxId>) -> Option<TxId> {
        let standing = |id: &TxId| self.members.get(id).map(|member| &member.standing);
        ids.into_iter().reduce(|best, id| match (standing(&best), standing(&id)) {
            (Some(one), Some(other)) if self.policy.outranks(other, one) => id,
            _ => best,
        })
    }
}

impl Member {
    fn new(standing: Standing) -> Member {
        Member {
            standing,
            phase: Phase::Resting,
            wants: true,
            met: BTreeSet::new(),
            passed: BTreeSet::new(),
            blocked: BTreeSet::new(),
            asked: BTreeSet::new(),
            after: BTreeSet::new(),
            told: None,
            stuck: false,
            impatient: false,
            hangs: LockWait::default(),
            round: 0,
        }
    }
}
