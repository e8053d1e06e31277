//! The slab allocator: per-processor arrays in front of locked lists (mm/slab.c).
//!
//! Free objects are linked through their first word. `cache_grow` drops the list lock while it
//! gets a page, as in the paper's figure 1.

use super::map::{Slab, slab};
use super::region::K;
use super::site::Site;
use crate::mem::Addr;

impl K {
    /// An object of `cache`; its contents are undefined. 0 if memory is exhausted.
    pub async fn kmem_alloc(&self, cache: Slab) -> Addr {
        let _code = self.code(32, 8);
        let was = self.irq_flag(false).await;
        let array = cache.at + slab::ARRAYS + self.cpu() as u32 * slab::ARRAY;
        let mut n = self.load(array).await;
        if n == 0 {
            n = self.refill(cache, array).await;
        }
        let object = if n == 0 { 0 } else { self.load(array + 4 * n).await };
        self.store(array, n.saturating_sub(1)).await;
        self.irq_flag(was).await;
        if object == 0 {
            self.host(|m| m.value_error("the slab allocator ran out of pages; raise nr_pages"));
        }
        object
    }

    /// Gives `object` back to `cache`.
    pub async fn kmem_free(&self, cache: Slab, object: Addr) {
        let _code = self.code(40, 8);
        let was = self.irq_flag(false).await;
        let array = cache.at + slab::ARRAYS + self.cpu() as u32 * slab::ARRAY;
        let mut n = self.load(array).await;
        if n == slab::LIMIT {
            self.flush(cache, array, n).await;
            n -= slab::BATCH;
        }
        self.store(array + 4 * (n + 1), object).await;
        self.store(array, n + 1).await;
        self.irq_flag(was).await;
    }

    /// Moves a batch from the lists to the array; how many the array holds then.
    async fn refill(&self, cache: Slab, array: Addr) -> u32 {
        loop {
            let moved = self
                .section(Site::SlabRefill, cache.at + slab::LOCK, async || {
                    let mut object = self.load(cache.at + slab::FREE).await;
                    let mut n = 0;
                    while object != 0 && n < slab::BATCH {
                        n += 1;
                        self.store(array + 4 * n, object).await;
                        object = self.load(object).await;
                    }
                    self.store(cache.at + slab::FREE, object).await;
                    let free = self.load(cache.at + slab::NR_FREE).await;
                    self.store(cache.at + slab::NR_FREE, free - n).await;
                    self.store(array, n).await;
                    n
                })
                .await;
            if moved > 0 || !self.grow(cache).await {
                return moved;
            }
        }
    }

    /// Moves a batch from a full array of `n` objects to the lists.
    async fn flush(&self, cache: Slab, array: Addr, n: u32) {
        self.section(Site::SlabFlush, cache.at + slab::LOCK, async || {
            let mut first = self.load(cache.at + slab::FREE).await;
            for i in 0..slab::BATCH {
                let object = self.load(array + 4 * (n - i)).await;
                self.store(object, first).await;
                first = object;
            }
            self.store(cache.at + slab::FREE, first).await;
            let free = self.load(cache.at + slab::NR_FREE).await;
            self.store(cache.at + slab::NR_FREE, free + slab::BATCH).await;
        })
        .await;
    }

    /// Adds a page of objects; false if there is no page.
    async fn grow(&self, cache: Slab) -> bool {
        let lock = cache.at + slab::LOCK;
        self.section(Site::SlabColour, lock, async || {
            let colour = self.load(cache.at + slab::COLOUR).await + 1;
            self.store(cache.at + slab::COLOUR, if colour >= 8 { 0 } else { colour }).await;
        })
        .await;
        let page = self.page_alloc().await;
        if page == 0 {
            return false;
        }
        let start = self.map.frame(page);
        let n = 4096 / cache.object;
        for i in 0..n {
            let next = if i + 1 < n { start + (i + 1) * cache.object } else { 0 };
            self.store(start + i * cache.object, next).await;
        }
        self.section(Site::SlabGrow, lock, async || {
            let old = self.load(cache.at + slab::FREE).await;
            self.store(start + (n - 1) * cache.object, old).await;
            self.store(cache.at + slab::FREE, start).await;
            let free = self.load(cache.at + slab::NR_FREE).await;
            self.store(cache.at + slab::NR_FREE, free + n).await;
            let total = self.load(cache.at + slab::TOTAL).await;
            self.store(cache.at + slab::TOTAL, total + n).await;
        })
        .await;
        true
    }
}
