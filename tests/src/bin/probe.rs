//! Tries one way out of a transaction's view, and says in one line what came of it: `done …` if the
//! way is open, or the error's name. What it tries is harmless when it succeeds.
//!
//! `probe NAME ARG…`; `probe calls` tries every system call that a transaction has to refuse, one
//! line each; `probe rows [CALL…]` those of the table of effects as they stand there; `probe by CALL…
//! ACT…` does something by each of these calls (separated by commas), a line each.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::process::ExitCode;

use rustix::io::Errno;
use txos_tests::errno;
use txos_tests::probes;
use txos_tests::rows;
use txos_tests::ways;

type Tried = Result<String, Errno>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    if words == ["calls"] {
        for (name, result) in probes::refused_calls() {
            println!("{name} {}", result.map_or_else(errno::name, |_| "done".to_owned()));
        }
        return ExitCode::SUCCESS;
    }
    // Those of the table, all of them or one call's.
    if let ["rows", calls @ ..] = &words[..] {
        for one in rows::all() {
            if calls.is_empty() || calls.contains(&one.call) {
                let answer = one.make().map_or_else(errno::name, |value| value.to_string());
                println!("{}|{}|{answer}", one.call, one.when);
            }
        }
        return ExitCode::SUCCESS;
    }
    if let ["by", calls, act @ ..] = &words[..] {
        for call in calls.split(',') {
            // `CALL` among the words stands for the call's name.
            let act: Vec<String> = act.iter().map(|word| word.replace("CALL", call)).collect();
            let act: Vec<&str> = act.iter().map(String::as_str).collect();
            let Some(tried) = ways::act(call, &act) else {
                eprintln!("{call}: no such call or act: {act:?}");
                return ExitCode::from(2);
            };
            // Not to standard output, which may be what is written to.
            eprintln!("{call} {}", tried.map_or_else(errno::name, |_| "done".to_owned()));
        }
        return ExitCode::SUCCESS;
    }
    match attempt(&words) {
        Some(Ok(seen)) => println!("done {seen}"),
        Some(Err(e)) => println!("{}", errno::name(e)),
        None => {
            eprintln!("usage: probe NAME ARG…");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn attempt(words: &[&str]) -> Option<Tried> {
    Some(match words {
        ["read", path] => read(path),
        ["write", path, text] => write(path, text),
        ["rewrite", path] => read(path).and_then(|same| write(path, &same)),
        ["open", path] => open(path, true),
        ["open-read", path] => open(path, false),
        ["fd", number, text] => write_descriptor(number.parse().ok()?, text),
        ["dir-fd", number, name, text] => write_below(number.parse().ok()?, name, text),
        ["datagram", port] => datagram(port.parse().ok()?),
        ["abstract", name] => connect_abstract(name),
        ["socket", path] => connect(path),
        ["shm", key] => probes::shared_memory(key.parse().ok()?),
        ["msg", key] => probes::message_queue(key.parse().ok()?),
        ["mq", name] => probes::posix_queue(name),
        ["key", name] => probes::add_key(name),
        ["find-key", name] => probes::find_key(name),
        ["handle", handle, mount] => probes::open_by_handle(handle, Path::new(mount)),
        ["setns", path] => probes::enter(Path::new(path)),
        ["peek", pid] => probes::peek(pid.parse().ok()?),
        ["attach", pid] => probes::attach(pid.parse().ok()?),
        ["nice", pid] => probes::renice(pid.parse().ok()?),
        ["limit", pid] => probes::limit(pid.parse().ok()?),
        ["uring"] => probes::io_uring(),
        ["steal", pid, fd] => probes::steal_descriptor(pid.parse().ok()?, fd.parse().ok()?),
        _ => return None,
    })
}

fn from_io(e: &std::io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}

fn read(path: &str) -> Tried {
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|e| from_io(&e))?;
    file.take(4096).read_to_string(&mut text).map_err(|e| from_io(&e))?;
    Ok(text.trim_end().to_owned())
}

fn write(path: &str, text: &str) -> Tried {
    let mut file = fs::OpenOptions::new().write(true).open(path).map_err(|e| from_io(&e))?;
    file.write_all(text.as_bytes()).map_err(|e| from_io(&e))?;
    Ok(String::new())
}

fn open(path: &str, write: bool) -> Tried {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(write).open(path).map(|_| String::new()).map_err(|e| from_io(&e))
}

#[allow(unsafe_code, reason = "a descriptor by number")]
fn write_descriptor(number: i32, text: &str) -> Tried {
    // SAFETY: nothing else in this process uses the number; a wrong one is answered with EBADF.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    rustix::io::write(fd, text.as_bytes()).map(|_| String::new())
}

#[allow(unsafe_code, reason = "a descriptor by number")]
fn write_below(number: i32, name: &str, text: &str) -> Tried {
    // SAFETY: as above.
    let dir = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    let flags = rustix::fs::OFlags::WRONLY;
    let file = rustix::fs::openat(dir, name, flags, rustix::fs::Mode::empty())?;
    rustix::io::write(file.as_fd(), text.as_bytes()).map(|_| String::new())
}

fn datagram(port: u16) -> Tried {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").map_err(|e| from_io(&e))?;
    let sent = socket.send_to(b"hello", ("127.0.0.1", port));
    sent.map(|_| String::new()).map_err(|e| from_io(&e))
}

fn connect_abstract(name: &str) -> Tried {
    let address = SocketAddr::from_abstract_name(name).map_err(|e| from_io(&e))?;
    greet(UnixStream::connect_addr(&address))
}

fn connect(path: &str) -> Tried {
    greet(UnixStream::connect(path))
}

fn greet(stream: std::io::Result<UnixStream>) -> Tried {
    stream.and_then(|mut s| s.write_all(b"hello")).map(|()| String::new()).map_err(|e| from_io(&e))
}
