//! The standard streams with real commands behind them.
#![allow(unsafe_code, reason = "a child is set up between fork and exec")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use proptest::prelude::*;
use std::fs::{self, File, OpenOptions};
use std::io::{PipeReader, PipeWriter, Read, Seek, SeekFrom, Write, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use txos_effects::Error;
use txos_effects::streams::{
    Outcome, Outer, OutputMode, Streams, StreamsReport, StreamsSpec, seal_descriptors,
};

fn spec(output: OutputMode, scratch: &TempDir) -> StreamsSpec {
    let scratch = scratch.path().to_owned();
    StreamsSpec { output, retries: true, scratch, spill_after: 64 << 10 }
}

/// A manager with the given streams; output and error are one pipe whose other end is returned.
fn manager(output: OutputMode, stdin: Option<OwnedFd>, scratch: &TempDir) -> (Streams, PipeReader) {
    let (read, write) = pipe().unwrap();
    let stderr = write.try_clone().unwrap();
    let outer = Outer { stdin, stdout: Some(write.into()), stderr: Some(stderr.into()) };
    (Streams::new(spec(output, scratch), outer).unwrap(), read)
}

/// Starts a shell command on the ends of a fresh attempt, as a child of the manager would.
fn start(streams: &mut Streams, script: &str) -> Child {
    let ([stdin, stdout, stderr], plan) = streams.attempt().unwrap().into_stdio();
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(stdin).stdout(stdout).stderr(stderr);
    let set_up = move || {
        plan.settle().map_err(std::io::Error::other)?;
        plan.open_stdin().map(drop).map_err(std::io::Error::other)
    };
    // SAFETY: on its good path `set_up` only makes system calls on descriptors of the child.
    unsafe { command.pre_exec(set_up) };
    command.spawn().unwrap()
}

fn run(streams: &mut Streams, script: &str, outcome: Outcome) -> StreamsReport {
    let mut child = start(streams, script);
    let status = child.wait().unwrap();
    assert!(status.success() || outcome == Outcome::Failed, "{script}: {status}");
    streams.finish(outcome)
}

/// All that was written outside; the manager is gone then.
fn all(streams: Streams, mut read: PipeReader) -> String {
    drop(streams);
    let mut text = String::new();
    read.read_to_string(&mut text).unwrap();
    text
}

fn input(bytes: &[u8]) -> OwnedFd {
    let (read, mut write) = pipe().unwrap();
    let bytes = bytes.to_vec();
    std::thread::spawn(move || write.write_all(&bytes));
    read.into()
}

fn null() -> Option<OwnedFd> {
    Some(File::open("/dev/null").unwrap().into())
}

#[test]
fn held_output_keeps_the_order_of_two_streams_that_are_one_place() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut streams, read) = manager(OutputMode::Auto, null(), &scratch);
    let report = run(&mut streams, "echo 1; echo 2 >&2; echo 3; echo 4 >&2", Outcome::Commit);
    assert_eq!(report, StreamsReport::default());
    assert_eq!(all(streams, read), "1\n2\n3\n4\n");
}

#[test]
fn held_output_is_dropped_before_a_retry_and_shown_when_the_command_failed() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut streams, read) = manager(OutputMode::Auto, null(), &scratch);
    assert_eq!(run(&mut streams, "echo lost", Outcome::Retry).dropped, 5);
    run(&mut streams, "echo why >&2; exit 3", Outcome::Failed);
    assert_eq!(run(&mut streams, "echo never", Outcome::Discard).errors, [""; 0]);
    assert_eq!(all(streams, read), "why\n");
}

#[test]
fn live_output_is_seen_while_the_command_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let (go, mut say) = pipe().unwrap();
    let (mut streams, mut read) = manager(OutputMode::Live, Some(go.into()), &scratch);
    let mut child = start(&mut streams, "echo first; read line; echo \"got $line\"");
    let mut seen = [0; 6];
    read.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"first\n");
    say.write_all(b"it\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(streams.finish(Outcome::Commit), StreamsReport::default());
    assert_eq!(all(streams, read), "got it\n");
}

#[test]
fn output_beyond_memory_comes_back_whole() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut streams, mut read) = manager(OutputMode::Deferred, null(), &scratch);
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        read.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let report = run(&mut streams, "seq 1 100000", Outcome::Commit);
    drop(streams);
    assert_eq!(report, StreamsReport::default());
    let expected: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    assert!(reader.join().unwrap() == expected.as_bytes());
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn a_live_writer_learns_that_its_reader_has_gone() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut streams, read) = manager(OutputMode::Live, null(), &scratch);
    drop(read);
    let mut child = start(&mut streams, "exec yes");
    let status = child.wait().unwrap();
    assert!(!status.success(), "it would write for ever");
    assert_eq!(streams.finish(Outcome::Failed), StreamsReport::default());
}

#[test]
fn held_output_that_nobody_reads_is_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut streams, read) = manager(OutputMode::Auto, null(), &scratch);
    drop(read);
    let report = run(&mut streams, "echo x", Outcome::Commit);
    assert!(report.errors[0].contains("held output could not be written"), "{report:?}");
}

#[test]
fn output_without_room_stops_the_writer_and_is_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let (read, write) = pipe().unwrap();
    let outer = Outer { stdin: null(), stdout: Some(write.into()), stderr: None };
    let mut spec = spec(OutputMode::Auto, &scratch);
    spec.scratch = scratch.path().join("not there");
    let mut streams = Streams::new(spec, outer).unwrap();
    let mut child = start(&mut streams, "exec yes");
    assert!(!child.wait().unwrap().success());
    let report = streams.finish(Outcome::Discard);
    assert!(report.errors[0].starts_with("standard output: "), "{report:?}");
    drop(read);
}

#[test]
fn a_command_that_leaves_its_output_to_a_daemon_does_not_hold_up_the_end() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut streams, read) = manager(OutputMode::Auto, null(), &scratch);
    let started = Instant::now();
    let mut child = start(&mut streams, "sleep 600 & echo $!");
    assert!(child.wait().unwrap().success());
    streams.finish(Outcome::Commit);
    assert!(started.elapsed() < Duration::from_secs(300));
    let daemon = all(streams, read);
    assert!(Command::new("kill").arg(daemon.trim()).status().unwrap().success());
}

#[test]
fn a_retry_reads_the_same_bytes_and_then_what_is_new() {
    let scratch = tempfile::tempdir().unwrap();
    let (read_end, mut write_end) = pipe().unwrap();
    let (mut streams, read) = manager(OutputMode::Auto, Some(read_end.into()), &scratch);
    write_end.write_all(b"one\ntwo\n").unwrap();
    run(&mut streams, "read a; echo $a", Outcome::Retry);
    write_end.write_all(b"three\n").unwrap();
    drop(write_end);
    run(&mut streams, "cat; echo end", Outcome::Commit);
    assert_eq!(all(streams, read), "one\ntwo\nthree\nend\n");
}

#[test]
fn a_command_that_reads_nothing_ends_at_once() {
    let scratch = tempfile::tempdir().unwrap();
    let (_open, write) = pipe().unwrap();
    let (idle, _keep): (PipeReader, PipeWriter) = pipe().unwrap();
    let (mut streams, read) = manager(OutputMode::Auto, Some(idle.into()), &scratch);
    let started = Instant::now();
    run(&mut streams, "true", Outcome::Commit);
    // A reader that closes early: the feeder sees it and stops.
    drop((streams, read, write));
    let (mut streams, read) = manager(OutputMode::Auto, Some(input(&[b'x'; 1 << 20])), &scratch);
    run(&mut streams, "head -c 10 | wc -c", Outcome::Commit);
    assert_eq!(all(streams, read).trim(), "10");
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn input_that_could_not_be_kept_cannot_be_replayed() {
    let scratch = tempfile::tempdir().unwrap();
    let (read, write) = pipe().unwrap();
    let stdin = Some(input(&[b'x'; 200_000]));
    let outer = Outer { stdin, stdout: Some(write.into()), stderr: None };
    let mut spec = spec(OutputMode::Auto, &scratch);
    spec.scratch = scratch.path().join("not there");
    let mut streams = Streams::new(spec, outer).unwrap();
    // All of it still reaches the command.
    run(&mut streams, "[ $(wc -c) = 200000 ]", Outcome::Retry);
    match streams.attempt() {
        Err(Error::NotReplayable { bytes, .. }) => assert_eq!(bytes, 200_000),
        other => panic!("{other:?}"),
    }
    drop(read);
}

#[test]
fn a_file_is_opened_again_and_its_position_moves_on() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("in");
    fs::write(&path, "one\ntwo\nthree\n").unwrap();
    let mut file = File::open(&path).unwrap();
    file.seek(SeekFrom::Start(4)).unwrap();
    let mine = file.try_clone().unwrap();
    let (mut streams, read) = manager(OutputMode::Auto, Some(mine.into()), &scratch);
    let fds = streams.attempt().unwrap();
    let plan = fds.plan.clone();
    let asked = plan.stdin_file.clone().unwrap();
    assert_eq!((asked.path, asked.offset, asked.write), (path.into_os_string(), 4, false));
    assert!(fds.stdin.is_none());
    drop(fds);
    streams.finish(Outcome::Retry);
    // A shell reads a file line by line, so the position is where it stopped.
    let mut child = start(&mut streams, "read a; echo $a");
    assert!(child.wait().unwrap().success());
    let inside = File::open(scratch.path().join("in")).unwrap();
    (&inside).seek(SeekFrom::Start(8)).unwrap();
    streams.adopt_stdin(inside.into());
    streams.finish(Outcome::Commit);
    assert_eq!(file.stream_position().unwrap(), 8);
    assert_eq!(all(streams, read), "two\n");
}

#[test]
fn a_file_without_a_name_is_fed_and_its_position_set_back() {
    let scratch = tempfile::tempdir().unwrap();
    let mut file = tempfile::tempfile_in(scratch.path()).unwrap();
    let lines: String = (0..20_000).map(|n| format!("{n}\n")).collect();
    file.write_all(lines.as_bytes()).unwrap();
    file.rewind().unwrap();
    let mine = file.try_clone().unwrap();
    let (mut streams, read) = manager(OutputMode::Auto, Some(mine.into()), &scratch);
    run(&mut streams, "head -c 5000 | wc -c", Outcome::Retry);
    run(&mut streams, "head -c 5000 | tail -c 4", Outcome::Commit);
    assert_eq!(file.stream_position().unwrap(), 5000);
    assert_eq!(all(streams, read), &lines[4996..5000]);
}

#[test]
fn no_descriptor_of_a_host_file_is_inside() {
    let scratch = tempfile::tempdir().unwrap();
    let out = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(scratch.path().join("out"))
        .unwrap();
    let outer = Outer { stdin: null(), stdout: Some(out.into()), stderr: null() };
    let mut streams = Streams::new(spec(OutputMode::Live, &scratch), outer).unwrap();
    run(&mut streams, "readlink /proc/self/fd/1", Outcome::Commit);
    drop(streams);
    let seen = fs::read_to_string(scratch.path().join("out")).unwrap();
    assert!(seen.starts_with("pipe:"), "{seen}");
}

#[test]
fn descriptors_of_the_managers_caller_are_not_inside() {
    let inherited = File::open("/dev/null").unwrap();
    let number = |seal: bool| {
        let inherited = inherited.try_clone().unwrap();
        let mut command = Command::new("ls");
        command.arg("/proc/self/fd");
        let set_up = move || {
            // As a shell leaves it open: not closed on exec.
            rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty())?;
            if seal { seal_descriptors().map_err(std::io::Error::other) } else { Ok(()) }
        };
        // SAFETY: on its good path `set_up` only makes system calls on descriptors of the child.
        unsafe { command.pre_exec(set_up) };
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    // The fourth is the directory that it lists.
    assert_eq!(number(true), 4);
    assert!(number(false) > 4);
}

#[test]
fn one_file_opened_twice_has_two_positions() {
    let scratch = tempfile::tempdir().unwrap();
    let open = |append: bool| -> Option<OwnedFd> {
        let path = scratch.path().join("out");
        let mut options = OpenOptions::new();
        options.create(true).append(append).write(true);
        Some(options.open(path).unwrap().into())
    };
    let script = "printf abc; printf XY >&2";
    for (append, expected) in [(true, "abcXY"), (false, "XYc")] {
        fs::write(scratch.path().join("out"), "").unwrap();
        let outer = Outer { stdin: null(), stdout: open(append), stderr: open(append) };
        let mut streams = Streams::new(spec(OutputMode::Auto, &scratch), outer).unwrap();
        run(&mut streams, script, Outcome::Commit);
        drop(streams);
        assert_eq!(fs::read_to_string(scratch.path().join("out")).unwrap(), expected);
    }
}

#[test]
fn a_closed_stream_stays_closed() {
    let scratch = tempfile::tempdir().unwrap();
    let (read, write) = pipe().unwrap();
    let outer = Outer { stdin: None, stdout: Some(write.into()), stderr: None };
    let mut streams = Streams::new(spec(OutputMode::Auto, &scratch), outer).unwrap();
    // Without a pipeline: for one, the shell itself uses the lowest free numbers for a moment.
    let script = "n=0; for f in 0 2; do [ -e /proc/$$/fd/$f ] && n=$((n + 1)); done; echo $n";
    run(&mut streams, script, Outcome::Commit);
    assert_eq!(all(streams, read), "0\n");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..<_>::default() })]
    /// Whatever the attempts before read, the last one reads everything.
    #[test]
    fn every_attempt_reads_from_the_first_byte(
        bytes in prop::collection::vec(any::<u8>(), 0..150_000),
        reads in prop::collection::vec(0usize..200_000, 0..3),
        spill_after in prop_oneof![Just(0), 1usize..100_000, Just(1 << 20)],
    ) {
        let scratch = tempfile::tempdir().unwrap();
        let (read, write) = pipe().unwrap();
        let stdin = Some(input(&bytes));
        let outer = Outer { stdin, stdout: Some(write.into()), stderr: None };
        let spec = StreamsSpec { spill_after, ..spec(OutputMode::Auto, &scratch) };
        let mut streams = Streams::new(spec, outer).unwrap();
        for count in reads {
            run(&mut streams, &format!("head -c {count} >/dev/null"), Outcome::Retry);
        }
        let reader = std::thread::spawn(move || {
            let mut read = read;
            let mut out = Vec::new();
            read.read_to_end(&mut out).map(|_| out)
        });
        run(&mut streams, "cat", Outcome::Commit);
        drop(streams);
        prop_assert!(reader.join().unwrap().unwrap() == bytes);
    }
}

#[test]
fn what_the_command_leaves_unread_stays_outside() {
    for socket in [false, true] {
        let scratch = tempfile::tempdir().unwrap();
        let (ours, mut theirs): (OwnedFd, Box<dyn Write + Send>) = if socket {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            (ours.into(), Box::new(theirs))
        } else {
            let (ours, theirs) = pipe().unwrap();
            (ours.into(), Box::new(theirs))
        };
        let text: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
        let bytes = text.clone().into_bytes();
        let writer = std::thread::spawn(move || theirs.write_all(&bytes));
        let mut rest = File::from(ours.try_clone().unwrap());
        let (mut streams, read) = manager(OutputMode::Auto, Some(ours), &scratch);
        // A shell reads a pipe byte by byte; what a retry reads again, it is given again.
        run(&mut streams, "for i in 1 2 3; do read a; echo $a; done", Outcome::Retry);
        run(
            &mut streams,
            "for i in $(seq 1000); do read a; done; echo $a; exec sleep 0",
            Outcome::Commit,
        );
        assert_eq!(all(streams, read), "line 999\n", "socket: {socket}");
        let mut left = String::new();
        rest.read_to_string(&mut left).unwrap();
        writer.join().unwrap().unwrap();
        let expected = text.find("line 1000\n").map(|at| &text[at..]).unwrap();
        assert!(left == expected, "{} bytes are left, not {}", left.len(), expected.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    /// The bytes that attempts read, however they come and however much of them is read, are those of
    /// the input, and the rest is still there.
    #[test]
    fn input_is_shared_exactly(
        pieces in prop::collection::vec(1usize..9000, 1..8),
        counts in prop::collection::vec(0usize..20_000, 1..4),
    ) {
        let scratch = tempfile::tempdir().unwrap();
        let (ours, mut theirs) = pipe().unwrap();
        let total: usize = pieces.iter().sum();
        let bytes: Vec<u8> = (0..total).map(|at| b'a' + (at % 26) as u8).collect();
        let expected = bytes.clone();
        let writer = std::thread::spawn(move || {
            let mut rest = &bytes[..];
            for piece in pieces {
                theirs.write_all(&rest[..piece]).unwrap();
                rest = &rest[piece..];
            }
        });
        let mut rest = File::from(OwnedFd::from(ours.try_clone().unwrap()));
        let (mut streams, read) = manager(OutputMode::Auto, Some(ours.into()), &scratch);
        let mut most = 0;
        for (number, count) in counts.iter().enumerate() {
            let last = number + 1 == counts.len();
            let script = format!("dd bs=1 count={count} status=none");
            run(&mut streams, &script, if last { Outcome::Commit } else { Outcome::Retry });
            most = most.max(*count).min(total);
        }
        let shown = all(streams, read);
        let last = counts.last().copied().unwrap_or(0).min(total);
        prop_assert!(shown.as_bytes() == &expected[..last]);
        let mut left = Vec::new();
        rest.read_to_end(&mut left).unwrap();
        writer.join().unwrap();
        prop_assert!(left == expected[most..], "{} left of {total}, {most} read", left.len());
    }
}
