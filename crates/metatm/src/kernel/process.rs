//! Processes: fork, exec, page faults, exit, wait.

use super::map::{TREE_PAGES, task};
use super::prio::NORMAL;
use super::region::K;
use super::site::Site;
use super::system::Role;
use crate::mem::Addr;

/// What a process holds; in registers, so that `exit` gives back exactly what was taken.
#[derive(Debug, Default)]
pub struct Process {
    anon: Vec<Addr>,
    maps: Vec<(Addr, Addr)>,
}

impl K {
    /// `fork`: starts a child in `role`; false if there are too many processes.
    pub async fn fork(&self, role: Role) -> bool {
        self.syscall(async || {
            let Some(id) = self.host(|m| m.free_threads.pop()) else { return false };
            let (me, child) = (self.current(), self.map.task(id));
            self.work(6_000).await;
            let lock = self.map.page_tables + 64 * self.id() as u32;
            self.section(Site::CopyPte, lock, async || {
                self.load(lock + 4).await;
                self.alu(60).await;
            })
            .await;
            self.mm_count(Site::MmListAdd, 1).await;
            self.tasks(Site::TaskFork, 1).await;
            let fixed = self.load(me + task::STATIC).await;
            let credit = self.load(me + task::SLEEP_AVG).await;
            let fields = [
                (task::STATE, 1),
                (task::STATIC, fixed),
                (task::PRIO, fixed.max(NORMAL)),
                (task::SLICE, self.host(|m| m.cfg.quantum)),
                (task::ARRAY, 0),
                (task::CPU, self.cpu() as u32),
                (task::SLEEP_AVG, credit / 2),
                (task::SLEPT, self.micros()),
                (task::RESCHED, 0),
                (task::EXITED, 0),
                (task::RESTARTS, 0),
                (task::BACKOFF, 0),
                (task::LAST, 0),
                (task::TX_SIZE, 0),
            ];
            for (field, value) in fields {
                self.store(child + field, value).await;
            }
            self.map.set_role(id, role);
            self.wake(child).await;
            true
        })
        .await
    }

    /// `exec` of the file with inode `i`: old mappings go, new ones come, and first pages fault in.
    pub async fn exec(&self, p: &mut Process, i: Addr) {
        let old = std::mem::take(p);
        self.syscall(async || {
            self.release(&old).await;
            self.signal_reset().await;
            self.work(10_000).await;
        })
        .await;
        for _ in 0..3 {
            let vma = self.syscall(async || self.vma_link(i).await).await;
            p.maps.push((i, vma));
        }
        for _ in 0..6 {
            self.fault(p).await;
        }
    }

    /// A page fault on anonymous memory.
    pub async fn fault(&self, p: &mut Process) {
        let page = self
            .syscall(async || {
                let page = self.page_alloc().await;
                if page == 0 {
                    self.host(|m| m.value_error("out of pages; raise the workload's nr_pages"));
                }
                self.work(1_000).await; // find the area, clear the page
                self.lru_add(page).await;
                let lock = self.map.page_tables + 64 * self.id() as u32;
                self.section(Site::FaultPte, lock, async || {
                    let n = self.load(lock + 4).await;
                    self.alu(10).await;
                    self.store(lock + 4, n + 1).await;
                })
                .await;
                page
            })
            .await;
        p.anon.push(page);
    }

    async fn release(&self, p: &Process) {
        let lock = self.map.page_tables + 64 * self.id() as u32;
        self.section(Site::ZapPte, lock, async || {
            let n = self.load(lock + 4).await;
            self.alu(20).await;
            self.store(lock + 4, n - p.anon.len() as u32).await;
        })
        .await;
        for pages in p.anon.chunks(TREE_PAGES as usize) {
            self.release_pages(pages).await;
        }
        for (i, vma) in &p.maps {
            self.vma_unlink(*i, *vma).await;
        }
    }

    async fn signal_reset(&self) {
        let lock = self.map.signals + 64 * self.id() as u32;
        self.section(Site::SigDequeue, lock, async || self.alu(12).await).await;
    }

    async fn mm_count(&self, site: Site, change: u32) {
        let lock = self.map.mmlist;
        self.section(site, lock, async || {
            let n = self.load(lock + 64).await;
            self.alu(4).await;
            self.store(lock + 64, n.wrapping_add(change)).await;
        })
        .await;
    }

    async fn tasks(&self, site: Site, change: u32) {
        let lock = self.map.tasklist;
        self.write_section(site, lock, async || {
            let n = self.load(lock + 64).await;
            self.alu(12).await;
            self.store(lock + 64, n.wrapping_add(change)).await;
        })
        .await;
    }

    /// Maps and unmaps kernel memory (a module, a large buffer).
    pub async fn vmalloc(&self) {
        let lock = self.map.vmlist;
        for (site, change) in [(Site::VmGet, 1), (Site::VmFree, 1u32.wrapping_neg())] {
            self.section(site, lock, async || {
                let n = self.load(lock + 64).await;
                self.alu(8).await;
                self.store(lock + 64, n.wrapping_add(change)).await;
            })
            .await;
        }
    }

    /// `exit` of a process that `fork` started, child of `parent`; does not return.
    pub async fn exit(&self, p: Process, parent: Addr) {
        self.mode(crate::stats::Mode::Sys);
        self.work(4_000).await;
        self.release(&p).await;
        self.mm_count(Site::MmListDel, 1u32.wrapping_neg()).await;
        let lock = self.map.signals + 64 * self.map.thread_of(parent) as u32;
        self.section(Site::SigSend, lock, async || self.alu(16).await).await;
        self.tasks(Site::TaskExit, 1u32.wrapping_neg()).await;
        self.fetch_add(parent + task::EXITED, 1).await;
        self.wake(parent).await;
        drop(p);
        self.store(self.current() + task::STATE, 2).await;
        self.host(|m| m.thread().exiting = true);
        self.schedule().await;
    }

    /// `wait`: until a child has exited.
    pub async fn wait(&self) {
        self.syscall(async || {
            let me = self.current();
            self.sleep_until(me + task::EXITED, false).await;
            self.read_section(Site::TaskWait, self.map.tasklist, async || self.alu(20).await).await;
            self.fetch_add(me + task::EXITED, 1u32.wrapping_neg()).await;
        })
        .await;
    }
}
