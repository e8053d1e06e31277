//! Meeting points between a test and what it runs inside a transaction: empty files in a directory
//! that `--live` lets through.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::exec::LIMIT;
use crate::op::{Op, escape};
use std::os::unix::ffi::OsStrExt;

/// A directory of marks.
pub struct Gate {
    dir: PathBuf,
}

impl Gate {
    /// Over this directory, which exists.
    pub fn new(dir: PathBuf) -> Gate {
        Gate { dir }
    }

    /// The path of a mark.
    pub fn mark(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Opens it for the other side.
    ///
    /// # Panics
    /// If the mark can't be made.
    pub fn open(&self, name: &str) {
        std::fs::write(self.mark(name), b"").expect("mark");
    }

    /// Whether the mark is there.
    pub fn passed(&self, name: &str) -> bool {
        self.mark(name).exists()
    }

    /// Waits for the other side's mark.
    ///
    /// # Panics
    /// If it does not come within [`LIMIT`].
    #[track_caller]
    pub fn wait(&self, name: &str) {
        let start = Instant::now();
        while !self.passed(name) {
            assert!(start.elapsed() < LIMIT, "nobody reached {name:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The operation that waits for a mark, for the inside.
    pub fn op_wait(&self, name: &str) -> Op {
        Op::Await { path: text(&self.mark(name)) }
    }

    /// The operation that sets a mark, for the inside.
    pub fn op_open(&self, name: &str) -> Op {
        Op::Signal { path: text(&self.mark(name)) }
    }

    /// Shell functions `reach NAME` and `await NAME` for a script inside.
    pub fn functions(&self) -> String {
        let dir = self.dir.display();
        format!(
            "reach() {{ : >'{dir}/'\"$1\"; }}\n\
             await() {{ n=0; while [ ! -e '{dir}/'\"$1\" ]; do n=$((n+1)); \
             [ $n -lt 12000 ] || exit 99; sleep 0.01; done; }}\n"
        )
    }
}

fn text(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}
