//! One stream between a member and a host outside.
//!
//! Bytes are carried in both directions, each with one buffer that has to be empty before more is read, so
//! that neither side can be drowned by the other. The end of one direction is passed on as such
//! (shutdown(2)); the stream is over when both have ended, or one side fails. When the transaction
//! has ended, what its members had sent is still carried out, for a limited time.

use super::tapes::{Next, Recorder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use txos_host::Bell;

const CHUNK: usize = 32 << 10;
/// Longest time for what members had sent, once they have ended.
const PATIENCE: Duration = Duration::from_secs(30);

/// A stream that is ready to be carried.
#[derive(Debug)]
pub(super) struct Relay {
    /// The end in the transaction's network.
    pub(super) inside: TcpStream,
    /// The end outside; `None` while a tape is replayed.
    pub(super) outside: Option<TcpStream>,
    /// Whom it leads to.
    pub(super) address: SocketAddr,
    /// With `--net record`.
    pub(super) recorded: Option<Recorder>,
}

/// One direction of a stream.
#[derive(Debug, Default)]
struct Way {
    pending: Vec<u8>,
    /// The side that is read has ended.
    ended: bool,
    /// The end was passed on.
    closed: bool,
}

impl Relay {
    /// Carries until the end. Gives a line where a tape was replayed.
    pub(super) fn carry(mut self, stop: &Bell) -> Option<String> {
        let mut said = None;
        if self.outside.is_none() {
            match self.replay(stop) {
                Ok(true) => return Some(format!("{}: replayed", self.address)),
                Ok(false) => {}
                Err(_) => return None,
            }
            said = Some(match self.resume() {
                Ok(()) => {
                    format!("{}: live again, what was sent is not what was recorded", self.address)
                }
                Err(error) => {
                    return Some(format!(
                        "{}: cut off, its answer differs from the one before ({error})",
                        self.address
                    ));
                }
            });
        }
        // What fails is a broken stream, which both sides notice.
        let _ = self.live(stop);
        said
    }

    /// Replays a tape; whether it was enough.
    fn replay(&mut self, stop: &Bell) -> io::Result<bool> {
        let mut bytes = vec![0; CHUNK];
        let Some(recorded) = &mut self.recorded else { return Ok(false) };
        let mut closed = false;
        loop {
            match recorded.next() {
                Next::Part(part) => {
                    recorded.received(&part);
                    self.inside.write_all(&part)?;
                    continue;
                }
                Next::End if !closed => {
                    recorded.ended();
                    let _ = shutdown(&self.inside, Shutdown::Write);
                    closed = true;
                    continue;
                }
                Next::Live => return Ok(false),
                Next::End | Next::Wait => {}
            }
            let mut fds =
                [PollFd::new(&self.inside, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
            poll(&mut fds, None)?;
            let stopped = !fds[1].revents().is_empty();
            if fds[0].revents().is_empty() {
                if stopped {
                    return Ok(true);
                }
                continue;
            }
            match self.inside.read(&mut bytes)? {
                // The member has sent all: what is left of the tape does not matter to it.
                0 if closed => return Ok(true),
                0 => match recorded.next() {
                    Next::Wait => return Ok(false),
                    _ => continue,
                },
                read => recorded.sent(&bytes[..read]),
            }
        }
    }

    /// Connects after all: all that was sent is sent, and the answer has to begin as it did.
    fn resume(&mut self) -> io::Result<()> {
        let Some(recorded) = &mut self.recorded else { return Ok(()) };
        let (sent, got) = recorded.resume();
        let mut outside = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        outside.write_all(&sent)?;
        let mut again = vec![0; got.len()];
        outside.set_read_timeout(Some(PATIENCE))?;
        outside.read_exact(&mut again)?;
        if again != got {
            return Err(io::Error::other("other bytes"));
        }
        outside.set_read_timeout(None)?;
        self.outside = Some(outside);
        Ok(())
    }

    fn live(&mut self, stop: &Bell) -> io::Result<()> {
        let Some(outside) = &self.outside else { return Ok(()) };
        self.inside.set_nonblocking(true)?;
        outside.set_nonblocking(true)?;
        let (mut out, mut back) = (Way::default(), Way::default());
        let mut until = None;
        while !(out.closed && back.closed) {
            let inside_events = events(&out, &back);
            let outside_events = events(&back, &out);
            let mut fds = [
                PollFd::new(&self.inside, inside_events),
                PollFd::new(outside, outside_events),
                PollFd::new(stop, if until.is_none() { PollFlags::IN } else { PollFlags::empty() }),
            ];
            let tick = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            poll(&mut fds, until.map(|_| &tick))?;
            let found = [fds[0].revents(), fds[1].revents(), fds[2].revents()];
            if !found[2].is_empty() {
                until = Some(Instant::now() + PATIENCE);
            }
            // Nobody is left inside who could read or send.
            let over = until.is_some_and(|until| Instant::now() > until);
            if over || (until.is_some() && out.closed) {
                return Ok(());
            }
            let recorded = self.recorded.as_ref();
            carry_one(&self.inside, outside, &mut out, |bytes| {
                if let Some(recorded) = recorded {
                    recorded.sent(bytes);
                }
            })?;
            let ended = back.ended;
            carry_one(outside, &self.inside, &mut back, |bytes| {
                if let Some(recorded) = recorded {
                    recorded.received(bytes);
                }
            })?;
            if let (false, true, Some(recorded)) = (ended, back.ended, recorded) {
                recorded.ended();
            }
            // A side that failed altogether would be polled for ever.
            let broken = PollFlags::ERR | PollFlags::NVAL;
            if found[0].intersects(broken) || found[1].intersects(broken) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// What is waited for on the side that `reads` reads and `writes` writes.
fn events(reads: &Way, writes: &Way) -> PollFlags {
    let mut events = PollFlags::empty();
    events.set(PollFlags::IN, !reads.ended && reads.pending.is_empty());
    events.set(PollFlags::OUT, !writes.pending.is_empty());
    events
}

/// Carries what is there from one side to the other.
fn carry_one(
    mut from: &TcpStream,
    to: &TcpStream,
    way: &mut Way,
    seen: impl Fn(&[u8]),
) -> io::Result<()> {
    if way.pending.is_empty() && !way.ended {
        let mut bytes = vec![0; CHUNK];
        match from.read(&mut bytes) {
            Ok(0) => way.ended = true,
            Ok(read) => {
                seen(&bytes[..read]);
                bytes.truncate(read);
                way.pending = bytes;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    if !way.pending.is_empty() {
        match send(to, &way.pending, SendFlags::NOSIGNAL) {
            Ok(written) => drop(way.pending.drain(..written)),
            Err(rustix::io::Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    if way.ended && way.pending.is_empty() && !way.closed {
        let _ = shutdown(to, Shutdown::Write);
        way.closed = true;
    }
    Ok(())
}
