//! One attempt of a transaction: the command runs once in a fresh view.

use std::{
    fs::File,
    io::{Seek, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command},
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::{FdFlags, fcntl_setfd},
};
use txos_capture::{Capture, CaptureSpec, Captured, serve_log};
use txos_core::Conflict;
use txos_effects::{
    Policy, ipc,
    streams::Streams,
    supervisor::{EffectsReport, Gateway, Hooks, Locks, Numbers, Signals, Supervisor, Tapes},
    syslog::{Log, Messages},
};
use txos_view::{Channel, DeviceGuard, FromView, ToView, ViewSpec};

use super::{
    Deferred, Linger,
    beside::Beside,
    cap::Caps,
    limits::{Limits, Watch},
    services::Plants,
    signals::Interrupts,
};
use crate::{
    contention::{self, Link, Lost, Verdict},
    text::{printable, say},
    verbs::enter::Enter,
};

/// What the terminal's key sends to the command's group, and what has it go on.
const STOP: ToView = ToView::Signal { signal: libc::SIGTSTP };
const CONTINUE: ToView = ToView::Signal { signal: libc::SIGCONT };

/// What can happen while an attempt runs. The number is the attempt's: what an earlier one says
/// late is passed over.
#[derive(Debug)]
pub enum Event {
    /// The view says something.
    View(u32, FromView, Option<OwnedFd>),
    /// The view's connection is closed.
    Closed(u32),
    /// A signal to txos.
    Signal(i32),
    /// The terminal's key that stops (`SIGTSTP`): see `Interrupts::take_stop`.
    Stop,
    /// A captured object turned out to have changed.
    Doomed(u32, Conflict),
    /// A call was made that the policy does not bear.
    Unsupported(u32, String),
    /// The contention manager has decided something.
    Verdict(u32, Verdict),
}

/// Why an attempt ended.
#[derive(Debug)]
pub enum Cause {
    /// The command ended, and all that it had started; with its `wait(2)` status.
    Exited(i32),
    /// The command could not be executed; with the error number.
    ExecFailed(i32),
    /// txos was told to end.
    Signal(i32),
    /// The time was up.
    Timeout(Duration),
    /// More was used than allowed; what, in a sentence.
    TooMuch(String),
    /// A call was made that cannot be isolated.
    Unsupported(String),
    /// Someone changed what had been read.
    Doomed(Conflict),
    /// Processes outlived the command.
    Lingering(Vec<String>),
    /// Another transaction won a conflict.
    Lost(Lost),
}

/// What an attempt leaves.
#[derive(Debug)]
pub struct Ended {
    /// Why it ended.
    pub cause: Cause,
    /// What it has read; `None` if it ended before its view was there.
    pub captured: Option<Captured>,
    /// What it did beside its view.
    pub effects: EffectsReport,
    /// What waits for the commit.
    pub deferred: Deferred,
}

/// What one attempt needs.
pub struct Attempt<'a> {
    /// Number of the attempt, from 0.
    pub number: u32,
    /// The view to be made.
    pub view: ViewSpec,
    /// What the system call filter lets through.
    pub policy: Policy,
    /// What is captured, and how.
    pub capture: CaptureSpec,
    /// The standard streams.
    pub streams: &'a mut Streams,
    /// The helpers in the view, as soon as it is there.
    pub plants: &'a mut Plants,
    /// End at this point in time, after so long.
    pub deadline: Option<(Instant, Duration)>,
    /// How much may be used.
    pub limits: Limits,
    /// What happens to processes that outlive the command.
    pub linger: Linger,
    /// The locks that its members take, held outside until the transaction ends.
    pub locks: Locks,
    /// What came over the network, recorded for the next attempt.
    pub tapes: Tapes,
    /// Everybody else.
    pub beside: &'a Beside,
    /// The connection to the contention manager.
    pub link: &'a Link,
    /// Where all events come together.
    pub sender: &'a Sender<Event>,
    /// See `sender`.
    pub events: &'a Receiver<Event>,
    /// Whether the key that stops has come.
    pub interrupts: &'a Interrupts,
}

/// The processes and servers of a running attempt.
struct Running {
    child: Child,
    channel: Arc<Channel>,
    capture: Option<Capture>,
    supervisor: Option<Supervisor>,
    messages: Messages,
    left: ipc::Left,
    signals: Signals,
    numbers: Option<Sender<Option<u32>>>,
    gateway: Gateway,
    caps: Rc<Caps>,
    /// Whether the view is there, and all that was planted in it is known.
    began: bool,
    _guard: Option<DeviceGuard>,
}

impl Attempt<'_> {
    /// Runs the command to its end, or to whatever ends it before.
    ///
    /// When this returns, no process of the transaction is left.
    ///
    /// # Errors
    /// If the view cannot be made.
    pub fn run(mut self) -> Result<Ended> {
        let mut running = self.start()?;
        let watched = self.watch(&mut running);
        // A process that waits for an answer of the capture can't be killed.
        self.link.holds().stop();
        // The death of `__enter` is the death of init, and so of every process of the view.
        let _ = running.child.kill();
        let reaped = running.child.wait();
        let mut effects = running.supervisor.take().map(Supervisor::finish).unwrap_or_default();
        let messages = running.messages.finish();
        effects.messages = messages.iter().map(ToString::to_string).collect();
        let left = std::mem::take(&mut running.left);
        effects.left = left.gone;
        self.beside.detach();
        let captured = running.capture.take().map(Capture::stop);
        let cause = watched?;
        reaped.context("cannot wait for the view to end")?;
        let captured = captured.transpose()?;
        let deferred = Deferred { objects: left.objects, signals: running.signals, messages };
        Ok(Ended { cause, captured, effects, deferred })
    }

    fn start(&mut self) -> Result<Running> {
        let guard = self
            .view
            .devices_guarded
            .then(|| DeviceGuard::new(&format!("txos-{}", std::process::id()), &self.view.live))
            .flatten();
        self.view.devices_guarded = guard.is_some();
        let caps = Caps::new(self.limits, &format!("txos-{}", std::process::id()));
        let guarded = guard.iter().map(|guard| guard.path().to_owned());
        self.view.groups = guarded.chain(caps.paths()).collect();
        let mut fds = self.streams.attempt()?;
        // The child inherits them; they are closed here when it is started.
        let _others = std::mem::take(&mut fds.others);
        let ([stdin, stdout, stderr], plan) = fds.into_stdio();
        self.view.pass_fds = plan.numbers().collect();
        self.view.terminal = plan.on_terminal;
        // One that was rotated meanwhile is there again for this attempt.
        for log in &self.view.logs {
            super::exempt_log(log).with_context(|| format!("--exempt-log {}", log.display()))?;
        }
        let enter = Enter { view: self.view.clone(), policy: self.policy.clone(), streams: plan };
        let spec = spec_file(&enter)?;
        let (ours, theirs) = Channel::pair()?;
        // Inherited by the one process that is started next, and closed here right after it.
        fcntl_setfd(&spec, FdFlags::empty()).context("cannot pass the specification on")?;
        fcntl_setfd(&theirs, FdFlags::empty()).context("cannot pass the connection on")?;
        let child = Command::new(&self.view.program)
            .arg("__enter")
            .arg(spec.as_raw_fd().to_string())
            .arg(theirs.as_fd().as_raw_fd().to_string())
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            // What the outer terminal's keys send is for the manager, which decides what ends.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", self.view.program.display()))?;
        let channel = Arc::new(ours);
        listen(Arc::clone(&channel), self.number, self.sender.clone())?;
        Ok(Running {
            child,
            channel,
            capture: None,
            supervisor: None,
            messages: Messages::new()?,
            left: ipc::Left::default(),
            signals: Signals::default(),
            numbers: None,
            gateway: Gateway::default(),
            caps: Rc::new(caps),
            began: false,
            _guard: guard,
        })
    }

    /// Serves the view until something ends the attempt.
    fn watch(&mut self, running: &mut Running) -> Result<Cause> {
        let mut exec_failed = None;
        let mut status = None;
        let mut lingering = None;
        // Whether the key that stops came to txos itself, and the command has been told.
        let mut told = false;
        let mut usage = Watch::new(
            &self.view.layers,
            self.limits,
            running.child.id(),
            Rc::clone(&running.caps),
        );
        loop {
            let look = [usage.next_look(), self.beside.next_look()].into_iter().flatten().min();
            let event = match self.next_event(look) {
                Wait::Event(event) => event,
                Wait::Deadline(limit) => return Ok(Cause::Timeout(limit)),
                Wait::Look => {
                    self.beside.look();
                    if let Some(reason) = usage.exceeded(running.began.then_some(&*self.plants)) {
                        return Ok(Cause::TooMuch(reason));
                    }
                    continue;
                }
            };
            match event {
                Event::Signal(signal) => return Ok(Cause::Signal(signal)),
                Event::Stop if self.interrupts.take_stop() => {
                    told = running.began;
                    match told {
                        true => running.channel.send(&STOP, None)?,
                        false => self.suspend(running, false)?,
                    }
                }
                Event::Doomed(number, conflict) if number == self.number => {
                    return Ok(Cause::Doomed(conflict));
                }
                Event::Verdict(number, verdict) if number == self.number => match verdict {
                    Verdict::Lost(lost) => return Ok(Cause::Lost(lost)),
                    Verdict::Gone => bail!(contention::GONE),
                    Verdict::Waits(_) | Verdict::Granted => {}
                },
                Event::Unsupported(number, call) if number == self.number => {
                    return Ok(Cause::Unsupported(call));
                }
                Event::Closed(number) if number == self.number => {
                    bail!("the view ended unexpectedly: was its process killed?");
                }
                Event::View(number, message, fd) if number == self.number => match message {
                    FromView::ExecFailed { errno } => exec_failed = Some(errno),
                    FromView::Failed { message } => bail!("{message}"),
                    FromView::Exited { status: ended } => status = Some(ended),
                    // Without a terminal a command that stops itself is continued by whoever knows why.
                    FromView::Stopped if told || self.view.terminal.contains(&true) => {
                        self.suspend(running, !std::mem::take(&mut told))?;
                    }
                    FromView::Stopped => {}
                    FromView::Ended => {
                        if let Some(reason) = usage.exceeded(running.began.then_some(&*self.plants))
                        {
                            return Ok(Cause::TooMuch(reason));
                        }
                        return match (exec_failed, status) {
                            (Some(errno), _) => Ok(Cause::ExecFailed(errno)),
                            (None, Some(status)) => Ok(Cause::Exited(status)),
                            (None, None) => bail!("the view lost the status of the command"),
                        };
                    }
                    FromView::Lingering { names } => {
                        if let Some(cause) = self.linger(names, status, &mut lingering) {
                            return Ok(cause);
                        }
                    }
                    other => self.serve(running, other, fd)?,
                },
                _ => {}
            }
        }
    }

    /// Starts what the view asks for.
    fn serve(
        &mut self,
        running: &mut Running,
        message: FromView,
        fd: Option<OwnedFd>,
    ) -> Result<()> {
        let fd = || fd.ok_or_else(|| anyhow!("the view sent no descriptor with {message:?}"));
        match &message {
            FromView::Capture => {
                let mut spec = std::mem::take(&mut self.capture);
                let (number, sender) = (self.number, self.sender.clone());
                spec.holds = self.link.holds();
                spec.on_doom = Some(Arc::new(move |conflict: &Conflict| {
                    let _ = sender.send(Event::Doomed(number, conflict.clone()));
                }));
                let capture = Capture::start(fd()?, spec)?;
                self.beside.attach(capture.judge(), self.number, self.sender.clone());
                running.capture = Some(capture);
            }
            FromView::Ready => {
                let links = self.view.requests.with_file_name("plants");
                *self.plants = Plants::watch(&self.view.plants, &self.view.layers, links)?;
                running.began = true;
                // The manager's answer came while the view was made, as a rule.
                self.link.wait_for_first_start()?;
                if let Some(capture) = &running.capture {
                    capture.begin_recording();
                }
                running.channel.send(&ToView::Go, None)?;
            }
            FromView::Terminal => self.streams.adopt_terminal(fd()?)?,
            FromView::File { number } => self.streams.adopt_file(*number, fd()?),
            FromView::Stdin => self.streams.adopt_stdin(fd()?),
            FromView::Log => running.messages.take(fd()?, Log::Syslog)?,
            FromView::Journal => running.messages.take(fd()?, Log::Journal)?,
            FromView::JournalStreams => running.messages.take_streams(fd()?)?,
            FromView::Left => {
                running.left = serde_json::from_reader(File::from(fd()?))
                    .context("cannot understand what the processes left")?;
            }
            FromView::ExemptLog { index } => {
                let log = self.view.logs.get(*index).context("the view has no such log")?;
                serve_log(fd()?, log).with_context(|| format!("--exempt-log {}", log.display()))?;
            }
            FromView::Gateway => running.gateway.add(fd()?)?,
            FromView::Listener => {
                let hooks = self.hooks(running);
                let policy = self.policy.clone();
                let threads = Supervisor::a_thread_a_processor();
                running.supervisor = Some(Supervisor::start(fd()?, policy, hooks, threads)?);
                // The command's process has its session and terminal before its filter.
                self.streams.show_terminal()?;
            }
            FromView::Numbers { used_up_to } => {
                // Whoever asked may have given up.
                let _ = running.numbers.as_ref().map(|asked| asked.send(*used_up_to));
            }
            other => bail!("unexpected message of the view: {other:?}"),
        }
        Ok(())
    }

    /// Stops txos, whose command is stopped, as the command would be natively: the shell that started it
    /// takes the terminal, and can have both go on. With `group` the others of its process group too.
    ///
    /// Who is stopped answers nobody: the contention manager gives it up after a while, and then it loses
    /// to whoever is ready first.
    fn suspend(&mut self, running: &Running, group: bool) -> Result<()> {
        self.streams.suspend();
        let stopped = txos_view::stop_as_by_key(group);
        self.streams.resume();
        stopped.context("cannot stop as the command did")?;
        if running.began {
            running.channel.send(&CONTINUE, None)?;
        }
        Ok(())
    }

    fn hooks(&self, running: &mut Running) -> Hooks {
        let (answer, answers) = channel();
        running.numbers = Some(answer);
        let (number, sender) = (self.number, self.sender.clone());
        Hooks {
            notice: Box::new(|notice| say(printable(&notice.to_string()))),
            abort: Box::new(move |refusal| {
                let _ = sender.send(Event::Unsupported(number, refusal.to_string()));
            }),
            locks: self.locks.clone(),
            signals: running.signals.clone(),
            numbers: numbers(Arc::clone(&running.channel), answers),
            gateway: std::mem::take(&mut running.gateway),
            tapes: self.tapes.clone(),
        }
    }

    /// What follows from processes that outlived the command; `None` to go on waiting.
    fn linger(
        &self,
        names: Vec<String>,
        status: Option<i32>,
        said: &mut Option<Vec<String>>,
    ) -> Option<Cause> {
        let failed = status.is_some_and(|status| status != 0);
        match self.linger {
            // Nothing of a failed transaction is worth waiting for.
            _ if failed => status.map(Cause::Exited),
            Linger::Kill => status.map(Cause::Exited),
            Linger::Abort => Some(Cause::Lingering(names)),
            Linger::Wait => {
                if said.as_ref() != Some(&names) {
                    let list = printable(&names.join(", "));
                    say(format!("the command has ended; waiting for {list} (see --linger)"));
                    *said = Some(names);
                }
                None
            }
        }
    }

    fn next_event(&self, look: Option<Instant>) -> Wait {
        let deadline = self.deadline.map(|(at, _)| at);
        let Some(until) = [deadline, look].into_iter().flatten().min() else {
            return match self.events.recv() {
                Ok(event) => Wait::Event(event),
                Err(_) => Wait::Event(Event::Closed(self.number)),
            };
        };
        match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(event) => Wait::Event(event),
            Err(RecvTimeoutError::Disconnected) => Wait::Event(Event::Closed(self.number)),
            Err(RecvTimeoutError::Timeout) => match self.deadline {
                Some((at, limit)) if at <= Instant::now() => Wait::Deadline(limit),
                _ => Wait::Look,
            },
        }
    }
}

/// What a wait has brought.
enum Wait {
    Event(Event),
    Deadline(Duration),
    Look,
}

/// How the supervisor learns which process numbers the view has used: init is asked, and its answer
/// comes by way of the events.
fn numbers(view: Arc<Channel>, answers: Receiver<Option<u32>>) -> Numbers {
    const PATIENCE: Duration = Duration::from_secs(5);
    let answers = Mutex::new(Some(answers));
    Box::new(move || {
        let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        view.send(&ToView::Numbers, None).ok()?;
        let answer = answers.as_ref()?.recv_timeout(PATIENCE);
        if answer.is_err() {
            // An answer that comes late must not be taken for that to a later question.
            *answers = None;
        }
        answer.ok()?
    })
}

/// The specification in a file that only the child has.
fn spec_file(enter: &Enter) -> Result<OwnedFd> {
    let text = serde_json::to_vec(enter).context("cannot write the specification of the view")?;
    let fd = memfd_create("txos-view", MemfdFlags::CLOEXEC).context("cannot make a memory file")?;
    let mut file = File::from(fd);
    file.write_all(&text).and_then(|()| file.rewind()).context("cannot fill a memory file")?;
    Ok(file.into())
}

/// Passes on what the view says, from a thread of its own.
fn listen(channel: Arc<Channel>, number: u32, events: Sender<Event>) -> Result<()> {
    let pass_on = move || {
        while let Ok(Some((message, fd))) = channel.receive::<FromView>() {
            if events.send(Event::View(number, message, fd)).is_err() {
                return;
            }
        }
        let _ = events.send(Event::Closed(number));
    };
    thread::Builder::new()
        .name("txos-view".into())
        .spawn(pass_on)
        .context("cannot start a thread for the view")?;
    Ok(())
}
