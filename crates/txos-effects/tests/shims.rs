//! The covered commands, called as package scripts call them.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tempfile::TempDir;
use txos_effects::services::{ServiceRequest, ShimPaths, Tool, read_requests, shim_main};

struct Inside {
    dir: TempDir,
    paths: ShimPaths,
}

impl Inside {
    /// A sink, and a "real" systemctl that notes its arguments and its environment.
    fn new() -> Inside {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("sink"), "").unwrap();
        let script = format!(
            "#!/bin/sh\necho \"$SYSTEMD_OFFLINE $*\" >> {}\n[ \"$1\" != fail ]\n",
            at("real.log").display()
        );
        for name in ["systemctl", "service"] {
            fs::write(at(name), &script).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let paths =
            ShimPaths { sink: at("sink"), systemctl: at("systemctl"), service: at("service") };
        Inside { dir, paths }
    }

    fn call(&self, line: &str) -> Option<u8> {
        let mut words = line.split_whitespace();
        let argv0 = words.next().unwrap();
        let args: Vec<OsString> = words.map(OsString::from).collect();
        shim_main(OsStr::new(argv0), &args, &self.paths)
    }

    fn recorded(&self) -> Vec<String> {
        let (requests, skipped) = read_requests(&self.paths.sink).unwrap();
        assert_eq!(skipped, 0);
        let tool = |request: &ServiceRequest| match request.tool {
            Tool::InvokeRcD => "invoke-rc.d",
            Tool::Systemctl => "systemctl",
            Tool::Service => "service",
        };
        let line =
            |r: &ServiceRequest| format!("{} {} {}", tool(r), r.action, r.operands.join(" "));
        requests.iter().map(|request| line(request).trim_end().to_owned()).collect()
    }

    fn real(&self) -> String {
        fs::read_to_string(self.dir.path().join("real.log")).unwrap_or_default()
    }
}

#[test]
fn policy_forbids_and_remembers() {
    let inside = Inside::new();
    assert_eq!(inside.call("/usr/sbin/policy-rc.d --quiet ssh start 2"), Some(101));
    assert_eq!(inside.call("policy-rc.d ssh.service restart"), Some(101));
    assert_eq!(inside.call("policy-rc.d --list ssh"), Some(0));
    assert_eq!(inside.recorded(), ["invoke-rc.d start ssh", "invoke-rc.d restart ssh.service"]);
    // An action that nobody may run later is an error of the call (102: subsystem unsupported).
    assert_eq!(inside.call("policy-rc.d ssh Explode!"), Some(102));
}

#[test]
fn running_units_wait_and_files_are_changed_now() {
    let inside = Inside::new();
    assert_eq!(inside.call("systemctl --system daemon-reload"), Some(0));
    assert_eq!(inside.call("systemctl enable --now ssh.service"), Some(0));
    assert_eq!(inside.call("/bin/systemctl is-enabled ssh.service"), Some(0));
    assert_eq!(inside.real(), "1 enable ssh.service\n1 is-enabled ssh.service\n");
    assert_eq!(
        inside.recorded(),
        [
            "systemctl daemon-reload --system",
            "systemctl daemon-reload",
            "systemctl start ssh.service"
        ]
    );
}

#[test]
fn questions_are_answered_as_where_nothing_runs() {
    let inside = Inside::new();
    assert_eq!(inside.call("systemctl is-active ssh"), Some(3));
    assert_eq!(inside.call("systemctl is-failed --quiet ssh"), Some(1));
    assert_eq!(inside.call("systemctl status ssh"), Some(3));
    assert_eq!(inside.call("systemctl show -p ActiveState ssh"), Some(0));
    assert_eq!(inside.call("systemctl list-units"), Some(0));
    assert_eq!(inside.call("systemctl is-system-running"), Some(1));
    assert_eq!(inside.call("service ssh status"), Some(3));
    assert!(inside.recorded().is_empty() && inside.real().is_empty());
}

#[test]
fn the_machine_is_not_stopped_from_inside() {
    let inside = Inside::new();
    for line in ["reboot", "/sbin/poweroff -f", "systemctl reboot", "telinit 6", "shutdown now"] {
        assert_eq!(inside.call(line), Some(1), "{line}");
    }
    assert_eq!(inside.call("telinit u"), Some(0));
    assert_eq!(inside.recorded(), ["systemctl daemon-reexec"]);
    assert!(inside.real().is_empty());
}

#[test]
fn a_request_that_cannot_be_recorded_fails() {
    let mut inside = Inside::new();
    inside.paths.sink = PathBuf::from("/nonexistent/sink");
    assert_eq!(inside.call("systemctl restart ssh"), Some(1));
    assert_eq!(inside.call("service ssh restart"), Some(1));
    assert_eq!(inside.call("policy-rc.d ssh start"), Some(102));
}

#[test]
fn the_real_commands_status_comes_through() {
    let inside = Inside::new();
    assert_eq!(inside.call("service --status-all"), Some(0));
    assert_eq!(inside.call("service fail"), Some(1));
    let mut gone = Inside::new();
    gone.paths.systemctl = PathBuf::from("/nonexistent/systemctl");
    assert_eq!(gone.call("systemctl enable ssh"), Some(127));
}

#[test]
fn another_name_is_not_ours() {
    let inside = Inside::new();
    assert_eq!(inside.call("txos run"), None);
    assert_eq!(inside.call("/usr/bin/ls"), None);
}
