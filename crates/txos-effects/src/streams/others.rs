//! Descriptors from 3 on that were open before the transaction.
//!
//! Handed on as they are they would be ways out of the view. What each becomes inside:
//!
//! | outside | inside, under the same number |
//! |---|---|
//! | the same place as an output before it (`3>&1`) | the same pipe, so the order of writes is kept |
//! | a terminal, while the view has one | the view's terminal |
//! | a file with a name, open for reading, or for both | the same file opened in the view; the outer position is set afterwards to where the command stopped |
//! | anything else that can be written: a file open for writing alone, a pipe, a connected stream socket, a terminal | a pipe into a store, written out in order and in one go at commit, dropped otherwise; at once with `--output live`, and to a terminal unless output is deferred |
//! | a pipe that can only be read | a pipe, lent and recorded as standard input is: what the command leaves unread stays outside, and a retry reads the same bytes; the same pipe as standard input where it is that outside |
//! | `/dev/null` and its like; what `--pass-fd` names | as it is |
//! | a pipe of which the writing end is open too: a jobserver's | not there: tokens that are put back come with the commit only, and never after an abort |
//! | anything else that can only be read, or that is read and written by turns | not there |
//!
//! What is not there, or cannot be read, is told ([`Resolved::missing`]).
//!
//! Invariant: the numbers stay occupied in the manager for as long as [`Inherited`] lives, so that no
//! descriptor of its own has one of them, in the manager or in the child that it starts.

use super::input::Record;
use super::outer::{Kind, same_place};
use super::plan::{Origin, Other as Planned, StdinFile};
use super::pump::lock;
use super::spool::Spool;
use super::{OutputMode, own, pipe};
use crate::{Error, sys};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::fs::{FileType, OFlags, SeekFrom, fcntl_getfl, fstat};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::{socket_acceptconn, socket_type};
use rustix::net::{SocketType, getpeername};
use std::sync::{Arc, Mutex};

/// What was open, and from now on belongs to the manager.
#[derive(Debug, Default)]
pub struct Inherited(Vec<(OwnedFd, bool)>);

impl Inherited {
    /// Takes all descriptors from 3 on that are not closed on exec, as inherited ones are, and has them
    /// closed on exec. To be called before anything else is started; the program's own descriptors
    /// must all be closed on exec by then. `pass` are those that the user wants handed on as they are.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when `/proc` does not tell them, [`Error::NotInherited`] for one of `pass` that
    /// is not among them.
    pub fn take(pass: &[RawFd]) -> Result<Inherited, Error> {
        let told = sys::adopt_inherited().map_err(Error::system("take inherited descriptors"))?;
        let there = |number: &RawFd| told.iter().any(|fd: &OwnedFd| fd.as_raw_fd() == *number);
        if let Some(number) = pass.iter().find(|number| !there(number)) {
            return Err(Error::NotInherited(*number));
        }
        let passed = |fd: OwnedFd| {
            let number = fd.as_raw_fd();
            (fd, pass.contains(&number))
        };
        Ok(Inherited(told.into_iter().map(passed).collect()))
    }
}

/// One descriptor, over all attempts.
#[derive(Debug)]
pub(super) struct Other {
    number: RawFd,
    pub(super) becomes: Becomes,
}

#[derive(Debug)]
pub(super) enum Becomes {
    AsItIs(OwnedFd),
    Terminal,
    File(Arc<OwnedFd>, StdinFile),
    Pipe(Output),
    Input(Input),
    /// The same pipe as standard input.
    StandardInput,
    /// The same pipe as standard output or error.
    Standard(usize),
    /// The same pipe as another one of the list.
    Other(usize),
}

/// An output of its own.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) outer: Arc<OwnedFd>,
    pub(super) held: Option<Arc<Mutex<Spool>>>,
}

/// An input of its own.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) outer: Arc<OwnedFd>,
    pub(super) record: Arc<Mutex<Record>>,
}

/// The places of the standard streams, where those are pipes inside.
#[derive(Clone, Copy)]
pub(super) struct Standard<'s> {
    pub(super) input: Option<&'s Arc<OwnedFd>>,
    pub(super) outputs: [Option<&'s Arc<OwnedFd>>; 2],
}

/// What all of them become.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub(super) others: Vec<Other>,
    /// A sentence for each that is not there, or not whole.
    pub(super) missing: Vec<String>,
}

/// Decides what each becomes.
pub(super) fn resolve(
    inherited: Inherited,
    streams: Standard<'_>,
    mode: OutputMode,
    terminal: bool,
    spool: impl Fn() -> Spool,
    retries: bool,
) -> Resolved {
    let Resolved { mut others, mut missing } = Resolved::default();
    let outputs = streams.outputs;
    let fifos = written_fifos(&inherited);
    for (fd, pass) in inherited.0 {
        let number = fd.as_raw_fd();
        let lack = if pass { None } else { Lack::of(&fd, &fifos) };
        if let Some(lack) = lack {
            missing.push(format!(
                "descriptor {number}, {}; --pass-fd {number} lets it through",
                lack.told()
            ));
        }
        let standard = outputs.iter().position(|o| o.is_some_and(|o| same_place(o, &fd)));
        let earlier = others.iter().position(|other| match &other.becomes {
            Becomes::Pipe(output) => writable(&fd) && same_place(&output.outer, &fd),
            Becomes::Input(input) => !writable(&fd) && same_place(&input.outer, &fd),
            _ => false,
        });
        let is_input = lack.is_none() && is_read_fifo(&fd);
        let becomes = match (standard, earlier) {
            _ if pass => Becomes::AsItIs(fd),
            (Some(at), _) if writable(&fd) => Becomes::Standard(at),
            (_, Some(at)) => Becomes::Other(at),
            _ if is_input && streams.input.is_some_and(|input| same_place(input, &fd)) => {
                Becomes::StandardInput
            }
            _ if is_input => {
                let record = Arc::new(Mutex::new(Record::new(spool(), retries)));
                Becomes::Input(Input { outer: Arc::new(fd), record })
            }
            _ => match Kind::of(Some(fd)) {
                Kind::Device(fd) => match Arc::try_unwrap(fd) {
                    Ok(fd) => Becomes::AsItIs(fd),
                    Err(_) => continue,
                },
                Kind::Terminal(_) if terminal && mode != OutputMode::Deferred => Becomes::Terminal,
                Kind::File(outer, file) if access(&outer) != OFlags::WRONLY => {
                    Becomes::File(outer, file)
                }
                Kind::Terminal(outer) | Kind::File(outer, _) | Kind::Bytes(outer)
                    if carries_writes(&outer) =>
                {
                    let at_once = match mode {
                        OutputMode::Live => true,
                        OutputMode::Deferred => false,
                        OutputMode::Auto => rustix::termios::isatty(&*outer),
                    };
                    let held = (!at_once).then(|| Arc::new(Mutex::new(spool())));
                    Becomes::Pipe(Output { outer, held })
                }
                _ => continue,
            },
        };
        others.push(Other { number, becomes });
    }
    Resolved { others, missing }
}

/// Why a descriptor is not there inside, or cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// A pipe whose other end is open as well.
    BothEnds,
    /// Written as a stream, and natively read as well.
    Unread,
    /// A socket, an event counter, a watch.
    NoStream,
}

impl Lack {
    fn of(fd: &OwnedFd, fifos: &[(u64, u64)]) -> Option<Lack> {
        let status = fstat(fd).ok()?;
        let both = access(fd) == OFlags::RDWR;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::Fifo if both => Some(Lack::Unread),
            FileType::Fifo if !writable(fd) => {
                fifos.contains(&(status.st_dev, status.st_ino)).then_some(Lack::BothEnds)
            }
            FileType::RegularFile | FileType::Directory | FileType::Fifo => None,
            FileType::CharacterDevice => {
                let known = matches!(
                    fd.try_clone().map(|fd| Kind::of(Some(fd))),
                    Ok(Kind::Device(_) | Kind::Terminal(_))
                );
                (!known && !carries_writes(fd)).then_some(Lack::NoStream)
            }
            FileType::Socket if carries_writes(fd) => Some(Lack::Unread),
            _ => Some(Lack::NoStream),
        }
    }

    fn told(self) -> &'static str {
        match self {
            Lack::BothEnds => {
                "a pipe whose other end was open too, was not there inside: what is put back into it \
                 would come with the commit only"
            }
            Lack::Unread => "which is read and written, could be written only, for the commit",
            Lack::NoStream => "which is no file and no stream of bytes, was not there inside",
        }
    }
}

/// The pipes of which an end that can be written is open.
fn written_fifos(inherited: &Inherited) -> Vec<(u64, u64)> {
    let place = |(fd, _): &(OwnedFd, bool)| {
        let status = fstat(fd).ok().filter(|_| writable(fd))?;
        let is_fifo = FileType::from_raw_mode(status.st_mode) == FileType::Fifo;
        is_fifo.then_some((status.st_dev, status.st_ino))
    };
    inherited.0.iter().filter_map(place).collect()
}

fn is_read_fifo(fd: &OwnedFd) -> bool {
    !writable(fd) && fstat(fd).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Fifo)
}

/// The child's ends of one attempt.
#[derive(Default)]
pub(super) struct Ends {
    /// Inherited by the child.
    pub(super) inherited: Vec<OwnedFd>,
    /// The manager's end of each pipe of its own, with its place in the list.
    pub(super) carried: Vec<(usize, OwnedFd)>,
    /// The same of those that it feeds.
    pub(super) fed: Vec<(usize, OwnedFd)>,
}

/// Makes the ends of an attempt, and plans them. `input` and `standard` are the child's standard input,
/// output and error.
pub(super) fn start(
    others: &[Other],
    input: Option<&OwnedFd>,
    standard: [Option<&OwnedFd>; 2],
    plan: &mut Vec<Planned>,
) -> Result<Ends, Error> {
    let mut ends = Ends::default();
    // The end that each entry gave, for those that share it.
    let mut given: Vec<Option<OwnedFd>> = Vec::new();
    for (at, other) in others.iter().enumerate() {
        let mut end = None;
        let origin = match &other.becomes {
            Becomes::Terminal => Some(Origin::Terminal),
            Becomes::File(_, file) => Some(Origin::File(file.clone())),
            Becomes::AsItIs(fd) => {
                end = Some(own(fd)?);
                None
            }
            Becomes::StandardInput => {
                end = input.map(own).transpose()?;
                None
            }
            Becomes::Input(_) => {
                let (read, write) = pipe()?;
                rustix::io::ioctl_fionbio(&write, true).map_err(Error::system("make a pipe"))?;
                ends.fed.push((at, write));
                end = Some(read);
                None
            }
            Becomes::Standard(which) => {
                end = standard[*which].map(own).transpose()?;
                None
            }
            Becomes::Other(which) => {
                end = given.get(*which).and_then(Option::as_ref).map(own).transpose()?;
                None
            }
            Becomes::Pipe(_) => {
                let (read, write) = pipe()?;
                rustix::io::ioctl_fionbio(&read, true).map_err(Error::system("make a pipe"))?;
                ends.carried.push((at, read));
                end = Some(write);
                None
            }
        };
        given.push(end.as_ref().map(own).transpose()?);
        let origin = match (origin, end) {
            (Some(origin), _) => origin,
            (None, Some(end)) => {
                // Inherited by the one process that is started next.
                fcntl_setfd(&end, FdFlags::empty()).map_err(Error::system("pass a descriptor"))?;
                let from = end.as_raw_fd();
                ends.inherited.push(end);
                Origin::Inherited(from)
            }
            (None, None) => continue,
        };
        plan.push(Planned { number: other.number, origin });
    }
    Ok(ends)
}

impl Other {
    /// The number and what is told of it.
    pub(super) fn name(&self) -> String {
        format!("descriptor {}", self.number)
    }

    /// What is held of it, and where it goes.
    pub(super) fn held(&self) -> Option<(&Arc<OwnedFd>, &Arc<Mutex<Spool>>)> {
        match &self.becomes {
            Becomes::Pipe(Output { outer, held: Some(held) }) => Some((outer, held)),
            _ => None,
        }
    }

    /// Sets the outer position to where the file was left inside.
    pub(super) fn settle(&self, number: RawFd, inside: &OwnedFd) {
        if let Becomes::File(outer, _) = &self.becomes
            && self.number == number
            && let Ok(position) = rustix::fs::tell(inside)
        {
            // A directory has no position to keep.
            let _ = rustix::fs::seek(&**outer, SeekFrom::Start(position));
        }
    }

    /// Forgets what is held, and gives how many bytes that were.
    pub(super) fn drop_held(&self) -> u64 {
        let Some((_, held)) = self.held() else { return 0 };
        let mut held = lock(held);
        let length = held.len();
        held.clear();
        length
    }
}

fn access(fd: &OwnedFd) -> OFlags {
    fcntl_getfl(fd).unwrap_or(OFlags::empty()) & OFlags::ACCMODE
}

fn writable(fd: &OwnedFd) -> bool {
    access(fd) != OFlags::RDONLY
}

/// Whether what is written to it is a stream of bytes that can as well come later.
fn carries_writes(fd: &OwnedFd) -> bool {
    let Ok(status) = fstat(fd) else { return false };
    writable(fd)
        && match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile | FileType::Fifo | FileType::CharacterDevice => true,
            FileType::Socket => {
                socket_type(fd) == Ok(SocketType::STREAM)
                    && socket_acceptconn(fd) == Ok(false)
                    && getpeername(fd).is_ok()
            }
            _ => false,
        }
}
