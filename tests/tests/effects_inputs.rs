//! What was open for reading before a transaction, from descriptor 3 on.

use txos_tests::exec;
use txos_tests::report::Report;
use txos_tests::txos::{Txos, for_both};

/// Runs a shell line whose `run` is `txos run`, as the test's user.
fn shell_around(txos: &Txos<'_>, line: &str) -> exec::Outcome {
    let line = format!("run() {{ '{}' run -q \"$@\"; }}; {line}", txos.program().display());
    exec::run(txos.command("bash".as_ref(), ["-c", &line]))
}

#[test]
fn pipes_can_be_read_and_what_is_left_unread_stays_outside() {
    for_both(|_, txos| {
        // By number, and by the name that process substitution gives.
        let out = shell_around(&txos, "run -- cat /dev/fd/6 <(echo named) 6< <(echo bytes)");
        assert_eq!(out.expect(0).stdout, "bytes\nnamed\n", "{out}");
        let line = "exec 6< <(seq 1 20000); run -- sh -c 'for i in 1 2 3; do read x <&6; echo $x; done'; \
                    cat <&6 | cksum; seq 4 20000 | cksum";
        let out = shell_around(&txos, line);
        let lines: Vec<&str> = out.expect(0).stdout.lines().collect();
        assert_eq!(lines[..3], ["1", "2", "3"]);
        assert_eq!(lines[3], lines[4], "{out}");
        // All of one, more than a pipe holds.
        let line = "run -- sh -c 'cksum <&7' 7< <(seq 1 200000); seq 1 200000 | cksum";
        let out = shell_around(&txos, line);
        let lines: Vec<&str> = out.expect(0).stdout.lines().collect();
        assert_eq!(lines[0], lines[1], "{out}");
        // Two descriptors of one pipe read by turns, and so do one of standard input and that.
        let line =
            "run -- sh -c 'read a <&6; read b <&7; read c <&6; echo $a $b $c' 6< <(seq 5) 7<&6";
        assert_eq!(shell_around(&txos, line).expect(0).stdout, "1 2 3\n");
        let line =
            "seq 5 | { run -- sh -c 'read a; read b <&6; read c; echo $a $b $c' 6<&0; cat; }";
        assert_eq!(shell_around(&txos, line).expect(0).stdout, "1 2 3\n4\n5\n");
    });
}

#[test]
fn a_retry_reads_the_same_bytes() {
    for_both(|scratch, txos| {
        let counter = scratch.live().join("attempts");
        // The first attempt reads f, which an outsider changes then; it never commits.
        let line = format!(
            "echo one >f; exec 6< <(seq 1 9); run --live '{live}' -- sh -c 'echo >>{counter}; cat f >/dev/null; \
             read a <&6; read b <&6; [ $(wc -l <{counter}) -gt 1 ] || {{ : >{live}/read; \
             while [ ! -e {live}/changed ]; do sleep 0.01; done; }}; echo $a $b >out' & t=$!; \
             while [ ! -e {live}/read ]; do sleep 0.01; done; echo two >f; : >{live}/changed; \
             wait $t && cat out && cat <&6",
            live = scratch.live().display(),
            counter = counter.display(),
        );
        let out = shell_around(&txos, &line);
        assert_eq!(out.expect(0).stdout, "1 2\n3\n4\n5\n6\n7\n8\n9\n", "{out}");
        assert_eq!(std::fs::read_to_string(&counter).unwrap(), "\n\n", "two attempts");
    });
}

#[test]
fn what_cannot_be_had_is_told() {
    if exec::find("python3").is_none() {
        txos_tests::skip!("no python3(1)");
    }
    for_both(|scratch, txos| {
        let json = scratch.base().join("report.json").display().to_string();
        let run = txos.program().display().to_string();
        // Both ends of a pipe, as a jobserver's; a connected socket; an event counter.
        let script = format!(
            "import os, socket, subprocess, sys\n\
             r, w = os.pipe(); a, b = socket.socketpair(); e = os.eventfd(0)\n\
             os.write(w, b'+')\n\
             for fd in (r, w, a.fileno(), e): os.set_inheritable(fd, True)\n\
             code = 'import os, sys\\nfor fd in sys.argv[1:]:\\n try: print(os.read(int(fd), 1))\\n \
             except OSError as error: print(error.errno)\\nsys.exit(3)'\n\
             fds = [str(fd) for fd in (r, a.fileno(), e)]\n\
             done = subprocess.run(['{run}', 'run', '--json', '{json}', '--', 'python3', '-c', code] + fds, \
             close_fds=False)\n\
             print(*fds, os.read(r, 1), done.returncode)\n"
        );
        let out = exec::run(txos.command("python3".as_ref(), ["-c", &script]));
        let lines: Vec<&str> = out.expect(0).stdout.lines().collect();
        assert_eq!(lines[..3], ["9", "9", "9"], "{out}");
        let words: Vec<&str> = lines[3].split(' ').collect();
        let (numbers, rest) = words.split_at(3);
        // The token is there still.
        assert_eq!(rest, ["b'+'", "3"], "{out}");
        let told = &Report::read(json.as_ref()).0["descriptors"];
        for number in numbers {
            let name = format!("descriptor {number}, ");
            assert!(told.to_string().contains(&name), "{told}");
            out.says(&[&name, &format!("--pass-fd {number}")]);
        }
    });
}
