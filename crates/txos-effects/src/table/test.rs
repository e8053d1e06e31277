use super::*;
use crate::Policy;
use crate::filter::Arch;
use crate::filter::numbers::NUMBERS;
use crate::filter::rules::{Action, Ask, RULES, rule_of};
use crate::filter::under_policy;

fn action(call: &str, registers: &[(u8, u64)]) -> Action {
    let mut args = [0; 6];
    for (argument, value) in registers {
        args[usize::from(*argument)] = *value;
    }
    let action = rule_of(call).map_or(Action::Allow, |rule| rule.decide(&args));
    under_policy(action, &Policy::default())
}

/// What the filter does must be what the table promises.
fn agrees(fate: Fate, action: Action, asked: bool) -> bool {
    match action {
        Action::Ask(Ask::Refuse(class)) => match fate {
            Fate::Flag => class.flag() == "--allow net",
            _ => fate == Fate::Refused || (fate == Fate::Absent && !asked),
        },
        Action::Ask(Ask::Clock) => fate == Fate::Refused,
        Action::Ask(Ask::Contact | Ask::Lock | Ask::Signal | Ask::Outsider | Ask::Hide) => {
            !matches!(fate, Fate::Refused | Fate::Absent)
        }
        Action::Errno(0) => fate == Fate::Deferred,
        Action::Errno(_) => fate == Fate::Absent,
        Action::Allow => fate != Fate::Refused,
    }
}

#[test]
fn every_call_has_exactly_one_row() {
    let rows: Vec<_> = rows().iter().map(|row| row.call).collect();
    let calls: Vec<_> = NUMBERS.iter().map(|row| row.0).collect();
    assert_eq!(rows, calls);
}

#[test]
fn the_filter_refuses_what_the_table_refuses_and_nothing_else() {
    for row in rows() {
        let plain = action(row.call, &[]);
        assert!(agrees(row.fate, plain, false), "{}: {:?}, {plain:?}", row.call, row.fate);
        for case in row.cases {
            let Sample::Registers(registers) = case.sample else { continue };
            let (call, when) = (row.call, case.when);
            let found = action(call, registers);
            assert!(agrees(case.fate, found, true), "{call}, {when}: {:?}, {found:?}", case.fate);
        }
    }
}

#[test]
fn every_rule_that_refuses_is_in_the_table() {
    for rule in RULES {
        let row = row(rule.call).unwrap_or_else(|| panic!("{} has no row", rule.call));
        let refuses = |action| {
            matches!(action, Action::Ask(Ask::Refuse(_) | Ask::Clock))
                || matches!(action, Action::Errno(errno) if errno != 0)
        };
        if rule.cases.iter().any(|case| refuses(case.then)) {
            assert_ne!(row.support(), Support::Complete, "{} is refused in some form", rule.call);
        }
    }
}

/// Where machines keep the system call headers, and whose numbers stand in them.
const HEADERS: [(&str, Option<Arch>); 4] = [
    ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", Some(Arch::X86_64)),
    ("/usr/include/aarch64-linux-gnu/asm/unistd_64.h", Some(Arch::Aarch64)),
    ("/usr/aarch64-linux-gnu/include/asm/unistd_64.h", Some(Arch::Aarch64)),
    // Some of its numbers are chosen by macros.
    ("/usr/include/asm-generic/unistd.h", None),
];

/// What the generic header names for architectures that are not ours, or names otherwise.
const FOREIGN: [&str; 8] = [
    "syscalls",
    "arch_specific_syscall",
    "sync_file_range2",
    "llseek",
    "mmap2",
    "fadvise64_64",
    "sendfile64",
    "clock_adjtime64",
];

#[test]
fn the_kernel_headers_of_this_machine_know_no_other_call() {
    let known = |name: &str| row(name).or_else(|| row(&format!("new{name}"))).is_some();
    let mut read = 0;
    for (path, arch) in HEADERS {
        let Ok(header) = std::fs::read_to_string(path) else { continue };
        read += 1;
        for line in header.lines() {
            let mut words = line.split_whitespace();
            let (Some("#define"), Some(name), value) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Some(name) = name.strip_prefix("__NR_") else { continue };
            // Calls for 32-bit machines: "name64", and "3264_name" for both word sizes.
            let name = name.trim_start_matches("3264_");
            let narrow = name.strip_suffix("64").is_some_and(known) || name.ends_with("_time64");
            if let Some(arch) = arch {
                let number = value.and_then(|value| value.parse().ok());
                assert_eq!(arch.number(name), number, "{path}: give {name} its number and a row");
            } else if !narrow && !FOREIGN.contains(&name) {
                assert!(known(name), "{path}: give {name} a number and a row");
                // Those of arm64 are the generic ones.
                if let Some(number) = value.and_then(|value| value.parse::<u32>().ok()) {
                    let same = |name: &str| Arch::Aarch64.number(name) == Some(number);
                    let right = same(name) || same(&format!("new{name}"));
                    assert!(right, "{path}: {name} has the number {number} on arm64");
                }
            }
        }
    }
    if read == 0 {
        eprintln!("Skip: no kernel headers in {HEADERS:?}");
    }
}

#[test]
fn more_is_complete_than_in_the_original() {
    let [complete, partial, none] = totals();
    assert_eq!(complete + partial + none, NUMBERS.len());
    assert!(complete > 138, "{complete} complete");
}

#[test]
fn every_sentence_is_one() {
    for row in rows() {
        for says in std::iter::once(row.says).chain(row.cases.iter().map(|case| case.says)) {
            assert!(says.ends_with(['.', ')']) && says.len() > 10, "{}: {says}", row.call);
            assert!(!says.contains('|') && !says.contains("  "), "{}: {says}", row.call);
        }
    }
}

#[test]
fn a_build_with_headers_that_know_more_fails_and_names_the_call() {
    // The build script itself, run as cargo runs it.
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
    let dir = tempfile::tempdir().unwrap();
    let (program, header) = (dir.path().join("build"), dir.path().join("unistd_64.h"));
    let mut compile = std::process::Command::new("rustc");
    compile.args(["--edition", "2024", "-o"]).arg(&program).arg(&script);
    let Ok(compiled) = compile.output() else {
        eprintln!("Skip: no rustc to run the build script with");
        return;
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let run = |newer: bool| {
        let mut command = std::process::Command::new(&program);
        command.env("TXOS_KERNEL_HEADER", &header).env_remove("TXOS_NEWER_HEADERS");
        if newer {
            command.env("TXOS_NEWER_HEADERS", "1");
        }
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    std::fs::write(&header, "#define __NR_read 0\n").unwrap();
    assert!(!run(false).contains("cargo::error"), "{}", run(false));
    std::fs::write(&header, "#define __NR_read 0\n#define __NR_teleport 9000\n").unwrap();
    assert!(run(false).contains("cargo::error") && run(false).contains("teleport"));
    assert!(run(true).contains("cargo::warning") && !run(true).contains("cargo::error"));
}
