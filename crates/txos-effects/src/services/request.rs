//! A request to the service manager: what is recorded, and what it may be.

use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::Path;

/// Most bytes of requests that are read: members write them.
const MAX_SINK: u64 = 1 << 20;

/// The command that a request was made to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// `invoke-rc.d` or `deb-systemd-invoke`, by way of `policy-rc.d`.
    InvokeRcD,
    /// `systemctl`.
    Systemctl,
    /// `service`.
    Service,
}

/// A request that waits for the commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ServiceRequest {
    /// What was called.
    pub tool: Tool,
    /// `restart`, `daemon-reload`, …
    pub action: String,
    /// Options, then units or init scripts.
    pub operands: Vec<String>,
}

/// Verbs of systemctl that act on the running system and can wait.
pub(super) const DEFERRED_VERBS: [&str; 25] = [
    "start",
    "stop",
    "restart",
    "reload",
    "try-restart",
    "condrestart",
    "condreload",
    "condstop",
    "force-reload",
    "reload-or-restart",
    "try-reload-or-restart",
    "reload-or-try-restart",
    "isolate",
    "kill",
    "clean",
    "freeze",
    "thaw",
    "daemon-reload",
    "daemon-reexec",
    "reset-failed",
    "set-environment",
    "unset-environment",
    "import-environment",
    "log-level",
    "set-property",
];

impl ServiceRequest {
    /// Whether it is of a kind that may be run after commit: a verb of systemctl that acts on the
    /// running system, or any plain word for an init script, which may know words of its own.
    pub fn is_known(&self) -> bool {
        let word = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_lowercase())
                && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        };
        let script = |name: &String| !name.starts_with('-') && !name.contains('/');
        let fits = match self.tool {
            Tool::Systemctl => DEFERRED_VERBS.contains(&self.action.as_str()),
            Tool::InvokeRcD | Tool::Service => {
                word(&self.action) && self.operands.iter().all(script)
            }
        };
        fits && !self.operands.iter().any(|operand| operand.contains(['\0', '\n']))
    }

    /// Appends the request to the sink, in one write, so that concurrent requests do not mix.
    pub(super) fn record(&self, sink: &Path) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        OpenOptions::new().append(true).open(sink)?.write_all(&line)
    }
}

/// Reads what was recorded, in order. Lines that are no request of a known kind are skipped: the
/// second value counts them.
///
/// # Errors
///
/// When the sink cannot be read.
pub fn read_requests(sink: &Path) -> io::Result<(Vec<ServiceRequest>, usize)> {
    let mut bytes = Vec::new();
    std::fs::File::open(sink)?.take(MAX_SINK).read_to_end(&mut bytes)?;
    Ok(parse(&bytes))
}

/// Reads the lines that members wrote: any bytes.
fn parse(bytes: &[u8]) -> (Vec<ServiceRequest>, usize) {
    let lines = bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let parsed = lines.map(|line| {
        serde_json::from_slice::<ServiceRequest>(line).ok().filter(ServiceRequest::is_known)
    });
    let (mut requests, mut skipped) = (Vec::new(), 0);
    for request in parsed {
        match request {
            Some(request) => requests.push(request),
            None => skipped += 1,
        }
    }
    (requests, skipped)
}

/// For the fuzzer `services`: what is taken from any bytes is of a known kind, and none of it could
/// steer a tool in another way than its words say.
///
/// # Panics
/// If that is not so.
#[cfg(any(test, fuzzing))]
pub fn fuzz(bytes: &[u8]) {
    let (requests, skipped) = parse(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    assert_eq!(requests.len() + skipped, lines);
    for request in requests {
        assert!(request.is_known());
        let again = serde_json::to_vec(&request).unwrap_or_default();
        assert_eq!(parse(&again), (vec![request], 0), "read differently when written again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn any_lines_are_requests_or_skipped(bytes: Vec<u8>) {
            fuzz(&bytes);
        }
    }

    fn request(tool: Tool, action: &str, operands: &[&str]) -> ServiceRequest {
        let operands = operands.iter().map(|&o| o.to_owned()).collect();
        ServiceRequest { tool, action: action.to_owned(), operands }
    }

    #[test]
    fn requests_come_back_in_order_and_junk_is_skipped() {
        let sink = tempfile::NamedTempFile::new().unwrap();
        let first = request(Tool::InvokeRcD, "restart", &["ssh"]);
        let second = request(Tool::Systemctl, "daemon-reload", &[]);
        first.record(sink.path()).unwrap();
        let mut raw = OpenOptions::new().append(true).open(sink.path()).unwrap();
        raw.write_all(b"{\"tool\":\"systemctl\",\"action\":\"poweroff\",\"operands\":[]}\n{torn\n")
            .unwrap();
        second.record(sink.path()).unwrap();
        assert_eq!(read_requests(sink.path()).unwrap(), (vec![first, second], 2));
    }

    #[test]
    fn an_init_script_gets_no_options() {
        assert!(request(Tool::Systemctl, "restart", &["--no-block", "x"]).is_known());
        assert!(request(Tool::InvokeRcD, "graceful", &["apache2"]).is_known());
        assert!(!request(Tool::InvokeRcD, "restart", &["--force", "x"]).is_known());
        assert!(!request(Tool::InvokeRcD, "restart", &["../x"]).is_known());
        assert!(!request(Tool::Service, "x; rm", &["y"]).is_known());
    }

    #[test]
    fn without_a_sink_recording_fails() {
        let request = request(Tool::Service, "restart", &["x"]);
        assert!(request.record(Path::new("/nonexistent/sink")).is_err());
    }
}
