//! The file system's journal and block bitmaps (ext3): locks that TxLinux-SS leaves alone.

use super::region::K;
use super::site::Site;

impl K {
    /// Begins a handle.
    pub async fn journal_start(&self) {
        let j = self.map.journal;
        self.section(Site::JournalStart, j, async || {
            let n = self.load(j + 64).await;
            self.alu(6).await;
            self.store(j + 64, n + 1).await;
        })
        .await;
    }

    /// Ends a handle.
    pub async fn journal_stop(&self) {
        let j = self.map.journal;
        self.section(Site::JournalStop, j, async || {
            let n = self.load(j + 64).await;
            self.alu(6).await;
            self.store(j + 64, n - 1).await;
        })
        .await;
    }

    /// Files a buffer with the running journal transaction.
    pub async fn journal_dirty(&self) {
        let list = self.map.journal + 128;
        self.section(Site::JournalDirty, list, async || {
            let n = self.load(list + 64).await;
            self.alu(8).await;
            self.store(list + 64, n + 1).await;
        })
        .await;
    }

    /// Allocates a block in the group of directory `group`.
    pub async fn block_alloc(&self, group: u32) {
        let groups = &self.map.groups;
        let g = groups[group as usize % groups.len()];
        self.section(Site::BitmapAlloc, g, async || {
            let n = self.load(g + 64).await;
            self.alu(16).await;
            self.store(g + 64, n + 1).await;
        })
        .await;
    }
}
