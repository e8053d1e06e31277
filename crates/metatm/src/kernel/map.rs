//! Where the kernel's objects lie in simulated memory, and how they look at boot.
//!
//! The host fills memory before the first cycle, as a boot loader would; from then on only guest
//! instructions change it.

use std::cell::RefCell;

pub use super::layout::{Slab, TREE_PAGES, dentry, inode, page, rq, slab, task};
use super::site::{Class, Treat};
use crate::config::{Config, KernelKind, SchedKind};
use crate::error::Result;
use crate::machine::Machine;
use crate::mem::{Addr, Bump};
use crate::sync::cx::FREE;
use crate::sync::rw::BIAS;

/// Addresses of everything.
#[derive(Debug)]
pub struct Map {
    /// Kernel kind, copied from the configuration.
    pub kernel: KernelKind,
    /// Scheduler, likewise.
    pub sched: SchedKind,
    /// Processors.
    pub cpus: usize,
    /// Threads, idle ones included.
    pub threads: usize,
    /// Run queues.
    pub rqs: Vec<Addr>,
    /// First task structure.
    pub tasks: Addr,
    /// Word with a bit for each idle processor.
    pub idle_mask: Addr,
    /// Sequence lock of the clock; +128: seconds, +132: microseconds.
    pub xtime: Addr,
    /// Ticks since boot.
    pub jiffies: Addr,
    /// Timer bases: lock, +64 count of pending timers.
    pub timers: Vec<Addr>,
    /// `dcache_lock`.
    pub dcache_lock: Addr,
    /// Unused entries: head, +8 their number, +12 hashed entries.
    pub dcache_lru: Addr,
    /// Hash table of directory entries.
    pub dhash: Addr,
    /// Directory entries.
    pub dentries: Slab,
    /// Inodes.
    pub inodes: Slab,
    /// Open files.
    pub files: Slab,
    /// Small objects: vmas, requests, buffers.
    pub small: Slab,
    /// `inode_lock`; +64 head of the dirty list, +72 inodes alive.
    pub inode_lock: Addr,
    /// `files_lock`; +64 head of the open files, +72 their number.
    pub files_lock: Addr,
    /// Journal: state lock, +64 handles, +128 list lock, +192 dirty buffers, +196 running number.
    pub journal: Addr,
    /// Block bitmap: lock and counters, one for each group.
    pub groups: Vec<Addr>,
    /// Zone lock; +64 free list head, +72 free pages.
    pub zone: Addr,
    /// LRU lock; +64 inactive head, +72 their number, +76 active head, +84 their number.
    pub lru: Addr,
    /// Per-processor page sets: count, then pages; +128: pagevec count, then pages.
    pub pcp: Vec<Addr>,
    /// First page structure.
    pub pages: Addr,
    /// How many.
    pub nr_pages: u32,
    /// First physical page that the structures stand for (slabs live there).
    pub frames: Addr,
    /// `mmlist_lock`; +64 number of descriptors.
    pub mmlist: Addr,
    /// `vmlist_lock`; +64 number of areas.
    pub vmlist: Addr,
    /// `tasklist_lock`; +64 processes.
    pub tasklist: Addr,
    /// Page table locks, one for each thread; +4 mapped pages.
    pub page_tables: Addr,
    /// Signal locks, one for each thread.
    pub signals: Addr,
    /// Descriptor table locks, one for each thread; +4 open descriptors.
    pub fdtables: Addr,
    /// RCU: lock, +64 current batch, +68 completed batch, +72 mask, +76 next pending.
    pub rcu: Addr,
    /// Per-processor RCU state: +0 new, +4 waiting, +8 batch waited for, +12 batch seen, +16 passed.
    pub rcu_cpus: Vec<Addr>,
    /// Block queue: lock, +64 first and +68 last request waiting, +72 how many.
    pub block: Addr,
    /// Controller lock; +64 active requests.
    pub ide: Addr,
    /// Request of each thread: done flag, +4 next waiting.
    pub requests: Addr,
    /// Network: lock, +64 packets in flight.
    pub net: Addr,
    /// Console: lock, +64 characters.
    pub tty: Addr,
    /// Interval timer: lock.
    pub pit: Addr,
    /// `/`.
    pub root: Addr,
    /// Rename semaphore.
    pub rename_sem: Addr,
    /// Shared words for micro-benchmarks.
    pub scratch: Addr,
    /// What each thread does.
    pub(super) roles: super::system::Roles,
    /// When each processor began its last context switch, and the average cost, in cycles.
    pub(super) switches: RefCell<(Vec<u64>, u64)>,
}

/// Buckets of the directory entry hash table.
pub const DHASH: u32 = 4096;

/// Bytes of [`Map::scratch`].
pub const SCRATCH: u32 = 1 << 20;

/// Block groups.
const GROUPS: usize = 16;

impl Map {
    /// Allocates and initializes everything on a new machine.
    ///
    /// # Errors
    /// Memory is too small.
    pub fn boot(m: &mut Machine, cfg: &Config, nr_pages: u32) -> Result<Self> {
        let (start, end) = m.heap();
        let mut b = Bump::new(start, end);
        let (cpus, threads) = (cfg.cpus, m.threads.len());
        let mut each = |n: usize, bytes: u32| -> Result<Vec<Addr>> {
            (0..n).map(|_| b.lines(bytes)).collect()
        };
        let rqs = each(cpus, rq::SIZE)?;
        let timers = each(cpus, 128)?;
        let groups = each(GROUPS, 128)?;
        let pcp = each(cpus, 256)?;
        let rcu_cpus = each(cpus, 64)?;
        let n = threads as u32;
        let mut slab = |object: u32| -> Result<Slab> {
            Ok(Slab { at: b.lines(slab::ARRAYS + cpus as u32 * slab::ARRAY)?, object })
        };
        let (dentries, inodes) = (slab(dentry::SIZE)?, slab(inode::SIZE)?);
        let (files, small) = (slab(64)?, slab(64)?);
        let map = Self {
            kernel: cfg.kernel,
            sched: cfg.sched,
            cpus,
            threads,
            rqs,
            tasks: b.lines(n * task::SIZE)?,
            idle_mask: b.lines(64)?,
            xtime: b.lines(192)?,
            jiffies: b.lines(64)?,
            timers,
            dcache_lock: b.lines(64)?,
            dcache_lru: b.lines(64)?,
            dhash: b.lines(DHASH * 4)?,
            dentries,
            inodes,
            files,
            small,
            inode_lock: b.lines(128)?,
            files_lock: b.lines(128)?,
            journal: b.lines(256)?,
            groups,
            zone: b.lines(128)?,
            lru: b.lines(128)?,
            pcp,
            pages: b.lines(nr_pages * page::SIZE)?,
            nr_pages,
            mmlist: b.lines(128)?,
            vmlist: b.lines(128)?,
            tasklist: b.lines(128)?,
            page_tables: b.lines(n * 64)?,
            signals: b.lines(n * 64)?,
            fdtables: b.lines(n * 64)?,
            rcu: b.lines(128)?,
            rcu_cpus,
            block: b.lines(128)?,
            ide: b.lines(128)?,
            requests: b.lines(n * 64)?,
            net: b.lines(128)?,
            tty: b.lines(128)?,
            pit: b.lines(64)?,
            root: b.lines(dentry::SIZE + inode::SIZE)?,
            rename_sem: b.lines(64)?,
            scratch: b.lines(SCRATCH)?,
            frames: b.lines(nr_pages * 4096)?,
            roles: RefCell::new(vec![None; threads]),
            switches: RefCell::new((vec![0; cpus], 0)),
        };
        map.initialize(m);
        Ok(map)
    }

    fn initialize(&self, m: &mut Machine) {
        let mem = &mut m.mem;
        let locks = [
            self.dcache_lock,
            self.inode_lock,
            self.files_lock,
            self.journal,
            self.journal + 128,
            self.zone,
            self.lru,
            self.mmlist,
            self.vmlist,
            self.rcu,
            self.block,
            self.ide,
            self.net,
            self.tty,
            self.pit,
            crate::sync::seq::writer_lock(self.xtime),
        ];
        let slabs = [self.dentries, self.inodes, self.files, self.small].map(|s| s.at + slab::LOCK);
        let many = self.rqs.iter().chain(&self.timers).chain(&self.groups).copied();
        locks.into_iter().chain(slabs).chain(many).for_each(|a| mem.set(a, FREE));
        mem.set(self.tasklist, BIAS);
        for i in 0..self.threads as u32 {
            for base in [self.page_tables, self.signals, self.fdtables] {
                mem.set(base + 64 * i, FREE);
            }
        }
        let lists = [
            self.dcache_lru,
            self.inode_lock + 64,
            self.files_lock + 64,
            self.zone + 64,
            self.lru + 64,
            self.lru + 76,
        ];
        for head in lists {
            mem.set(head, head);
            mem.set(head + 4, head);
        }
        for rq in &self.rqs {
            let arrays = [rq + rq::ARRAYS, rq + rq::ARRAYS + rq::ARRAY];
            mem.set(rq + rq::ACTIVE, arrays[0]);
            mem.set(rq + rq::EXPIRED, arrays[1]);
            for array in arrays {
                for p in 0..super::prio::LEVELS {
                    let head = array + rq::HEADS + 8 * p;
                    mem.set(head, head);
                    mem.set(head + 4, head);
                }
            }
        }
        for i in 0..self.nr_pages {
            self.host_list_add(m, self.zone + 64, self.pages + i * page::SIZE);
        }
        m.mem.set(self.zone + 72, self.nr_pages);
        m.mem.set(self.rename_sem, 1);
        m.mem.set(self.rename_sem + 8, FREE);
        self.host_dentry(m, self.root, self.root + dentry::SIZE, 0, 0);
    }

    /// The task structure of thread `id`.
    pub fn task(&self, id: usize) -> Addr {
        self.tasks + id as u32 * task::SIZE
    }

    /// The thread of a task structure.
    pub fn thread_of(&self, task: Addr) -> usize {
        ((task - self.tasks) / task::SIZE) as usize
    }

    /// Value of a free page tree lock: a reader-writer lock, or a cxspinlock in its place.
    pub fn tree_lock_free(&self) -> u32 {
        match Class::AddressSpace.treat(self.kernel) {
            Treat::Lock => BIAS,
            _ => FREE,
        }
    }

    /// The memory of page structure `page`.
    pub fn frame(&self, page: Addr) -> Addr {
        self.frames + (page - self.pages) / page::SIZE * 4096
    }

    /// Notes that `cpu` begins a context switch at cycle `now`.
    pub(super) fn switching(&self, cpu: usize, now: u64) {
        self.switches.borrow_mut().0[cpu] = now;
    }

    /// Notes its end; keeps the moving average that the transaction-aware scheduler compares with
    /// ("a threshold determined empirically", section 6.4.2).
    pub(super) fn switch_done(&self, cpu: usize, now: u64) {
        let mut s = self.switches.borrow_mut();
        let start = std::mem::take(&mut s.0[cpu]);
        if start != 0 {
            s.1 = (15 * s.1 + now.saturating_sub(start)) / 16;
        }
    }

    /// Average cost of a context switch in cycles.
    pub fn switch_cost(&self) -> u64 {
        self.switches.borrow().1
    }

    /// The hash bucket of `name` in `parent`.
    pub fn bucket(&self, parent: Addr, name: u32) -> Addr {
        let h = (parent >> 6 ^ name).wrapping_mul(0x9e37_79b1) >> 20;
        self.dhash + 4 * (h % DHASH)
    }

    /// Boot-time append to a list.
    pub(super) fn host_list_add(&self, m: &mut Machine, head: Addr, node: Addr) {
        let prev = m.mem.get(head + 4);
        m.mem.set(node, head);
        m.mem.set(node + 4, prev);
        m.mem.set(prev, node);
        m.mem.set(head + 4, node);
    }

    /// Boot-time directory entry at `d` with inode `i`, referenced once by whoever keeps it.
    fn host_dentry(&self, m: &mut Machine, d: Addr, i: Addr, parent: Addr, name: u32) {
        for (field, value) in [
            (dentry::LOCK, FREE),
            (dentry::COUNT, 1),
            (dentry::PARENT, parent),
            (dentry::NAME, name),
            (dentry::INODE, i),
            (dentry::HASHED, 1),
            (dentry::SUBDIRS, d + dentry::SUBDIRS),
            (dentry::SUBDIRS + 4, d + dentry::SUBDIRS),
        ] {
            m.mem.set(d + field, value);
        }
        for (field, value) in [
            (inode::COUNT, 1),
            (inode::NLINK, 1),
            (inode::SEM, 1),
            (inode::SEM + 8, FREE),
            (inode::TREE_LOCK, self.tree_lock_free()),
            (inode::MMAP_LOCK, FREE),
        ] {
            m.mem.set(i + field, value);
        }
        if parent != 0 {
            let bucket = self.bucket(parent, name);
            let first = m.mem.get(bucket);
            m.mem.set(d + dentry::HASH_NEXT, first);
            m.mem.set(bucket, d);
            self.host_list_add(m, parent + dentry::SUBDIRS, d + dentry::CHILD);
        }
    }

    /// Boot-time entry `name` in `parent` with `pages` pages of content on disk, pinned.
    ///
    /// # Errors
    /// More entries than the scratch area holds.
    pub fn make(
        &self,
        m: &mut Machine,
        boot: &mut BootObjects,
        parent: Addr,
        name: u32,
        pages: u32,
    ) -> Result<Addr> {
        let d = boot.0.lines(dentry::SIZE + inode::SIZE)?;
        self.host_dentry(m, d, d + dentry::SIZE, parent, name);
        m.mem.set(d + dentry::SIZE + inode::PAGES, pages);
        Ok(d)
    }
}

/// Objects made before the slab allocator runs; they are never freed.
#[derive(Debug)]
pub struct BootObjects(Bump);

impl BootObjects {
    /// Takes them from the scratch area's second half.
    pub fn new(map: &Map) -> Self {
        Self(Bump::new(map.scratch + SCRATCH / 2, map.scratch + SCRATCH))
    }
}
