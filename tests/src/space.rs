//! A mount namespace with mounts of its own, for tests that need file systems.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::exec;
use crate::scratch::{MARK, Scratch};

/// A process that keeps a private mount namespace, in which a shell script has mounted things.
pub struct Space {
    holder: Child,
}

impl Space {
    /// Makes the namespace and runs `script` in it, with the scratch directory as `$1` and as the
    /// working directory. `None`, with the reason, if the machine does not allow it.
    ///
    /// # Errors
    /// What the script said.
    pub fn new(scratch: &Scratch, script: &str) -> Result<Space, String> {
        let ready = scratch.base().join("space-ready");
        let failed = scratch.base().join("space-failed");
        let whole = format!(
            "cd \"$1\" && {{ (set -e\n{script}\n) 2>space-said && : >space-ready || mv space-said space-failed; }}; exec sleep 600"
        );
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--", "sh", "-c", &whole, "sh"])
            .arg(scratch.base())
            .env(MARK, format!("space-{}", scratch.mark()))
            .env("PATH", exec::path())
            .stdin(Stdio::null())
            .spawn()
            .map_err(|e| format!("unshare: {e}"))?;
        let start = Instant::now();
        loop {
            if ready.exists() {
                return Ok(Space { holder });
            }
            if failed.exists() || start.elapsed() > exec::LIMIT {
                let said = std::fs::read_to_string(&failed).unwrap_or_default();
                let _ = holder.kill();
                let _ = holder.wait();
                return Err(said);
            }
            if let Ok(Some(status)) = holder.try_wait() {
                return Err(format!("unshare: {status}"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What stands before a command so that it runs in the namespace, in directory `dir`.
    pub fn prefix(&self, dir: &Path) -> Vec<OsString> {
        let mut out: Vec<OsString> = ["nsenter", "-t"].map(OsString::from).to_vec();
        out.push(self.holder.id().to_string().into());
        out.extend(["-m", "--", "sh", "-c", "cd \"$0\" && exec \"$@\""].map(OsString::from));
        out.push(dir.into());
        out
    }

    /// A path of the namespace as seen from outside.
    pub fn outside(&self, path: &Path) -> PathBuf {
        let path = path.strip_prefix("/").unwrap_or(path);
        Path::new("/proc").join(self.holder.id().to_string()).join("root").join(path)
    }

    /// The namespace's mount table.
    pub fn mounts(&self) -> String {
        let table = format!("/proc/{}/mountinfo", self.holder.id());
        std::fs::read_to_string(table).unwrap_or_default()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
