//! The kernel's invariants, checked on the final memory of every run.
//!
//! Guests count, link and free with simulated instructions under locks or in transactions; if any
//! of those failed to exclude, one of these sums is wrong. A run whose audit fails has no figures.

use super::map::{DHASH, Map, Slab, dentry, inode, page, rq, slab, task};
use super::prio::LEVELS;
use crate::machine::Machine;
use crate::mem::Addr;

/// What the kernel holds at boot.
pub(super) struct Base {
    hashed: u32,
}

type Check = Result<(), String>;

fn same(what: &str, found: u32, wanted: u32) -> Check {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found}, not {wanted}")) }
}

/// Length of a circular list, checking its back links.
fn length(m: &Machine, what: &str, head: Addr) -> Result<u32, String> {
    let (mut n, mut at) = (0, head);
    loop {
        let next = m.mem.get(at);
        if m.mem.fault(next).is_some() || m.mem.get(next + 4) != at {
            return Err(format!("{what}: broken link at {at:#x}"));
        }
        if next == head {
            return Ok(n);
        }
        n += 1;
        if n > 1 << 22 {
            return Err(format!("{what}: endless"));
        }
        at = next;
    }
}

fn hashed(map: &Map, m: &Machine) -> Vec<Addr> {
    let mut all = Vec::new();
    for bucket in 0..DHASH {
        let mut d = m.mem.get(map.dhash + 4 * bucket);
        while d != 0 && all.len() < 1 << 20 {
            all.push(d);
            d = m.mem.get(d + dentry::HASH_NEXT);
        }
    }
    all
}

impl Base {
    pub(super) fn new(map: &Map, m: &Machine) -> Self {
        Self { hashed: hashed(map, m).len() as u32 }
    }

    pub(super) fn check(&self, map: &Map, m: &Machine) -> Check {
        run_queues(map, m)?;
        self.entries(map, m)?;
        let in_slabs = slabs(map, m)?;
        pages(map, m, in_slabs)?;
        same(
            "files in the list",
            length(m, "files", map.files_lock + 64)?,
            m.mem.get(map.files_lock + 72),
        )?;
        same("open files", m.mem.get(map.files_lock + 72), 0)?;
        same("processes", m.mem.get(map.tasklist + 64), 0)?;
        same("memory descriptors", m.mem.get(map.mmlist + 64), 0)?;
        same("noncontiguous areas", m.mem.get(map.vmlist + 64), 0)?;
        same("journal handles", m.mem.get(map.journal + 64), 0)?;
        for i in 0..map.threads as u32 {
            same("open descriptors", m.mem.get(map.fdtables + 64 * i + 4), 0)?;
            same("mapped pages", m.mem.get(map.page_tables + 64 * i + 4), 0)?;
        }
        self.clock(map, m)
    }

    /// Every entry's count is what its children hold; all users have let go.
    fn entries(&self, map: &Map, m: &Machine) -> Check {
        let all = hashed(map, m);
        same("hashed entries", all.len() as u32, self.hashed + m.mem.get(map.dcache_lru + 12))?;
        same(
            "unused entries",
            length(m, "dcache LRU", map.dcache_lru)?,
            m.mem.get(map.dcache_lru + 8),
        )?;
        for d in all.iter().chain([&map.root]) {
            let boot =
                *d >= map.scratch && *d < map.scratch + super::map::SCRATCH || *d == map.root;
            let mut made = 0;
            let (head, mut at) = (d + dentry::SUBDIRS, m.mem.get(d + dentry::SUBDIRS));
            while at != head {
                let child = at - dentry::CHILD;
                // Boot entries don't reference their parent.
                let boot = child >= map.scratch && child < map.scratch + super::map::SCRATCH;
                made += u32::from(!boot);
                if m.mem.get(child + dentry::PARENT) != *d {
                    return Err(format!("entry {child:#x} is in the wrong directory"));
                }
                at = m.mem.get(at);
            }
            let wanted = made + u32::from(boot);
            same(&format!("references to entry {d:#x}"), m.mem.get(d + dentry::COUNT), wanted)?;
            let i = m.mem.get(d + dentry::INODE);
            same(&format!("mappings of inode {i:#x}"), m.mem.get(i + inode::MAPS), 0)?;
            same(&format!("semaphore of inode {i:#x}"), m.mem.get(i + inode::SEM), 1)?;
        }
        Ok(())
    }

    /// The clock has advanced as often as it ticked, and its parts agree.
    fn clock(&self, map: &Map, m: &Machine) -> Check {
        let us = u64::from(m.mem.get(map.jiffies)) * u64::from(1_000_000 / m.cfg.hz);
        same("seconds", m.mem.get(map.xtime + 128), (us / 1_000_000) as u32)?;
        same("microseconds", m.mem.get(map.xtime + 132), (us % 1_000_000) as u32)
    }
}

fn run_queues(map: &Map, m: &Machine) -> Check {
    for (cpu, rq) in map.rqs.iter().enumerate() {
        let mut total = 0;
        for array in [rq + rq::ARRAYS, rq + rq::ARRAYS + rq::ARRAY] {
            let mut queued = 0;
            for p in 0..LEVELS {
                let n = length(m, "run list", array + rq::HEADS + 8 * p)?;
                let bit = m.mem.get(array + rq::BITMAP + p / 32 * 4) >> (p % 32) & 1;
                same(&format!("bit of level {p} on CPU {cpu}"), bit, u32::from(n > 0))?;
                queued += n;
            }
            same(&format!("tasks in an array of CPU {cpu}"), m.mem.get(array), queued)?;
            total += queued;
        }
        same(&format!("tasks of CPU {cpu}"), m.mem.get(rq + rq::NR), total)?;
    }
    for id in map.cpus..map.threads {
        let t = map.task(id);
        let queued = m.mem.get(t + task::ARRAY) != 0;
        if queued && m.mem.get(t + task::STATE) == 2 {
            return Err(format!("dead thread {id} is in a run queue"));
        }
    }
    Ok(())
}

/// Free and live objects add up to those made; the pages they use.
fn slabs(map: &Map, m: &Machine) -> Result<u32, String> {
    let mut pages = 0;
    for (name, cache) in
        [("dentry", map.dentries), ("inode", map.inodes), ("file", map.files), ("small", map.small)]
    {
        let free = free_objects(m, cache)?;
        same(&format!("free {name} objects"), free, m.mem.get(cache.at + slab::NR_FREE))?;
        let cached: u32 = (0..map.cpus as u32)
            .map(|c| m.mem.get(cache.at + slab::ARRAYS + c * slab::ARRAY))
            .sum();
        let total = m.mem.get(cache.at + slab::TOTAL);
        let live = match name {
            "dentry" => m.mem.get(map.dcache_lru + 12) + rcu_pending(map, m),
            "inode" => m.mem.get(map.inode_lock + 72),
            _ => 0,
        };
        same(&format!("{name} objects"), free + cached + live, total)?;
        pages += total / (4096 / cache.object);
    }
    Ok(pages)
}

fn free_objects(m: &Machine, cache: Slab) -> Result<u32, String> {
    let (mut n, mut at) = (0, m.mem.get(cache.at + slab::FREE));
    while at != 0 {
        n += 1;
        if n > 1 << 22 {
            return Err("a free list is endless".into());
        }
        at = m.mem.get(at);
    }
    Ok(n)
}

fn rcu_pending(map: &Map, m: &Machine) -> u32 {
    let mut n = 0;
    for mine in &map.rcu_cpus {
        for list in [0, 4] {
            let mut d = m.mem.get(mine + list);
            while d != 0 && n < 1 << 22 {
                n += 1;
                d = m.mem.get(d + dentry::RCU_NEXT);
            }
        }
    }
    n
}

/// Each page is free, in a processor's set, in a slab, in the cache, or in a vector.
fn pages(map: &Map, m: &Machine, in_slabs: u32) -> Check {
    let free = length(m, "free pages", map.zone + 64)?;
    same("free pages", free, m.mem.get(map.zone + 72))?;
    let sets: u32 = map.pcp.iter().map(|p| m.mem.get(*p)).sum();
    same("inactive pages", length(m, "inactive", map.lru + 64)?, m.mem.get(map.lru + 72))?;
    same("active pages", length(m, "active", map.lru + 76)?, m.mem.get(map.lru + 84))?;
    let used = (0..map.nr_pages)
        .filter(|i| m.mem.get(map.pages + i * page::SIZE + page::COUNT) > 0)
        .count() as u32;
    same("pages", free + sets + used, map.nr_pages)?;
    let listed = m.mem.get(map.lru + 72) + m.mem.get(map.lru + 84);
    let vectors: u32 = map
        .pcp
        .iter()
        .map(|p| {
            // A page may sit in two vectors; count pages, not entries.
            m.mem.get(p + 128)
        })
        .sum();
    if used < in_slabs + listed || used > in_slabs + listed + vectors {
        return Err(format!(
            "pages in use: {used}, of them {in_slabs} in slabs, {listed} listed, {vectors} in vectors"
        ));
    }
    Ok(())
}
