//! How much a transaction has written, looked at while it runs.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use std::os::unix::fs::MetadataExt;

use txos_view::Layer;

/// Shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(100);

/// A look may take this part of the time at the most.
const SHARE: u32 = 50;

/// Watches the upper layers of a view.
///
/// A look walks all that was written, so the time between two looks grows with it: the limit is
/// kept to within what can be written in that time, and exactly at the end.
#[derive(Debug)]
pub struct Watch {
    uppers: Vec<PathBuf>,
    limit: Option<u64>,
    next: Instant,
}

impl Watch {
    /// Watches `layers`; with no limit there is nothing to look at.
    pub fn new(layers: &[Layer], limit: Option<u64>) -> Watch {
        let uppers = layers.iter().filter_map(|layer| layer.upper.clone()).collect();
        Watch { uppers, limit, next: Instant::now() + SHORTEST }
    }

    /// When the next look is due.
    pub fn next_look(&self) -> Option<Instant> {
        self.limit.map(|_| self.next)
    }

    /// Looks; gives the limit if more than it was written.
    pub fn exceeded(&mut self) -> Option<u64> {
        let limit = self.limit?;
        let begin = Instant::now();
        let used: u64 = self.uppers.iter().map(|upper| space_below(upper)).sum();
        self.next = Instant::now() + SHORTEST.max(begin.elapsed() * SHARE);
        (used > limit).then_some(limit)
    }
}

/// The space that regular files below `dir` take, in bytes. What vanishes meanwhile counts nothing.
fn space_below(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let of_entry = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => space_below(&entry.path()),
        Ok(meta) if meta.is_file() => meta.blocks() * 512,
        _ => 0,
    };
    entries.flatten().map(of_entry).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_files_take() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/f"), vec![1; 10_000]).unwrap();
        let layer = Layer {
            point: "/".into(),
            upper: Some(dir.path().into()),
            work: None,
            no_suid: false,
            no_exec: false,
            no_dev: false,
        };
        assert_eq!(Watch::new(std::slice::from_ref(&layer), Some(4096)).exceeded(), Some(4096));
        assert_eq!(Watch::new(std::slice::from_ref(&layer), Some(1 << 20)).exceeded(), None);
        assert!(Watch::new(&[layer], None).next_look().is_none());
    }
}
