//! The directory entry cache (fs/dcache.c).
//!
//! Lookups walk a hash chain without locks, under RCU, and take only the found entry's lock.
//! Everything that changes chains or lists holds `dcache_lock`. `dput` drops the count without the
//! lock unless it may be the last; the subsystem kernel has put it into a transaction as a whole,
//! so there the count of a busy directory is in every transaction's write set (paper, section 7.2).
//!
//! Counts: an entry is referenced once by each child that was created in it and once by each user.

use super::map::{dentry, inode};
use super::region::K;
use super::site::{Class, Site, Treat};
use crate::mem::Addr;
use crate::sync::cx::FREE;

impl K {
    /// Finds `name` in `parent` and references it; 0 if it is not there.
    pub async fn d_lookup(&self, parent: Addr, name: u32) -> Addr {
        let _code = self.code(72, 8);
        self.alu(6).await; // hash
        let mut d = self.load(self.map.bucket(parent, name)).await;
        while d != 0 {
            self.alu(2).await;
            let matches = self.load(d + dentry::NAME).await == name
                && self.load(d + dentry::PARENT).await == parent;
            if matches {
                let found = self
                    .section(Site::DLookup, d + dentry::LOCK, async || {
                        if self.load(d + dentry::HASHED).await == 0
                            || self.load(d + dentry::PARENT).await != parent
                            || self.load(d + dentry::NAME).await != name
                        {
                            return false;
                        }
                        self.count(d, 1).await;
                        true
                    })
                    .await;
                if found {
                    return d;
                }
            }
            d = self.load(d + dentry::HASH_NEXT).await;
        }
        0
    }

    /// Adds to a reference count: atomically, because `dput` does so without the lock.
    async fn count(&self, d: Addr, change: u32) -> u32 {
        self.fetch_add(d + dentry::COUNT, change).await
    }

    /// Takes another reference to an entry that the caller has already referenced.
    pub async fn dget(&self, d: Addr) {
        self.count(d, 1).await;
    }

    /// Drops a reference.
    pub async fn dput(&self, d: Addr) {
        let _code = self.code(80, 8);
        let whole = Class::Dcache.treat(self.map.kernel) == Treat::Transaction;
        if !whole {
            let mut old = self.load(d + dentry::COUNT).await;
            while old > 1 {
                let seen = self.cas(d + dentry::COUNT, old, old - 1).await;
                if seen == old {
                    return;
                }
                old = seen;
            }
        }
        let dead = self
            .section(Site::DPut, self.map.dcache_lock, async || {
                if self.count(d, 1u32.wrapping_neg()).await != 1 {
                    return false;
                }
                if self.load(d + dentry::HASHED).await == 0 {
                    return true;
                }
                // The last reference: the entry stays cached, in the list of unused ones.
                if self.load(d + dentry::ON_LRU).await == 0 {
                    let head = self.map.dcache_lru;
                    self.list_add(head, d + dentry::LRU).await;
                    self.store(d + dentry::ON_LRU, 1).await;
                    let n = self.load(head + 8).await;
                    self.store(head + 8, n + 1).await;
                }
                false
            })
            .await;
        if dead {
            let i = self.load(d + dentry::INODE).await;
            if i != 0 {
                self.destroy_inode(i).await;
            }
            self.call_rcu(d).await;
        }
    }

    /// A new entry `name` in `parent` for inode `i`, hashed and referenced once.
    pub async fn d_create(&self, parent: Addr, name: u32, i: Addr) -> Addr {
        let d = self.kmem_alloc(self.map.dentries).await;
        if d == 0 {
            return 0;
        }
        let fields = [
            (dentry::LOCK, FREE),
            (dentry::COUNT, 1),
            (dentry::PARENT, parent),
            (dentry::NAME, name),
            (dentry::HASHED, 0),
            (dentry::ON_LRU, 0),
            (dentry::SUBDIRS, d + dentry::SUBDIRS),
            (dentry::SUBDIRS + 4, d + dentry::SUBDIRS),
        ];
        for (field, value) in fields {
            self.store(d + field, value).await;
        }
        let lock = self.map.dcache_lock;
        self.section(Site::DAlloc, lock, async || {
            self.list_add(parent + dentry::SUBDIRS, d + dentry::CHILD).await;
            self.count(parent, 1).await;
        })
        .await;
        self.section(Site::DInstantiate, lock, async || self.store(d + dentry::INODE, i).await)
            .await;
        self.section(Site::DRehash, lock, async || {
            self.hash(d, parent, name).await;
            let n = self.load(self.map.dcache_lru + 12).await;
            self.store(self.map.dcache_lru + 12, n + 1).await;
        })
        .await;
        d
    }

    async fn hash(&self, d: Addr, parent: Addr, name: u32) {
        let bucket = self.map.bucket(parent, name);
        let first = self.load(bucket).await;
        self.store(d + dentry::HASH_NEXT, first).await;
        self.store(bucket, d).await;
        self.store(d + dentry::HASHED, 1).await;
    }

    async fn unhash(&self, d: Addr) {
        let parent = self.load(d + dentry::PARENT).await;
        let name = self.load(d + dentry::NAME).await;
        let next = self.load(d + dentry::HASH_NEXT).await;
        let mut link = self.map.bucket(parent, name);
        loop {
            let at = self.load(link).await;
            if at == d {
                self.store(link, next).await;
                break;
            }
            if at == 0 {
                self.host(|m| m.value_error(format!("entry {d:#x} is not in its hash chain")));
                break;
            }
            link = at + dentry::HASH_NEXT;
        }
        self.store(d + dentry::HASHED, 0).await;
    }

    /// Unlinks the entry `d`, of which the caller holds a reference, and drops that; whoever drops
    /// the last one frees the entry and its inode. False if somebody else had unlinked it.
    pub async fn d_delete(&self, d: Addr) -> bool {
        let parent = self.load(d + dentry::PARENT).await;
        let mine = self
            .section(Site::DDelete, self.map.dcache_lock, async || {
                if self.load(d + dentry::HASHED).await == 0 {
                    return false;
                }
                // Inside the entry's lock, so that no lookup references it any more.
                self.section(Site::DDrop, d + dentry::LOCK, async || self.unhash(d).await).await;
                let n = self.load(self.map.dcache_lru + 12).await;
                self.store(self.map.dcache_lru + 12, n - 1).await;
                if self.load(d + dentry::ON_LRU).await != 0 {
                    self.list_del(d + dentry::LRU).await;
                    self.store(d + dentry::ON_LRU, 0).await;
                    let n = self.load(self.map.dcache_lru + 8).await;
                    self.store(self.map.dcache_lru + 8, n - 1).await;
                }
                self.list_del(d + dentry::CHILD).await;
                true
            })
            .await;
        self.dput(d).await;
        if mine {
            self.dput(parent).await;
        }
        mine
    }

    /// Moves entry `d` to `name` in `parent`; the caller holds both directories' semaphores.
    pub async fn d_move(&self, d: Addr, parent: Addr, name: u32) {
        let old = self.load(d + dentry::PARENT).await;
        self.section(Site::DMove, self.map.dcache_lock, async || {
            self.section(Site::DSwitch, d + dentry::LOCK, async || {
                self.unhash(d).await;
                self.store(d + dentry::PARENT, parent).await;
                self.store(d + dentry::NAME, name).await;
                self.hash(d, parent, name).await;
            })
            .await;
            self.list_del(d + dentry::CHILD).await;
            self.list_add(parent + dentry::SUBDIRS, d + dentry::CHILD).await;
            self.count(parent, 1).await;
        })
        .await;
        self.dput(old).await;
    }

    /// Looks at all children of `dir` under one lock (fs/libfs.c); how many it found. In a large
    /// directory this is the transaction that outgrows L1.
    pub async fn readdir(&self, dir: Addr) -> u32 {
        self.section(Site::DcacheReaddir, self.map.dcache_lock, async || {
            let head = dir + dentry::SUBDIRS;
            let mut link = self.load(head).await;
            let mut n = 0;
            while link != head {
                self.load(link - dentry::CHILD + dentry::NAME).await;
                self.load(link - dentry::CHILD + dentry::INODE).await;
                self.alu(4).await;
                link = self.load(link).await;
                n += 1;
            }
            n
        })
        .await
    }

    /// The inode of `d`, 0 if it has none.
    pub async fn d_inode(&self, d: Addr) -> Addr {
        self.load(d + dentry::INODE).await
    }

    /// The parent directory's semaphore.
    pub async fn dir_sem(&self, d: Addr) -> Addr {
        self.d_inode(d).await + inode::SEM
    }
}
