//! systemctl's command line, as far as it must be understood to tell what a call does.
//!
//! Source: systemctl(1).

use super::request::DEFERRED_VERBS;

/// Options whose value may be the next argument.
const WITH_VALUE: [&str; 27] = [
    "-t",
    "--type",
    "-p",
    "--property",
    "-P",
    "-H",
    "--host",
    "-M",
    "--machine",
    "-n",
    "--lines",
    "-o",
    "--output",
    "-s",
    "--signal",
    "--state",
    "--job-mode",
    "--kill-who",
    "--kill-whom",
    "--root",
    "--image",
    "--preset-mode",
    "--what",
    "--timestamp",
    "--boot-loader-entry",
    "--check-inhibitors",
    "--message",
];

/// Verbs that are about files only, which the real one does offline, and after which the running
/// manager need not read its units again.
const FILE_VERBS: [&str; 7] =
    ["set-default", "is-enabled", "get-default", "list-unit-files", "cat", "help", "--version"];

/// The same, where it reads its units again.
const RELOADING: [&str; 12] = [
    "enable",
    "disable",
    "reenable",
    "preset",
    "preset-all",
    "mask",
    "unmask",
    "link",
    "revert",
    "add-wants",
    "add-requires",
    "edit",
];

/// Verbs that end or replace the running system.
const MACHINE_VERBS: [&str; 16] = [
    "poweroff",
    "reboot",
    "halt",
    "kexec",
    "soft-reboot",
    "exit",
    "switch-root",
    "suspend",
    "hibernate",
    "hybrid-sleep",
    "suspend-then-hibernate",
    "sleep",
    "rescue",
    "emergency",
    "default",
    "bind",
];

/// What a call does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Does {
    /// Acts on the running system: to be recorded.
    Defer { action: String, operands: Vec<String> },
    /// Changes files: the real one, offline, with these arguments. After it the manager has to read
    /// its units again; `--now` asks for an action on the units too.
    Files { args: Vec<String>, reload: bool, then: Option<(&'static str, Vec<String>)> },
    /// Asks about running units.
    Ask { verb: String, units: Vec<String>, quiet: bool, properties: Vec<String>, value: bool },
    /// Ends the running system.
    Machine(String),
}

/// Reads a command line.
pub(super) fn parse(args: &[String]) -> Does {
    let mut options = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        if arg == "--" {
            words.extend(rest.by_ref().cloned());
        } else if arg.starts_with('-') && arg.len() > 1 {
            options.push(arg.clone());
            if WITH_VALUE.contains(&arg.as_str())
                && let Some(value) = rest.next()
            {
                options.push(value.clone());
            }
        } else {
            words.push(arg.clone());
        }
    }
    let has = |names: &[&str]| options.iter().any(|option| names.contains(&option.as_str()));
    if has(&["--version", "--help", "-h"]) {
        return Does::Files { args: args.to_vec(), reload: false, then: None };
    }
    let verb = if words.is_empty() { "list-units".to_owned() } else { words.remove(0) };
    let elsewhere = |option: &String| option.starts_with("--root") || option.starts_with("--image");
    let name = verb.as_str();
    if is_about_files(name) || options.iter().any(elsewhere) {
        return files(args, name, words, has(&["--now"]) && !options.iter().any(elsewhere));
    }
    if MACHINE_VERBS.contains(&name) {
        return Does::Machine(verb);
    }
    if DEFERRED_VERBS.contains(&name) {
        let operands = options.into_iter().chain(words).collect();
        return Does::Defer { action: verb, operands };
    }
    let value = has(&["--value"]) || options.iter().any(|option| option.starts_with("-P"));
    let quiet = has(&["-q", "--quiet"]);
    Does::Ask { verb, units: words, quiet, properties: properties(&options), value }
}

fn is_about_files(verb: &str) -> bool {
    FILE_VERBS.contains(&verb) || RELOADING.contains(&verb)
}

fn files(args: &[String], verb: &str, units: Vec<String>, now: bool) -> Does {
    let then = match verb {
        "enable" | "reenable" | "unmask" if now => Some(("start", units)),
        "disable" | "mask" if now => Some(("stop", units)),
        _ => None,
    };
    let args = args.iter().filter(|arg| *arg != "--now").cloned().collect();
    Does::Files { args, reload: RELOADING.contains(&verb), then }
}

/// The names after `-p` and its other forms.
fn properties(options: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let list = match option.as_str() {
            "-p" | "-P" | "--property" => options.next().map(String::as_str),
            other => other
                .strip_prefix("--property=")
                .or_else(|| other.strip_prefix("-p"))
                .or_else(|| other.strip_prefix("-P")),
        };
        names.extend(list.into_iter().flat_map(|list| list.split(',')).map(str::to_owned));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Does {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn every_verb_is_of_one_kind() {
        for verb in DEFERRED_VERBS {
            assert!(!is_about_files(verb) && !MACHINE_VERBS.contains(&verb), "{verb}");
        }
        for verb in RELOADING {
            assert!(!FILE_VERBS.contains(&verb) && !MACHINE_VERBS.contains(&verb), "{verb}");
        }
    }

    #[test]
    fn the_verb_is_found_behind_options_and_their_values() {
        let operands = strings(&["--system", "-s", "HUP", "ssh.service"]);
        assert_eq!(
            of("--system -s HUP kill ssh.service"),
            Does::Defer { action: "kill".into(), operands }
        );
        assert_eq!(
            of("daemon-reload"),
            Does::Defer { action: "daemon-reload".into(), operands: vec![] }
        );
    }

    #[test]
    fn enabling_is_done_on_files_and_starting_now_waits() {
        let then = Some(("start", strings(&["a.service"])));
        assert_eq!(
            of("enable --now a.service"),
            Does::Files { args: strings(&["enable", "a.service"]), reload: true, then }
        );
        assert!(matches!(of("is-enabled a"), Does::Files { reload: false, then: None, .. }));
        assert!(matches!(of("--root=/x enable --now a"), Does::Files { then: None, .. }));
        assert!(matches!(of("--version"), Does::Files { reload: false, .. }));
    }

    #[test]
    fn questions_and_the_end_of_the_machine_are_told_apart() {
        assert_eq!(of("reboot"), Does::Machine("reboot".into()));
        let Does::Ask { verb, properties, value, units, .. } =
            of("show -p ActiveState,SubState --value ssh")
        else {
            panic!("a question")
        };
        assert_eq!((verb.as_str(), value), ("show", true));
        assert_eq!(properties, ["ActiveState", "SubState"]);
        assert_eq!(units, ["ssh"]);
        assert!(matches!(of(""), Does::Ask { verb, .. } if verb == "list-units"));
    }
}
