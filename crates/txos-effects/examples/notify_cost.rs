//! What a call costs that the supervisor answers, and what one costs that only the filter sees.
//!
//! Prints medians in microseconds: a plain call, the same under the filter, a call that the filter
//! answers itself, one that it must look at the arguments of, and ones that the supervisor answers.
//! Then what the filter costs an ordinary program: paired rounds of file calls and of short processes
//! in a thread without and one with it, as a ratio.

use rustix::fs::{Mode, OFlags};
use rustix::thread::set_no_new_privs;
use rustix::time::{ClockId, clock_gettime};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;
use txos_effects::filter::Filter;
use txos_effects::supervisor::{Gateway, Hooks, Locks, Signals, Supervisor, Tapes};
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

/// Processor time of this thread in seconds: other load disturbs it less than the clock.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Seconds for what ordinary programs do with files; none of its calls is special.
fn files() -> f64 {
    let start = processor_time();
    let mut space = [0; 64];
    for _ in 0..8000 {
        let file = rustix::fs::open("/etc/passwd", OFlags::RDONLY, Mode::empty()).expect("open");
        let _ = (rustix::fs::fstat(&file), rustix::io::read(&file, &mut space));
    }
    processor_time() - start
}

/// Processor time of what a shell script starts, in seconds, as the shell's `times` tells it.
fn script(text: &str) -> f64 {
    let run = Command::new("sh").args(["-c", &format!("{text}; times")]).output();
    let told = run.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let seconds = |word: &str| -> f64 {
        let (minutes, seconds) = word.trim_end_matches('s').split_once('m').unwrap_or(("0", "0"));
        minutes.parse::<f64>().unwrap_or(0.0) * 60.0 + seconds.parse::<f64>().unwrap_or(0.0)
    };
    // The last line is that of the children: user, system.
    told.unwrap_or_default().lines().last().unwrap_or_default().split(' ').map(seconds).sum()
}

/// Short programs, one after another.
fn processes() -> f64 {
    script("for i in $(seq 100); do /bin/true; done")
}

/// A program that does little else than make calls.
fn walk() -> f64 {
    script("for i in 1 2 3 4 5 6 7 8; do find /usr/include -size +0 >/dev/null; done")
}

/// The ratio of lower quartiles, with and without the filter, over paired rounds.
fn ratio(
    work: fn() -> f64,
    filtered: &mpsc::Sender<fn() -> f64>,
    took: &mpsc::Receiver<f64>,
) -> f64 {
    const PAIRS: usize = 31;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..PAIRS {
        times[0].push(work());
        let _ = filtered.send(work);
        times[1].push(took.recv().expect("the member's time"));
    }
    let [without, with] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[PAIRS / 4]
    });
    with / without
}

fn main() -> Result<(), Error> {
    println!("plain call            {:7.2}", plain());
    println!("ioctl                 {:7.2}", looked_at());
    for threads in [1, 2] {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let (go, wait) = mpsc::channel::<()>();
        let (filtered, works) = mpsc::channel::<fn() -> f64>();
        let (tell, took) = mpsc::channel();
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
            println!(
                "  connect, asked      {:7.2}",
                median(|| {
                    let _ = std::os::unix::net::UnixStream::connect("/nonexistent");
                })
            );
            let file = std::fs::File::open("/etc/passwd").expect("a file");
            println!(
                "  flock, asked        {:7.2}",
                median(|| {
                    let _ = rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock);
                })
            );
            let _ = tell.send(0.0);
            for work in works {
                let _ = tell.send(work());
            }
            Ok(())
        });
        let hooks = Hooks {
            notice: Box::new(|_| {}),
            abort: Box::new(|_| {}),
            locks: Locks::default(),
            signals: Signals::default(),
            numbers: Box::new(|| None),
            gateway: Gateway::default(),
            tapes: Tapes::default(),
        };
        let supervisor = Supervisor::start(recv_fd(&ours)?, Policy::default(), hooks, threads)?;
        println!("sync wake-up: {}", supervisor.sync_wake_up());
        let _ = go.send(());
        let _ = took.recv();
        println!("  files, ratio        {:7.3}", ratio(files, &filtered, &took));
        println!("  processes, ratio    {:7.3}", ratio(processes, &filtered, &took));
        println!("  find, ratio         {:7.3}", ratio(walk, &filtered, &took));
        drop(filtered);
        member.join().expect("the member")?;
        supervisor.finish();
    }
    Ok(())
}
