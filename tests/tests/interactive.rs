//! `txos run` on a terminal: shells, job control, colours, and the question of `--review`.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use rustix::process::Signal;

use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::terminal::Terminal;
use txos_tests::txos::{Txos, binary, native_only};

fn on_terminal(scratch: &Scratch, args: &[&str]) -> Terminal {
    let command = Txos::new(scratch).command(&binary(), args);
    Terminal::run(&command)
}

/// Returns when `cat` reads from the terminal, after a line `ready`: what is typed is there twice, typed
/// and repeated. A shell that is interrupted right before it forks a command waits for that command's
/// end (dash does, natively too), so the key may be typed only when the command is sure to get it.
fn wait_for_cat(terminal: &mut Terminal) {
    terminal.expect("ready");
    terminal.keys("begun\r");
    terminal.expect("begun\r\nbegun\r\n");
}

macro_rules! needs_txos {
    () => {
        if native_only() {
            skip!("nothing to compare natively");
        }
        if let Some(why) = txos_tests::who::Who::Root.impossible() {
            skip!("{why}");
        }
    };
}

#[test]
fn a_shell_has_a_terminal_and_job_control() {
    needs_txos!();
    if !std::path::Path::new("/bin/bash").exists() {
        skip!("no bash");
    }
    let scratch = Scratch::new();
    let mut terminal = on_terminal(&scratch, &["run", "--", "bash", "--norc", "-i"]);
    terminal.keys("PS1='next> '; tty -s && echo has'-'tty\r");
    terminal.expect("has-tty");
    assert!(!terminal.shown().contains("no job control"), "{}", terminal.shown());
    terminal.keys("echo rea'dy'; cat\r");
    wait_for_cat(&mut terminal);
    terminal.keys("\x1a");
    terminal.expect("Stopped");
    terminal.keys("bg; jobs; kill %1; wait; echo x >f; stty size; exit 0\r");
    assert!(terminal.end().success(), "{}", terminal.shown());
    assert!(scratch.inside().join("f").exists(), "{}", terminal.shown());
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

/// A shell with job control on a terminal, in which `$TXOS` is the binary.
fn outer_shell(scratch: &Scratch) -> Terminal {
    let txos = Txos::new(scratch).env("TXOS", binary());
    let mut terminal = Terminal::run(&txos.command(Path::new("bash"), ["--norc", "-i"]));
    terminal.keys("PS1='outer''> '; echo begun-$((1 + 1))\r");
    terminal.expect("begun-2");
    terminal
}

/// Waits until a text is shown for the `times`th time. A job's keys and the shell's are to be told apart: who
/// has the terminal has to be seen before anything is typed.
#[track_caller]
fn expect_times(terminal: &Terminal, text: &str, times: usize) {
    let begun = std::time::Instant::now();
    while terminal.shown().matches(text).count() < times {
        let late = begun.elapsed() > txos_tests::exec::LIMIT;
        assert!(!late, "not {times} times {text:?}: {}", terminal.shown());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Waits until a file has grown, and gives its length.
#[track_caller]
fn grown(file: &Path, from: u64) -> u64 {
    let begun = std::time::Instant::now();
    loop {
        let length = std::fs::metadata(file).map_or(0, |about| about.len());
        if length > from {
            return length;
        }
        assert!(begun.elapsed() < txos_tests::exec::LIMIT, "{} stays as it is", file.display());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn the_suspend_key_stops_the_members_and_txos_until_both_go_on() {
    needs_txos!();
    if !Path::new("/bin/bash").exists() {
        skip!("no bash");
    }
    // With all streams on the terminal, and with only some: then the key comes to txos itself.
    for (number, rest) in ["", " | cat", " </dev/null", " </dev/null 2>&1 | cat"].iter().enumerate()
    {
        let scratch = Scratch::new();
        let live = scratch.live().display().to_string();
        let ticks = scratch.live().join("ticks");
        // No shell: one that is stopped between vfork(2) and execve(2) can't stop, natively too.
        let script = format!(
            "until (-e '{live}/end') {{ open(my $f, '>>', '{live}/ticks') or die; print $f '.'; close $f; \
             select undef, undef, undef, 0.02 }} open(my $f, '>', 'f') or die"
        );
        std::fs::write(scratch.inside().join("ticking"), script).unwrap();
        let mut terminal = outer_shell(&scratch);
        terminal.keys(&format!("\"$TXOS\" run -q --live {live} -- perl ticking{rest}\r"));
        let mut count = 0;
        for round in 1..=2 {
            grown(&ticks, count);
            terminal.keys("\x1a");
            expect_times(&terminal, "Stopped", round);
            // The shell has the terminal, in its own mode.
            terminal.keys(&format!("echo here-{number}-$(({round} + 4))\r"));
            terminal.expect(&format!("here-{number}-{}\r\n", round + 4));
            count = std::fs::metadata(&ticks).unwrap().len();
            std::thread::sleep(std::time::Duration::from_millis(300));
            let now = std::fs::metadata(&ticks).unwrap().len();
            assert!(now <= count + 1, "members go on: {count}, {now}");
            count = now;
            terminal.keys(if round == 1 { "fg\r" } else { "bg\r" });
        }
        grown(&ticks, count);
        std::fs::write(scratch.live().join("end"), "").unwrap();
        terminal.keys("wait; exit $?\r");
        assert!(terminal.end().success(), "{rest}: {}", terminal.shown());
        assert!(scratch.inside().join("f").exists(), "{rest}: {}", terminal.shown());
        assert_eq!(scratch.leftovers(), Vec::<String>::new());
    }
}

#[test]
fn what_was_written_before_the_stop_is_shown_and_keys_come_in_after_it() {
    needs_txos!();
    if !Path::new("/bin/bash").exists() {
        skip!("no bash");
    }
    let scratch = Scratch::new();
    let mut terminal = outer_shell(&scratch);
    // As an editor does it: the screen is put back when the key comes, and then it stops itself.
    let script = "trap 'echo put''-back; kill -STOP $$' TSTP; echo ready; \
                  while read -r line || [ $? -gt 128 ]; do echo \"got $line\"; [ \"$line\" != end ] || exit 0; done";
    std::fs::write(scratch.inside().join("editor"), script).unwrap();
    terminal.keys("\"$TXOS\" run -q -- bash editor\r");
    terminal.expect("ready\r\n");
    terminal.keys("one\r");
    terminal.expect("got one\r\n");
    terminal.keys("\x1a");
    terminal.expect("put-back");
    expect_times(&terminal, "Stopped", 1);
    terminal.keys("echo here-$((2 + 2))\r");
    terminal.expect("here-4\r\n");
    terminal.keys("fg\r");
    terminal.expect("editor\r\n");
    terminal.keys("two\rend\r");
    terminal.expect("got two\r\n");
    terminal.expect("got end\r\n");
    expect_times(&terminal, "outer> ", 4);
    terminal.keys("exit 0\r");
    assert!(terminal.end().success(), "{}", terminal.shown());
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

/// A terminal on which nobody could have it go on: natively the key does nothing there.
#[test]
fn the_suspend_key_stops_nothing_where_no_shell_controls_jobs() {
    needs_txos!();
    let scratch = Scratch::new();
    let mut terminal = on_terminal(&scratch, &["run", "--", "sh", "-c", "echo ready; exec cat"]);
    wait_for_cat(&mut terminal);
    terminal.keys("\x1a");
    terminal.keys("more\r");
    terminal.expect("more\r\nmore\r\n");
    terminal.keys("\x04");
    assert!(terminal.end().success(), "{}", terminal.shown());
}

#[test]
fn the_interrupt_key_interrupts_the_command_and_aborts() {
    needs_txos!();
    let scratch = Scratch::new();
    let mut terminal =
        on_terminal(&scratch, &["run", "--", "sh", "-c", "echo x >f; echo ready; exec cat"]);
    wait_for_cat(&mut terminal);
    terminal.keys("\x03");
    assert_eq!(terminal.end().code(), Some(130), "{}", terminal.shown());
    assert!(!scratch.inside().join("f").exists());
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn a_key_typed_before_the_command_runs_interrupts_the_transaction() {
    needs_txos!();
    let scratch = Scratch::new();
    for pause in [0, 1, 2, 5, 10, 15, 20, 30, 50, 80, 120] {
        // Before a terminal has a session nobody is interrupted, natively too.
        let txos = binary();
        let script = ["-c", "echo here; exec \"$0\" run -- sleep 1000", txos.to_str().unwrap()];
        let command = Txos::new(&scratch).command(Path::new("sh"), script);
        let mut terminal = Terminal::run(&command);
        terminal.expect("here");
        std::thread::sleep(std::time::Duration::from_millis(pause));
        terminal.keys("\x03");
        let status = terminal.end();
        // txos itself, where it was not yet there to take the signal.
        let interrupted = status.code() == Some(130) || status.signal() == Some(2);
        assert!(interrupted, "after {pause} ms: {status}, {}", terminal.shown());
    }
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn a_command_that_handles_the_interrupt_key_goes_on() {
    needs_txos!();
    let scratch = Scratch::new();
    let script = "trap 'echo caught' INT; echo ready; cat; echo x >f; exit 0";
    let mut terminal = on_terminal(&scratch, &["run", "--", "sh", "-c", script]);
    wait_for_cat(&mut terminal);
    terminal.keys("\x03");
    terminal.expect("caught");
    assert!(terminal.end().success(), "{}", terminal.shown());
    assert!(scratch.inside().join("f").exists());
}

/// With gaps between them, into which the manager's own descriptors fall.
#[test]
fn many_further_descriptors_meet_none_of_the_managers_own() {
    needs_txos!();
    let scratch = Scratch::new();
    let txos = binary();
    let (base, base_dir) = (scratch.base().display(), scratch.base());
    for numbers in [[3, 5, 7, 9, 11, 13], [4, 6, 8, 9, 12, 14], [5, 6, 8, 10, 11, 13]] {
        // By turns the terminal and a file to write.
        let kinds = [">&1".to_owned(), format!(">>{base}/out"), ">&1".to_owned()];
        let _ = std::fs::remove_file(base_dir.join("out"));
        let opened: Vec<_> =
            numbers.iter().zip(kinds.iter().cycle()).map(|(n, k)| format!("{n}{k}")).collect();
        let check = numbers.map(|n| format!("echo {n} >&{n}")).join(" && ");
        let script = format!("exec \"$0\" run -q -- bash -c '{check}' {}", opened.join(" "));
        let words = ["-c", &script, txos.to_str().unwrap()];
        let mut terminal = Terminal::run(&Txos::new(&scratch).command(Path::new("bash"), words));
        assert!(terminal.end().success(), "{numbers:?}: {}", terminal.shown());
        let written = std::fs::read_to_string(base_dir.join("out")).unwrap();
        assert_eq!(written, format!("{}\n{}\n", numbers[1], numbers[4]), "{numbers:?}");
    }
}

#[test]
fn a_further_descriptor_on_the_terminal_is_the_views_terminal() {
    needs_txos!();
    let scratch = Scratch::new();
    let txos = binary();
    let script =
        "exec \"$0\" run -q -- sh -c '[ -t 3 ] && echo three >&3 && readlink /proc/self/fd/3' 3>&1";
    let command =
        Txos::new(&scratch).command(Path::new("sh"), ["-c", script, txos.to_str().unwrap()]);
    let mut terminal = Terminal::run(&command);
    assert!(terminal.end().success(), "{}", terminal.shown());
    assert!(terminal.shown().contains("three\r\n/dev/pts/0"), "{}", terminal.shown());
}

#[test]
fn review_shows_the_changes_and_takes_yes() {
    needs_txos!();
    let scratch = Scratch::new();
    let mut terminal =
        on_terminal(&scratch, &["run", "--review", "--", "sh", "-c", "echo x >new-file"]);
    terminal.expect("new-file");
    terminal.expect("?");
    assert!(!scratch.inside().join("new-file").exists(), "committed before it was asked");
    terminal.keys("y\r");
    assert!(terminal.end().success(), "{}", terminal.shown());
    assert!(scratch.inside().join("new-file").exists());
}

#[test]
fn review_takes_no() {
    needs_txos!();
    let scratch = Scratch::new();
    let mut terminal =
        on_terminal(&scratch, &["run", "--review", "--", "sh", "-c", "echo x >new-file"]);
    terminal.expect("?");
    terminal.keys("n\r");
    terminal.end();
    assert!(!scratch.inside().join("new-file").exists(), "{}", terminal.shown());
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn colour_only_on_a_terminal_and_never_against_no_color() {
    needs_txos!();
    let scratch = Scratch::new();
    let mut terminal = on_terminal(&scratch, &["run", "--dry-run", "--", "sh", "-c", "echo x >f"]);
    terminal.end();
    let coloured = terminal.shown();
    assert!(coloured.contains('\x1b'), "no colour on a terminal: {coloured:?}");
    let command = Txos::new(&scratch)
        .env("NO_COLOR", "1")
        .command(&binary(), ["run", "--dry-run", "--", "sh", "-c", "echo x >f"]);
    let mut terminal = Terminal::run(&command);
    terminal.end();
    assert!(!terminal.shown().contains('\x1b'), "{:?}", terminal.shown());
    let out = Txos::new(&scratch).sh(&["--dry-run"], "echo x >f");
    assert!(!out.stderr.contains('\x1b'), "{out}");
}

#[test]
fn names_cannot_control_the_terminal() {
    needs_txos!();
    let scratch = Scratch::new();
    let script = "touch \"$(printf 'a\\033[31m\\nb\\rc\\007')\"; printf '\\033]0;t\\007' >text";
    let out = Txos::new(&scratch).sh(&["--dry-run"], script);
    out.expect(0);
    let raw = |c: char| c.is_control() && c != '\n' && c != '\t';
    assert!(!out.stderr.contains(raw), "{:?}", out.stderr);
    assert!(!out.stderr.lines().any(|l| l.starts_with('b')), "a name made a line: {}", out.stderr);
}

/// Programs that close their standard streams (or open others over them) leave the terminal without
/// a user for a moment; it is still theirs.
#[test]
fn a_terminal_that_nobody_has_open_is_not_hung_up() {
    needs_txos!();
    let scratch = Scratch::new();
    let closes = "exec </dev/null >/dev/null 2>&1; sleep 0.2; echo x >closed";
    let reopens = "exec </dev/null >/dev/null 2>&1; sleep 0.2; echo back >/dev/tty; echo x >back";
    let commands: [(&str, &[&str]); 4] = [
        ("touched", &["touch", "touched"]),
        ("copied", &["dd", "if=/dev/zero", "of=copied", "count=1"]),
        ("closed", &["sh", "-c", closes]),
        ("back", &["sh", "-c", reopens]),
    ];
    for (made, command) in commands {
        let mut terminal = on_terminal(&scratch, &[&["run", "-q", "--"], command].concat());
        let status = terminal.end();
        assert!(status.success(), "{command:?}: {status}, {}", terminal.shown());
        assert!(scratch.inside().join(made).exists(), "{command:?}");
        assert_eq!(terminal.shown().contains("back"), made == "back", "{}", terminal.shown());
    }
}

/// What ends a transaction while it runs ends it also while it asks.
#[test]
fn review_hears_signals_and_the_clock() {
    needs_txos!();
    let scratch = Scratch::new();
    let ask = |options: &[&str]| {
        let command = ["--", "sh", "-c", "echo x >new-file"];
        let terminal =
            on_terminal(&scratch, &[&["run", "--review"], options, &command[..]].concat());
        terminal.expect("[y/N]");
        terminal
    };
    let ended = |mut terminal: Terminal, code: i32| {
        assert_eq!(terminal.end().code(), Some(code), "{}", terminal.shown());
        assert!(terminal.shown().contains("nothing was changed"), "{}", terminal.shown());
        assert!(!scratch.inside().join("new-file").exists(), "{}", terminal.shown());
        assert_eq!(scratch.leftovers(), Vec::<String>::new());
    };
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let terminal = ask(&[]);
        terminal.signal(signal);
        ended(terminal, code);
    }
    let mut terminal = ask(&[]);
    terminal.keys("\x03");
    ended(terminal, 130);
    ended(ask(&["--timeout", "2"]), 125);
    let mut terminal = ask(&["--timeout", "600"]);
    terminal.keys("ye");
    terminal.keys("s\r");
    assert!(terminal.end().success(), "{}", terminal.shown());
    assert!(scratch.inside().join("new-file").exists(), "{}", terminal.shown());
}
