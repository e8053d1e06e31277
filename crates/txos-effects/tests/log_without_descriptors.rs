//! Streams into the journal while no descriptor is to be had. A process of its own: the limit is the
//! process's.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::AsFd;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use txos_effects::syslog::Messages;

/// What tells how long the thread that takes streams has had a processor.
fn schedstat() -> File {
    loop {
        let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
        let taker = tasks.map(|task| task.path()).find(|task| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "txos-log\n")
        });
        if let Some(taker) = taker {
            return File::open(taker.join("schedstat")).expect("schedstat");
        }
        // It gives itself its name.
        thread::sleep(Duration::from_millis(1));
    }
}

fn processor_time(schedstat: &File) -> Duration {
    let mut bytes = [0; 64];
    let length = schedstat.read_at(&mut bytes, 0).expect("schedstat");
    let text = String::from_utf8_lossy(&bytes[..length]);
    let first = text.split(' ').next().and_then(|number| number.parse().ok());
    Duration::from_nanos(first.expect("a number"))
}

#[test]
fn the_taker_rests_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("streams");
    let mut messages = Messages::new().unwrap();
    messages.take_streams(UnixListener::bind(&path).unwrap().into()).unwrap();
    let schedstat = schedstat();
    // Connected when there is no further descriptor.
    let late = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    let limit = getrlimit(Resource::Nofile);
    let full = rustix::io::fcntl_dupfd_cloexec(late.as_fd(), 0).unwrap();
    let none_left = u64::try_from(std::os::fd::AsRawFd::as_raw_fd(&full)).unwrap();
    drop(full);
    let exhausted = Rlimit { current: Some(none_left), maximum: limit.maximum };
    setrlimit(Resource::Nofile, exhausted).unwrap();
    connect(&late, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    let mut late = UnixStream::from(late);
    late.write_all(b"name\n\n6\n1\n0\n0\n0\nlate\n").unwrap();

    let (begun, before) = (Instant::now(), processor_time(&schedstat));
    thread::sleep(Duration::from_secs(1));
    let (took, ran) = (begun.elapsed(), processor_time(&schedstat) - before);
    assert!(ran < took / 10, "it ran {ran:?} of {took:?}");

    // At the end of the members there is none yet, but soon.
    let restore = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        setrlimit(Resource::Nofile, limit).unwrap();
    });
    let messages = messages.finish();
    restore.join().unwrap();
    let texts: Vec<_> = messages.iter().map(|message| message.bytes.0.as_slice()).collect();
    assert_eq!(texts, [&b"name\n\n6\n1\n0\n0\n0\n"[..], b"late\n"]);
}
