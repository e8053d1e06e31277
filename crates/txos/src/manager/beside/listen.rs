//! Listening to changes by outsiders while the command runs.

use std::{
    cell::{Cell, OnceCell, RefCell},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread,
    time::{Duration, Instant},
};

use txos_capture::Judge;
use txos_core::Detail;
use txos_outside::{Listener, Outside};

use crate::manager::attempt::Event;

/// A shorter attempt does not listen: there is little to be gained, and to stop listening takes the
/// kernel some milliseconds.
const AFTER: Duration = Duration::from_millis(150);

/// Whom to tell.
struct Told {
    judge: Judge,
    number: u32,
    sender: Sender<Event>,
}

/// What is heard of outsiders.
pub(super) struct Listening {
    wanted: bool,
    /// `None` once it turned out not to be granted.
    outside: OnceCell<Option<Outside>>,
    waiting: RefCell<Option<Told>>,
    due: Cell<Option<Instant>>,
    /// Who has made this transaction lose, since they were last asked for.
    offenders: Arc<Mutex<Vec<u32>>>,
}

impl Listening {
    pub(super) fn new(wanted: bool) -> Listening {
        Listening {
            wanted,
            outside: OnceCell::new(),
            waiting: RefCell::default(),
            due: Cell::new(None),
            offenders: Arc::default(),
        }
    }

    /// Whether it is wanted, and not known to be refused.
    pub(super) fn possible(&self) -> bool {
        self.wanted && self.outside.get().is_none_or(Option::is_some)
    }

    /// What watches, begun now if it was not yet.
    pub(super) fn outside(&self) -> Option<&Outside> {
        let watch = || {
            let watching = self.wanted.then(Outside::watch)?;
            watching.inspect_err(|error| tracing::debug!(%error, "no early doom")).ok()
        };
        self.outside.get_or_init(watch).as_ref()
    }

    /// From some time on, dooms attempt `number` through `sender` as soon as somebody changes what
    /// `judge` says was read.
    pub(super) fn attach(&self, judge: Judge, number: u32, sender: Sender<Event>) {
        *self.waiting.borrow_mut() = Some(Told { judge, number, sender });
        match self.outside.get() {
            Some(_) => self.listen(),
            None => self.due.set(self.wanted.then(|| Instant::now() + AFTER)),
        }
    }

    /// When [`Listening::look`] is to be called.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.get()
    }

    /// Begins to listen if it is time.
    pub(super) fn look(&self) {
        if self.due.get().is_some_and(|due| due <= Instant::now()) {
            self.look_back();
            self.listen();
        }
    }

    /// Dooms the attempt if something that it has read was changed before anybody listened; by whom
    /// can't be said.
    fn look_back(&self) {
        let Some((judge, number, sender)) = self
            .waiting
            .borrow()
            .as_ref()
            .map(|told| (told.judge.clone(), told.number, told.sender.clone()))
        else {
            return;
        };
        let late = Duration::from_millis(10);
        let look = move || {
            // What changes while listening begins is heard of, or seen here.
            thread::sleep(late);
            if let Some(conflict) = judge.look_back() {
                let _ = sender.send(Event::Doomed(number, conflict));
            }
        };
        if let Err(error) = thread::Builder::new().name("txos-back".into()).spawn(look) {
            tracing::debug!(%error, "nobody looks back");
        }
    }

    /// Nobody judges any more.
    pub(super) fn detach(&self) {
        self.due.set(None);
        *self.waiting.borrow_mut() = None;
        if let Some(Some(outside)) = self.outside.get() {
            outside.listen(None);
        }
    }

    /// Who has made this transaction lose, as process ids; each once. They are forgotten then.
    pub(super) fn take_offenders(&self) -> Vec<u32> {
        let mut list = self.offenders.lock().unwrap_or_else(PoisonError::into_inner);
        let mut offenders = std::mem::take(&mut *list);
        offenders.sort_unstable();
        offenders.dedup();
        offenders
    }

    fn listen(&self) {
        self.due.set(None);
        if let (Some(outside), Some(told)) = (self.outside(), self.waiting.borrow_mut().take()) {
            outside.listen(Some(self.listener(told)));
        }
    }

    fn listener(&self, told: Told) -> Listener {
        let offenders = Arc::clone(&self.offenders);
        let once = AtomicBool::new(false);
        Box::new(move |change| {
            if once.load(Ordering::Relaxed) {
                return;
            }
            let Some(mut conflict) = told.judge.look(change.touched) else { return };
            once.store(true, Ordering::Relaxed);
            let who = change.who();
            offenders.lock().unwrap_or_else(PoisonError::into_inner).push(who.pid);
            conflict.detail = Detail::By(who.to_string());
            let _ = told.sender.send(Event::Doomed(told.number, conflict));
        })
    }
}
