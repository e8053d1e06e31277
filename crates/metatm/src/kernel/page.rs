//! The zoned page allocator and the page lists (mm/page_alloc.c, mm/swap.c).
//!
//! Per-processor sets keep the zone lock for bulk moves; new pages gather in a per-processor
//! vector, which holds a reference, before they enter the inactive list; a second use moves them
//! to the active one. Reference counts change under the LRU lock once a page is known.

use super::map::page;
use super::region::K;
use super::site::Site;
use crate::mem::Addr;

/// Pages moved at once.
const BATCH: u32 = 8;

/// Most pages that a processor keeps.
const HIGH: u32 = 24;

/// Pages gathered before they enter a list.
const PAGEVEC: u32 = 14;

const VEC: u32 = 128;

impl K {
    /// A free page; 0 if there is none.
    pub async fn page_alloc(&self) -> Addr {
        let _code = self.code(48, 8);
        let was = self.irq_flag(false).await;
        let pcp = self.map.pcp[self.cpu()];
        let mut n = self.load(pcp).await;
        if n == 0 {
            n = self.bulk_alloc(pcp).await;
        }
        let page = if n == 0 { 0 } else { self.load(pcp + 4 * n).await };
        self.store(pcp, n.saturating_sub(1)).await;
        if page == 0 {
            // The work that needed it would be left out, and the figures be those of less work.
            self.host(|m| m.value_error("the kernel ran out of pages; lower scale"));
        } else {
            self.store(page + page::COUNT, 1).await;
        }
        self.irq_flag(was).await;
        page
    }

    /// Gives a page back.
    pub async fn page_free(&self, page: Addr) {
        let was = self.irq_flag(false).await;
        self.store(page + page::COUNT, 0).await;
        self.store(page + page::DIRTY, 0).await;
        let pcp = self.map.pcp[self.cpu()];
        let mut n = self.load(pcp).await;
        if n == HIGH {
            self.bulk_free(pcp, n).await;
            n -= BATCH;
        }
        self.store(pcp + 4 * (n + 1), page).await;
        self.store(pcp, n + 1).await;
        self.irq_flag(was).await;
    }

    async fn bulk_alloc(&self, pcp: Addr) -> u32 {
        let zone = self.map.zone;
        self.section(Site::ZoneAlloc, zone, async || {
            let mut n = 0;
            while n < BATCH {
                let page = self.load(zone + 64).await;
                if page == zone + 64 {
                    break;
                }
                self.list_del(page).await;
                n += 1;
                self.store(pcp + 4 * n, page).await;
            }
            let free = self.load(zone + 72).await;
            self.store(zone + 72, free - n).await;
            self.store(pcp, n).await;
            n
        })
        .await
    }

    async fn bulk_free(&self, pcp: Addr, n: u32) {
        let zone = self.map.zone;
        self.section(Site::ZoneFree, zone, async || {
            for i in 0..BATCH {
                let page = self.load(pcp + 4 * (n - i)).await;
                self.list_add(zone + 64, page).await;
            }
            let free = self.load(zone + 72).await;
            self.store(zone + 72, free + BATCH).await;
        })
        .await;
    }

    /// Puts a new page, which nobody else knows yet, on its way to the inactive list.
    pub async fn lru_add(&self, page: Addr) {
        let count = self.load(page + page::COUNT).await;
        self.store(page + page::COUNT, count + 1).await;
        let was = self.irq_flag(false).await;
        let vec = self.map.pcp[self.cpu()] + VEC;
        let n = self.load(vec).await + 1;
        self.store(vec + 4 * n, page).await;
        self.store(vec, n).await;
        if n == PAGEVEC {
            self.drain(vec, n).await;
        }
        self.irq_flag(was).await;
    }

    /// Moves the vector's pages to the inactive list; one that only the vector still held is freed.
    async fn drain(&self, vec: Addr, n: u32) {
        let lru = self.map.lru;
        let dead = self
            .section(Site::LruAdd, lru, async || {
                let mut dead = [0; PAGEVEC as usize];
                let mut alive = 0;
                for i in 1..=n {
                    let page = self.load(vec + 4 * i).await;
                    let count = self.load(page + page::COUNT).await;
                    self.store(page + page::COUNT, count - 1).await;
                    if count == 1 {
                        dead[i as usize - 1] = page;
                        continue;
                    }
                    self.list_add(lru + 64, page).await;
                    self.store(page + page::LRU, 1).await;
                    alive += 1;
                }
                let count = self.load(lru + 72).await;
                self.store(lru + 72, count + alive).await;
                self.store(vec, 0).await;
                dead
            })
            .await;
        for page in dead.into_iter().filter(|p| *p != 0) {
            self.page_free(page).await;
        }
    }

    /// A page in use was used again: from the inactive to the active list.
    pub async fn page_accessed(&self, page: Addr) {
        if self.load(page + page::LRU).await != 1 {
            return;
        }
        let lru = self.map.lru;
        self.section(Site::LruActivate, lru, async || {
            if self.load(page + page::LRU).await != 1 {
                return;
            }
            self.list_del(page).await;
            self.list_add(lru + 76, page).await;
            self.store(page + page::LRU, 2).await;
            for (count, change) in [(lru + 72, 1u32.wrapping_neg()), (lru + 84, 1)] {
                let n = self.load(count).await;
                self.store(count, n.wrapping_add(change)).await;
            }
        })
        .await;
    }

    /// Drops the cache's reference to pages that leave it; frees those that nobody else holds.
    pub async fn release_pages(&self, pages: &[Addr]) {
        if pages.is_empty() {
            return;
        }
        let lru = self.map.lru;
        let dead = self
            .section(Site::LruRelease, lru, async || {
                let mut dead = [false; super::map::TREE_PAGES as usize];
                for (page, dead) in pages.iter().zip(&mut dead) {
                    let count = self.load(page + page::COUNT).await;
                    self.store(page + page::COUNT, count - 1).await;
                    let list = self.load(page + page::LRU).await;
                    *dead = count == 1;
                    if *dead && list != 0 {
                        self.list_del(*page).await;
                        self.store(page + page::LRU, 0).await;
                        let count = if list == 1 { lru + 72 } else { lru + 84 };
                        let n = self.load(count).await;
                        self.store(count, n - 1).await;
                    }
                }
                dead
            })
            .await;
        for (page, _) in pages.iter().zip(dead).filter(|(_, dead)| *dead) {
            self.page_free(*page).await;
        }
    }
}
