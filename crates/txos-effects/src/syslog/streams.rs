//! Streams into the journal: what systemd-cat(1) and `sd_journal_stream_fd` connect to.
//!
//! A stream begins with a header of seven lines (identifier, unit, priority and four switches), then
//! each line is an entry. Its header is the first message that is kept of it, what comes later is kept
//! as it comes, among the other messages: so the order between them stays.
//!
//! Invariants:
//! * A stream of which something could not be kept gets nothing more: no line is glued to another.
//! * What members have sent when they end is taken, for the sockets keep it; where no descriptor is to be
//!   had for it, not even after [`PATIENCE`], that is counted.
//!
//! Source: `journald-stream.c` and `journal-send.c` of systemd.

use super::{Log, Taken};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::SocketFlags;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use txos_host::{Bell, Door};

/// Lines of a header.
const HEADER: usize = 7;
/// Longest header; who sends a longer one means no journal.
const LONGEST_HEADER: usize = 4096;
/// Streams that are open at the same time; who comes later waits for one to end.
const MOST: usize = 256;
/// How long a descriptor is waited for when the members have ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// A stream of one member.
struct Stream {
    socket: OwnedFd,
    number: u32,
    /// What has come of the header; `None` when all of it was kept.
    header: Option<Vec<u8>>,
    /// Whether it is still kept.
    kept: bool,
}

/// Takes streams from a listening socket until `stop` is raised and nothing is left.
pub(super) fn take_all(mut door: Door, stop: &Bell, taken: &Mutex<Taken>) {
    let mut streams: Vec<Stream> = Vec::new();
    let mut number = 0;
    let mut ends = None;
    loop {
        let mut fds = vec![PollFd::new(stop, PollFlags::IN), door.polled(streams.len() < MOST)];
        fds.extend(streams.iter().map(|stream| PollFd::new(&stream.socket, PollFlags::IN)));
        match poll(&mut fds, door.limit(None).as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let stopped = !fds[0].revents().is_empty();
        let ready: Vec<bool> = fds[2..].iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut ready = ready.into_iter();
        // At the end nobody writes any more: all that lies there is read.
        streams.retain_mut(|stream| {
            let look = ready.next().unwrap_or(true) || stopped;
            !look || (stream.read(stopped, taken) && !stopped)
        });
        let mut came = false;
        while (streams.len() < MOST || stopped)
            && let Some(socket) = door.accept(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        {
            came = true;
            let mut stream = Stream { socket, number, header: Some(Vec::new()), kept: true };
            number += 1;
            if stream.read(stopped, taken) {
                streams.push(stream);
            }
        }
        if stopped && !came {
            let ends = *ends.get_or_insert_with(|| Instant::now() + PATIENCE);
            if !door.is_shut() {
                return;
            }
            if Instant::now() >= ends {
                taken.lock().unwrap_or_else(PoisonError::into_inner).dropped += 1;
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Stream {
    /// Reads what is there, once or (`all`) to the end of it. Gives `false` at the end of the stream.
    fn read(&mut self, all: bool, taken: &Mutex<Taken>) -> bool {
        let mut bytes = [0; 16 << 10];
        loop {
            match retry_on_intr(|| rustix::io::read(&self.socket, &mut bytes)) {
                Ok(0) => return false,
                Ok(read) => self.keep(&bytes[..read], taken),
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
            if !all {
                return true;
            }
        }
    }

    fn keep(&mut self, bytes: &[u8], taken: &Mutex<Taken>) {
        let Some(mut begun) = self.header.take() else { return self.add(bytes, taken) };
        begun.extend_from_slice(bytes);
        let mut ends = begun.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        match ends.nth(HEADER - 1).map(|(at, _)| at + 1) {
            Some(end) => {
                self.add(&begun[..end], taken);
                self.add(&begun[end..], taken);
            }
            None if begun.len() > LONGEST_HEADER => {
                self.kept = false;
                taken.lock().unwrap_or_else(PoisonError::into_inner).dropped += 1;
            }
            None => self.header = Some(begun),
        }
    }

    fn add(&mut self, bytes: &[u8], taken: &Mutex<Taken>) {
        if self.kept && !bytes.is_empty() {
            let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
            self.kept = taken.add(Log::Stream(self.number), Some(bytes.to_vec()));
        }
    }
}

/// The identifier of a message that is a header.
pub(super) fn identifier(message: &[u8]) -> Option<&[u8]> {
    let mut lines = message.split(|byte| *byte == b'\n');
    let identifier = lines.next()?;
    // What comes next: a unit, a priority, and four switches.
    let rest: Vec<&[u8]> = lines.collect();
    let [_unit, priority, a, b, c, d, b""] = rest[..] else { return None };
    let digit = |text: &[u8], most: u8| text.len() == 1 && (b'0'..=most).contains(&text[0]);
    let switches = [a, b, c, d].iter().all(|text| digit(text, b'1'));
    (digit(priority, b'7') && switches).then_some(identifier)
}
