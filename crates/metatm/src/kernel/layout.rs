//! The layout of the kernel's structures: byte offsets of their fields.
//!
//! Fields that different processors write lie on different lines where Linux separates them too.

use crate::mem::Addr;

/// Fields of a task structure.
pub mod task {
    /// Run list link (next, previous).
    pub const LINK: u32 = 0;
    /// 0 runnable, 1 asleep, 2 dead.
    pub const STATE: u32 = 8;
    /// Dynamic priority.
    pub const PRIO: u32 = 12;
    /// Static priority.
    pub const STATIC: u32 = 16;
    /// Ticks left of the quantum.
    pub const SLICE: u32 = 20;
    /// Address of the priority array it is queued in, 0 if none.
    pub const ARRAY: u32 = 24;
    /// Processor.
    pub const CPU: u32 = 28;
    /// Interactivity credit, 0 to 1000.
    pub const SLEEP_AVG: u32 = 32;
    /// Microsecond (low 32 bits) at which it fell asleep.
    pub const SLEPT: u32 = 36;
    /// Set when it should give up its processor.
    pub const RESCHED: u32 = 40;
    /// Wait list link: next task.
    pub const WAIT_NEXT: u32 = 44;
    /// Set by whoever ends its wait.
    pub const WOKEN: u32 = 48;
    /// Children that have exited and were not waited for.
    pub const EXITED: u32 = 52;
    /// Profile: moving average of restarts an interval, times 16.
    pub const RESTARTS: u32 = 64;
    /// Profile: moving average of backoff cycles an interval.
    pub const BACKOFF: u32 = 68;
    /// Profile: restarts in the last interval, times 16.
    pub const LAST: u32 = 72;
    /// Profile: moving average of transaction size, sampled at ticks.
    pub const TX_SIZE: u32 = 76;
    /// Size.
    pub const SIZE: u32 = 128;
}

/// Fields of a run queue.
pub mod rq {
    /// Spinlock.
    pub const LOCK: u32 = 0;
    /// Tasks queued.
    pub const NR: u32 = 64;
    /// Running task.
    pub const CURR: u32 = 68;
    /// Address of the active array.
    pub const ACTIVE: u32 = 72;
    /// Address of the expired array.
    pub const EXPIRED: u32 = 76;
    /// First array.
    pub const ARRAYS: u32 = 128;
    /// Bytes of an array: count, bitmap, 140 list heads.
    pub const ARRAY: u32 = 1152;
    /// Offset of the bitmap in an array.
    pub const BITMAP: u32 = 4;
    /// Offset of the list heads in an array.
    pub const HEADS: u32 = 24;
    /// Size.
    pub const SIZE: u32 = ARRAYS + 2 * ARRAY;
}

/// Fields of a directory entry.
pub mod dentry {
    /// Next in its hash chain.
    pub const HASH_NEXT: u32 = 0;
    /// Spinlock.
    pub const LOCK: u32 = 4;
    /// References.
    pub const COUNT: u32 = 8;
    /// Parent.
    pub const PARENT: u32 = 12;
    /// Name.
    pub const NAME: u32 = 16;
    /// Inode, 0 for a negative entry.
    pub const INODE: u32 = 20;
    /// 1 while hashed.
    pub const HASHED: u32 = 24;
    /// Next in an RCU list.
    pub const RCU_NEXT: u32 = 28;
    /// Link in the list of unused entries.
    pub const LRU: u32 = 32;
    /// Link in the parent's list of children.
    pub const CHILD: u32 = 64;
    /// Head of the list of children.
    pub const SUBDIRS: u32 = 72;
    /// 1 while in the list of unused entries.
    pub const ON_LRU: u32 = 80;
    /// Size.
    pub const SIZE: u32 = 128;
}

/// Fields of an inode, its address space included.
pub mod inode {
    /// References.
    pub const COUNT: u32 = 4;
    /// Hard links.
    pub const NLINK: u32 = 8;
    /// Pages of content.
    pub const PAGES: u32 = 12;
    /// Dirty state.
    pub const DIRTY: u32 = 16;
    /// Link in the list of dirty inodes or of all.
    pub const LINK: u32 = 20;
    /// Semaphore: count, first and last waiter around a spinlock, tokens (see `wait`).
    pub const SEM: u32 = 32;
    /// Size of a semaphore.
    pub const SEM_SIZE: u32 = 20;
    /// Reader-writer lock of the page tree.
    pub const TREE_LOCK: u32 = 64;
    /// Spinlock of the mappings.
    pub const MMAP_LOCK: u32 = 128;
    /// Number of mappings.
    pub const MAPS: u32 = 132;
    /// Page tree: 16 page addresses.
    pub const TREE: u32 = 192;
    /// Size.
    pub const SIZE: u32 = 256;
}

/// Most pages in a file: the size of an inode's page tree.
pub const TREE_PAGES: u32 = 16;

/// Fields of a page structure.
pub mod page {
    /// Link in a free or LRU list.
    pub const LINK: u32 = 0;
    /// References.
    pub const COUNT: u32 = 8;
    /// 0 on no list, 1 inactive, 2 active.
    pub const LRU: u32 = 12;
    /// Dirty.
    pub const DIRTY: u32 = 16;
    /// Size.
    pub const SIZE: u32 = 32;
}

/// Fields of a slab cache.
pub mod slab {
    /// Spinlock of the lists.
    pub const LOCK: u32 = 0;
    /// First free object, linked through its first word.
    pub const FREE: u32 = 64;
    /// Free objects in the list.
    pub const NR_FREE: u32 = 68;
    /// Next colour.
    pub const COLOUR: u32 = 72;
    /// Objects made so far.
    pub const TOTAL: u32 = 76;
    /// Per-processor arrays: count, then objects.
    pub const ARRAYS: u32 = 128;
    /// Bytes of one array.
    pub const ARRAY: u32 = 128;
    /// Objects in a full array.
    pub const LIMIT: u32 = 24;
    /// Objects moved at once.
    pub const BATCH: u32 = 12;
}

/// A slab cache: where it is and how large its objects are.
#[derive(Debug, Clone, Copy)]
pub struct Slab {
    /// Its structure.
    pub at: Addr,
    /// Bytes of an object.
    pub object: u32,
}
