//! The reader of the events.

use std::{
    fmt, fs,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, ioctl_fionread, read},
};
use txos_core::{ObjectId, Touched};
use txos_host::Bell;

use crate::{
    OutsideError, Result,
    event::{Event, Garbled, HEAD, parse},
    log::Since,
    marks::Marks,
    resolve::{Found, Resolver},
};

/// Bytes read at once: some hundred events.
const BUFFER: usize = 64 * 1024;
/// Between two looks. A writer in a loop wakes the reader once in this time, and what it does again
/// meanwhile the kernel keeps as one event.
const REST: Duration = Duration::from_millis(2);

/// Events of a name, and of an object itself.
const NAMES: u64 = libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;
const OBJECT: u64 = libc::FAN_MODIFY | libc::FAN_ATTRIB;
const CHANGES: u64 = NAMES | OBJECT;

const MOUNTED: &str = "something was mounted or unmounted";

/// Who has changed something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Its process id; 0 where that is not shown here.
    pub pid: u32,
    /// Its name, as `/proc/PID/comm` shows it; `None` if it has ended.
    pub command: Option<String>,
}

/// For people.
impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.command {
            Some(name) => write!(f, "process {} ({name})", self.pid),
            None => write!(f, "process {}, which has ended", self.pid),
        }
    }
}

/// A change by somebody, as it is reported to a listener.
#[derive(Debug)]
pub struct Change<'e> {
    /// Where.
    pub touched: &'e Touched,
    event: &'e Event,
}

impl Change<'_> {
    /// Who did it. Costs a look into `/proc`.
    pub fn who(&self) -> Who {
        let pid = u32::try_from(self.event.pid).unwrap_or(0);
        let read = || Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned());
        // As long as the process lives, the number is its own.
        let command = self.event.pidfd.as_ref().and_then(|pidfd| {
            let command = read()?;
            alive(pidfd).then_some(command)
        });
        Who { pid, command }
    }

    /// The process id of who did it.
    pub fn pid(&self) -> u32 {
        u32::try_from(self.event.pid).unwrap_or(0)
    }
}

/// A pidfd becomes readable when its process ends (`pidfd_open(2)`).
fn alive(pidfd: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now)) == Ok(0)
}

/// Is told of each change, on the reading thread or on that of who drains. Must not call back.
pub type Listener = Box<dyn Fn(&Change<'_>) + Send>;

/// Watches what everybody changes, until it is dropped.
#[derive(Debug)]
pub struct Outside {
    shared: Arc<Shared>,
    stop: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    marks: Marks,
    state: Mutex<State>,
}

struct State {
    resolver: Resolver,
    buffer: Vec<u8>,
    since: Option<Since>,
    listener: Option<Listener>,
    /// The mount table was once seen to differ from when the marks were set.
    mounted: bool,
    /// How many events were read.
    events: u64,
}

impl Outside {
    /// Marks all file systems that the caller sees and that take marks, and starts to read.
    ///
    /// # Errors
    /// If the kernel does not grant it to this caller, or no file system takes marks.
    pub fn watch() -> Result<Outside> {
        let marks = Marks::new()?;
        let resolver = Resolver::new(marks.file_systems.clone());
        let state = State {
            resolver,
            buffer: vec![0; BUFFER],
            since: None,
            listener: None,
            mounted: false,
            events: 0,
        };
        let shared = Arc::new(Shared { marks, state: Mutex::new(state) });
        let stop =
            Bell::new().map_err(|errno| OutsideError::NotGranted { action: "eventfd", errno })?;
        let stop = Arc::new(stop);
        let (theirs, ended) = (Arc::clone(&shared), Arc::clone(&stop));
        let thread = thread::Builder::new()
            .name("outside".to_owned())
            .spawn(move || theirs.read_until(&ended))
            .map_err(OutsideError::Thread)?;
        Ok(Outside { shared, stop, thread: Some(thread) })
    }

    /// Tells `listener` of each change from now on, instead of the one before.
    pub fn listen(&self, listener: Option<Listener>) {
        self.shared.state().listener = listener;
    }

    /// Whether the file system of this device is watched.
    pub fn covers(&self, dev: u64) -> bool {
        !self.shared.marks.unwatched.contains(&dev)
    }

    /// Begins a log: from here on all that is touched is noted, and opening counts as touching,
    /// since whoever has a file open may change it through a mapping without a further event. The
    /// caller's own opens don't count.
    pub fn begin(&self) {
        let mut state = self.shared.state();
        let heard = self.shared.marks.hear_opens(true);
        state.drain(&self.shared.marks);
        let mut since = Since::default();
        if !heard {
            since.spoil("opens cannot be watched");
        }
        // Whatever was mounted since the marks were set is not covered by them.
        if state.mounts_changed(&self.shared.marks) {
            since.spoil(MOUNTED);
        }
        state.since = Some(since);
    }

    /// All that was touched since [`Outside::begin`]; the log goes on. What was done before this
    /// call is in it.
    pub fn since(&self) -> Since {
        let mut state = self.shared.state();
        state.drain(&self.shared.marks);
        if state.mounts_changed(&self.shared.marks) {
            state.spoil(MOUNTED);
        }
        state.since.clone().unwrap_or_else(|| {
            let mut nothing = Since::default();
            nothing.spoil("nothing was noted");
            nothing
        })
    }

    /// Ends the log.
    pub fn end(&self) {
        let mut state = self.shared.state();
        if state.since.take().is_some() {
            self.shared.marks.hear_opens(false);
            // What is left in its queue is of no interest.
            state.drain_group(&self.shared.marks.opens);
        }
    }

    /// Reads what has been reported up to now.
    pub fn drain(&self) {
        self.shared.state().drain(&self.shared.marks);
    }

    /// How many events were read, for measurements.
    pub fn events(&self) -> u64 {
        self.shared.state().events
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.listen(None);
        let _ = self.stop.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A listener that panicked leaves the tables whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_until(&self, stop: &Bell) {
        loop {
            let mut fds = [
                PollFd::new(stop, PollFlags::IN),
                PollFd::new(&self.marks.group, PollFlags::IN),
                PollFd::new(&self.marks.opens, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                Err(errno) => {
                    tracing::debug!(%errno, "cannot wait for events");
                    return;
                }
                Ok(_) if !fds[0].revents().is_empty() => return,
                Ok(_) => self.state().drain(&self.marks),
            }
            let rest = Timespec { tv_sec: 0, tv_nsec: i64::from(REST.subsec_nanos()) };
            match poll(&mut [PollFd::new(stop, PollFlags::IN)], Some(&rest)) {
                Ok(count) if count > 0 => return,
                _ => {}
            }
        }
    }
}

impl State {
    fn drain(&mut self, marks: &Marks) {
        self.drain_group(&marks.group);
        if self.since.is_some() {
            self.drain_group(&marks.opens);
        }
    }

    fn drain_group(&mut self, group: &OwnedFd) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = each_queued(group, &mut buffer, |events| {
            for event in events {
                match event {
                    Ok(event) => self.event(&event),
                    Err(_) => self.spoil("an event was not understood"),
                }
            }
            self.resolver.rest();
        });
        self.buffer = buffer;
        // One event could not be delivered (its pidfd, for want of descriptors).
        if let Err(errno) = outcome {
            tracing::debug!(%errno, "an event was lost");
            self.spoil("an event was lost");
        }
    }

    fn mounts_changed(&mut self, marks: &Marks) -> bool {
        self.mounted |= marks.mounts_changed();
        self.mounted
    }

    fn spoil(&mut self, why: &'static str) {
        if let Some(since) = &mut self.since {
            since.spoil(why);
        }
    }

    fn event(&mut self, event: &Event) {
        self.events += 1;
        let opened = event.mask & libc::FAN_OPEN != 0;
        if opened && (self.since.is_none() || u32::try_from(event.pid) == Ok(std::process::id())) {
            return;
        }
        if event.mask & libc::FAN_Q_OVERFLOW != 0 {
            return self.spoil("too much happened at once");
        }
        let entry = match &event.entry {
            Some((dir, name)) => match self.resolver.resolve(dir) {
                Ok(Found::Object(dir)) => Some((dir, name)),
                Ok(Found::Gone | Found::Elsewhere) => None,
                Err(errno) => return self.lost(errno),
            },
            None => None,
        };
        let named = |(dir, name): (ObjectId, &Vec<u8>)| match name.as_slice() {
            b"." => Touched::Object(dir),
            name => Touched::Name(dir, name.to_vec()),
        };
        if event.mask & NAMES != 0
            && let Some(entry) = entry
        {
            self.touched(&named(entry), event);
        }
        if event.mask & (OBJECT | libc::FAN_OPEN) != 0 {
            let object = match &event.object {
                Some(handle) => match self.resolver.resolve(handle) {
                    Ok(Found::Object(id)) => Some(Touched::Object(id)),
                    Ok(Found::Gone | Found::Elsewhere) => None,
                    Err(errno) => return self.lost(errno),
                },
                None => None,
            };
            // What is gone is told by the name that it had.
            if let Some(touched) = object.or_else(|| entry.map(named)) {
                self.touched(&touched, event);
            }
        }
    }

    fn lost(&mut self, errno: Errno) {
        tracing::debug!(%errno, "an event could not be resolved");
        self.spoil("an event could not be resolved");
    }

    fn touched(&mut self, touched: &Touched, event: &Event) {
        if let Some(since) = &mut self.since {
            since.add(touched);
        }
        if let Some(listener) = &self.listener
            && event.mask & CHANGES != 0
        {
            listener(&Change { touched, event });
        }
    }
}

/// Reads what is queued, and not what comes meanwhile: where many work beside a transaction, more
/// comes all the time than one thread can look at, and there would be no end.
///
/// # Errors
/// What `read(2)` gives: an event is lost.
fn each_queued(
    group: impl AsFd,
    buffer: &mut [u8],
    mut each: impl FnMut(Vec<Result<Event, Garbled>>),
) -> Result<(), Errno> {
    // The kernel counts the heads of the events alone (fanotify(7), FIONREAD).
    let queued = ioctl_fionread(&group)? / HEAD as u64;
    let mut seen = 0;
    while seen < queued {
        match read(&group, &mut *buffer) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(count) => {
                let events = parse(&buffer[..count]);
                seen += events.len() as u64;
                each(events);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("events", &self.events).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rustix::{io::write, pipe::PipeFlags};

    use super::*;

    /// An event that names nothing.
    fn event() -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&(HEAD as u32).to_ne_bytes());
        bytes[4] = libc::FANOTIFY_METADATA_VERSION;
        bytes[6..8].copy_from_slice(&(HEAD as u16).to_ne_bytes());
        bytes
    }

    /// A queue that is filled again by each reading, as by neighbours who never rest.
    #[test]
    fn what_comes_while_events_are_read_is_left_for_the_next_time() {
        let (group, filled) = rustix::pipe::pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
        let fill = || {
            while write(&filled, &event()).is_ok() {}
        };
        fill();
        let queued = ioctl_fionread(&group).expect("what is queued") / HEAD as u64;
        assert!(queued > 1000, "{queued}");
        let (mut seen, mut buffer) = (0, vec![0; 10 * HEAD]);
        each_queued(&group, &mut buffer, |events| {
            assert!(events.iter().all(Result::is_ok));
            seen += events.len() as u64;
            assert!(seen < 10 * queued, "it goes on and on");
            fill();
        })
        .expect("read");
        assert!((queued..queued + 10).contains(&seen), "{seen} of {queued}");
        // What had come meanwhile is there still, and an empty queue ends at once.
        let mut again = false;
        each_queued(&group, &mut buffer, |_| again = true).expect("read");
        assert!(again);
        each_queued(&group, &mut buffer, |_| panic!("nothing is there")).expect("read");
    }
}
