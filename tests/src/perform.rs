//! Performing operations with plain system calls.
//!
//! Every operation answers in one line: `ok`, `ok` and what was observed, or the error's name. The
//! line never contains anything that may differ between two equal trees (inode numbers, times of
//! now), so that the answers of two runs can be compared as they are.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{self as rfs, AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::exec::LIMIT;
use crate::op::{Op, RenameHow, Special, escape, filling, path};
use crate::{errno, raw, xattr};

type Answer = Result<String, Errno>;

/// Performs one operation relative to the working directory and says what came of it.
pub fn perform(op: &Op) -> String {
    match try_perform(op) {
        Ok(seen) if seen.is_empty() => "ok".to_owned(),
        Ok(seen) => format!("ok {seen}"),
        Err(e) => errno::name(e),
    }
}

/// Performs all, one answer an operation.
pub fn perform_all(ops: &[Op]) -> Vec<String> {
    ops.iter().map(perform).collect()
}

fn done<T>(r: rustix::io::Result<T>) -> Answer {
    r.map(|_| String::new())
}

fn open(p: &Path, flags: OFlags, mode: u32) -> Result<OwnedFd, Errno> {
    rfs::open(p, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode))
}

fn from_io(e: &io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}

fn fill(fd: &OwnedFd, seed: u8, at: u64, len: u64) -> Answer {
    let data = filling(seed, at, len);
    let mut done = 0;
    while done < data.len() {
        done += rustix::io::pwrite(fd, &data[done..], at + done as u64)?;
    }
    Ok(String::new())
}

fn try_perform(op: &Op) -> Answer {
    match op {
        Op::Create { path: p, mode, len, seed } => {
            let fd = open(&path(p), OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, *mode)?;
            fill(&fd, *seed, 0, *len)
        }
        Op::Save { path: p, mode, len, seed } => {
            let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NONBLOCK;
            fill(&open(&path(p), flags, *mode)?, *seed, 0, *len)
        }
        Op::Write { path: p, off, len, seed } => {
            fill(&open(&path(p), OFlags::WRONLY | OFlags::NONBLOCK, 0)?, *seed, *off, *len)
        }
        Op::Append { path: p, len, seed } => {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK;
            let mut file = fs::File::from(open(&path(p), flags, 0)?);
            file.write_all(&filling(*seed, 0, *len)).map_err(|e| from_io(&e))?;
            Ok(String::new())
        }
        Op::Store { path: p, off, len, seed } => {
            let fd = open(&path(p), OFlags::RDWR | OFlags::NONBLOCK, 0)?;
            done(raw::store_shared(fd.as_fd(), *off, &filling(*seed, *off, *len)))
        }
        Op::Truncate { path: p, len } => done(raw::truncate(&path(p), *len)),
        Op::Allocate { path: p, off, len } => {
            let fd = open(&path(p), OFlags::WRONLY | OFlags::NONBLOCK, 0)?;
            done(rfs::fallocate(&fd, FallocateFlags::empty(), *off, *len))
        }
        Op::Punch { path: p, off, len } => {
            let fd = open(&path(p), OFlags::WRONLY | OFlags::NONBLOCK, 0)?;
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            done(rfs::fallocate(&fd, how, *off, *len))
        }
        Op::RenameThenWrite { from, to, len, seed } => {
            let fd = open(&path(from), OFlags::WRONLY | OFlags::NONBLOCK, 0)?;
            rfs::rename(path(from), path(to))?;
            fill(&fd, *seed, 0, *len)
        }
        Op::UnlinkThenWrite { path: p, len, seed } => {
            let fd = open(&path(p), OFlags::WRONLY | OFlags::NONBLOCK, 0)?;
            rfs::unlink(path(p))?;
            fill(&fd, *seed, 0, *len)
        }
        Op::Replace { path: p, mode, len, seed } => replace(p, *mode, *len, *seed),
        Op::Tmpfile { dir, path: p, mode, len, seed } => {
            let fd = open(&path(dir), OFlags::TMPFILE | OFlags::WRONLY, *mode)?;
            fill(&fd, *seed, 0, *len)?;
            done(raw::link_descriptor(fd.as_fd(), &path(p)))
        }
        _ => names(op),
    }
}

/// The save of a careful editor: new file, flush, rename.
fn replace(p: &str, mode: u32, len: u64, seed: u8) -> Answer {
    let temporary = path(&format!("{p}.new"));
    let fd = open(&temporary, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, mode)?;
    fill(&fd, seed, 0, len)?;
    rfs::fsync(&fd)?;
    let renamed = rfs::rename(&temporary, path(p));
    if renamed.is_err() {
        rfs::unlink(&temporary)?;
    }
    done(renamed)
}

fn names(op: &Op) -> Answer {
    match op {
        Op::Rename { from, to, how } => {
            let flags = match how {
                RenameHow::Replace => return done(rfs::rename(path(from), path(to))),
                RenameHow::NoReplace => RenameFlags::NOREPLACE,
                RenameHow::Exchange => RenameFlags::EXCHANGE,
            };
            done(rfs::renameat_with(CWD, path(from), CWD, path(to), flags))
        }
        Op::Link { from, to } => {
            done(rfs::linkat(CWD, path(from), CWD, path(to), AtFlags::empty()))
        }
        Op::Symlink { target, path: p } => done(rfs::symlink(path(target), path(p))),
        Op::Unlink { path: p } => done(rfs::unlink(path(p))),
        Op::Rmdir { path: p } => done(rfs::rmdir(path(p))),
        Op::RemoveTree { path: p } => {
            let p = path(p);
            let meta = fs::symlink_metadata(&p).map_err(|e| from_io(&e))?;
            let removed = if meta.is_dir() { fs::remove_dir_all(&p) } else { fs::remove_file(&p) };
            removed.map(|()| String::new()).map_err(|e| from_io(&e))
        }
        Op::Mkdir { path: p, mode } => done(rfs::mkdir(path(p), Mode::from_raw_mode(*mode))),
        Op::Mknod { path: p, kind, mode, major, minor } => {
            let kind = match kind {
                Special::Fifo => FileType::Fifo,
                Special::Socket => FileType::Socket,
                Special::Char => FileType::CharacterDevice,
                Special::Block => FileType::BlockDevice,
            };
            let dev = rfs::makedev(*major, *minor);
            done(rfs::mknodat(CWD, path(p), kind, Mode::from_raw_mode(*mode), dev))
        }
        _ => attributes(op),
    }
}

fn attributes(op: &Op) -> Answer {
    match op {
        Op::Chmod { path: p, mode } => done(rfs::chmod(path(p), Mode::from_raw_mode(*mode))),
        Op::Chown { path: p, uid, gid } => {
            let (uid, gid) = (rfs::Uid::from_raw(*uid), rfs::Gid::from_raw(*gid));
            done(rfs::chownat(CWD, path(p), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW))
        }
        Op::Times { path: p, sec, nsec } => {
            let t = rfs::Timespec { tv_sec: *sec, tv_nsec: *nsec };
            let both = rfs::Timestamps { last_access: t, last_modification: t };
            done(rfs::utimensat(CWD, path(p), &both, AtFlags::SYMLINK_NOFOLLOW))
        }
        Op::SetXattr { path: p, name, value } => {
            let value = crate::op::bytes(value);
            done(rfs::lsetxattr(path(p), name, &value, rfs::XattrFlags::empty()))
        }
        Op::RemoveXattr { path: p, name } => done(rfs::lremovexattr(path(p), name)),
        Op::Fsync { path: p } => {
            done(rfs::fsync(open(&path(p), OFlags::RDONLY | OFlags::NONBLOCK, 0)?))
        }
        _ => observe(op),
    }
}

fn observe(op: &Op) -> Answer {
    match op {
        Op::Read { path: p } => {
            let mut file = fs::File::from(open(&path(p), OFlags::RDONLY | OFlags::NONBLOCK, 0)?);
            if !file.metadata().map_err(|e| from_io(&e))?.is_file() {
                return Ok("no regular file".to_owned());
            }
            let mut data = Vec::new();
            file.read_to_end(&mut data).map_err(|e| from_io(&e))?;
            Ok(format!("{} bytes {:016x}", data.len(), hash(&data)))
        }
        Op::List { path: p } => {
            let mut names = Vec::new();
            for entry in fs::read_dir(path(p)).map_err(|e| from_io(&e))? {
                let entry = entry.map_err(|e| from_io(&e))?;
                names.push(escape(entry.file_name().as_bytes()));
            }
            names.sort();
            Ok(format!("[{}]", names.join("|")))
        }
        Op::Stat { path: p } => stat(&path(p)),
        Op::ReadLink { path: p } => Ok(escape(rfs::readlink(path(p), Vec::new())?.as_bytes())),
        Op::Xattrs { path: p } => {
            let mut all = xattr::read_all(&path(p))?;
            all.retain(|name, _| !xattr::is_mark(name));
            let shown: Vec<_> =
                all.iter().map(|(n, v)| format!("{}={}", escape(n), escape(v))).collect();
            Ok(format!("{{{}}}", shown.join(",")))
        }
        Op::Signal { path: p } => {
            fs::write(path(p), b"").map(|()| String::new()).map_err(|e| from_io(&e))
        }
        Op::Await { path: p } => wait_for(&path(p)),
        _ => unreachable!("every operation is handled above"),
    }
}

fn stat(p: &Path) -> Answer {
    let st = rfs::lstat(p)?;
    let kind = FileType::from_raw_mode(st.st_mode);
    let mut seen = format!("{kind:?} {:o} {}:{}", st.st_mode & 0o7777, st.st_uid, st.st_gid);
    if kind != FileType::Directory {
        // A directory of an overlay has always one link, and its size is its file system's affair.
        seen.push_str(&format!(" {} bytes {} links", st.st_size, st.st_nlink));
    }
    if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) {
        seen.push_str(&format!(" {}:{}", rfs::major(st.st_rdev), rfs::minor(st.st_rdev)));
    }
    Ok(seen)
}

fn wait_for(p: &Path) -> Answer {
    let start = Instant::now();
    while fs::symlink_metadata(p).is_err() {
        if start.elapsed() > 2 * LIMIT {
            return Err(Errno::TIMEDOUT);
        }
        std::thread::sleep(Duration::from_millis(4));
    }
    Ok(String::new())
}

/// FNV-1a; enough to tell contents apart in a test's answers.
pub fn hash(data: &[u8]) -> u64 {
    data.iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}
