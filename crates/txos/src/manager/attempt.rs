//! One attempt of a transaction: the command runs once in a fresh view.

use std::{
    fs::File,
    io::{Seek, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    process::{Child, Command},
    rc::Rc,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::{FdFlags, fcntl_setfd},
};
use txos_capture::{Capture, CaptureSpec, Captured};
use txos_core::Conflict;
use txos_effects::{
    Policy,
    streams::Streams,
    supervisor::{EffectsReport, Hooks, Locks, Supervisor},
    syslog::Messages,
};
use txos_view::{Channel, DeviceGuard, FromView, ToView, ViewSpec};

use super::{
    Linger,
    cap::Caps,
    limits::{Limits, Watch},
    services::Plants,
};
use crate::{
    text::{printable, say},
    verbs::enter::Enter,
};

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
    /// A captured object turned out to have changed.
    Doomed(u32, Conflict),
    /// A call was made that the policy does not bear.
    Unsupported(u32, String),
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
    /// Where all events come together.
    pub sender: &'a Sender<Event>,
    /// See `sender`.
    pub events: &'a Receiver<Event>,
}

/// The processes and servers of a running attempt.
struct Running {
    child: Child,
    channel: Arc<Channel>,
    capture: Option<Capture>,
    supervisor: Option<Supervisor>,
    messages: Option<Messages>,
    left: Vec<String>,
    caps: Rc<Caps>,
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
        // The death of `__enter` is the death of init, and so of every process of the view.
        let _ = running.child.kill();
        let reaped = running.child.wait();
        let mut effects = running.supervisor.take().map(Supervisor::finish).unwrap_or_default();
        effects.messages = running.messages.take().map(Messages::finish).unwrap_or_default();
        effects.left = std::mem::take(&mut running.left);
        let captured = running.capture.take().map(Capture::stop);
        let cause = watched?;
        reaped.context("cannot wait for the view to end")?;
        let captured = captured.transpose()?;
        Ok(Ended { cause, captured, effects })
    }

    fn start(&mut self) -> Result<Running> {
        let guard = self
            .view
            .devices_guarded
            .then(|| DeviceGuard::new(&format!("txos-{}", std::process::id())))
            .flatten();
        self.view.devices_guarded = guard.is_some();
        let caps = Caps::new(self.limits, &format!("txos-{}", std::process::id()));
        let fds = self.streams.attempt()?;
        let ([stdin, stdout, stderr], plan) = fds.into_stdio();
        self.view.terminal = plan.on_terminal;
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
            .spawn()
            .with_context(|| format!("cannot start {}", self.view.program.display()))?;
        if let Some(guard) = &guard {
            guard.add(child.id()).context("cannot guard the devices of the view")?;
        }
        caps.add(child.id()).context("cannot limit the processes of the view")?;
        let channel = Arc::new(ours);
        listen(Arc::clone(&channel), self.number, self.sender.clone())?;
        Ok(Running {
            child,
            channel,
            capture: None,
            supervisor: None,
            messages: None,
            left: Vec::new(),
            caps: Rc::new(caps),
            _guard: guard,
        })
    }

    /// Serves the view until something ends the attempt.
    fn watch(&mut self, running: &mut Running) -> Result<Cause> {
        let mut exec_failed = None;
        let mut status = None;
        let mut lingering = None;
        let mut usage = Watch::new(
            &self.view.layers,
            self.limits,
            running.child.id(),
            Rc::clone(&running.caps),
        );
        loop {
            let event = match self.next_event(usage.next_look()) {
                Wait::Event(event) => event,
                Wait::Deadline(limit) => return Ok(Cause::Timeout(limit)),
                Wait::Look => {
                    if let Some(reason) = usage.exceeded() {
                        return Ok(Cause::TooMuch(reason));
                    }
                    continue;
                }
            };
            match event {
                Event::Signal(signal) => return Ok(Cause::Signal(signal)),
                Event::Doomed(number, conflict) if number == self.number => {
                    return Ok(Cause::Doomed(conflict));
                }
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
                    FromView::Ended => {
                        if let Some(reason) = usage.exceeded() {
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
                spec.on_doom = Some(Arc::new(move |conflict: &Conflict| {
                    let _ = sender.send(Event::Doomed(number, conflict.clone()));
                }));
                running.capture = Some(Capture::start(fd()?, spec)?);
            }
            FromView::Ready => {
                let links = self.view.requests.with_file_name("plants");
                *self.plants = Plants::watch(&self.view.plants, &self.view.layers, links)?;
                if let Some(capture) = &running.capture {
                    capture.begin_recording();
                }
                running.channel.send(&ToView::Go, None)?;
            }
            FromView::Terminal => self.streams.adopt_terminal(fd()?)?,
            FromView::Stdin => self.streams.adopt_stdin(fd()?),
            FromView::Log => running.messages = Some(Messages::take(fd()?)?),
            FromView::Left { names } => running.left.clone_from(names),
            FromView::Listener => {
                let hooks = self.hooks();
                let policy = self.policy.clone();
                running.supervisor = Some(Supervisor::start(fd()?, policy, hooks, 2)?);
            }
            other => bail!("unexpected message of the view: {other:?}"),
        }
        Ok(())
    }

    fn hooks(&self) -> Hooks {
        let (number, sender) = (self.number, self.sender.clone());
        Hooks {
            notice: Box::new(|notice| say(printable(&notice.to_string()))),
            abort: Box::new(move |refusal| {
                let _ = sender.send(Event::Unsupported(number, refusal.to_string()));
            }),
            locks: self.locks.clone(),
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
