//! Recorded streams (`--net record`): what a member sent, what came back, and after how much of it.
//!
//! What exactly a retry sees:
//!
//! * A connect(2) to an address takes the first tape of the attempt before that was recorded with that
//!   address and that no stream of this attempt has taken. Nobody outside is asked.
//! * As long as the bytes that the member sends are those of the tape, it gets the recorded answer, each
//!   part when it has sent at least as much as it had sent when the part came. So a request that
//!   changes something outside is not made twice either.
//! * When they are not, another tape with that address is taken that fits all that was sent and
//!   received so far. Where there is none, the connection is made after all: all that was sent is
//!   sent, and what comes back has to begin with what the member got already. It says so; where the
//!   answer begins otherwise, the stream is cut off, and it says that too.
//! * A tape that ends in the middle, because its attempt was ended, is gone on from in the same way.
//!
//! What is encrypted differs on every attempt, so it is always live again.

use crate::supervisor::lock;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// All tapes together hold so many bytes at the most; what comes later is not recorded.
const MOST: usize = 64 << 20;

/// One recorded stream.
#[derive(Debug, Clone)]
pub(super) struct Tape {
    address: SocketAddr,
    /// All that the member sent.
    sent: Vec<u8>,
    /// What came back, with how much had been sent by then.
    parts: Vec<(usize, Vec<u8>)>,
    /// How much had been sent when the other side ended the stream.
    ended: Option<usize>,
    /// Whether it is whole so far: there was room for all of it.
    whole: bool,
}

impl Tape {
    fn new(address: SocketAddr) -> Tape {
        Tape { address, sent: Vec::new(), parts: Vec::new(), ended: None, whole: true }
    }

    fn fits(&self, address: SocketAddr, sent: &[u8], got: &[u8]) -> bool {
        let received = self.parts.iter().flat_map(|part| part.1.iter());
        self.whole
            && self.address == address
            && self.sent.starts_with(sent)
            && received.take(got.len()).eq(got.iter())
    }
}

/// The tapes of a transaction, over all its attempts. Clones are one.
#[derive(Debug, Clone, Default)]
pub struct Tapes(Arc<Mutex<Shelf>>);

#[derive(Debug, Default)]
struct Shelf {
    /// Of the attempt before, and whether a stream of this one has taken it.
    before: Vec<(Tape, bool)>,
    /// Of this attempt.
    now: Vec<Arc<Mutex<Tape>>>,
    bytes: usize,
}

impl Tapes {
    /// Begins another attempt: what was recorded is there to be replayed.
    pub fn rewind(&self) {
        let mut shelf = lock(&self.0);
        let recorded: Vec<_> =
            shelf.now.drain(..).map(|tape| (lock(&tape).clone(), false)).collect();
        let unused = shelf.before.drain(..).filter(|tape| !tape.1).collect::<Vec<_>>();
        shelf.before = recorded.into_iter().chain(unused).collect();
        shelf.bytes = 0;
        shelf.bytes = shelf.before.iter().map(|tape| tape.0.sent.len() + length(&tape.0)).sum();
    }

    /// Begins to record a stream, and to replay one where there is one.
    pub(super) fn begin(&self, address: SocketAddr) -> Recorder {
        let mut shelf = lock(&self.0);
        let tape = Arc::new(Mutex::new(Tape::new(address)));
        shelf.now.push(Arc::clone(&tape));
        let replay = take(&mut shelf, address, &[], &[]);
        Recorder { tapes: self.clone(), address, tape, replay, next: 0, got: Vec::new() }
    }
}

fn length(tape: &Tape) -> usize {
    tape.parts.iter().map(|part| part.1.len()).sum()
}

fn take(shelf: &mut Shelf, address: SocketAddr, sent: &[u8], got: &[u8]) -> Option<Tape> {
    let found =
        shelf.before.iter_mut().find(|(tape, used)| !used && tape.fits(address, sent, got))?;
    found.1 = true;
    Some(found.0.clone())
}

/// What a replayed stream does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// These bytes come from the other side.
    Part(Vec<u8>),
    /// The other side ends the stream.
    End,
    /// Nothing, until the member sends more.
    Wait,
    /// The tape does not fit, or no longer: connect, and go on as [`Recorder::resume`] says.
    Live,
}

/// Records one stream, and replays another while it fits.
#[derive(Debug)]
pub(super) struct Recorder {
    tapes: Tapes,
    address: SocketAddr,
    tape: Arc<Mutex<Tape>>,
    replay: Option<Tape>,
    next: usize,
    /// What the member has got, while a tape is replayed.
    got: Vec<u8>,
}

impl Recorder {
    /// Whether there is a tape to replay.
    pub(super) fn replays(&self) -> bool {
        self.replay.is_some()
    }

    /// The member sent this.
    pub(super) fn sent(&self, bytes: &[u8]) {
        let mut tape = lock(&self.tape);
        self.charge(&mut tape, bytes.len());
        // Kept also where there is no room for answers: a replay is resumed with it.
        tape.sent.extend_from_slice(bytes);
    }

    /// The other side sent this.
    pub(super) fn received(&self, bytes: &[u8]) {
        let mut tape = lock(&self.tape);
        self.charge(&mut tape, bytes.len());
        if tape.whole {
            let sent = tape.sent.len();
            tape.parts.push((sent, bytes.to_vec()));
        }
    }

    /// The other side ended the stream.
    pub(super) fn ended(&self) {
        let mut tape = lock(&self.tape);
        tape.ended = Some(tape.sent.len());
    }

    fn charge(&self, tape: &mut Tape, bytes: usize) {
        let mut shelf = lock(&self.tapes.0);
        shelf.bytes += bytes;
        if shelf.bytes > MOST {
            tape.whole = false;
            tape.parts.clear();
        }
    }

    /// What comes next from the tape.
    pub(super) fn next(&mut self) -> Next {
        let sent = lock(&self.tape).sent.clone();
        loop {
            let Some(tape) = &self.replay else { return Next::Live };
            if !tape.sent.starts_with(&sent) {
                let mut shelf = lock(&self.tapes.0);
                self.replay = take(&mut shelf, self.address, &sent, &self.got);
                self.next = self.replay.as_ref().map_or(0, |tape| parts_in(tape, self.got.len()));
                continue;
            }
            return match tape.parts.get(self.next) {
                Some((after, bytes)) if *after <= sent.len() => {
                    self.next += 1;
                    self.got.extend_from_slice(bytes);
                    Next::Part(bytes.clone())
                }
                Some(_) => Next::Wait,
                None => match tape.ended {
                    Some(after) if after <= sent.len() => Next::End,
                    Some(_) => Next::Wait,
                    None if sent.len() < tape.sent.len() => Next::Wait,
                    None => Next::Live,
                },
            };
        }
    }

    /// Ends the replay: what has to be sent outside, and how its answer has to begin.
    pub(super) fn resume(&mut self) -> (Vec<u8>, Vec<u8>) {
        self.replay = None;
        (lock(&self.tape).sent.clone(), std::mem::take(&mut self.got))
    }
}

/// How many parts of a tape hold its first `bytes` bytes.
fn parts_in(tape: &Tape, bytes: usize) -> usize {
    let mut seen = 0;
    tape.parts
        .iter()
        .take_while(|part| {
            seen += part.1.len();
            seen <= bytes
        })
        .count()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "addresses of the tests are well formed")]
    use super::*;

    fn there() -> SocketAddr {
        "192.0.2.1:80".parse().unwrap()
    }

    /// Records question and answer pairs on one stream.
    fn record(tapes: &Tapes, pairs: &[(&str, &str)], ended: bool) {
        let recorder = tapes.begin(there());
        for (question, answer) in pairs {
            recorder.sent(question.as_bytes());
            recorder.received(answer.as_bytes());
        }
        if ended {
            recorder.ended();
        }
    }

    fn part(text: &str) -> Next {
        Next::Part(text.as_bytes().to_vec())
    }

    #[test]
    fn the_same_request_gets_the_same_answer_part_by_part() {
        let tapes = Tapes::default();
        record(&tapes, &[("one", "first"), ("two", "second")], true);
        assert!(!tapes.begin("192.0.2.1:81".parse().unwrap()).replays());
        tapes.rewind();
        let mut again = tapes.begin(there());
        assert!(again.replays());
        assert_eq!(again.next(), Next::Wait);
        again.sent(b"on");
        assert_eq!(again.next(), Next::Wait);
        again.sent(b"e");
        assert_eq!((again.next(), again.next()), (part("first"), Next::Wait));
        again.sent(b"two");
        assert_eq!((again.next(), again.next()), (part("second"), Next::End));
    }

    #[test]
    fn streams_are_taken_in_order_and_by_what_fits() {
        let tapes = Tapes::default();
        for answer in ["first", "second"] {
            record(&tapes, &[("same", answer)], true);
        }
        record(&tapes, &[("other", "third")], true);
        tapes.rewind();
        let mut streams = [(); 3].map(|()| tapes.begin(there()));
        // The first stream asks what the third one asked.
        streams[0].sent(b"other");
        // All were taken by begin: nothing is left that fits.
        assert_eq!(streams[0].next(), Next::Live);
        streams[1].sent(b"same");
        assert_eq!(streams[1].next(), part("second"));
        tapes.rewind();
        let mut one = tapes.begin(there());
        one.sent(b"other");
        assert_eq!(one.next(), Next::Live, "it was not recorded to its end");
    }

    #[test]
    fn a_tape_that_fits_is_found_when_the_first_does_not() {
        let tapes = Tapes::default();
        record(&tapes, &[("a", "1")], true);
        record(&tapes, &[("b", "2")], true);
        tapes.rewind();
        let mut stream = tapes.begin(there());
        stream.sent(b"b");
        assert_eq!((stream.next(), stream.next()), (part("2"), Next::End));
    }

    #[test]
    fn an_answer_that_was_cut_off_is_resumed_live() {
        let tapes = Tapes::default();
        record(&tapes, &[("a", "12")], false);
        tapes.rewind();
        let mut stream = tapes.begin(there());
        stream.sent(b"a");
        assert_eq!((stream.next(), stream.next()), (part("12"), Next::Live));
        assert_eq!(stream.resume(), (b"a".to_vec(), b"12".to_vec()));
        assert!(!stream.replays());
    }
}
