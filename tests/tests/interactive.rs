//! `txos run` on a terminal: shells, job control, colours, and the question of `--review`.

use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::terminal::Terminal;
use txos_tests::txos::{Txos, binary, native_only};

fn on_terminal(scratch: &Scratch, args: &[&str]) -> Terminal {
    let command = Txos::new(scratch).command(&binary(), args);
    Terminal::run(&command)
}

macro_rules! needs_txos {
    () => {
        if native_only() {
            skip!("nothing to compare natively");
        }
        if !txos_tests::who::am_root() {
            skip!("needs root");
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
    terminal.keys("PS1='ready> '; tty -s && echo has'-'tty\r");
    terminal.expect("has-tty");
    assert!(!terminal.shown().contains("no job control"), "{}", terminal.shown());
    terminal.keys("sleep 1000\r");
    std::thread::sleep(std::time::Duration::from_millis(300));
    terminal.keys("\x1a");
    terminal.expect("Stopped");
    terminal.keys("bg; jobs; kill %1; wait; echo x >f; stty size; exit 0\r");
    assert!(terminal.end().success(), "{}", terminal.shown());
    assert!(scratch.inside().join("f").exists(), "{}", terminal.shown());
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn the_interrupt_key_interrupts_the_command_and_aborts() {
    needs_txos!();
    let scratch = Scratch::new();
    let script = "echo x >f; echo begun; sleep 1000";
    let mut terminal = on_terminal(&scratch, &["run", "--", "sh", "-c", script]);
    terminal.expect("begun");
    terminal.keys("\x03");
    assert_eq!(terminal.end().code(), Some(130), "{}", terminal.shown());
    assert!(!scratch.inside().join("f").exists());
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn a_command_that_handles_the_interrupt_key_goes_on() {
    needs_txos!();
    let scratch = Scratch::new();
    let script = "trap 'echo caught' INT; echo begun; sleep 1000; echo x >f; exit 0";
    let mut terminal = on_terminal(&scratch, &["run", "--", "sh", "-c", script]);
    terminal.expect("begun");
    std::thread::sleep(std::time::Duration::from_millis(100));
    terminal.keys("\x03");
    terminal.expect("caught");
    assert!(terminal.end().success(), "{}", terminal.shown());
    assert!(scratch.inside().join("f").exists());
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
