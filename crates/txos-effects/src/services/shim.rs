//! This program under another name, inside a transaction.
//!
//! Exit statuses are what scripts expect: `policy-rc.d` 101 ("forbidden by policy", which
//! invoke-rc.d turns into success), systemctl(1)'s 0, 1, 3 and 4.

use super::request::{ServiceRequest, Tool};
use super::systemctl::{Does, parse};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a shim finds what it needs. Fixed places of the view, never taken from the environment.
#[derive(Debug, Clone)]
pub struct ShimPaths {
    /// The file that requests are appended to.
    pub sink: PathBuf,
    /// The real systemctl, which the shim covers.
    pub systemctl: PathBuf,
    /// The real `service`.
    pub service: PathBuf,
}

const FORBIDDEN: u8 = 101;
const NOT_RUNNING: u8 = 3;

/// What a machine without running services says.
const PROPERTIES: [(&str, &str); 9] = [
    ("ActiveState", "inactive"),
    ("SubState", "dead"),
    ("LoadState", "loaded"),
    ("MainPID", "0"),
    ("ControlPID", "0"),
    ("Result", "success"),
    ("NeedDaemonReload", "no"),
    ("ExecMainStatus", "0"),
    ("NRestarts", "0"),
];

/// Acts as the command that `argv0` names and gives its exit status. `None` when that is none of
/// the covered ones, so that the program goes on as itself.
pub fn shim_main(argv0: &OsStr, args: &[OsString], paths: &ShimPaths) -> Option<u8> {
    let name = Path::new(argv0).file_name()?.to_str()?;
    let text: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let code = match name {
        "policy-rc.d" => policy(&text, paths),
        "systemctl" => systemctl(&text, args, paths),
        "service" => service(&text, args, paths),
        "telinit" => telinit(&text, paths),
        "runlevel" => {
            say("unknown");
            1
        }
        "reboot" | "poweroff" | "halt" | "shutdown" => refuse(name),
        _ => return None,
    };
    Some(code)
}

/// `policy-rc.d [options] ID ACTIONS [RUNLEVEL]`, as invoke-rc.d(8) calls it.
fn policy(args: &[String], paths: &ShimPaths) -> u8 {
    if args.iter().any(|arg| arg == "--list") {
        return 0;
    }
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let [id, actions, ..] = words[..] else { return FORBIDDEN };
    // Several actions are alternatives in order; the ones in brackets are fallbacks.
    let action = actions.split_whitespace().find(|action| !action.starts_with('('));
    match action {
        Some(action) if record(Tool::InvokeRcD, action, vec![id.clone()], paths).is_err() => 102,
        _ => FORBIDDEN,
    }
}

fn systemctl(args: &[String], raw: &[OsString], paths: &ShimPaths) -> u8 {
    match parse(args) {
        Does::Defer { action, operands } => defer(Tool::Systemctl, &action, operands, paths),
        Does::Files { args: own, reload, then } => {
            // Arguments that are not text are handed on as they came.
            let as_text = own.iter().map(OsString::from);
            let real_args: Vec<OsString> =
                if own.len() == raw.len() { raw.to_vec() } else { as_text.collect() };
            let code = real(&paths.systemctl, &real_args);
            if code == 0 && reload {
                defer(Tool::Systemctl, "daemon-reload", Vec::new(), paths);
            }
            match then {
                Some((action, units)) if code == 0 => defer(Tool::Systemctl, action, units, paths),
                _ => code,
            }
        }
        Does::Ask { verb, units, quiet, properties, value } => {
            ask(&verb, &units, quiet, &properties, value)
        }
        Does::Machine(verb) => refuse(&format!("systemctl {verb}")),
    }
}

/// `service NAME ACTION`, as service(8).
fn service(args: &[String], raw: &[OsString], paths: &ShimPaths) -> u8 {
    match args {
        [name, action, ..] if action == "status" => {
            say(&format!("{name} is not running (inside a transaction)"));
            NOT_RUNNING
        }
        [name, action, ..] if !name.starts_with('-') => {
            defer(Tool::Service, action, vec![name.clone()], paths)
        }
        _ => real(&paths.service, raw),
    }
}

/// `telinit`: re-executing and re-reading can wait, a change of the run level is the machine's.
fn telinit(args: &[String], paths: &ShimPaths) -> u8 {
    match args.last().map(String::as_str) {
        Some("u" | "U") => defer(Tool::Systemctl, "daemon-reexec", Vec::new(), paths),
        Some("q" | "Q") => defer(Tool::Systemctl, "daemon-reload", Vec::new(), paths),
        _ => refuse("telinit"),
    }
}

fn record(tool: Tool, action: &str, operands: Vec<String>, paths: &ShimPaths) -> io::Result<()> {
    let request = ServiceRequest { tool, action: action.to_owned(), operands };
    let recorded = match request.is_known() {
        true => request.record(&paths.sink),
        false => Err(io::Error::other("not an action that can wait for the commit")),
    };
    if let Err(error) = &recorded {
        complain(&format!("{action}: cannot be recorded for after the commit: {error}"));
    }
    recorded
}

fn defer(tool: Tool, action: &str, operands: Vec<String>, paths: &ShimPaths) -> u8 {
    u8::from(record(tool, action, operands, paths).is_err())
}

/// Runs the real command on the view's files.
fn real(program: &Path, args: &[OsString]) -> u8 {
    let name = program.file_name().unwrap_or_default();
    let status = Command::new(program).arg0(name).args(args).env("SYSTEMD_OFFLINE", "1").status();
    match status {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
        Err(error) => {
            complain(&format!("{}: {error}", program.display()));
            127
        }
    }
}

fn ask(verb: &str, units: &[String], quiet: bool, properties: &[String], value: bool) -> u8 {
    let for_each = |line: &str| {
        if !quiet {
            units.iter().for_each(|_| say(line));
        }
    };
    match verb {
        "is-active" => {
            for_each("inactive");
            NOT_RUNNING
        }
        "is-failed" => {
            for_each("inactive");
            1
        }
        "is-system-running" => {
            if !quiet {
                say("offline");
            }
            1
        }
        "status" => {
            for unit in units {
                say(&format!("* {unit}\n     Active: inactive (dead) (inside a transaction)"));
            }
            if units.is_empty() { 0 } else { NOT_RUNNING }
        }
        "show" => {
            let asked = |name: &str| properties.is_empty() || properties.iter().any(|p| p == name);
            for _ in 0..units.len().max(1) {
                for (name, state) in PROPERTIES.iter().filter(|row| asked(row.0)) {
                    say(&if value { (*state).to_owned() } else { format!("{name}={state}") });
                }
            }
            0
        }
        verb if verb.starts_with("list-") => 0,
        verb => {
            complain(&format!("systemctl {verb}: not available inside a transaction"));
            1
        }
    }
}

fn refuse(what: &str) -> u8 {
    complain(&format!("{what}: refused inside a transaction: it changes the running machine"));
    1
}

/// A script that does not read the answer is no reason to fail.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "txos: {line}");
}
