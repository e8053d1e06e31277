//! The end of a transaction of one connection, and what its next attempt is handed on.

use rustix::{fs::Access, io::Errno};
use txos_contention::Ending;
use txos_core::{Stamp, TxId};
use txos_store::{Loss, Outcome as Logged};

use super::{Inside, LONG, NONDURABLE, Running, SOON_ENOUGH, Shared};
use crate::{
    commit::{Asked, Done, Ended as Note, Outcome, Reach},
    control::{Control, GivenUp},
    guard,
    pipes::Pipes,
    process::{Ended, Process},
    view::{Lost, Used},
};

impl Shared {
    /// One that joined has left. Gives what it is told.
    pub(super) fn part(&self, control: &Control, task: i32, mut pipes: Pipes) -> i32 {
        control.pump(&mut pipes);
        control.keep_pipes(pipes);
        self.tracker.leave(task);
        control.leave();
        control.given_up().map_or(0, told)
    }

    /// Commits once the last member has left.
    pub(super) fn end(&self, mut running: Running, clean: bool) -> Over {
        self.tracker.leave(running.task);
        let alive = format!("/proc/{}", running.task);
        let ended = running.control.wait(&self.tracker, &mut running.pipes);
        let past = Past::of(&running);
        match running.control.given_up() {
            Some(GivenUp::Retry) => return self.lose(running),
            Some(how) => {
                return Over { lost: None, code: told(how), used: self.give_up(running, how) };
            }
            None => {}
        }
        if ended == Ended::Killed {
            return Over::cancelled(self.give_up(running, GivenUp::ForGood));
        }
        // Who waits in an order for somebody that never comes, and ends, is passed over.
        let wanted = || rustix::fs::access(&alive, Access::EXISTS).is_ok();
        if let Some(place) = running.place {
            // Who waits for its turn is waited for by nobody: its predecessor could be the one.
            running.view.base.contender.stuck(true);
            if !self.orders.wait(place, &wanted) {
                return Over::cancelled(self.give_up(running, GivenUp::ForGood));
            }
            running.view.base.contender.stuck(false);
        }
        // After those before it in an order: they may have read from the same pipes.
        let mut joined = running.control.take_pipes();
        let mut all = std::iter::once(&mut running.pipes).chain(&mut joined);
        if let Err(errno) = all.try_for_each(Pipes::settle) {
            let code = -errno.raw_os_error();
            return Over { code, ..Over::cancelled(self.give_up(running, GivenUp::ForGood)) };
        }
        if !running.pipes.is_unchanged() || !joined.iter().all(Pipes::is_unchanged) {
            return Over { code: AGAIN, ..Over::cancelled(self.give_up(running, GivenUp::Retry)) };
        }
        let Running { view, control, flags, place, pipes, command, .. } = running;
        let process = control.process();
        let own =
            |id: TxId| self.controls.get(id.0).is_some_and(|other| other.process() == process);
        let alone = control.was_its_own() && !self.tracker.has_started(control.id);
        self.forget(&control);
        let reach = match (clean, alone) {
            (true, true) => Reach::Alone,
            (true, false) => Reach::Clean,
            (false, _) => Reach::Open,
        };
        let asked = Asked { wanted: &wanted, own: &own };
        let (outcome, used) = self.host.commit(view, flags & NONDURABLE == 0, reach, &asked);
        let contender = used.contender();
        let mut lost = None;
        let code = match outcome {
            Ok(Outcome::Committed(done)) => {
                contender.end(Ending::Committed, Vec::new());
                self.host.note(past.note(Logged::Committed, &command, done));
                joined.into_iter().chain([pipes]).for_each(Pipes::commit);
                control.send_deferred();
                0
            }
            Ok(Outcome::Conflict(conflicts)) => {
                contender.end(Ending::Aborted, conflicts.iter().map(|c| c.facet).collect());
                lost = Some(past.lose(Loss::new(0, "somebody else".to_owned(), &conflicts)));
                AGAIN
            }
            Ok(Outcome::Lost(to)) => {
                contender.end_lost(wanted);
                lost = Some(past.lose_to(&to));
                AGAIN
            }
            Ok(Outcome::Cancelled) => {
                contender.end(Ending::Aborted, Vec::new());
                -Errno::CANCELED.raw_os_error()
            }
            Err(error) => {
                contender.end(Ending::Aborted, Vec::new());
                tracing::warn!(%error, "no commit");
                -error.errno().raw_os_error()
            }
        };
        if let Some(place) = place.filter(|_| code != AGAIN) {
            self.orders.pass(place);
        }
        Over { code, used, lost }
    }

    /// The end of one that was given up, to be tried again: since it has lost, as a rule.
    pub(super) fn lose(&self, running: Running) -> Over {
        let past = Past::of(&running);
        let lost = running.view.base.contender.lost().map(|to| past.clone().lose_to(&to));
        let lost = lost.or_else(|| running.control.loss().map(|loss| past.lose(loss)));
        Over { lost, code: AGAIN, used: self.give_up(running, GivenUp::Retry) }
    }

    pub(super) fn give_up(&self, running: Running, how: GivenUp) -> Used {
        let Running { view, control, task, place, .. } = running;
        self.tracker.leave(task);
        control.give_up(how);
        control.kill(&self.tracker);
        self.forget(&control);
        let contender = &view.base.contender;
        match contender.lost() {
            Some(_) => {
                let alive = format!("/proc/{task}");
                contender.end_lost(|| rustix::fs::access(&alive, Access::EXISTS).is_ok());
            }
            None => {
                let loss = control.loss().map(|loss| loss.conflicts).unwrap_or_default();
                contender.end(Ending::Aborted, loss.iter().map(|c| c.facet).collect());
            }
        }
        if let Some(place) = place.filter(|_| how != GivenUp::Retry) {
            self.orders.pass(place);
        }
        view.used(control.was_its_own())
    }

    fn forget(&self, control: &Control) {
        self.controls.end(control.id);
        self.tracker.forget(control.id);
    }

    /// 1 for a transaction that has lost.
    pub(super) fn status(&self, inside: Option<&Inside>) -> i32 {
        let Some(inside) = inside else { return -Errno::INVAL.raw_os_error() };
        if inside.control().given_up().is_some() {
            return 1;
        }
        // Who joined hears of no more than that.
        let Inside::Own(running) = inside else { return 0 };
        let capture = &running.view.base.capture;
        if capture.doomed().is_some() {
            return 1;
        }
        match self.host.validate(&capture.captured()) {
            Ok(conflicts) => i32::from(!conflicts.is_empty()),
            Err(error) => -error.errno().raw_os_error(),
        }
    }

    /// The connection closed inside a transaction: what that means shows when the process has ended.
    pub(super) fn left(&self, mut inside: Inside, process: Option<Process>) {
        inside.ends();
        let (control, pipes) = inside.parts();
        let ended = process.map_or(Ended::Killed, |process| {
            let mut again = true;
            loop {
                let pause = if again { SOON_ENOUGH } else { LONG };
                if let Some(ended) = process.ended_within(pause, pipes.events()) {
                    break ended;
                }
                again = control.pump(pipes);
            }
        });
        match (inside, ended) {
            (Inside::Own(running), Ended::Exited) => {
                self.pool.give_back(self.end(*running, false).used);
            }
            (Inside::Own(running), Ended::Killed) => {
                self.pool.give_back(self.give_up(*running, GivenUp::ForGood));
            }
            (Inside::Joined(control, task, pipes), ended) => {
                if ended == Ended::Killed {
                    control.give_up(GivenUp::ForGood);
                }
                self.part(&control, task, pipes);
            }
        }
    }
}

/// How a transaction ended.
pub(super) struct Over {
    /// What the program is told.
    pub(super) code: i32,
    pub(super) used: Used,
    /// For its next attempt.
    pub(super) lost: Option<Lost>,
}

impl Over {
    fn cancelled(used: Used) -> Over {
        Over { code: -Errno::CANCELED.raw_os_error(), used, lost: None }
    }
}

/// What there is to be said of a transaction when it ends.
#[derive(Clone, Debug)]
pub(super) struct Past {
    id: TxId,
    /// When its first attempt began, and how many lost.
    started: Stamp,
    times: u32,
    last: Option<Loss>,
}

impl Past {
    pub(super) fn of(running: &Running) -> Past {
        let Running { view, started, times, .. } = running;
        let meta = &view.dir.meta;
        Past { id: meta.id, started: *started, times: *times, last: meta.loss.clone() }
    }

    /// Of one that will not run again.
    pub(super) fn of_loser(lost: Lost) -> Past {
        let Lost { id, started, times, last } = lost;
        Past { id, started, times, last: Some(last) }
    }

    /// What its next attempt is handed on, if this one has lost.
    fn lose(self, loss: Loss) -> Lost {
        let times = self.times + 1;
        let last = Loss { attempt: times, ..loss }.after(self.last.as_ref(), self.id);
        Lost { id: self.id, started: self.started, times, last }
    }

    fn lose_to(self, to: &txos_contention::Lost) -> Lost {
        self.lose(Loss::new(0, to.to_string(), &[to.conflict()]))
    }

    /// The same for the log.
    pub(super) fn note(self, outcome: Logged, command: &str, done: Done) -> Note<'_> {
        let Past { id, started, times, last } = self;
        Note { id, outcome, command, started, times, loss: last, done }
    }
}

const AGAIN: i32 = -Errno::AGAIN.raw_os_error();

/// What a member is told of a transaction that was given up before its end.
fn told(how: GivenUp) -> i32 {
    match how {
        GivenUp::Retry => AGAIN,
        GivenUp::ForGood => -Errno::CANCELED.raw_os_error(),
        GivenUp::Unsupported => -guard::UNSUPPORTED,
    }
}
