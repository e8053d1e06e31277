//! Commands and neighbours that mean harm (SECURITY.md): what they leave must not steer whoever reads a
//! report, what they print must not come out of an abort, and nobody is served by another user's processes.

use std::path::Path;
use std::process::Command;

use txos_tests::exec::{self, Outcome};
use txos_tests::gate::Gate;
use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::terminal::Terminal;
use txos_tests::txos::{Txos, binary, for_both, for_one};
use txos_tests::who::Who;

/// A name of a file that would forge a line, ring, colour, rename the window, and turn text around.
const NAME: &str =
    "a\ntxos: transaction 9 committed\u{7}\u{1b}[31m\u{1b}]0;title\u{7}\r\u{9b}2J\u{202e}b";

/// Requires that a report steers nothing and has no line that the name forged.
#[track_caller]
fn harmless(what: &str, text: &str) {
    let steering = |c: &char| c.is_control() && *c != '\n' || *c == '\u{202e}';
    assert_eq!(text.chars().find(steering), None, "{what}: {text:?}");
    let forged = text.lines().any(|line| line.starts_with("txos: transaction 9 "));
    assert!(!forged, "{what} has a forged line:\n{text}");
}

#[track_caller]
fn both_harmless(what: &str, out: &Outcome) {
    harmless(what, &out.stdout);
    harmless(what, &out.stderr);
}

/// The command has such a name, too: `sh -c SCRIPT NAME`.
fn args<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["run"], options, &["--", "sh", "-c", script, NAME]].concat()
}

#[test]
fn names_that_forge_lines_and_steer_terminals_are_escaped_in_every_report() {
    for_both(|scratch, txos| {
        let file = scratch.inside().join(NAME);
        let report = scratch.live().join("report");
        let json = report.display().to_string();
        // Made, and kept: all that shows a transaction that waits.
        let out = txos.call(args(
            &["--keep", "--json", &json],
            "printf 'text \\033[31m\\233\\n' >\"$0\"; ln -s x l",
        ));
        out.expect(0);
        both_harmless("run --keep", &out);
        harmless("the report", &std::fs::read_to_string(&report).unwrap());
        let status = txos.call(["ps", "--json"]);
        let id = status.stdout.split("\"id\":").nth(1).unwrap_or_default();
        let id: String = id.chars().take_while(char::is_ascii_digit).collect();
        assert!(!id.is_empty(), "{status}");
        let mut seen = 0;
        for words in [
            &["ps"][..],
            &["ps", "--json"],
            &["show", &id],
            &["show", "--json", &id],
            &["diff", &id],
            &["diff", "--text", &id],
            &["diff", "--json", &id],
        ] {
            let out = txos.call(words);
            out.expect(0);
            both_harmless(&words.join(" "), &out);
            seen += usize::from(out.stdout.contains("committed"));
        }
        assert!(seen >= 6, "the name is shown in {seen} reports");
        both_harmless("commit", txos.call(["commit", &id]).expect(0));
        assert!(std::fs::read(&file).unwrap().starts_with(b"text \x1b[31m"));
        // Read and lost to an outsider: the conflict, in words and for `why`.
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let script = format!("{}cat \"$0\"; reach read; await go; echo x >g", gate.functions());
        let running = txos.start(args(&["--live", &live, "--no-retry"], &script));
        gate.wait("read");
        let table = txos.call(["ps"]);
        both_harmless("ps while it runs", table.expect(0));
        assert!(table.stdout.contains("running"), "{table}");
        std::fs::write(&file, "changed").unwrap();
        gate.open("go");
        let lost = running.end(exec::LIMIT);
        lost.expect(75);
        both_harmless("a conflict", &lost);
        for words in [&["log"][..], &["log", "--json"], &["why", "2"], &["why", "--json", "2"]] {
            let out = txos.call(words);
            both_harmless(&words.join(" "), &out);
            if words[0] == "log" {
                assert!(out.stdout.contains("committed"), "{out}");
            }
        }
        // Removed, renamed and refused: the remaining lines of a report.
        let out = txos.call(args(&["--dry-run"], "mv \"$0\" moved; mkdir \"$0\"; exit 0"));
        both_harmless("a rename", out.expect(0));
        let out = txos.call(args(&[], "rm \"$0\"; exit 3"));
        both_harmless("an abort", out.expect(3));
        let out = txos.call(["run", "--", NAME]);
        both_harmless("a command that is not there", out.expect(127));
    });
}

#[test]
fn what_a_command_prints_that_is_given_up_does_not_reach_the_terminal_if_output_is_deferred() {
    txos_tests::needs_root!();
    let scratch = Scratch::new();
    let (gate, live) = (Gate::new(scratch.live()), scratch.live().display().to_string());
    let f = scratch.inside().join("f");
    let steer = "cat f; printf '\\033[31m\\033]0;title\\007red'; stty raw -echo; ";
    for (name, shown) in [("lost", false), ("won", true)] {
        std::fs::write(&f, "old").expect("f");
        let script = format!("{}{steer}reach {name}; await {name}-go; >g", gate.functions());
        let outer = "stty -a >before; \"$@\"; stty -a >after; cmp before after && echo the-same";
        let options = ["--no-retry", "--live", &live, "--output", "deferred"];
        let txos = binary();
        let program = ["-c", outer, "sh", txos.to_str().expect("a path"), "run"];
        let words = [&program[..], &options, &["--", "sh", "-c", &script]].concat();
        let command = Txos::new(&scratch).command(Path::new("sh"), words);
        let mut terminal = Terminal::run(&command);
        gate.wait(name);
        if !shown {
            std::fs::write(&f, "changed").expect("f");
        }
        gate.open(&format!("{name}-go"));
        terminal.expect("the-same");
        terminal.end();
        assert_eq!(terminal.shown().contains("\u{1b}[31m"), shown, "{:?}", terminal.shown());
    }
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

/// Bombs of processes, limited; paths that the kernel doesn't take in one; attributes as large as they get.
#[test]
fn excess_stays_inside_and_ends_with_the_transaction() {
    for_one(Who::Root, |scratch, txos| {
        let bomb = "echo x >f; b() { b | b & }; b; sleep 2; b; wait";
        let out = txos.sh(&["--max-processes", "40", "--timeout", "30"], bomb);
        assert_ne!(out.code(), 0, "{out}");
        assert!(!scratch.inside().join("f").exists());
        assert_eq!(scratch.leftovers(), Vec::<String>::new());
        // 40 levels of 200 bytes: twice what a path may have.
        let down = "n=$(printf %0200d 0); for i in $(seq 40); do mkdir $n && cd $n || exit 9; done; \
                    echo deep >f; setfattr -n user.large -v $(printf %03000d 0) f";
        txos.call(["run", "--", "bash", "-c", down]).expect(0);
        let look = "n=$(printf %0200d 0); for i in $(seq 40); do cd $n || exit 9; done; cat f; \
                    getfattr --only-values -n user.large f | wc -c";
        let look = txos.command(Path::new("bash"), ["-c", look]);
        let out = exec::run(look);
        assert_eq!(out.expect(0).stdout, "deep\n3000\n");
        // And away again.
        txos.sh(&[], "rm -r 0*").expect(0);
        assert_eq!(std::fs::read_dir(scratch.inside()).unwrap().count(), 0);
    });
}

/// Connects as user `uid`, says a packet, and prints what comes back: `closed`, or its length.
const STRANGER: &str = r"
import os, socket, sys
uid, address, packet = int(sys.argv[1]), sys.argv[2], bytes.fromhex(sys.argv[3])
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(60)
try:
    s.connect(address.replace('@', '\0', 1))
    s.send(packet)
    got = s.recv(65536)
except (BrokenPipeError, ConnectionResetError):
    got = b''
print(len(got) if got else 'closed')
";

fn says(uid: u32, address: &str, packet: &[u8]) -> String {
    let hex: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut python = Command::new("python3");
    python.args(["-c", STRANGER, &uid.to_string(), address, &hex]);
    exec::run(python).expect(0).stdout.trim().to_owned()
}

#[test]
fn another_users_request_to_the_manager_is_not_even_read() {
    if exec::find("python3").is_none() {
        skip!("no python3 here");
    }
    for_one(Who::Root, |scratch, txos| {
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let script = format!("{}reach ready; await go; echo x >f", gate.functions());
        let running = txos.start_sh(&["--live", &live], &script);
        gate.wait("ready");
        let socket = scratch.state().join("manager");
        let address = socket.display().to_string();
        // As if somebody had opened what is closed: the peer's user alone decides.
        open(&[scratch.base(), &scratch.state(), &socket], true);
        assert_ne!(says(0, &address, b"\"Table\""), "closed");
        for packet in [&b"\"Table\""[..], b"\"Stats\"", b"{\"Policy\":\"timestamp\"}"] {
            assert_eq!(says(4242, &address, packet), "closed");
        }
        open(&[&scratch.state()], false);
        let policy = txos.call(["policy"]);
        assert!(!policy.expect(0).stdout.contains("timestamp"), "{policy}");
        gate.open("go");
        running.end(exec::LIMIT).expect(0);
        assert!(scratch.inside().join("f").exists());
    });
}

#[test]
fn another_users_request_to_a_session_is_not_even_read() {
    if exec::find("python3").is_none() {
        skip!("no python3 here");
    }
    for_one(Who::Root, |scratch, txos| {
        let gate = Gate::new(scratch.live());
        let name = scratch.live().join("name");
        let script = format!(
            "{}printf %s \"$TXOS_SESSION\" >'{}'; reach ready; await go",
            gate.functions(),
            name.display()
        );
        let running = txos.start(["exec", "--", "sh", "-c", &script]);
        gate.wait("ready");
        let address = format!("@{}", std::fs::read_to_string(&name).unwrap());
        // No request at all: its owner is told so, and nobody else anything.
        assert_ne!(says(0, &address, b"nonsense"), "closed");
        assert_eq!(says(4242, &address, b"nonsense"), "closed");
        gate.open("go");
        running.end(exec::LIMIT).expect(0);
    });
}

fn open(paths: &[&Path], open: bool) {
    use std::os::unix::fs::PermissionsExt;
    for path in paths {
        let mode = if open { 0o777 } else { 0o700 };
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("chmod");
    }
}
