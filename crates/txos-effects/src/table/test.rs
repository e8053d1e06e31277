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

/// The test that makes the call, for each case that is not told by registers (those are all made by
/// `each_row_that_the_filter_decides_answers_as_the_table_says`).
const WITNESSES: &[(&str, &str)] = &[
    (
        "--exempt-log FILE, --live PATH, --pass-fd N",
        "an_exempt_log_is_written_at_once_and_survives",
    ),
    ("--live PATH", "stores_into_live_files_are_outside_at_once"),
    ("/dev/log", "log_messages_are_sent_by_a_commit_and_dropped_by_an_abort"),
    ("/proc/sys, /sys and their kind for writing", "the_machines_settings_are_read_only"),
    ("/run/systemd/journal/socket", "journal_entries_are_sent_by_a_commit_and_dropped_by_an_abort"),
    (
        "/run/systemd/journal/stdout",
        "streams_into_the_journal_are_sent_by_a_commit_and_dropped_by_an_abort",
    ),
    ("O_SYNC, O_DSYNC", "synchronous_writes_do_not_wait_and_are_committed"),
    ("RENAME_WHITEOUT", "a_whiteout_cannot_be_made_by_hand"),
    ("SECCOMP_FILTER_FLAG_NEW_LISTENER", "a_member_can_install_filters_but_no_second_listener"),
    ("a FIFO or socket that an outsider made", "a_fifo_of_an_outsider_meets_members_alone"),
    ("a character device 0:0", "a_whiteout_cannot_be_made_by_hand"),
    ("a device but null, zero, full", "device_nodes_made_inside_or_lying_in_the_tree"),
    ("a directory that exists outside, without privilege", "a_user_on_a_tree_that_was_there"),
    ("a file that was only read so far", "flags_of_a_file_that_was_only_read_are_refused"),
    ("a jobserver's pipe, a socket or an event counter", "what_cannot_be_had_is_told"),
    ("a local socket of an outsider", "local_sockets_of_outsiders"),
    (
        "a loopback port where an outsider listens",
        "a_server_outside_is_refused_with_the_flag_named",
    ),
    ("a path below --live or --allow", "live_paths_are_not_rolled_back_and_are_reported"),
    ("a process outside", "signals_to_outsiders_are_sent_by_a_commit"),
    ("a thread of a process outside", "signals_with_a_value_and_to_threads_are_sent_by_a_commit"),
    ("a descriptor of a process outside", "a_descriptor_of_an_outsider_is_refused_by_name"),
    ("the number of a process outside", "a_descriptor_of_an_outsider_is_refused_by_name"),
    ("an address outside loopback", "a_client_of_the_network_names_call_and_flag"),
    ("connect to what --allow net:HOST", "a_host_that_is_allowed_by_name_is_reached_and_no_other"),
    ("connect with --net record", "a_retry_sees_the_recorded_answers_and_asks_nobody"),
    ("devices of the machine", "block_devices_and_raw_memory"),
    (
        "what was open before, from descriptor 3 on",
        "writes_to_what_was_open_before_come_with_the_commit",
    ),
    ("standard output and error", "deferred_output_comes_only_with_a_commit"),
];

/// The same for whole rows without a rule: the view or the kernel decides them.
const ROW_WITNESSES: &[(&[&str], &str)] = &[
    (
        &["fsync", "fdatasync", "syncfs", "sync_file_range"],
        "what_asks_for_durability_waits_for_nothing_and_comes_with_the_commit",
    ),
    (
        &[
            "_sysctl",
            "afs_syscall",
            "epoll_ctl_old",
            "epoll_wait_old",
            "get_kernel_syms",
            "get_thread_area",
            "getpmsg",
            "lookup_dcookie",
            "putpmsg",
            "query_module",
            "security",
            "set_thread_area",
            "tuxcall",
            "uselib",
            "vserver",
        ],
        "what_no_kernel_has_any_more_is_absent",
    ),
];

/// The tests from outside and those of the filter, as text; tests begin at `#[test]`.
fn sources() -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = String::new();
    for dir in ["tests", "../../tests/tests", "../../tests/tests/ways_out"] {
        for entry in std::fs::read_dir(root.join(dir)).into_iter().flatten().flatten() {
            sources.push_str(&std::fs::read_to_string(entry.path()).unwrap_or_default());
        }
    }
    sources
}

fn needs_a_test(fate: Fate) -> bool {
    !fate.is_whole() || fate == Fate::Deferred
}

#[test]
fn every_refused_or_deferred_row_has_a_test_that_makes_the_call() {
    let named: Vec<&str> = ROW_WITNESSES.iter().flat_map(|row| row.0.iter().copied()).collect();
    for row in rows().iter().filter(|row| needs_a_test(row.fate)) {
        // What has a rule is made by `each_row_that_the_filter_decides_answers_as_the_table_says`, as a
        // plain call, or with the registers of its cases.
        assert!(
            rule_of(row.call).is_some() != named.contains(&row.call),
            "{}: name one test in ROW_WITNESSES, unless a rule decides",
            row.call
        );
    }
    let sources = sources();
    for (calls, test) in ROW_WITNESSES {
        assert!(sources.contains(&format!("#[test]\nfn {test}()")), "{test} is no test any more");
        for call in *calls {
            let fate = row(call).map(|row| row.fate);
            assert!(fate.is_some_and(needs_a_test), "{call} needs no witness: {fate:?}");
        }
    }
}

#[test]
fn no_witness_is_left_over() {
    for (when, test) in WITNESSES {
        let all = rows();
        let mut cases = all.iter().flat_map(|row| row.cases);
        assert!(cases.any(|case| case.when.starts_with(when)), "{when}, {test}: no such case");
    }
}

#[test]
fn every_refused_or_deferred_case_has_a_test_that_makes_the_call() {
    let sources = sources();
    for row in rows() {
        for case in row.cases.iter().filter(|case| case.sample == Sample::Elsewhere) {
            if !needs_a_test(case.fate) {
                continue;
            }
            let witness = WITNESSES.iter().find(|(when, _)| case.when.starts_with(when));
            let (_, test) = witness.unwrap_or_else(|| {
                panic!("{}, {}: no test is named that makes the call", row.call, case.when)
            });
            let at = sources.find(&format!("#[test]\nfn {test}"));
            assert!(at.is_some(), "{test} is no test any more");
        }
    }
}
