//! After the commit: the recorded requests, made for real.
//!
//! Invariants: the order of the requests is kept; of equal requests the last one is run, because it
//! saw all that came before it, except that a request of another kind for the same units in between
//! (stop, then start) keeps both; nothing here can fail the transaction.

use super::request::{ServiceRequest, Tool};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::{Command, Stdio};

/// Most bytes of a command's output that are kept in the report.
const MAX_NOTE: usize = 2000;

/// Suffixes by which `deb-systemd-invoke` names what it asks about.
const UNIT_SUFFIXES: [&str; 6] = [".service", ".socket", ".timer", ".path", ".target", ".mount"];

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceOutcome {
    /// The request.
    pub request: ServiceRequest,
    /// The command line that was run; empty when none was.
    pub command: Vec<String>,
    /// Its exit status; `None` when it was not run, or ended by a signal.
    pub status: Option<i32>,
    /// Why it was not run, or the end of what it printed.
    pub note: String,
}

/// Makes the requests, outside. Blocks until the service manager has answered each.
pub fn run_deferred(requests: &[ServiceRequest]) -> Vec<ServiceOutcome> {
    let manager = service_manager();
    once_each(requests).into_iter().map(|request| run(request, manager)).collect()
}

/// What runs services here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manager {
    Systemd,
    /// Some other `init`, whose services are started by scripts.
    Scripts,
    None,
}

fn service_manager() -> Manager {
    if Path::new("/run/systemd/system").is_dir() {
        return Manager::Systemd;
    }
    let first = std::fs::read_to_string("/proc/1/comm").unwrap_or_default();
    match first.trim() {
        "init" | "runit" | "openrc-init" => Manager::Scripts,
        _ => Manager::None,
    }
}

/// Drops a request when an equal one follows and nothing else in between names the same operands.
fn once_each(requests: &[ServiceRequest]) -> Vec<&ServiceRequest> {
    let mut kept: Vec<&ServiceRequest> = Vec::new();
    for request in requests {
        let rival = |other: &&ServiceRequest| {
            other.operands == request.operands && other.action != request.action
        };
        if let Some(at) = kept.iter().rposition(|known| *known == request)
            && !kept[at + 1..].iter().any(rival)
        {
            kept.remove(at);
        }
        kept.push(request);
    }
    kept
}

fn run(request: &ServiceRequest, manager: Manager) -> ServiceOutcome {
    let not_run = |note: &str| ServiceOutcome {
        request: request.clone(),
        command: Vec::new(),
        status: None,
        note: format!("not run: {note}"),
    };
    if !request.is_known() {
        return not_run("not an action that can wait for the commit");
    }
    match (manager, request.tool) {
        (Manager::None, _) => return not_run("no service manager is running"),
        (Manager::Scripts, Tool::Systemctl) => return not_run("systemd is not running"),
        _ => {}
    }
    let command = command_line(request);
    let output = Command::new(&command[0])
        .args(&command[1..])
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => {
            let mut printed = output.stdout;
            printed.extend(output.stderr);
            let tail = &printed[printed.len().saturating_sub(MAX_NOTE)..];
            let note = String::from_utf8_lossy(tail).trim().to_owned();
            ServiceOutcome { request: request.clone(), command, status: output.status.code(), note }
        }
        Err(error) => not_run(&format!("{}: {error}", command[0])),
    }
}

/// The command that makes a request: the one that the script had called.
fn command_line(request: &ServiceRequest) -> Vec<String> {
    let action = request.action.clone();
    let operands = request.operands.iter().cloned();
    let is_unit = |id: &String| UNIT_SUFFIXES.iter().any(|suffix| id.ends_with(suffix));
    match request.tool {
        Tool::Systemctl => ["systemctl".to_owned(), action].into_iter().chain(operands).collect(),
        // Both ask the machine's own policy-rc.d, which has the last word.
        Tool::InvokeRcD if request.operands.iter().any(is_unit) => {
            ["deb-systemd-invoke".to_owned(), action].into_iter().chain(operands).collect()
        }
        Tool::InvokeRcD => {
            ["invoke-rc.d".to_owned()].into_iter().chain(operands).chain([action]).collect()
        }
        Tool::Service => {
            ["service".to_owned()].into_iter().chain(operands).chain([action]).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(tool: Tool, action: &str, operand: &str) -> ServiceRequest {
        let operands = vec![operand.to_owned()];
        ServiceRequest { tool, action: action.to_owned(), operands }
    }

    #[test]
    fn repeats_are_run_once_in_the_place_of_the_last() {
        let restart = request(Tool::InvokeRcD, "restart", "ssh");
        let other = request(Tool::Systemctl, "start", "x.timer");
        let all = [restart.clone(), other.clone(), restart.clone()];
        assert_eq!(once_each(&all), [&other, &restart]);
    }

    #[test]
    fn stopping_and_starting_in_turn_keeps_its_turns() {
        let stop = request(Tool::InvokeRcD, "stop", "ssh");
        let start = request(Tool::InvokeRcD, "start", "ssh");
        let all = [stop.clone(), start.clone(), stop.clone()];
        assert_eq!(once_each(&all), [&stop, &start, &stop]);
    }

    #[test]
    fn the_same_command_is_called_as_in_the_script() {
        let line = |tool, action, operand| command_line(&request(tool, action, operand)).join(" ");
        assert_eq!(line(Tool::InvokeRcD, "start", "ssh"), "invoke-rc.d ssh start");
        assert_eq!(
            line(Tool::InvokeRcD, "start", "ssh.service"),
            "deb-systemd-invoke start ssh.service"
        );
        assert_eq!(line(Tool::Systemctl, "kill", "ssh"), "systemctl kill ssh");
        assert_eq!(line(Tool::Service, "reload", "ssh"), "service ssh reload");
    }

    #[test]
    fn without_a_manager_nothing_is_run_and_that_is_said() {
        let outcome = run(&request(Tool::Service, "restart", "x"), Manager::None);
        assert_eq!((outcome.status, outcome.command.len()), (None, 0));
        assert!(outcome.note.contains("no service manager"));
        let unknown = run(&request(Tool::Service, "Explode!", "x"), Manager::Systemd);
        assert!(unknown.note.starts_with("not run"));
    }
}
