//! System calls on files: paths, open files, create, unlink, rename.

use super::map::{dentry, inode};
use super::region::K;
use super::site::Site;
use crate::mem::Addr;
use crate::stats::Mode;

/// An open file: its structure and its directory entry.
#[derive(Debug, Clone, Copy)]
pub struct File {
    at: Addr,
    entry: Addr,
}

impl K {
    /// Enters the kernel: registers are saved, the cycles count as system time.
    pub async fn syscall<R>(&self, body: impl AsyncFn() -> R) -> R {
        let old = self.host(|m| m.thread().mode);
        self.mode(Mode::Sys);
        let _code = self.code(176, 4);
        for _ in 0..4 {
            self.push().await;
        }
        for _ in 0..self.host(|m| m.cfg.clock_reads) {
            self.gettimeofday().await;
        }
        self.work(400).await;
        let r = body().await;
        for _ in 0..4 {
            self.pop().await;
        }
        self.alu(20).await;
        self.host(|m| {
            m.stats.syscalls += 1;
            m.moved();
        });
        self.mode(old);
        self.user_return().await;
        r
    }

    /// On the way back to user code: gives the processor away if asked to.
    async fn user_return(&self) {
        if self.load(self.current() + super::map::task::RESCHED).await != 0 {
            self.schedule().await;
        }
    }

    /// User code: `n` instructions.
    pub async fn user(&self, n: u32) {
        self.mode(Mode::User);
        let _code = self.code(184, 32);
        self.alu(n).await;
        self.host(|m| m.moved());
    }

    /// Walks `path` from the root; the entry, referenced, or 0.
    pub async fn walk(&self, path: &[u32]) -> Addr {
        let _code = self.code(216, 8);
        let mut d = self.map.root;
        self.dget(d).await;
        for name in path {
            self.work(150).await; // permission, name
            let next = self.d_lookup(d, *name).await;
            self.dput(d).await;
            if next == 0 {
                return 0;
            }
            d = next;
        }
        d
    }

    async fn file(&self, entry: Addr) -> File {
        self.work(400).await;
        let at = self.kmem_alloc(self.map.files).await;
        let lock = self.map.files_lock;
        self.section(Site::FileMove, lock, async || {
            self.list_add(lock + 64, at).await;
            let n = self.load(lock + 72).await;
            self.store(lock + 72, n + 1).await;
        })
        .await;
        self.descriptors(Site::FdInstall, 1).await;
        File { at, entry }
    }

    async fn descriptors(&self, site: Site, change: u32) {
        let table = self.map.fdtables + 64 * self.id() as u32;
        self.section(site, table, async || {
            let n = self.load(table + 4).await;
            self.alu(4).await;
            self.store(table + 4, n.wrapping_add(change)).await;
        })
        .await;
    }

    /// `open`: `None` if there is no such file.
    pub async fn open(&self, path: &[u32]) -> Option<File> {
        self.syscall(async || {
            let d = self.walk(path).await;
            if d == 0 { None } else { Some(self.file(d).await) }
        })
        .await
    }

    /// `close`.
    pub async fn close(&self, file: File) {
        self.syscall(async || {
            self.descriptors(Site::FdClose, 1u32.wrapping_neg()).await;
            let lock = self.map.files_lock;
            self.section(Site::FileKill, lock, async || {
                self.list_del(file.at).await;
                let n = self.load(lock + 72).await;
                self.store(lock + 72, n - 1).await;
            })
            .await;
            self.dput(file.entry).await;
            self.kmem_free(self.map.files, file.at).await;
        })
        .await;
    }

    /// `creat` of `name` in the directory `dir`; `None` if it exists or there is no such directory.
    pub async fn create(&self, dir: &[u32], name: u32) -> Option<File> {
        self.syscall(async || {
            let parent = self.walk(dir).await;
            if parent == 0 {
                return None;
            }
            let sem = self.dir_sem(parent).await;
            self.down(sem).await;
            let there = self.d_lookup(parent, name).await;
            if there != 0 {
                self.dput(there).await;
                self.up(sem).await;
                self.dput(parent).await;
                return None;
            }
            self.journal_start().await;
            self.work(3_000).await;
            let i = self.new_inode().await;
            self.block_alloc(parent >> 7).await;
            self.journal_dirty().await;
            let d = self.d_create(parent, name, i).await;
            self.journal_dirty().await;
            let dir_inode = self.d_inode(parent).await;
            self.mark_dirty(dir_inode).await;
            self.journal_stop().await;
            self.up(sem).await;
            self.dput(parent).await;
            Some(self.file(d).await)
        })
        .await
    }

    /// `unlink`; false if there is no such file.
    pub async fn unlink(&self, dir: &[u32], name: u32) -> bool {
        self.syscall(async || {
            let parent = self.walk(dir).await;
            if parent == 0 {
                return false;
            }
            let sem = self.dir_sem(parent).await;
            self.down(sem).await;
            let d = self.d_lookup(parent, name).await;
            let mut done = false;
            if d != 0 {
                self.journal_start().await;
                self.work(3_000).await;
                self.journal_dirty().await;
                let i = self.d_inode(d).await;
                let links = self.load(i + inode::NLINK).await;
                self.store(i + inode::NLINK, links - 1).await;
                done = self.d_delete(d).await;
                self.journal_stop().await;
            }
            self.up(sem).await;
            self.dput(parent).await;
            done
        })
        .await
    }

    /// `stat`: the number of links, 0 if there is no such file.
    pub async fn stat(&self, path: &[u32]) -> u32 {
        self.syscall(async || {
            let d = self.walk(path).await;
            if d == 0 {
                return 0;
            }
            let i = self.d_inode(d).await;
            let links = self.load(i + inode::NLINK).await;
            self.load(i + inode::PAGES).await;
            self.work(300).await;
            self.dput(d).await;
            links
        })
        .await
    }

    /// `rename` from one directory to another; false if the source is gone or the target exists.
    pub async fn rename(&self, from: (&[u32], u32), to: (&[u32], u32)) -> bool {
        self.syscall(async || {
            let (a, b) = (self.walk(from.0).await, self.walk(to.0).await);
            let mut done = false;
            if a != 0 && b != 0 {
                let (mut first, mut second) = (self.dir_sem(a).await, self.dir_sem(b).await);
                if first > second {
                    std::mem::swap(&mut first, &mut second);
                }
                if a != b {
                    self.down(self.map.rename_sem).await;
                }
                self.down(first).await;
                if a != b {
                    self.down(second).await;
                }
                done = self.rename_locked(a, from.1, b, to.1).await;
                if a != b {
                    self.up(second).await;
                }
                self.up(first).await;
                if a != b {
                    self.up(self.map.rename_sem).await;
                }
            }
            for d in [a, b] {
                if d != 0 {
                    self.dput(d).await;
                }
            }
            done
        })
        .await
    }

    async fn rename_locked(&self, a: Addr, old: u32, b: Addr, new: u32) -> bool {
        let there = self.d_lookup(b, new).await;
        if there != 0 {
            self.dput(there).await;
            return false;
        }
        let d = self.d_lookup(a, old).await;
        if d == 0 {
            return false;
        }
        self.work(2_000).await;
        self.d_move(d, b, new).await;
        self.dput(d).await;
        true
    }

    /// `read` of the first `pages` pages; those not cached come from disk if `disk`.
    pub async fn read(&self, file: File, pages: u32, disk: bool) {
        self.syscall(async || {
            let i = self.load(file.entry + dentry::INODE).await;
            self.read_pages(i, pages, disk).await;
        })
        .await;
    }

    /// `write` of the first `pages` pages.
    pub async fn write(&self, file: File, pages: u32) {
        self.syscall(async || {
            let i = self.load(file.entry + dentry::INODE).await;
            self.journal_start().await;
            self.block_alloc(i >> 8).await;
            self.write_pages(i, pages).await;
            self.journal_stop().await;
        })
        .await;
    }

    /// `getdents` on `path`.
    pub async fn list(&self, path: &[u32]) -> u32 {
        self.syscall(async || {
            let d = self.walk(path).await;
            if d == 0 {
                return 0;
            }
            let n = self.readdir(d).await;
            self.dput(d).await;
            n
        })
        .await
    }
}
