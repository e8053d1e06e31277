//! One act by each of the calls that can do it: what a row of the table of effects says of several calls
//! is tried with every one of them.
//!
//! `act(CALL, WORDS)`:
//!
//! | words | act |
//! |---|---|
//! | `open PATH FLAGS TEXT` | opens for writing (`FLAGS`: `sync`, `nonblock`, `create`, joined by commas, or `plain`) and writes |
//! | `write FD TEXT` | writes to a descriptor |
//! | `read FD` | reads a byte of a descriptor |
//! | `send inet ADDRESS TEXT`, `send unix PATH TEXT` | sends a datagram |
//! | `rename FROM TO`, `mknod PATH` | the latter a character device 0:0 |
//! | `ask PATH`, `setattr PATH` | asks a node for its size, by a descriptor of the name alone; sets a flag |
//! | `signal PID TID NUMBER` | sends a signal, with a value where the call has one |
//! | `signal-by FD NUMBER` | sends one to the process of a descriptor |
#![allow(unsafe_code, reason = "system calls by number")]

use std::ffi::CString;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use txos_effects::filter::Arch;

use crate::raw;

/// What came of it.
pub type Tried = Result<String, Errno>;

/// Does what the words say, by this call. `None`: words or a call that are none of the above.
pub fn act(call: &str, words: &[&str]) -> Option<Tried> {
    let by = By(call);
    Some(match *words {
        ["open", path, flags, text] => by.open(path, flags, text)?,
        ["write", fd, text] => by.write(fd.parse().ok()?, text)?,
        ["read", fd] => by.read(fd.parse().ok()?)?,
        ["send", "inet", address, text] => by.send(&inet(address.parse().ok()?), text)?,
        ["send", "unix", path, text] => by.send(&unix(path), text)?,
        ["rename", from, to] => by.rename(from, to)?,
        ["mknod", path] => by.mknod(path)?,
        ["signal-by", fd, number] => by.signal_by(fd.parse().ok()?, number.parse().ok()?)?,
        ["ask", path] => by.ask(path)?,
        ["setattr", path] => by.set_attributes(path)?,
        ["signal", pid, tid, number] => {
            by.signal(pid.parse().ok()?, tid.parse().ok()?, number.parse().ok()?)?
        }
        _ => return None,
    })
}

/// A call by its name.
struct By<'a>(&'a str);

const HERE: u64 = libc::AT_FDCWD as u64;

fn c_string(text: &str) -> Option<CString> {
    CString::new(text).ok()
}

fn done<T: ToString>(result: Result<T, Errno>) -> Tried {
    result.map(|value| value.to_string())
}

impl By<'_> {
    /// # Safety
    /// As [`raw::call`].
    unsafe fn call(&self, args: [u64; 6]) -> Result<u64, Errno> {
        let number = Arch::HOST.number(self.0).ok_or(Errno::NOSYS)?;
        // SAFETY: the caller's promise.
        unsafe { raw::call(number.into(), args) }
    }

    fn open(&self, path: &str, flags: &str, text: &str) -> Option<Tried> {
        let path = c_string(path)?;
        let flags = flags.split(',').fold(libc::O_WRONLY, |all, flag| {
            all | match flag {
                "sync" => libc::O_SYNC,
                "nonblock" => libc::O_NONBLOCK,
                "create" => libc::O_CREAT,
                _ => 0,
            }
        });
        let (path, flags) = (path.as_ptr() as u64, flags as u64);
        let mode = if flags & libc::O_CREAT as u64 == 0 { 0 } else { 0o600 };
        // `struct open_how`
        let how = [flags, mode, 0];
        let args = match self.0 {
            "open" => [path, flags, mode, 0, 0, 0],
            "creat" => [path, 0o600, 0, 0, 0, 0],
            "openat" => [HERE, path, flags, mode, 0, 0],
            "openat2" => [HERE, path, how.as_ptr() as u64, size_of_val(&how) as u64, 0, 0],
            _ => return None,
        };
        // SAFETY: the string and the structure outlive the call.
        let opened = unsafe { self.call(args) };
        Some(opened.and_then(|fd| {
            // SAFETY: the call gave the descriptor to nobody else.
            let fd = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd as RawFd) };
            match text {
                "" => Ok(String::new()),
                text => done(rustix::io::write(&fd, text.as_bytes())),
            }
        }))
    }

    fn write(&self, fd: RawFd, text: &str) -> Option<Tried> {
        // What vmsplice(2) has put into a pipe is read from this memory, perhaps after our end.
        let bytes = text.as_bytes().to_vec().leak();
        let (at, length, out) = (bytes.as_ptr() as u64, bytes.len() as u64, fd as u64);
        let slices = [at, length];
        let slice = slices.as_ptr() as u64;
        // What moves bytes takes them from a file or a pipe.
        let (Ok(file), Ok((rest, pipe))) = (source(bytes), rustix::pipe::pipe()) else {
            return None;
        };
        rustix::io::write(&pipe, bytes).ok()?;
        let (file, rest) = (file.as_raw_fd() as u64, rest.as_raw_fd() as u64);
        let args = match self.0 {
            "write" => [out, at, length, 0, 0, 0],
            "pwrite64" => [out, at, length, 0, 0, 0],
            "writev" | "pwritev" | "vmsplice" => [out, slice, 1, 0, 0, 0],
            // At the file's place, which pipes have as well.
            "pwritev2" => [out, slice, 1, u64::MAX, u64::MAX, 0],
            "sendfile" => [out, file, 0, length, 0, 0],
            "splice" => [rest, 0, out, 0, length, 0],
            "tee" => [rest, out, length, 0, 0, 0],
            _ => return None,
        };
        // SAFETY: bytes and slices outlive the call.
        Some(done(unsafe { self.call(args) }))
    }

    fn read(&self, fd: RawFd) -> Option<Tried> {
        let mut byte = [0u8];
        let slices = [byte.as_mut_ptr() as u64, 1];
        let (at, slice, from) = (slices[0], slices.as_ptr() as u64, fd as u64);
        let args = match self.0 {
            "read" | "pread64" => [from, at, 1, 0, 0, 0],
            "readv" | "preadv" => [from, slice, 1, 0, 0, 0],
            "preadv2" => [from, slice, 1, u64::MAX, u64::MAX, 0],
            _ => return None,
        };
        // SAFETY: the byte and the slices outlive the call.
        Some(done(unsafe { self.call(args) }))
    }

    /// By connect(2) and a write, or by one call that names the receiver.
    fn send(&self, address: &(AddressFamily, Vec<u8>), text: &str) -> Option<Tried> {
        let (family, address) = address;
        let socket = socket(*family, SocketType::DGRAM, None).ok()?;
        let fd = socket.as_raw_fd() as u64;
        let (name, named) = (address.as_ptr() as u64, address.len() as u64);
        let (at, length) = (text.as_ptr() as u64, text.len() as u64);
        let slices = [at, length];
        // `struct mmsghdr`: a `struct msghdr` and the length that was sent.
        let message = [name, named, slices.as_ptr() as u64, 1, 0, 0, 0, 0];
        let message = message.as_ptr() as u64;
        let args = match self.0 {
            "connect" => [fd, name, named, 0, 0, 0],
            "sendto" => [fd, at, length, 0, name, named],
            "sendmsg" => [fd, message, 0, 0, 0, 0],
            "sendmmsg" => [fd, message, 1, 0, 0, 0],
            _ => return None,
        };
        // SAFETY: address, text, slices and message outlive the call.
        let sent = unsafe { self.call(args) };
        Some(match (self.0, sent) {
            ("connect", Ok(_)) => done(rustix::io::write(socket.as_fd(), text.as_bytes())),
            (_, sent) => done(sent),
        })
    }

    fn rename(&self, from: &str, to: &str) -> Option<Tried> {
        let (from, to) = (c_string(from)?, c_string(to)?);
        let (old, new) = (from.as_ptr() as u64, to.as_ptr() as u64);
        let args = match self.0 {
            "rename" => [old, new, 0, 0, 0, 0],
            "renameat" | "renameat2" => [HERE, old, HERE, new, 0, 0],
            _ => return None,
        };
        // SAFETY: the strings outlive the call.
        Some(done(unsafe { self.call(args) }))
    }

    fn mknod(&self, path: &str) -> Option<Tried> {
        let path = c_string(path)?;
        let (at, mode) = (path.as_ptr() as u64, u64::from(libc::S_IFCHR) | 0o600);
        let args = match self.0 {
            "mknod" => [at, mode, 0, 0, 0, 0],
            "mknodat" => [HERE, at, mode, 0, 0, 0],
            _ => return None,
        };
        // SAFETY: the string outlives the call.
        Some(done(unsafe { self.call(args) }))
    }

    fn ask(&self, path: &str) -> Option<Tried> {
        let flags = rustix::fs::OFlags::PATH;
        let fd = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok()?;
        let mut size = 0u64;
        // BLKGETSIZE64
        let args = [fd.as_raw_fd() as u64, 0x8008_1272, (&raw mut size) as u64, 0, 0, 0];
        // SAFETY: the number outlives the call.
        (self.0 == "ioctl").then(|| done(unsafe { self.call(args) }))
    }

    fn set_attributes(&self, path: &str) -> Option<Tried> {
        let path = c_string(path)?;
        // `struct file_attr`, with FS_XFLAG_NODUMP.
        let about = [0x80u64, 0, 0];
        let (at, length) = (about.as_ptr() as u64, size_of_val(&about) as u64);
        let args = [HERE, path.as_ptr() as u64, at, length, 0, 0];
        // SAFETY: the string and the structure outlive the call.
        (self.0 == "file_setattr").then(|| done(unsafe { self.call(args) }))
    }

    fn signal_by(&self, fd: RawFd, number: u64) -> Option<Tried> {
        // SAFETY: integers.
        let sent = || done(unsafe { self.call([fd as u64, number, 0, 0, 0, 0]) });
        (self.0 == "pidfd_send_signal").then(sent)
    }

    fn signal(&self, pid: u64, tid: u64, number: u64) -> Option<Tried> {
        // `siginfo_t`: number, error, code (`SI_QUEUE`), and the value from byte 24 on.
        let mut info = [0u32; 32];
        (info[0], info[2], info[6]) = (number as u32, u32::MAX, 4242);
        let info = info.as_ptr() as u64;
        let args = match self.0 {
            "kill" => [pid, number, 0, 0, 0, 0],
            "tkill" => [tid, number, 0, 0, 0, 0],
            "tgkill" => [pid, tid, number, 0, 0, 0],
            "rt_sigqueueinfo" => [pid, number, info, 0, 0, 0],
            "rt_tgsigqueueinfo" => [pid, tid, number, info, 0, 0],
            _ => return None,
        };
        // SAFETY: the structure outlives the call.
        Some(done(unsafe { self.call(args) }))
    }
}

/// A nameless file of these bytes, to be read from its beginning.
fn source(bytes: &[u8]) -> Result<OwnedFd, Errno> {
    let file = rustix::fs::memfd_create("source", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::io::pwrite(&file, bytes, 0)?;
    Ok(file)
}

/// A `struct sockaddr_in`.
fn inet(address: SocketAddrV4) -> (AddressFamily, Vec<u8>) {
    let mut bytes = (libc::AF_INET as u16).to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    bytes.extend(address.ip().octets());
    bytes.extend([0; 8]);
    (AddressFamily::INET, bytes)
}

/// A `struct sockaddr_un`.
fn unix(path: &str) -> (AddressFamily, Vec<u8>) {
    let mut bytes = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    bytes.extend(path.as_bytes());
    bytes.push(0);
    (AddressFamily::UNIX, bytes)
}
