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
//! | `/dev/null` and its like; what `--pass-fd` names | as it is |
//! | what can only be read and is no file | not there: bytes taken from it could not be given back |
//!
//! Invariant: the numbers stay occupied in the manager for as long as [`Inherited`] lives, so that no
//! descriptor of its own has one of them, in the manager or in the child that it starts.

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
    /// [`Error::System`] when `/proc` does not tell them.
    pub fn take(pass: &[RawFd]) -> Result<Inherited, Error> {
        let told = sys::adopt_inherited().map_err(Error::system("take inherited descriptors"))?;
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

/// Decides what each becomes. `outputs` are the places of standard output and error, where those
/// are pipes inside.
pub(super) fn resolve(
    inherited: Inherited,
    outputs: [Option<&Arc<OwnedFd>>; 2],
    mode: OutputMode,
    terminal: bool,
    spool: impl Fn() -> Spool,
) -> Vec<Other> {
    let mut others: Vec<Other> = Vec::new();
    for (fd, pass) in inherited.0 {
        let number = fd.as_raw_fd();
        let standard = outputs.iter().position(|o| o.is_some_and(|o| same_place(o, &fd)));
        let earlier = others.iter().position(|other| match &other.becomes {
            Becomes::Pipe(output) => same_place(&output.outer, &fd),
            _ => false,
        });
        let becomes = match (standard, earlier) {
            _ if pass => Becomes::AsItIs(fd),
            (Some(at), _) if writable(&fd) => Becomes::Standard(at),
            (_, Some(at)) if writable(&fd) => Becomes::Other(at),
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
    others
}

/// The child's ends of one attempt.
#[derive(Default)]
pub(super) struct Ends {
    /// Inherited by the child.
    pub(super) inherited: Vec<OwnedFd>,
    /// The manager's end of each pipe of its own, with its place in the list.
    pub(super) carried: Vec<(usize, OwnedFd)>,
}

/// Makes the ends of an attempt, and plans them. `standard` are the child's standard output and error.
pub(super) fn start(
    others: &[Other],
    standard: [Option<&OwnedFd>; 2],
    plan: &mut Vec<Planned>,
) -> Result<Ends, Error> {
    let mut ends = Ends::default();
    // The writing end that each entry gave, for those that share it.
    let mut writing: Vec<Option<OwnedFd>> = Vec::new();
    for (at, other) in others.iter().enumerate() {
        let mut end = None;
        let origin = match &other.becomes {
            Becomes::Terminal => Some(Origin::Terminal),
            Becomes::File(_, file) => Some(Origin::File(file.clone())),
            Becomes::AsItIs(fd) => {
                end = Some(own(fd)?);
                None
            }
            Becomes::Standard(which) => {
                end = standard[*which].map(own).transpose()?;
                None
            }
            Becomes::Other(which) => {
                end = writing.get(*which).and_then(Option::as_ref).map(own).transpose()?;
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
        writing.push(end.as_ref().map(own).transpose()?);
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
