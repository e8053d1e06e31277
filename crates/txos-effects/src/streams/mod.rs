//! The standard streams of a transaction.
//!
//! No descriptor of the manager's reaches the transaction (devices without state excepted):
//! through `/proc/self/fd` it would be a way out. What each outer stream becomes inside:
//!
//! | outside | inside |
//! |---|---|
//! | terminal | a terminal of the transaction's own, shown on the outer one |
//! | input: file with a name | the same file opened in the view, so that reading it is captured; the outer position is set afterwards to where the command stopped |
//! | input: pipe, socket, file without a name | a pipe, fed and recorded: a retry reads the same bytes, and what the command leaves unread stays outside |
//! | output, held | a pipe into a store; written out in one go at commit |
//! | output, live | a pipe, carried out at once |
//! | `/dev/null` and its like | as it is |
//! | closed | closed |
//!
//! Output is held unless it goes to a terminal ([`OutputMode::Auto`]). Standard output and error
//! that are one place outside are one pipe inside, so their order is kept. Held output is written
//! at commit, and also when the command failed: its state changes are undone, its diagnostics are
//! what the user needs. It is dropped before a retry and when the transaction is discarded.
//!
//! What a program can notice: output that was a file is a pipe inside (it cannot seek in it), and
//! input from a pipe or a socket comes in pieces of one page at most.

mod input;
mod lend;
mod others;
mod outer;
mod plan;
mod pty;
mod pump;
mod spool;
mod terminal;

pub use others::Inherited;
pub use outer::Outer;
pub use plan::{ChildPlan, Origin, Other, StdinFile, seal_descriptors};
pub use spool::{DEFAULT_LIMIT, Spool};
pub use terminal::{line_end, restore};

use crate::Error;
use input::Record;
use outer::{Kind, same_place};
use pty::{OuterTerminal, Pause, SizeChanges, carry_terminal, size_changes};
use pump::{Control, Sink, carry_out, flush, lock};
use rustix::fd::{OwnedFd, RawFd};
use rustix::fs::SeekFrom;
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// When output is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputMode {
    /// At once.
    Live,
    /// At commit.
    Deferred,
    /// At once on a terminal, else at commit.
    #[default]
    Auto,
}

/// What the user chose, and where records go.
#[derive(Debug, Clone)]
pub struct StreamsSpec {
    /// When output is shown.
    pub output: OutputMode,
    /// Whether there may be a retry, so that input must be recorded.
    pub retries: bool,
    /// Directory for what does not fit in memory: the state directory's, on a disk.
    pub scratch: PathBuf,
    /// Bytes of each stream that are kept in memory.
    pub spill_after: usize,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It has committed: held output is written.
    Commit,
    /// The command failed and nothing was changed: held output, its diagnostics, is written.
    Failed,
    /// It is tried again: held output is dropped, recorded input stays.
    Retry,
    /// It was given up (a signal, a conflict after the last retry): held output is dropped.
    Discard,
}

/// What is to be told after an attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamsReport {
    /// Bytes of held output that were dropped.
    pub dropped: u64,
    /// Output that could not be kept or written, each a sentence with its reason. Whoever read it
    /// having gone (`EPIPE`) is told only for held output: a live writer learns it itself.
    pub errors: Vec<String>,
}

/// The standard streams of one transaction, over all its attempts.
#[derive(Debug)]
pub struct Streams {
    spec: StreamsSpec,
    stdin: Kind,
    outputs: [Output; 2],
    others: others::Resolved,
    terminal: Option<OuterTerminal>,
    signals: Option<SizeChanges>,
    record: Arc<Mutex<Record>>,
    attempt: Option<Attempt>,
}

/// What an output stream becomes.
#[derive(Debug)]
enum Output {
    Closed,
    AsItIs(Arc<OwnedFd>),
    Terminal,
    /// The same pipe as standard output.
    Shared,
    Pipe {
        outer: Arc<OwnedFd>,
        held: Option<Arc<Mutex<Spool>>>,
    },
}

/// The threads and descriptors of a running attempt.
#[derive(Debug)]
struct Attempt {
    control: Arc<Control>,
    outputs: Vec<(String, JoinHandle<io::Result<()>>)>,
    feeder: Option<JoinHandle<u64>>,
    /// Those of further inputs.
    feeders: Vec<JoinHandle<u64>>,
    /// The master side of the view's terminal, until it is shown.
    master: Option<OwnedFd>,
    terminal: Option<JoinHandle<()>>,
    pause: Arc<Pause>,
    stdin_inside: Option<OwnedFd>,
    /// Files of the others as they were opened inside, by number.
    files_inside: Vec<(RawFd, OwnedFd)>,
}

impl Attempt {
    fn new() -> Result<Attempt, Error> {
        Ok(Attempt {
            control: Arc::new(Control::new()?),
            outputs: Vec::new(),
            feeder: None,
            feeders: Vec::new(),
            master: None,
            terminal: None,
            pause: Arc::new(Pause::new()?),
            stdin_inside: None,
            files_inside: Vec::new(),
        })
    }
}

/// The child's ends for one attempt. Drop them as soon as the child has them: as long as the
/// manager holds them, no pump sees the end.
#[derive(Debug)]
pub struct AttemptFds {
    /// Standard input, or `None` when the plan or the view makes it.
    pub stdin: Option<OwnedFd>,
    /// Standard output, or `None` when it stays closed or is the view's terminal.
    pub stdout: Option<OwnedFd>,
    /// Standard error, or `None` when it stays closed or is the view's terminal.
    pub stderr: Option<OwnedFd>,
    /// Further ends that the child inherits, under the numbers that the plan names. They are not
    /// closed on exec: drop them when the child is started, and start nothing else before.
    pub others: Vec<OwnedFd>,
    /// What the child has to do.
    pub plan: ChildPlan,
}

impl AttemptFds {
    /// As the standard streams of a [`std::process::Command`], and the child's plan.
    pub fn into_stdio(self) -> ([Stdio; 3], ChildPlan) {
        let stdio = |fd: Option<OwnedFd>| fd.map_or_else(Stdio::null, Stdio::from);
        ([stdio(self.stdin), stdio(self.stdout), stdio(self.stderr)], self.plan)
    }
}

impl Streams {
    /// Looks at the outer streams and decides what each becomes. Nothing is touched yet.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when the terminal's size cannot be watched.
    pub fn new(spec: StreamsSpec, outer: Outer) -> Result<Streams, Error> {
        let stdin = Kind::of(outer.stdin);
        let kinds = [Kind::of(outer.stdout), Kind::of(outer.stderr)];
        let live_terminal =
            |kind: &Kind| matches!(kind, Kind::Terminal(_)) && spec.output != OutputMode::Deferred;
        let input = match &stdin {
            Kind::Terminal(fd) => Some(Arc::clone(fd)),
            _ => None,
        };
        let shown = kinds.iter().find(|kind| live_terminal(kind)).and_then(Kind::fd).cloned();
        let raw = input.is_some() && live_terminal(&kinds[0]);
        let terminal =
            shown.or_else(|| input.clone()).map(|output| OuterTerminal::new(input, output, raw));
        let outputs = spec.resolve(&kinds);
        let signals = terminal.is_some().then(size_changes).transpose()?;
        let record = Record::new(spec.spool(), spec.retries);
        let record = Arc::new(Mutex::new(record));
        let others = others::Resolved::default();
        Ok(Streams { spec, stdin, outputs, others, terminal, signals, record, attempt: None })
    }

    /// Takes over what else was open before the transaction. To be called before the first attempt.
    pub fn carry(&mut self, inherited: Inherited) {
        let outputs = self.outputs.each_ref().map(|output| match output {
            Output::Pipe { outer, .. } => Some(outer),
            _ => None,
        });
        let shown = matches!(self.stdin, Kind::Terminal(_))
            || self.outputs.iter().any(|output| matches!(output, Output::Terminal));
        let input = match &self.stdin {
            Kind::Bytes(outer) => Some(outer),
            _ => None,
        };
        let standard = others::Standard { input, outputs };
        let (mode, retries) = (self.spec.output, self.spec.retries);
        let spool = || self.spec.spool();
        self.others = others::resolve(inherited, standard, mode, shown, spool, retries);
    }

    /// What was open before and is not there inside, or not whole: a sentence each.
    pub fn missing(&self) -> &[String] {
        &self.others.missing
    }

    /// Makes fresh ends for an attempt and starts to carry.
    ///
    /// # Errors
    ///
    /// [`Error::NotReplayable`] for a retry whose input was not kept whole; [`Error::System`].
    pub fn attempt(&mut self) -> Result<AttemptFds, Error> {
        if self.attempt.is_some() {
            self.finish(Outcome::Retry);
        }
        self.check_replayable()?;
        let mut attempt = Attempt::new()?;
        match self.start(&mut attempt) {
            Ok(ends) => {
                self.attempt = Some(attempt);
                Ok(ends)
            }
            Err(error) => {
                // The threads that were started already must not wait for ever.
                attempt.control.cancel();
                Err(error)
            }
        }
    }

    fn start(&self, attempt: &mut Attempt) -> Result<AttemptFds, Error> {
        let mut plan = ChildPlan::default();
        let stdin = self.start_input(attempt, &mut plan)?;
        let [stdout, stderr] = self.start_outputs(attempt, &mut plan)?;
        let standard = [stdout.as_ref(), stderr.as_ref().or(stdout.as_ref())];
        let ends = others::start(&self.others.others, stdin.as_ref(), standard, &mut plan.others)?;
        for (at, write) in ends.fed {
            let others::Becomes::Input(input) = &self.others.others[at].becomes else { continue };
            let (outer, record) = (Arc::clone(&input.outer), Arc::clone(&input.record));
            let control = Arc::clone(&attempt.control);
            let feed = move || input::feed(&write, &outer, &record, &control);
            attempt.feeders.push(spawn("txos-input", feed)?);
        }
        for (at, read) in ends.carried {
            let other = &self.others.others[at];
            let others::Becomes::Pipe(output) = &other.becomes else { continue };
            let sink = match &output.held {
                Some(spool) => Sink::Held(Arc::clone(spool)),
                None => Sink::Live(Arc::clone(&output.outer)),
            };
            let control = Arc::clone(&attempt.control);
            let carry = move || carry_out(read, &sink, &control);
            attempt.outputs.push((other.name(), spawn("txos-output", carry)?));
        }
        Ok(AttemptFds { stdin, stdout, stderr, others: ends.inherited, plan })
    }

    /// Takes the master side of the terminal that the view made for the streams of
    /// [`ChildPlan::on_terminal`], and makes it look like the outer one.
    ///
    /// The view makes the terminal, because only a terminal of its own `/dev/pts` has a name there
    /// (`ttyname(3)`), and because the host's `/dev/pts` would show other people's terminals.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when it cannot be set up.
    pub fn adopt_terminal(&mut self, master: OwnedFd) -> Result<(), Error> {
        let (Some(outer), Some(attempt)) = (&self.terminal, &mut self.attempt) else {
            return Ok(());
        };
        pty::set_up(&master, outer)?;
        attempt.master = Some(master);
        Ok(())
    }

    /// Starts to carry between the adopted terminal, if there is one, and the outer one. To be called
    /// when the command's process leads the terminal's session: a key that interrupts would before
    /// that interrupt nobody and be lost. Until then the outer terminal is as it was, and its keys
    /// interrupt the manager.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when no thread can be had.
    pub fn show_terminal(&mut self) -> Result<(), Error> {
        let (Some(outer), Some(signals)) = (&self.terminal, &self.signals) else { return Ok(()) };
        let Some(attempt) = &mut self.attempt else { return Ok(()) };
        let Some(master) = attempt.master.take() else { return Ok(()) };
        let (outer, record) = (outer.clone(), Arc::clone(&self.record));
        let (control, pause) = (Arc::clone(&attempt.control), Arc::clone(&attempt.pause));
        let signals = signals.socket.try_clone().map_err(Error::system("watch the size"))?;
        let carry = move || {
            carry_terminal(&master, &outer, &record, &signals, (&control, &pause));
        };
        attempt.terminal = Some(spawn("txos-terminal", carry)?);
        Ok(())
    }

    /// Before the manager is stopped: shows what the members have written to their terminal, and gives the
    /// outer one its mode back. Nothing is carried there until [`Streams::resume`].
    pub fn suspend(&mut self) {
        if let Some(attempt) = &self.attempt
            && attempt.terminal.as_ref().is_some_and(|thread| !thread.is_finished())
        {
            attempt.pause.begin();
        }
        restore();
    }

    /// Goes on after [`Streams::suspend`]; the outer terminal is taken again once it is ours.
    pub fn resume(&mut self) {
        if let Some(attempt) = &self.attempt {
            attempt.pause.end();
        }
    }

    /// Takes the descriptor that [`ChildPlan::open_stdin`] gave, so that the outer position can be
    /// set when the attempt is over.
    pub fn adopt_stdin(&mut self, inside: OwnedFd) {
        if let Some(attempt) = &mut self.attempt {
            attempt.stdin_inside = Some(inside);
        }
    }

    /// Takes a descriptor that [`ChildPlan::open_others`] gave, as [`Streams::adopt_stdin`] does.
    pub fn adopt_file(&mut self, number: RawFd, inside: OwnedFd) {
        if let Some(attempt) = &mut self.attempt {
            attempt.files_inside.push((number, inside));
        }
    }

    /// Ends an attempt whose processes have all ended: carries what is left, then writes or drops
    /// what was held, gives the terminal back, and sets the outer input's position.
    pub fn finish(&mut self, outcome: Outcome) -> StreamsReport {
        let mut report = StreamsReport::default();
        let Some(attempt) = self.attempt.take() else { return report };
        match outcome {
            Outcome::Discard => attempt.control.cancel(),
            _ => attempt.control.end(),
        }
        self.join(attempt, outcome, &mut report);
        if outcome != Outcome::Retry {
            restore();
        }
        let shown = matches!(outcome, Outcome::Commit | Outcome::Failed);
        for (output, name) in self.outputs.iter().zip(["standard output", "standard error"]) {
            let Output::Pipe { outer, held: Some(held) } = output else { continue };
            let mut held = lock(held);
            if !shown {
                report.dropped += held.len();
                held.clear();
                continue;
            }
            report.errors.extend(write_out(name, &mut held, outer));
        }
        for other in &self.others.others {
            // What a failed command wrote beside its diagnostics has not happened.
            match other.held() {
                Some((outer, held)) if outcome == Outcome::Commit => {
                    report.errors.extend(write_out(&other.name(), &mut lock(held), outer));
                }
                _ => report.dropped += other.drop_held(),
            }
        }
        report
    }

    fn join(&self, attempt: Attempt, outcome: Outcome, report: &mut StreamsReport) {
        for (name, pump) in attempt.outputs {
            match pump.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Ok(Err(error)) => report.errors.push(format!("{name}: {error}")),
                Err(_) => report.errors.push(format!("{name}: its thread failed")),
            }
        }
        if let Some(terminal) = attempt.terminal
            && terminal.join().is_err()
        {
            report.errors.push("terminal: its thread failed".to_owned());
        }
        let read = attempt.feeder.and_then(|feeder| feeder.join().ok());
        for feeder in attempt.feeders {
            if feeder.join().is_err() {
                report.errors.push("an input's thread failed".to_owned());
            }
        }
        if outcome == Outcome::Retry {
            return;
        }
        for (number, inside) in &attempt.files_inside {
            self.others.others.iter().for_each(|other| other.settle(*number, inside));
        }
        match (&self.stdin, read, attempt.stdin_inside) {
            (Kind::File(outer, _), _, Some(inside)) => {
                if let Ok(position) = rustix::fs::tell(&inside) {
                    // A directory, or a device that cannot seek, has no position to keep.
                    let _ = rustix::fs::seek(&**outer, SeekFrom::Start(position));
                }
            }
            (Kind::Bytes(outer), Some(read), _) => {
                let beyond = lock(&self.record).taken.saturating_sub(read);
                if let Ok(back) = i64::try_from(beyond) {
                    // A pipe cannot seek: what was taken too much stays taken.
                    let _ = rustix::fs::seek(&**outer, SeekFrom::Current(-back));
                }
            }
            _ => {}
        }
    }

    fn check_replayable(&self) -> Result<(), Error> {
        self.check(&self.record)?;
        let inputs = self.others.others.iter().filter_map(|other| match &other.becomes {
            others::Becomes::Input(input) => Some(&input.record),
            _ => None,
        });
        inputs.into_iter().try_for_each(|record| self.check(record))
    }

    fn check(&self, record: &Mutex<Record>) -> Result<(), Error> {
        let record = lock(record);
        let cause = match &record.lost {
            Some(cause) => cause.clone(),
            None if !record.keep && record.taken > 0 => "recording was off".to_owned(),
            None => return Ok(()),
        };
        let dir = self.spec.scratch.clone();
        Err(Error::NotReplayable { bytes: record.taken, cause, dir })
    }

    fn start_input(
        &self,
        attempt: &mut Attempt,
        plan: &mut ChildPlan,
    ) -> Result<Option<OwnedFd>, Error> {
        match &self.stdin {
            Kind::Closed => {
                plan.closed[0] = true;
                Ok(None)
            }
            Kind::Device(fd) => own(fd).map(Some),
            Kind::Terminal(_) => {
                plan.on_terminal[0] = true;
                Ok(None)
            }
            Kind::File(_, file) => {
                plan.stdin_file = Some(file.clone());
                Ok(None)
            }
            Kind::Bytes(outer) => {
                let (read, write) = pipe()?;
                rustix::io::ioctl_fionbio(&write, true).map_err(Error::system("make a pipe"))?;
                let (outer, record) = (Arc::clone(outer), Arc::clone(&self.record));
                let control = Arc::clone(&attempt.control);
                let feed = move || input::feed(&write, &outer, &record, &control);
                attempt.feeder = Some(spawn("txos-stdin", feed)?);
                Ok(Some(read))
            }
        }
    }

    fn start_outputs(
        &self,
        attempt: &mut Attempt,
        plan: &mut ChildPlan,
    ) -> Result<[Option<OwnedFd>; 2], Error> {
        let mut ends: [Option<OwnedFd>; 2] = [None, None];
        for (at, output) in self.outputs.iter().enumerate() {
            ends[at] = match output {
                Output::Closed => {
                    plan.closed[at + 1] = true;
                    None
                }
                Output::AsItIs(fd) => Some(own(fd)?),
                Output::Terminal => {
                    plan.on_terminal[at + 1] = true;
                    None
                }
                Output::Shared => ends[0].as_ref().map(own).transpose()?,
                Output::Pipe { outer, held } => {
                    let (read, write) = pipe()?;
                    rustix::io::ioctl_fionbio(&read, true).map_err(Error::system("make a pipe"))?;
                    let sink = match held {
                        Some(spool) => Sink::Held(Arc::clone(spool)),
                        None => Sink::Live(Arc::clone(outer)),
                    };
                    let control = Arc::clone(&attempt.control);
                    let name = ["standard output", "standard error"][at];
                    let carry = move || carry_out(read, &sink, &control);
                    attempt.outputs.push((name.to_owned(), spawn("txos-output", carry)?));
                    Some(write)
                }
            };
        }
        Ok(ends)
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.finish(Outcome::Discard);
    }
}

impl StreamsSpec {
    fn spool(&self) -> Spool {
        Spool::new(self.scratch.clone(), self.spill_after)
    }

    fn resolve(&self, kinds: &[Kind; 2]) -> [Output; 2] {
        let mut outputs = kinds.each_ref().map(|kind| match kind {
            Kind::Closed => Output::Closed,
            Kind::Device(fd) => Output::AsItIs(Arc::clone(fd)),
            Kind::Terminal(_) if self.output != OutputMode::Deferred => Output::Terminal,
            Kind::Terminal(fd) | Kind::File(fd, _) | Kind::Bytes(fd) => Output::Pipe {
                outer: Arc::clone(fd),
                held: (self.output != OutputMode::Live).then(|| Arc::new(Mutex::new(self.spool()))),
            },
        });
        if let [Output::Pipe { outer: first, .. }, Output::Pipe { outer: second, .. }] = &outputs
            && same_place(first, second)
        {
            outputs[1] = Output::Shared;
        }
        outputs
    }
}

/// Writes what was held; a line if that fails.
fn write_out(name: &str, held: &mut Spool, outer: &OwnedFd) -> Option<String> {
    let flushed =
        Control::new().map_err(io::Error::other).and_then(|control| flush(held, outer, &control));
    flushed.err().map(|error| format!("{name}: held output could not be written: {error}"))
}

fn own(fd: &OwnedFd) -> Result<OwnedFd, Error> {
    fd.try_clone().map_err(Error::system("duplicate a standard stream"))
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    pipe_with(PipeFlags::CLOEXEC).map_err(Error::system("make a pipe for a standard stream"))
}

fn spawn<T, F>(name: &str, work: F) -> Result<JoinHandle<T>, Error>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(Error::system("start a thread for a standard stream"))
}
