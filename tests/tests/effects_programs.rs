//! Real programs inside a transaction: each works as it does outside, or its test says what it needs.

use std::path::PathBuf;

use txos_tests::exec;
use txos_tests::skip;
use txos_tests::txos::{Txos, for_both, for_one};
use txos_tests::who::Who;

/// Ends the test unless all these programs are here.
macro_rules! needs {
    ($($name:literal),+) => {
        $(if exec::find($name).is_none() {
            skip!("no {} in {:?}", $name, exec::path());
        })+
    };
}

#[test]
fn make_runs_compilers_beside_one_another() {
    needs!("make", "gcc");
    let script = r#"
        for i in 1 2 3 4 5 6 7 8; do echo "int f$i(void) { return $i; }" >f$i.c; done
        echo 'int f8(void); int main(void) { return f8() != 8; }' >main.c
        printf 'prog: main.o f1.o f2.o f3.o f4.o f5.o f6.o f7.o f8.o\n\tgcc -o $@ $^\n' >Makefile
        make -s -j4 && ./prog && echo built"#;
    for_both(|scratch, txos| {
        assert_eq!(txos.sh(&[], script).expect(0).stdout, "built\n");
        assert!(scratch.inside().join("prog").exists());
    });
}

#[test]
fn perl_forks_and_waits() {
    needs!("perl");
    let script = "perl -e 'my $n = 0; for (1..20) { my $p = fork; exit($_ % 3) unless $p; } \
                  while (wait > 0) { $n += $? >> 8 } print $n'";
    for_both(|_, txos| assert_eq!(txos.sh(&[], script).expect(0).stdout, "21"));
}

/// Whether python has these modules, outside.
fn has_modules(txos: &Txos<'_>, modules: &str) -> bool {
    let script = format!("import {modules}");
    exec::run(txos.command("python3".as_ref(), ["-c", &script])).code() == 0
}

#[test]
fn python_makes_a_virtual_environment() {
    needs!("python3");
    for_both(|scratch, txos| {
        if !has_modules(&txos, "venv") {
            skip!("this python3 has no venv module");
        }
        let out = txos.sh(
            &[],
            "python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix)'",
        );
        let prefix = out.expect(0).stdout.trim_end().to_owned();
        assert_eq!(PathBuf::from(prefix), scratch.inside().join("v"));
        assert!(scratch.inside().join("v/bin/python").exists());
    });
}

#[test]
fn pip_installs_from_an_index_that_a_member_serves() {
    needs!("python3");
    let script = r#"
        python3 -m venv v || exit 3
        mkdir -p simple/demo && python3 -c '
import zipfile
info = "demo-1.0.dist-info/"
with zipfile.ZipFile("simple/demo/demo-1.0-py3-none-any.whl", "w") as z:
    z.writestr("demo.py", "value = 42\n")
    z.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr(info + "RECORD", "demo.py,,\n")
'
        python3 -m http.server 8713 --bind 127.0.0.1 >/dev/null 2>&1 & server=$!
        for i in $(seq 300); do
            v/bin/pip install -q --disable-pip-version-check --retries 0 --index-url http://127.0.0.1:8713/simple demo 2>pip && break
            sleep 0.2
        done
        kill $server
        v/bin/python -c 'import demo; print(demo.value)'"#;
    for_one(Who::User, |scratch, txos| {
        if !has_modules(&txos, "venv, ensurepip") {
            skip!("this python3 makes no virtual environments with pip");
        }
        let out = txos.sh(&[], script);
        assert_eq!(out.expect(0).stdout, "42\n");
        assert!(scratch.inside().join("v/bin/pip").exists());
    });
}

#[test]
fn a_data_base_server_is_made_started_used_and_stopped() {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let bins = versions.map(|version| version.path().join("bin"));
    let Some(bin) = bins.into_iter().find(|bin| bin.join("initdb").exists()) else {
        skip!("no PostgreSQL in /usr/lib/postgresql");
    };
    let script = format!(
        r#"B={}
        $B/initdb -D $PWD/db -A trust -U bench >init.log 2>&1 || {{ cat init.log >&2; exit 3; }}
        $B/pg_ctl -D $PWD/db -o "-k /tmp -c listen_addresses=127.0.0.1 -p 54987" -w -l log start >/dev/null || {{ cat log >&2; exit 4; }}
        $B/pgbench -i -q -s 1 -h /tmp -p 54987 -U bench postgres 2>/dev/null
        $B/pgbench -c 2 -t 20 -h 127.0.0.1 -p 54987 -U bench postgres 2>/dev/null | grep -c 'processed: 40/40'
        $B/pg_ctl -D $PWD/db -m fast stop >/dev/null"#,
        bin.display()
    );
    needs!("setpriv");
    let users = std::fs::read_to_string("/etc/passwd").expect("the data base of users");
    if !users.lines().any(|line| line.split(':').nth(2) == Some("65534")) {
        skip!("no user has the number 65534");
    }
    // The server refuses to run as root, and as a user who is not in the data base of users.
    for_one(Who::Root, |scratch, txos| {
        std::fs::write(scratch.inside().join("run"), &script).unwrap();
        let nobody = "chmod 777 . && setpriv --reuid 65534 --regid 65534 --clear-groups sh run";
        assert_eq!(txos.sh(&[], nobody).expect(0).stdout, "1\n");
        assert!(scratch.inside().join("db/PG_VERSION").exists());
    });
}

#[test]
fn python_shares_memory_and_runs_pools() {
    needs!("python3");
    let script = "python3 -c '
import multiprocessing as m, sqlite3
def f(x): return x * x
if __name__ == \"__main__\":
    with m.Pool(3) as p: print(sum(p.map(f, range(50))))
    d = sqlite3.connect(\"d.sqlite\"); d.execute(\"create table t (x)\")
    d.executemany(\"insert into t values (?)\", [(i,) for i in range(100)]); d.commit()
    print(d.execute(\"select count(*) from t\").fetchone()[0])
'";
    for_both(|scratch, txos| {
        assert_eq!(txos.sh(&[], script).expect(0).stdout, "40425\n100\n");
        assert!(scratch.inside().join("d.sqlite").exists());
    });
}

#[test]
fn node_reads_writes_and_serves() {
    needs!("node");
    let script = r#"node -e '
        const fs = require("fs"), http = require("http");
        fs.writeFileSync("f", "x".repeat(100000)); fs.fsyncSync(fs.openSync("f", "r+"));
        const s = http.createServer((q, r) => r.end("served")).listen(0, "127.0.0.1", () =>
            http.get({ port: s.address().port, host: "127.0.0.1" }, r => {
                r.on("data", d => console.log(String(d))); r.on("end", () => s.close()); }));'"#;
    for_both(|scratch, txos| {
        assert_eq!(txos.sh(&[], script).expect(0).stdout, "served\n");
        assert_eq!(std::fs::metadata(scratch.inside().join("f")).unwrap().len(), 100_000);
    });
}

#[test]
fn java_starts_and_writes() {
    needs!("java", "javac");
    let script = r#"
        echo 'import java.nio.file.*; import java.net.*; class A { public static void main(String[] a) throws Exception {
          ServerSocket s = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
          Thread t = new Thread(() -> { try { new Socket(s.getInetAddress(), s.getLocalPort()).getOutputStream().write(7); } catch (Exception e) { System.out.println(e); } });
          t.start(); int got = s.accept().getInputStream().read();
          Files.writeString(Path.of("f"), "written"); System.out.println(got); } }' >A.java
        javac A.java && java -cp . A"#;
    for_both(|scratch, txos| {
        assert_eq!(txos.sh(&[], script).expect(0).stdout, "7\n");
        assert_eq!(std::fs::read_to_string(scratch.inside().join("f")).unwrap(), "written");
    });
}

#[test]
fn a_static_go_program_runs() {
    let go =
        ["/usr/local/go/bin/go", "/usr/bin/go"].into_iter().find(|go| PathBuf::from(go).exists());
    let Some(go) = go else { skip!("no go") };
    for_one(Who::Root, |scratch, txos| {
        let source = "package main\nimport (\"fmt\"; \"net\"; \"os\"; \"os/exec\")\nfunc main() {\n\
            l, e := net.Listen(\"tcp\", \"127.0.0.1:0\"); if e != nil { panic(e) }\n\
            go func() { c, _ := net.Dial(\"tcp\", l.Addr().String()); c.Write([]byte(\"hi\")); c.Close() }()\n\
            c, _ := l.Accept(); b := make([]byte, 2); c.Read(b)\n\
            os.WriteFile(\"f\", b, 0644)\n\
            o, e := exec.Command(\"cat\", \"f\").Output(); fmt.Println(string(o), e) }\n";
        let dir = scratch.inside();
        std::fs::write(dir.join("a.go"), source).unwrap();
        // Compiled outside: what counts is that a program without a C library runs inside.
        let build = format!(
            "cd {} && CGO_ENABLED=0 GOCACHE=$PWD/.cache GOPATH=$PWD/.go HOME=$PWD GO111MODULE=off {go} build -o a a.go",
            dir.display()
        );
        // It compiles Go's whole library first, which takes minutes where the machine is busy.
        let command = txos.command("sh".as_ref(), ["-c", &build]);
        exec::Running::start(command, None).end(10 * exec::LIMIT).expect(0);
        assert_eq!(txos.sh(&[], "./a").expect(0).stdout, "hi <nil>\n");
        assert!(dir.join("f").exists());
    });
}

#[test]
fn a_terminal_multiplexer_runs_a_command() {
    needs!("tmux");
    // The session stays until it is killed: a server without sessions ends, and a client that comes
    // while it does waits for ever (natively too).
    let script = "export TMUX_TMPDIR=$PWD; \
                  tmux -L t -f /dev/null new-session -d 'echo from-tmux >f; tmux wait-for -S done; exec sleep 1000' && \
                  tmux -L t wait-for done; cat f; tmux -L t kill-server";
    for_both(|scratch, txos| {
        assert_eq!(txos.sh(&[], script).expect(0).stdout, "from-tmux\n");
        assert!(scratch.inside().join("f").exists());
    });
}

#[test]
fn a_pipeline_of_twenty_stages_carries_all() {
    let stages = ["tr a-y b-z | tr b-z a-y"; 10].join(" | ");
    let script = format!("seq 100000 | {stages} | tee f | cksum; cksum <f; seq 100000 | cksum");
    for_both(|_, txos| {
        let out = txos.sh(&[], &script);
        let sums: Vec<&str> = out.expect(0).stdout.lines().collect();
        assert_eq!((sums[0], sums[1]), (sums[2], sums[2]));
    });
}

#[test]
fn git_clones_by_path_and_from_a_server_inside() {
    needs!("git");
    let script = "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; git init -q a && cd a && git config user.email a@b.example && git config user.name a && \
                  for i in $(seq 50); do echo $i >f$i; done && git add . && git commit -qm one && cd .. && git clone -q a b && \
                  git -C b log --oneline | wc -l && git -C b fsck && \
                  { git daemon --base-path=$PWD --export-all --reuseaddr --listen=127.0.0.1 --port=8712 --pid-file=p --detach; \
                    for i in $(seq 600); do git clone -q git://127.0.0.1:8712/a c 2>/dev/null && break; sleep 0.1; done; kill $(cat p); ls c | wc -l; }";
    for_both(|scratch, txos| {
        assert_eq!(txos.sh(&[], script).expect(0).stdout, "1\n50\n");
        assert!(scratch.inside().join("b/.git/HEAD").exists());
        assert!(scratch.inside().join("c/f50").exists());
    });
}

#[test]
fn a_client_of_the_network_names_call_and_flag() {
    needs!("curl");
    for_both(|_, txos| {
        let out = txos.sh(&[], "curl -sS http://192.0.2.1/ 2>/dev/null; echo $?");
        assert_eq!(out.expect(0).stdout, "7\n");
        out.says(&["connect(192.0.2.1:80)", "by curl", "--allow net"]);
    });
}

#[test]
fn a_package_is_installed_from_a_repository_on_the_network() {
    needs!("apt-get", "dpkg-deb", "python3");
    for_one(Who::Root, |scratch, txos| {
        let base = scratch.base().display().to_string();
        // A repository of one package, served outside.
        let setup = format!(
            "mkdir -p {base}/repo/p/DEBIAN {base}/repo/p/opt {base}/apt/lists/partial {base}/apt/cache/archives/partial; \
             cd {base}/repo; echo from-the-repository >p/opt/txos-test-package; \
             printf 'Package: txos-test-package\nVersion: 1\nArchitecture: all\nMaintainer: t <t@t.example>\nDescription: t\n' >p/DEBIAN/control; \
             dpkg-deb -b p txos-test-package_1_all.deb >/dev/null; \
             {{ dpkg-deb -f txos-test-package_1_all.deb; echo Filename: ./txos-test-package_1_all.deb; \
             echo Size: $(stat -c %s *.deb); echo SHA256: $(sha256sum *.deb | cut -d' ' -f1); echo; }} >Packages"
        );
        exec::run(txos.command("sh".as_ref(), ["-ec", &setup])).expect(0);
        let serve = "import http.server, sys, functools as f\n\
                     s = http.server.ThreadingHTTPServer((\"127.0.0.1\", 0), f.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1]))\n\
                     print(s.server_port, flush=True)\ns.serve_forever()";
        let mut server = txos.command("python3".as_ref(), ["-c", serve, &format!("{base}/repo")]);
        let server =
            server.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
        let mut server = server.spawn().unwrap();
        let mut port = String::new();
        let stdout = server.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut port).unwrap();
        let list = format!("deb [trusted=yes] http://127.0.0.1:{} ./\n", port.trim());
        std::fs::write(format!("{base}/apt/sources.list"), list).unwrap();
        let options = format!(
            "-o Dir::Etc::sourcelist={base}/apt/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::lists={base}/apt/lists \
             -o Dir::Cache={base}/apt/cache -o APT::Sandbox::User=root -o Acquire::Languages=none -o DPkg::Lock::Timeout=60"
        );
        let script = format!(
            "apt-get {options} -q update && apt-get {options} -qy install txos-test-package && cat /opt/txos-test-package"
        );
        // Shown and dropped: the machine's own packages stay as they are.
        let out = txos.sh(&["--allow", "net", "--dry-run"], &script);
        // Without the flag it fails with a line that names call and flag.
        let refused = txos.sh(&["--dry-run"], &script);
        let _ = server.kill();
        let _ = server.wait();
        assert!(out.expect(0).stdout.ends_with("from-the-repository\n"), "{out}");
        out.says(&["/opt/txos-test-package 20 bytes"]);
        assert!(!PathBuf::from("/opt/txos-test-package").exists());
        assert_ne!(refused.code(), 0, "{refused}");
        refused.says(&["connect(127.0.0.1:", "--allow net"]);
    });
}

#[test]
fn a_compiler_and_its_program_run() {
    needs!("gcc");
    let script = r#"echo 'int puts(const char *); int main(void) { return puts("compiled") < 0; }' >a.c && gcc -O2 -o a a.c && ./a"#;
    for_both(|_, txos| assert_eq!(txos.sh(&[], script).expect(0).stdout, "compiled\n"));
}
