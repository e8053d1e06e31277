//! How much memory the processes of txos need, from `/proc`.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Looks every few milliseconds at the processes that run a given binary.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<HashMap<u32, u64>>,
}

impl Watch {
    /// Starts looking.
    pub fn start(binary: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, binary) = (Arc::clone(&stop), binary.to_owned());
        let thread = std::thread::spawn(move || {
            let mut peaks = HashMap::new();
            while !stopped.load(Ordering::Relaxed) {
                look(&binary, &mut peaks);
                std::thread::sleep(Duration::from_millis(2));
            }
            peaks
        });
        Self { stop, thread }
    }

    /// The sum of the highest resident sizes seen, in bytes. An upper bound: pages that several
    /// processes share count for each, and the peaks need not have met.
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_or(0, |peaks| peaks.values().sum())
    }
}

fn look(binary: &Path, peaks: &mut HashMap<u32, u64>) {
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == binary)
            && let Ok(status) = fs::read_to_string(entry.path().join("status"))
            && let Some(bytes) = own_peak(&status)
        {
            let peak = peaks.entry(pid).or_default();
            *peak = bytes.max(*peak);
        }
    }
}

/// The highest resident size so far, pages of files included.
fn own_peak(status: &str) -> Option<u64> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some(field("VmHWM:")?.max(field("VmRSS:")?) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(own_peak(status), Some(2 << 20));
        assert_eq!(own_peak("Name:\tkthread\n"), None);
    }

    #[test]
    fn this_process_is_seen() {
        let own = std::env::current_exe().unwrap();
        let watch = Watch::start(&own);
        std::thread::sleep(Duration::from_millis(20));
        assert!(watch.stop() > 100 << 10);
    }
}
