//! Inodes and their pages: creation, the page cache, reading and writing.

use super::map::{TREE_PAGES, inode, page};
use super::region::K;
use super::site::Site;
use crate::mem::Addr;
use crate::sync::cx::FREE;

impl K {
    /// A new inode with one link; 0 if memory is exhausted.
    pub async fn new_inode(&self) -> Addr {
        let i = self.kmem_alloc(self.map.inodes).await;
        if i == 0 {
            return 0;
        }
        let fields = [
            (inode::COUNT, 1),
            (inode::NLINK, 1),
            (inode::PAGES, 0),
            (inode::DIRTY, 0),
            (inode::SEM, 1),
            (inode::SEM + 4, 0),
            (inode::SEM + 8, FREE),
            (inode::SEM + 12, 0),
            (inode::SEM + 16, 0),
            (inode::TREE_LOCK, self.map.tree_lock_free()),
            (inode::MMAP_LOCK, FREE),
            (inode::MAPS, 0),
        ];
        for (field, value) in fields {
            self.store(i + field, value).await;
        }
        for n in 0..TREE_PAGES {
            self.store(i + inode::TREE + 4 * n, 0).await;
        }
        let lock = self.map.inode_lock;
        self.section(Site::InodeNew, lock, async || {
            let n = self.load(lock + 72).await;
            self.store(lock + 72, n + 1).await;
        })
        .await;
        i
    }

    /// Frees an inode whose last link and user are gone, with its pages.
    pub async fn destroy_inode(&self, i: Addr) {
        let lock = self.map.inode_lock;
        self.section(Site::InodePut, lock, async || {
            let n = self.load(lock + 72).await;
            self.store(lock + 72, n - 1).await;
            if self.load(i + inode::DIRTY).await != 0 {
                self.list_del(i + inode::LINK).await;
                self.store(i + inode::DIRTY, 0).await;
            }
        })
        .await;
        let pages = self.truncate(i).await;
        self.release_pages(&pages).await;
        self.kmem_free(self.map.inodes, i).await;
    }

    /// Takes all pages out of the tree of `i`.
    async fn truncate(&self, i: Addr) -> Vec<Addr> {
        if self.load(i + inode::PAGES).await == 0 {
            return Vec::new();
        }
        self.write_section(Site::TreeRemove, i + inode::TREE_LOCK, async || {
            let mut pages = Vec::new();
            for n in 0..TREE_PAGES {
                let slot = i + inode::TREE + 4 * n;
                let page = self.load(slot).await;
                if page != 0 {
                    self.store(slot, 0).await;
                    pages.push(page);
                }
            }
            self.store(i + inode::PAGES, 0).await;
            pages
        })
        .await
    }

    /// Marks `i` dirty, with a new change time, and lists it.
    pub async fn mark_dirty(&self, i: Addr) {
        self.gettimeofday().await;
        if self.load(i + inode::DIRTY).await != 0 {
            return;
        }
        let lock = self.map.inode_lock;
        self.section(Site::InodeDirty, lock, async || {
            if self.load(i + inode::DIRTY).await == 0 {
                self.store(i + inode::DIRTY, 1).await;
                self.list_add(lock + 64, i + inode::LINK).await;
            }
        })
        .await;
    }

    /// Page `n` of inode `i`, brought in if it is not cached: from disk if `disk`, else zeroed.
    pub async fn get_page(&self, i: Addr, n: u32, disk: bool) -> Addr {
        let slot = i + inode::TREE + 4 * (n % TREE_PAGES);
        let page = self.find_page(i, slot).await;
        if page != 0 {
            self.page_accessed(page).await;
            return page;
        }
        if !disk {
            return self.add_page(i, slot, false).await;
        }
        // One reader fetches a page; the others wait for it (Linux: the page's lock).
        self.down(i + inode::SEM).await;
        let mut page = self.find_page(i, slot).await;
        if page == 0 {
            page = self.add_page(i, slot, true).await;
        }
        self.up(i + inode::SEM).await;
        page
    }

    async fn find_page(&self, i: Addr, slot: Addr) -> Addr {
        self.read_section(Site::TreeLookup, i + inode::TREE_LOCK, async || self.load(slot).await)
            .await
    }

    /// Puts a new page into `slot` of the tree; whatever is there in the end.
    async fn add_page(&self, i: Addr, slot: Addr, disk: bool) -> Addr {
        let page = self.page_alloc().await;
        if page == 0 {
            return 0;
        }
        if disk {
            self.disk_read().await;
        }
        self.lru_add(page).await;
        let winner = self
            .write_section(Site::TreeInsert, i + inode::TREE_LOCK, async || {
                let there = self.load(slot).await;
                if there != 0 {
                    return there;
                }
                self.store(slot, page).await;
                0
            })
            .await;
        if winner != 0 {
            // Somebody else was faster; ours goes when the LRU vector lets go of it.
            self.release_pages(&[page]).await;
            return winner;
        }
        page
    }

    /// Reads `pages` pages of `i`; those not cached come from disk if `disk`.
    pub async fn read_pages(&self, i: Addr, pages: u32, disk: bool) {
        let _code = self.code(88, 16);
        self.gettimeofday().await; // access time
        for n in 0..pages.min(TREE_PAGES) {
            let page = self.get_page(i, n, disk).await;
            if page == 0 {
                return;
            }
            self.copy_page().await;
        }
    }

    /// Writes `pages` pages at the start of `i`.
    pub async fn write_pages(&self, i: Addr, pages: u32) {
        let _code = self.code(104, 16);
        for n in 0..pages.min(TREE_PAGES) {
            let page = self.get_page(i, n, false).await;
            if page == 0 {
                return;
            }
            self.journal_dirty().await;
            self.copy_page().await;
            if self.load(page + page::DIRTY).await == 0 {
                self.write_section(Site::TreeDirty, i + inode::TREE_LOCK, async || {
                    self.store(page + page::DIRTY, 1).await;
                })
                .await;
            }
        }
        let old = self.load(i + inode::PAGES).await;
        if pages > old {
            self.store(i + inode::PAGES, pages.min(TREE_PAGES)).await;
        }
        self.mark_dirty(i).await;
    }

    /// Copies a page between kernel and user: 64 lines. The user side is not modelled, and the
    /// copy's cache misses are charged as arithmetic, so that data does not crowd out the state
    /// under study.
    async fn copy_page(&self) {
        self.work(1_800).await;
    }

    /// Maps `i` into the running process.
    pub async fn vma_link(&self, i: Addr) -> Addr {
        let vma = self.kmem_alloc(self.map.small).await;
        self.maps(Site::MmapLink, i, 1).await;
        vma
    }

    /// Undoes [`Self::vma_link`].
    pub async fn vma_unlink(&self, i: Addr, vma: Addr) {
        self.maps(Site::MmapUnlink, i, 1u32.wrapping_neg()).await;
        self.kmem_free(self.map.small, vma).await;
    }

    async fn maps(&self, site: Site, i: Addr, change: u32) {
        self.section(site, i + inode::MMAP_LOCK, async || {
            let n = self.load(i + inode::MAPS).await;
            self.alu(12).await;
            self.store(i + inode::MAPS, n.wrapping_add(change)).await;
        })
        .await;
    }
}
