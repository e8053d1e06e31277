//! A domain for one test, with processes of its own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::exec::LIMIT;
use crate::scratch::{MARK, Scratch};
use crate::txos::{Txos, helper};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A domain of its own; its processes and itself go with this.
pub struct Domain {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: PathBuf,
    mark: String,
    members: Vec<Child>,
}

impl Domain {
    /// Makes one.
    ///
    /// # Errors
    /// Why there can be none here.
    pub fn new(scratch: &Scratch) -> Result<Domain, String> {
        let name = format!("t{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let txos = Txos::new(scratch);
        let made = txos.call(["domain", "create", &name]);
        if made.code() != 0 {
            return Err(made.stderr);
        }
        let list = txos.call(["domain", "list", "--json"]);
        let mut groups = list.expect(0).stdout.lines().filter_map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).ok()?;
            (value["name"] == name).then(|| PathBuf::from(value["group"].as_str().unwrap_or("")))
        });
        let group = groups.next_back().expect("the new domain is listed");
        Ok(Domain { name, group, mark: scratch.mark().to_owned(), members: Vec::new() })
    }

    /// Starts the helper `member` with these words in it; gives its process id.
    ///
    /// # Panics
    /// If it can't be started or moved.
    pub fn start(&mut self, scratch: &Scratch, words: &[&str]) -> u32 {
        let mut command = Command::new(helper("member"));
        command.args(words).env(MARK, &self.mark).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().expect("a member");
        let pid = child.id();
        self.members.push(child);
        let txos = Txos::new(scratch);
        txos.call(["domain", "add", &self.name, &pid.to_string()]).expect(0);
        pid
    }

    /// A member that was started.
    ///
    /// # Panics
    /// If there is none of this number.
    pub fn member(&mut self, number: usize) -> &mut Child {
        &mut self.members[number]
    }

    /// Whether somebody asks that it stand still.
    pub fn frozen(&self) -> bool {
        std::fs::read_to_string(self.group.join("cgroup.freeze")).is_ok_and(|s| s.trim() == "1")
    }

    /// Waits until it stands still; `false` if it never does for so long.
    pub fn wait_frozen(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while !self.frozen() {
            if Instant::now() > deadline {
                return false;
            }
        }
        true
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let _ = std::fs::write(self.group.join("cgroup.freeze"), "0");
        let _ = std::fs::write(self.group.join("cgroup.kill"), "1");
        for member in &mut self.members {
            let _ = member.kill();
            let _ = member.wait();
        }
        let start = Instant::now();
        while std::fs::remove_dir(&self.group).is_err() && self.group.exists() {
            if start.elapsed() > LIMIT {
                assert!(std::thread::panicking(), "{} stays", self.group.display());
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
