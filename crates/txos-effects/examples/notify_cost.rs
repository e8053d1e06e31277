//! What a call costs that the supervisor answers, and what one costs that only the filter sees.
//!
//! Prints medians in microseconds: a plain call, the same under the filter, a call that the filter
//! answers itself, one that it must look at the arguments of, and one that the supervisor answers.

use rustix::thread::set_no_new_privs;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;
use txos_effects::filter::Filter;
use txos_effects::supervisor::{Hooks, Locks, Supervisor};
use txos_effects::{Error, Policy, recv_fd, send_fd};

const ROUNDS: usize = 4000;

/// Median of one call's time in microseconds.
fn median(mut call: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

fn plain() -> f64 {
    median(|| {
        let _ = rustix::process::getppid();
    })
}

/// An ioctl that fails early: the filter looks at its arguments.
fn looked_at() -> f64 {
    let (a, _b) = UnixStream::pair().expect("a pair of sockets");
    median(|| {
        let _ = rustix::termios::tcgetpgrp(&a);
    })
}

fn main() -> Result<(), Error> {
    println!("plain call            {:7.2}", plain());
    println!("ioctl                 {:7.2}", looked_at());
    for threads in [1, 2] {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let (go, wait) = mpsc::channel::<()>();
        let member = thread::spawn(move || -> Result<(), Error> {
            set_no_new_privs(true).expect("no_new_privs");
            send_fd(&theirs, Filter::new(&Policy::default()).install()?)?;
            let _ = wait.recv();
            println!("with {threads} supervisor thread(s):");
            println!("  plain call          {:7.2}", plain());
            println!("  ioctl, looked at    {:7.2}", looked_at());
            println!("  fsync, answered     {:7.2}", median(rustix::fs::sync));
            println!(
                "  sethostname, asked  {:7.2}",
                median(|| {
                    let _ = rustix::system::sethostname(b"");
                })
            );
            Ok(())
        });
        let hooks =
            Hooks { notice: Box::new(|_| {}), abort: Box::new(|_| {}), locks: Locks::default() };
        let supervisor = Supervisor::start(recv_fd(&ours)?, Policy::default(), hooks, threads)?;
        println!("sync wake-up: {}", supervisor.sync_wake_up());
        let _ = go.send(());
        member.join().expect("the member")?;
        supervisor.finish();
    }
    Ok(())
}
