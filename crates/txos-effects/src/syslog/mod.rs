//! Messages to the system log: kept while the transaction runs, sent in order after its commit.
//!
//! The view binds datagram sockets of its own where programs send to: at `/dev/log` (syslog(3), logger(1),
//! shells), and, where the host has one, at the native socket of the journal (sd_journal_send(3)); the
//! manager takes what arrives. After an abort nothing was logged. Each message is one datagram, at the
//! commit as it was inside, with the time that the program wrote into it. (Who sent it the journal asks the
//! kernel: that is txos then.) Beside the datagrams there are streams into the journal, of systemd-cat(1):
//! see [`streams`].
//!
//! An entry of the journal that is too long for a datagram comes as a memory file with an empty one. Its
//! content is taken when it comes: what its sender writes there later is no part of it.
//!
//! Invariants:
//! * Nothing is lost for being late: [`Messages::finish`] is called when the last process has
//!   ended, and takes what still lies in the sockets.
//! * A member cannot hold up the taking: a descriptor is read only where it is a file in memory.

mod streams;

use crate::Error;
use crate::ipc::Bytes;
use crate::supervisor::printable;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, MemfdFlags, SealFlags, fcntl_add_seals, fstat, fstatfs, memfd_create};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use txos_host::{Bell, Door};

/// Where programs find the log.
pub const LOG: &str = "/dev/log";
/// Where they find that of the journal, which [`LOG`] is a link to where there is one.
pub const JOURNAL_LOG: &str = "/run/systemd/journal/dev-log";
/// Where they find the journal.
pub const JOURNAL: &str = "/run/systemd/journal/socket";
/// Where they find the one that takes streams.
pub const JOURNAL_STREAMS: &str = "/run/systemd/journal/stdout";

/// So many messages are kept at the most; what comes later is counted.
const MAX_MESSAGES: usize = 10_000;
/// So many bytes are kept at the most.
const MAX_BYTES: usize = 64 << 20;
/// How long the log of the host may take for one message.
const PATIENCE: Duration = Duration::from_secs(10);
/// What statfs(2) tells of files in memory.
const TMPFS: u64 = 0x0102_1994;

/// Where a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Log {
    /// The system log.
    Syslog,
    /// The journal's native socket.
    Journal,
    /// A stream into the journal, by its number; its first message is its header.
    Stream(u32),
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Where it goes.
    pub to: Log,
    /// What it says, as its sender wrote it.
    pub bytes: Bytes,
}

/// Messages that are being taken.
#[derive(Debug)]
pub struct Messages {
    stop: Arc<Bell>,
    taken: Arc<Mutex<Taken>>,
    takers: Vec<JoinHandle<()>>,
}

/// What was taken so far.
#[derive(Debug, Default)]
struct Taken {
    messages: Vec<Message>,
    bytes: usize,
    dropped: u64,
}

impl Messages {
    /// Nothing is taken yet.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when no descriptor can be had.
    pub fn new() -> Result<Messages, Error> {
        let stop = Bell::new().map_err(Error::system("make a log's stop event"))?;
        Ok(Messages { stop: Arc::new(stop), taken: Arc::default(), takers: Vec::new() })
    }

    /// Starts to take messages from a bound socket.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when no thread can be had.
    pub fn take(&mut self, socket: OwnedFd, log: Log) -> Result<(), Error> {
        let (stop, taken) = (Arc::clone(&self.stop), Arc::clone(&self.taken));
        let taker = thread::Builder::new()
            .name("txos-log".to_owned())
            .spawn(move || take_all(&socket, log, &stop, &taken))
            .map_err(Error::system("start a thread for the log"))?;
        self.takers.push(taker);
        Ok(())
    }

    /// Starts to take streams into the journal from a listening socket.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when no thread can be had.
    pub fn take_streams(&mut self, listener: OwnedFd) -> Result<(), Error> {
        rustix::io::ioctl_fionbio(&listener, true).map_err(Error::system("listen for a log"))?;
        let (stop, taken) = (Arc::clone(&self.stop), Arc::clone(&self.taken));
        let door = Door::new(listener);
        let taker = thread::Builder::new()
            .name("txos-log".to_owned())
            .spawn(move || streams::take_all(door, &stop, &taken))
            .map_err(Error::system("start a thread for the log"))?;
        self.takers.push(taker);
        Ok(())
    }

    /// Ends, and gives all that was sent.
    pub fn finish(self) -> Vec<Message> {
        let told = self.stop.ring().is_ok();
        // Who was not told that it ends would be waited for in vain.
        for taker in self.takers.into_iter().filter(|_| told) {
            // What a taker that failed had taken is there.
            let _ = taker.join();
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut messages = std::mem::take(&mut taken.messages);
        if taken.dropped > 0 {
            let text = format!(
                "<13>txos: {} further messages of a transaction were dropped",
                taken.dropped
            );
            messages.push(Message { to: Log::Syslog, bytes: Bytes(text.into_bytes()) });
        }
        messages
    }
}

/// Takes until `stop` is raised and nothing is left.
fn take_all(socket: &OwnedFd, log: Log, stop: &Bell, taken: &Mutex<Taken>) {
    loop {
        let mut fds = [PollFd::new(stop, PollFlags::IN), PollFd::new(socket, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let stopped = !fds[0].revents().is_empty();
        while let Some(bytes) = receive(socket) {
            taken.lock().unwrap_or_else(PoisonError::into_inner).add(log, bytes);
        }
        if stopped {
            return;
        }
    }
}

impl Taken {
    /// Adds a message, of which nothing is known but that it came if it is `None`. Whether it was kept.
    fn add(&mut self, to: Log, bytes: Option<Vec<u8>>) -> bool {
        let fits = |bytes: &Vec<u8>| self.bytes.saturating_add(bytes.len()) <= MAX_BYTES;
        let Some(bytes) = bytes.filter(fits) else {
            self.dropped += 1;
            return false;
        };
        // A datagram of no bytes says nothing.
        if bytes.is_empty() {
            return true;
        }
        let count = self.messages.len();
        match self.messages.last_mut() {
            // What a stream goes on to say is one message, unless another came between.
            Some(last) if matches!(to, Log::Stream(_)) && last.to == to && !last.begins() => {
                self.bytes += bytes.len();
                last.bytes.0.extend(bytes);
            }
            _ if count < MAX_MESSAGES => {
                self.bytes += bytes.len();
                self.messages.push(Message { to, bytes: Bytes(bytes) });
            }
            _ => {
                self.dropped += 1;
                return false;
            }
        }
        true
    }
}

/// The next message that lies there; `None` for none, and `Some(None)` for one that cannot be kept.
fn receive(socket: &OwnedFd) -> Option<Option<Vec<u8>>> {
    // How long it is, first.
    let look = RecvFlags::PEEK | RecvFlags::TRUNC | RecvFlags::DONTWAIT;
    let (_, length) = retry_on_intr(|| recv(socket, &mut [0; 1][..], look)).ok()?;
    let mut bytes = vec![0; length];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)
    });
    bytes.truncate(received.ok()?.bytes);
    let file = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Some(match file {
        Some(file) => content(file),
        None => Some(bytes),
    })
}

/// The content of a memory file; `None` where it is none, or longer than what is kept.
fn content(file: OwnedFd) -> Option<Vec<u8>> {
    let status = fstat(&file).ok()?;
    let in_memory = fstatfs(&file).is_ok_and(|status| u64::try_from(status.f_type) == Ok(TMPFS));
    let length = usize::try_from(status.st_size).ok().filter(|length| *length <= MAX_BYTES)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile || !in_memory {
        return None;
    }
    let mut bytes = vec![0; length];
    File::from(file).read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

/// Sends `messages` to the logs of the host, in order; gives a line where one could not be sent. Where there
/// is no log they are dropped, as syslog(3) and sd_journal_send(3) do.
pub fn deliver(messages: &[Message]) -> Option<String> {
    send_to([LOG, JOURNAL, JOURNAL_STREAMS], messages)
}

fn send_to(logs: [&str; 3], messages: &[Message]) -> Option<String> {
    let [mut log, mut journal] = [None, None];
    let mut streams = BTreeMap::new();
    let mut failed: Option<(usize, io::Error)> = None;
    for message in messages {
        let sent = match message.to {
            Log::Syslog => log
                .get_or_insert_with(|| connect(logs[0]))
                .as_ref()
                .map(|socket| send(socket, message)),
            Log::Journal => journal
                .get_or_insert_with(|| connect(logs[1]))
                .as_ref()
                .map(|socket| send(socket, message)),
            Log::Stream(number) => streams
                .entry(number)
                .or_insert_with(|| connect_stream(logs[2]))
                .as_mut()
                .map(|stream| stream.write_all(&message.bytes.0)),
        };
        if let Some(Err(error)) = sent {
            failed = Some((failed.map_or(0, |failed| failed.0) + 1, error));
        }
    }
    failed.map(|(count, error)| {
        format!(
            "{count} of {} messages to the system log could not be sent: {error}",
            messages.len()
        )
    })
}

fn connect_stream(path: &str) -> Option<UnixStream> {
    let stream = UnixStream::connect(path).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    // As who streams there does: the journal answers nothing.
    stream.shutdown(std::net::Shutdown::Read).ok()?;
    Some(stream)
}

fn connect(path: &str) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    // A log that does not read must not hold up who has committed.
    socket.set_write_timeout(Some(PATIENCE)).ok()?;
    socket.connect(path).ok()?;
    Some(socket)
}

fn send(socket: &UnixDatagram, message: &Message) -> io::Result<()> {
    let bytes = &message.bytes.0;
    match socket.send(bytes) {
        Err(error)
            if message.to == Log::Journal
                && matches!(error.raw_os_error(), Some(libc::EMSGSIZE | libc::ENOBUFS)) =>
        {
            send_file(socket, bytes)
        }
        sent => sent.map(drop),
    }
}

/// Sends an entry of the journal as a sealed memory file. Source: "Native Journal Protocol" of systemd.
fn send_file(socket: &UnixDatagram, bytes: &[u8]) -> io::Result<()> {
    let file = memfd_create("txos-journal", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    let fds = [std::os::fd::AsFd::as_fd(&file)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    let nothing = [IoSlice::new(&[])];
    sendmsg(socket, &nothing, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

impl Message {
    /// Whether it is the header of a stream.
    fn begins(&self) -> bool {
        matches!(self.to, Log::Stream(_)) && streams::identifier(&self.bytes.0).is_some()
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Longest line.
        const LONGEST: usize = 1000;
        let bytes = &self.bytes.0;
        let (before, text) = match self.to {
            Log::Syslog => ("", &bytes[..]),
            Log::Journal => {
                let mut lines = bytes.split(|byte| *byte == b'\n');
                let text = lines.find_map(|line| line.strip_prefix(b"MESSAGE="));
                ("journal: ", text.unwrap_or(bytes))
            }
            Log::Stream(_) => match streams::identifier(bytes) {
                Some(identifier) => ("journal: a stream of ", identifier),
                None => ("journal: ", bytes.trim_ascii_end()),
            },
        };
        write!(f, "{before}{}", printable(&text[..text.len().min(LONGEST)]))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
    use super::*;

    fn texts(messages: &[Message]) -> Vec<String> {
        messages.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn messages_come_back_in_order_and_are_sent_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("inside");
        let mut taken = Messages::new().unwrap();
        taken.take(UnixDatagram::bind(&inside).unwrap().into(), Log::Syslog).unwrap();
        let member = UnixDatagram::unbound().unwrap();
        for number in 0..300 {
            // An empty one says nothing, and ends nothing.
            member.send_to(b"", &inside).unwrap();
            member.send_to(format!("<13>m{number}").as_bytes(), &inside).unwrap();
        }
        let messages = taken.finish();
        assert_eq!(messages.len(), 300);
        assert!(texts(&messages).iter().enumerate().all(|(n, text)| *text == format!("<13>m{n}")));
        let outside = dir.path().join("outside");
        let host = UnixDatagram::bind(&outside).unwrap();
        assert_eq!(send_to([outside.to_str().unwrap(), "", ""], &messages[..5]), None);
        let mut space = [0; 64];
        let length = host.recv(&mut space).unwrap();
        assert_eq!(&space[..length], b"<13>m0");
        // Without a log they are dropped.
        assert_eq!(send_to(["/nonexistent/log"; 3], &messages), None);
        // A log that has gone meanwhile is told.
        let first = connect(outside.to_str().unwrap()).unwrap();
        drop(host);
        assert!(send(&first, &messages[0]).is_err());
    }

    #[test]
    fn an_entry_of_the_journal_keeps_its_bytes_however_long_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let [inside, outside] = ["inside", "outside"].map(|name| dir.path().join(name));
        let host: OwnedFd = UnixDatagram::bind(&outside).unwrap().into();
        let mut taken = Messages::new().unwrap();
        taken.take(UnixDatagram::bind(&inside).unwrap().into(), Log::Journal).unwrap();
        let member = UnixDatagram::unbound().unwrap();
        member.connect(&inside).unwrap();
        let short = b"PRIORITY=6\nMESSAGE=text\nBLOB\n\x03\0\0\0\0\0\0\0\xff\x00\n\n";
        let long = [b"MESSAGE=long\nX=".to_vec(), vec![b'x'; 4 << 20]].concat();
        member.send(short).unwrap();
        send_file(&member, &long).unwrap();
        let messages = taken.finish();
        assert_eq!(texts(&messages), ["journal: text", "journal: long"]);
        let text = serde_json::to_string(&messages).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Message>>(&text).unwrap(), messages);
        assert_eq!(send_to(["", outside.to_str().unwrap(), ""], &messages), None);
        assert_eq!(receive(&host), Some(Some(short.to_vec())));
        assert!(receive(&host) == Some(Some(long)), "the long one is another");
    }

    #[test]
    fn a_descriptor_that_is_no_file_in_memory_is_not_read() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(content(reader), None);
        assert_eq!(content(File::open("/proc/self/maps").unwrap().into()), None);
    }

    #[test]
    fn streams_keep_their_bytes_and_their_place_among_other_messages() {
        let dir = tempfile::tempdir().unwrap();
        let [inside, log, outside] = ["inside", "log", "outside"].map(|name| dir.path().join(name));
        let mut taken = Messages::new().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(&inside).unwrap();
        taken.take_streams(listener.into()).unwrap();
        taken.take(UnixDatagram::bind(&log).unwrap().into(), Log::Syslog).unwrap();
        let header = |name: &str| format!("{name}\n\n6\n1\n0\n0\n0\n");
        let member = UnixDatagram::unbound().unwrap();
        let mut first = UnixStream::connect(&inside).unwrap();
        // Until the thread has taken it, so that the order is that of this test.
        let count = |taken: &Messages, count: usize| {
            let begun = std::time::Instant::now();
            while taken.taken.lock().unwrap().messages.len() < count {
                assert!(begun.elapsed() < Duration::from_secs(60), "{count} messages");
                thread::sleep(Duration::from_millis(1));
            }
        };
        first.write_all(&header("first").as_bytes()[..4]).unwrap();
        thread::sleep(Duration::from_millis(20));
        first.write_all(&header("first").as_bytes()[4..]).unwrap();
        count(&taken, 1);
        first.write_all(b"one\n").unwrap();
        count(&taken, 2);
        member.send_to(b"<13>between", &log).unwrap();
        count(&taken, 3);
        first.write_all(b"two\n").unwrap();
        count(&taken, 4);
        // One that is there only when all have ended, and one that never says what it is.
        let mut last = UnixStream::connect(&inside).unwrap();
        last.write_all(format!("{}three", header("last")).as_bytes()).unwrap();
        UnixStream::connect(&inside).unwrap().write_all(b"no header").unwrap();
        drop((first, last));
        let messages = taken.finish();
        let wanted = [
            "journal: a stream of first",
            "journal: one",
            "<13>between",
            "journal: two",
            "journal: a stream of last",
            "journal: three",
        ];
        assert_eq!(texts(&messages), wanted);
        let host = std::os::unix::net::UnixListener::bind(&outside).unwrap();
        assert_eq!(send_to(["", "", outside.to_str().unwrap()], &messages), None);
        let received = || {
            let mut text = String::new();
            io::Read::read_to_string(&mut host.accept().unwrap().0, &mut text).unwrap();
            text
        };
        assert_eq!(received(), format!("{}one\ntwo\n", header("first")));
        assert_eq!(received(), format!("{}three", header("last")));
    }
}
