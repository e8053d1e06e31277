//! The process of the contention manager: a loop over its connections.

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::SocketFlags,
    process::setsid,
};
use txos_core::{
    TxId,
    contention::{Action, Arbiter, Hold, Phase, Policy},
};
use txos_host::Door;
use txos_view::Channel;

use super::{
    Stats,
    memory::memory_file,
    message::{Met, Rival, Row, ToManager, ToTransaction, Word},
    socket::{GRACE, Place, is_ours},
    stats,
};

/// How long an answer is waited for. A transaction that is stopped (SIGSTOP, a frozen cgroup) does
/// not answer; its own validation finds what was missed. One whose process has died is known at once.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long the counts of objects read are waited for.
const COUNT: Duration = Duration::from_millis(200);
/// How often the counters are written while something runs.
const SAVE: Duration = Duration::from_secs(10);

/// How long the manager stays without a connection: `TXOS_MANAGER_GRACE` in milliseconds, else one
/// second.
pub fn grace() -> Duration {
    let text = std::env::var(GRACE).unwrap_or_default();
    Duration::from_millis(text.parse().unwrap_or(1000))
}

/// Name of the file of the state directory that holds the policy.
pub const POLICY: &str = "policy";

/// Serves the state directory at `state` until nobody is connected any more. `_lock` is the open
/// file that says that it does.
///
/// # Errors
/// If it cannot wait for connections.
pub fn run(state: &Path, listener: OwnedFd, _lock: OwnedFd) -> Result<()> {
    // Whoever started it may go, with its terminal.
    let _ = setsid();
    let place = Place::of(state)?;
    let policy = read_policy(&place.file(POLICY));
    let mut server = Server {
        arbiter: Arbiter::new(policy),
        clients: BTreeMap::new(),
        next: 0,
        ids: HashMap::new(),
        written: HashMap::new(),
        met: HashMap::new(),
        asked: HashMap::new(),
        tables: Vec::new(),
        stats: Stats::load(&place.file(stats::FILE)),
        saved: Instant::now(),
        place,
    };
    let mut door = Door::new(listener);
    let result = server.serve(&mut door);
    // In this order: who connects before finds the socket and then a closed connection, and who
    // comes later finds no socket and waits for the lock.
    server.place.remove();
    server.save();
    drop(door);
    result
}

/// The policy that was set last.
pub fn read_policy(path: &Path) -> Policy {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

struct Client {
    channel: Channel,
    /// The transaction that it is, once it has said so.
    id: Option<TxId>,
    pid: u32,
    attempt: u32,
    command: String,
    read: u64,
    written: Option<u64>,
}

/// A table that waits for counts.
struct Table {
    client: u64,
    since: Instant,
    missing: Vec<TxId>,
}

struct Server {
    arbiter: Arbiter,
    clients: BTreeMap<u64, Client>,
    next: u64,
    ids: HashMap<TxId, u64>,
    /// What the ready ones write.
    written: HashMap<TxId, OwnedFd>,
    /// What a reader had read of what a writer writes.
    met: HashMap<(TxId, TxId), Met>,
    /// Since when a writer waits for answers.
    asked: HashMap<TxId, Instant>,
    tables: Vec<Table>,
    stats: Stats,
    saved: Instant,
    place: Place,
}

impl Server {
    fn serve(&mut self, door: &mut Door) -> Result<()> {
        let grace = grace();
        let mut idle_since = Instant::now();
        loop {
            if !self.clients.is_empty() {
                idle_since = Instant::now();
            } else if idle_since.elapsed() >= grace {
                return Ok(());
            }
            let wait =
                match (self.clients.is_empty(), self.asked.is_empty() && self.tables.is_empty()) {
                    (true, _) => grace.saturating_sub(idle_since.elapsed()),
                    (false, true) => SAVE,
                    (false, false) => Duration::from_millis(20),
                };
            for ready in self.wait(door, wait)? {
                match ready {
                    None => self.accept(door),
                    Some(client) => self.receive(client),
                }
            }
            self.give_up();
            self.send_tables();
            if self.saved.elapsed() >= SAVE {
                self.save();
            }
        }
    }

    /// The connections on which there is something: `None` for a new one.
    fn wait(&self, door: &Door, wait: Duration) -> Result<Vec<Option<u64>>> {
        let mut who = vec![None];
        let mut fds = vec![door.polled(true)];
        for (number, client) in &self.clients {
            who.push(Some(*number));
            fds.push(PollFd::new(&client.channel, PollFlags::IN));
        }
        match poll(&mut fds, door.limit(Some(wait)).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("cannot wait for messages"),
        }
        let ready = who.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|(who, _)| who).collect())
    }

    fn accept(&mut self, door: &mut Door) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Some(fd) = door.accept(flags) else { return };
        if !is_ours(fd.as_fd()) {
            return;
        }
        let client = Client {
            channel: Channel::from_fd(fd),
            id: None,
            pid: 0,
            attempt: 0,
            command: String::new(),
            read: 0,
            written: None,
        };
        self.clients.insert(self.next, client);
        self.next += 1;
    }

    fn receive(&mut self, number: u64) {
        let Some(client) = self.clients.get(&number) else { return };
        match client.channel.receive::<ToManager>() {
            Ok(Some((message, fd))) => self.handle(number, message, fd),
            // A message that cannot be understood is as bad as none: the sender is another txos.
            Ok(None) | Err(_) => self.drop_client(number),
        }
    }

    fn drop_client(&mut self, number: u64) {
        self.leave(number);
        self.clients.remove(&number);
    }

    /// The transaction of a connection is over, for good.
    fn leave(&mut self, number: u64) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let Some(id) = client.id.take() else { return };
        self.ids.remove(&id);
        for table in &mut self.tables {
            table.missing.retain(|missing| *missing != id);
        }
        self.forget(id);
        let actions = self.arbiter.leave(id);
        self.act(actions);
    }

    /// What is known of an attempt that is over.
    fn forget(&mut self, id: TxId) {
        self.written.remove(&id);
        self.asked.remove(&id);
        self.met.retain(|(reader, writer), _| *reader != id && *writer != id);
    }

    fn handle(&mut self, number: u64, message: ToManager, fd: Option<OwnedFd>) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        match (message, client.id) {
            (ToManager::Begin { standing, attempt, process, command }, known) => {
                let id = standing.id;
                if known.is_none_or(|known| known == id) {
                    client.id = Some(id);
                    client.attempt = attempt;
                    client.pid = process;
                    client.command = command;
                    (client.read, client.written) = (0, None);
                    self.ids.insert(id, number);
                    self.stats.began();
                    let actions = self.arbiter.begin(standing);
                    self.act(actions);
                }
            }
            (ToManager::Ready { read, written }, Some(id)) => {
                (client.read, client.written) = (read, Some(written));
                if let Some(fd) = fd {
                    self.written.insert(id, fd);
                }
                self.asked.insert(id, Instant::now());
                let actions = self.arbiter.ready(id, read);
                self.act(actions);
            }
            (ToManager::Answer { hold, met, read }, Some(id)) => {
                client.read = read;
                let any = met.is_some();
                if let Some(met) = met {
                    self.met.insert((id, hold.writer), met);
                }
                let actions = self.arbiter.answer(id, hold, any, read);
                self.act(actions);
            }
            (ToManager::Touch { hold, read }, Some(id)) => {
                client.read = read;
                let actions = self.arbiter.touch(id, hold, read);
                self.act(actions);
            }
            (ToManager::Saw { hold, read }, Some(id)) => {
                client.read = read;
                let actions = self.arbiter.saw(id, hold, read);
                self.act(actions);
            }
            (ToManager::Impatient, Some(id)) => {
                let actions = self.arbiter.impatient(id);
                self.act(actions);
            }
            (ToManager::Stopped, Some(id)) => {
                let actions = self.arbiter.stopped(id);
                self.act(actions);
            }
            (ToManager::Stuck(stuck), Some(id)) => {
                let actions = self.arbiter.stuck(id, stuck);
                self.act(actions);
            }
            (ToManager::Hangs(hangs), Some(id)) => {
                let actions = self.arbiter.hangs(id, hangs);
                self.act(actions);
            }
            (ToManager::End(ended), Some(id)) => {
                self.stats.ended(&ended);
                self.forget(id);
                let actions = self.arbiter.end(id);
                self.act(actions);
            }
            (ToManager::Rest(standing), Some(id)) if standing.id == id => {
                let actions = self.arbiter.begin(standing);
                self.act(actions);
            }
            (ToManager::Leave(ended), Some(_)) => {
                if let Some(ended) = ended {
                    self.stats.ended(&ended);
                }
                self.leave(number);
            }
            (ToManager::Rest(_), Some(_)) => self.drop_client(number),
            (ToManager::Count { read }, Some(id)) => {
                client.read = read;
                for table in &mut self.tables {
                    table.missing.retain(|missing| *missing != id);
                }
            }
            (ToManager::Table, _) => self.ask_for_counts(number),
            (ToManager::Stats, _) => {
                self.send(number, &ToTransaction::Stats(Box::new(self.stats.clone())), None);
            }
            (ToManager::Policy(policy), _) => self.set_policy(number, policy),
            // The answer crossed the end.
            (ToManager::Count { .. } | ToManager::Answer { .. }, None) if client.attempt > 0 => {}
            (ToManager::Saw { .. } | ToManager::Stopped, None) if client.attempt > 0 => {}
            // Said by one that has not begun.
            (_, None) => self.drop_client(number),
        }
    }

    fn set_policy(&mut self, number: u64, policy: Option<Policy>) {
        if let Some(policy) = policy {
            let actions = self.arbiter.set_policy(policy);
            self.act(actions);
        }
        self.send(number, &ToTransaction::Policy(self.arbiter.policy()), None);
    }

    /// Does what the arbiter says.
    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Ask { reader, hold } => self.ask(reader, hold),
                Action::Start { id } => self.word(id, Word::Start),
                Action::Grant { id } => {
                    self.asked.remove(&id);
                    self.word(id, Word::Grant);
                }
                Action::Wait { id, winner } => {
                    self.asked.remove(&id);
                    let rival = self.rival(winner);
                    self.word(id, Word::Wait(rival));
                }
                Action::Doom { id, winner } => {
                    let met = self.met.get(&(id, winner)).cloned();
                    self.stats.lost(met.as_ref().map(|met| met.facet));
                    let rival = self.rival(winner);
                    let lock = self.arbiter.contended(id, winner).map(|lock| lock.path.clone());
                    self.word(
                        id,
                        match (met, lock) {
                            (None, Some(path)) => Word::Locked(rival, path),
                            (met, _) => Word::Doom(rival, met),
                        },
                    );
                }
                Action::Pass { reader, hold } => {
                    self.tell(reader, &ToTransaction::Pass { hold }, None);
                }
                Action::Release { hold } => {
                    let all: Vec<u64> = self.ids.values().copied().collect();
                    for number in all {
                        self.send(number, &ToTransaction::Release { hold }, None);
                    }
                }
            }
        }
    }

    fn ask(&mut self, reader: TxId, hold: Hold) {
        let fd = self.written.get(&hold.writer).and_then(|fd| fd.try_clone().ok());
        match fd {
            Some(fd) => self.tell(reader, &ToTransaction::Ask { hold }, Some(fd)),
            // What is not known can't be held; the validation at its commit remains.
            None => {
                let actions = self.arbiter.answer(reader, hold, false, 0);
                self.act(actions);
            }
        }
    }

    fn word(&mut self, id: TxId, word: Word) {
        let Some(number) = self.ids.get(&id).copied() else { return };
        let Some(attempt) = self.clients.get(&number).map(|client| client.attempt) else { return };
        self.send(number, &ToTransaction::Attempt(attempt, word), None);
    }

    fn tell(&mut self, id: TxId, message: &ToTransaction, fd: Option<OwnedFd>) {
        if let Some(number) = self.ids.get(&id).copied() {
            self.send(number, message, fd);
        }
    }

    fn send(&mut self, number: u64, message: &ToTransaction, fd: Option<OwnedFd>) {
        let Some(client) = self.clients.get(&number) else { return };
        if client.channel.send(message, fd.as_ref().map(AsFd::as_fd)).is_err() {
            // Gone, or it has not listened for hundreds of messages. What follows from that comes
            // with the next turn, not in the middle of this one.
            let _ = rustix::net::shutdown(&client.channel, rustix::net::Shutdown::Both);
        }
    }

    fn rival(&self, id: TxId) -> Rival {
        let client = self.ids.get(&id).and_then(|number| self.clients.get(number));
        let (pid, command) =
            client.map_or((0, String::new()), |client| (client.pid, client.command.clone()));
        Rival { id, pid, command }
    }

    /// Goes on without the answers of those who have been silent for too long.
    fn give_up(&mut self) {
        let late: Vec<TxId> = self
            .asked
            .iter()
            .filter(|(_, since)| since.elapsed() >= PATIENCE)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.asked.remove(&id);
            let actions = self.arbiter.silence(id);
            self.act(actions);
        }
    }

    fn ask_for_counts(&mut self, number: u64) {
        let running: Vec<TxId> = self.ids.keys().copied().collect();
        for id in &running {
            self.tell(*id, &ToTransaction::Count, None);
        }
        self.tables.push(Table { client: number, since: Instant::now(), missing: running });
    }

    fn send_tables(&mut self) {
        let (done, waiting): (Vec<Table>, Vec<Table>) = std::mem::take(&mut self.tables)
            .into_iter()
            .partition(|table| table.missing.is_empty() || table.since.elapsed() >= COUNT);
        self.tables = waiting;
        for table in done {
            // Without it the client is told of nobody, and says so.
            let file =
                serde_json::to_vec(&self.rows()).ok().and_then(|rows| memory_file(&rows).ok());
            self.send(table.client, &ToTransaction::Table, file);
        }
    }

    fn rows(&self) -> Vec<Row> {
        let row = |overview: txos_core::contention::Overview| {
            let id = overview.standing.id;
            let client = self.ids.get(&id).and_then(|number| self.clients.get(number));
            Row {
                standing: overview.standing,
                state: state_of(overview.phase).to_owned(),
                process: client.map_or(0, |client| client.pid),
                command: client.map_or_else(String::new, |client| client.command.clone()),
                waits_for: overview.waits_for,
                attempt: client.map_or(0, |client| client.attempt),
                read: client.map_or(0, |client| client.read),
                written: client.and_then(|client| client.written),
            }
        };
        self.arbiter.overview().into_iter().map(row).collect()
    }

    fn save(&mut self) {
        // The counters are for people; nothing is lost that anybody relies on.
        let _ = self.stats.save(&self.place.file(stats::FILE));
        self.saved = Instant::now();
    }
}

fn state_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Resting => "lost",
        Phase::Running => "running",
        Phase::Asking => "ready",
        Phase::Waiting => "waiting",
        Phase::Granted => "committing",
        Phase::Doomed => "doomed",
    }
}
