//! The kernel's locks by class, and its critical regions.
//!
//! A class says which kernel treats a lock how; a site is a place in the source that takes one.

use crate::config::KernelKind;
use crate::sync::cx::Irq;

/// What a section does with its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treat {
    /// Takes it (spinlock, rwlock or seqlock).
    Lock,
    /// Ignores it and runs as a naked transaction.
    Transaction,
    /// `cx_optimistic`.
    Optimistic,
    /// `cx_exclusive`.
    Exclusive,
}

/// A family of locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Slab lists (table 4).
    Slab,
    /// Directory entries (table 4).
    Dcache,
    /// RCU control block (table 4).
    Rcu,
    /// Page trees and mappings (table 4).
    AddressSpace,
    /// Zone free and LRU lists (table 4).
    Zone,
    /// The clock, a sequence lock (table 4).
    Time,
    /// List of memory descriptors (table 4).
    MmList,
    /// Lists of open files (table 4).
    Files,
    /// List of noncontiguous areas (table 4).
    VmList,
    /// Run queues: locked in one thread, unlocked in another.
    RunQueue,
    /// Page tables: read by hardware.
    PageTable,
    /// Inode lists and states.
    Inode,
    /// Journal state of the file system.
    Journal,
    /// Wait queues and semaphores.
    Wait,
    /// Timer lists.
    Timer,
    /// Block request queues.
    Block,
    /// The disk controller.
    Ide,
    /// The network device.
    Net,
    /// The console.
    Tty,
    /// The interval timer chip.
    Pit,
    /// List of tasks, a reader-writer lock.
    Tasklist,
    /// Signal handlers.
    Signal,
    /// A process's descriptor table.
    Fdtable,
}

impl Class {
    /// True for the subsystems that TxLinux-SS converts (paper, table 4).
    pub fn in_table4(self) -> bool {
        matches!(
            self,
            Self::Slab
                | Self::Dcache
                | Self::Rcu
                | Self::AddressSpace
                | Self::Zone
                | Self::Time
                | Self::MmList
                | Self::Files
                | Self::VmList
        )
    }

    /// How `kernel` treats locks of this class.
    pub fn treat(self, kernel: KernelKind) -> Treat {
        match (kernel, self) {
            (KernelKind::Locks, _) => Treat::Lock,
            (KernelKind::Ss, c) if c.in_table4() => Treat::Transaction,
            (KernelKind::Ss, _) => Treat::Lock,
            // All sequence locks become transactions in both kernels; tasklist stays (section 7.1).
            (KernelKind::Cx, Self::Time) => Treat::Transaction,
            (KernelKind::Cx, Self::Tasklist) => Treat::Lock,
            (KernelKind::Cx, Self::RunQueue | Self::PageTable) => Treat::Exclusive,
            (KernelKind::Cx, _) => Treat::Optimistic,
        }
    }
}

macro_rules! sites {
    ($($site:ident: $class:ident, $name:literal, $irq:ident;)+) => {
        /// A critical region of the kernel.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Site {
            $(#[doc = $name] $site,)+
        }

        /// Name, class and interrupt rule of each site, by number.
        const SITES: &[(&str, Class, Irq)] = &[$(($name, Class::$class, Irq::$irq),)+];
    };
}

sites! {
    DLookup: Dcache, "d_lookup", Leave;
    DPut: Dcache, "dput", Leave;
    DAlloc: Dcache, "d_alloc", Leave;
    DRehash: Dcache, "d_rehash", Leave;
    DInstantiate: Dcache, "d_instantiate", Leave;
    DDelete: Dcache, "d_delete", Leave;
    DDrop: Dcache, "__d_drop", Leave;
    DMove: Dcache, "d_move", Leave;
    DSwitch: Dcache, "switch_names", Leave;
    DcacheReaddir: Dcache, "dcache_readdir", Leave;
    SlabRefill: Slab, "cache_alloc_refill", Disable;
    SlabFlush: Slab, "cache_flusharray", Disable;
    SlabColour: Slab, "cache_grow (colour)", Disable;
    SlabGrow: Slab, "cache_grow (add)", Disable;
    RcuQuiet: Rcu, "cpu_quiet", Disable;
    RcuStart: Rcu, "rcu_start_batch", Disable;
    TreeLookup: AddressSpace, "find_get_page", Leave;
    TreeInsert: AddressSpace, "add_to_page_cache", Leave;
    TreeRemove: AddressSpace, "remove_from_page_cache", Leave;
    TreeDirty: AddressSpace, "set_page_dirty", Leave;
    MmapLink: AddressSpace, "vma_link", Leave;
    MmapUnlink: AddressSpace, "unlink_file_vma", Leave;
    ZoneAlloc: Zone, "rmqueue_bulk", Disable;
    ZoneFree: Zone, "free_pages_bulk", Disable;
    LruAdd: Zone, "lru_add_drain", Disable;
    LruActivate: Zone, "activate_page", Disable;
    LruRelease: Zone, "release_pages", Disable;
    TimeRead: Time, "do_gettimeofday", Leave;
    TimeWrite: Time, "timer_interrupt", Disable;
    MmListAdd: MmList, "dup_mmap", Leave;
    MmListDel: MmList, "mmput", Leave;
    FileMove: Files, "file_move", Leave;
    FileKill: Files, "file_kill", Leave;
    VmGet: VmList, "get_vm_area", Leave;
    VmFree: VmList, "remove_vm_area", Leave;
    FaultPte: PageTable, "handle_pte_fault", Leave;
    CopyPte: PageTable, "copy_pte_range", Leave;
    ZapPte: PageTable, "zap_pte_range", Leave;
    InodeNew: Inode, "new_inode", Leave;
    InodePut: Inode, "iput", Leave;
    InodeDirty: Inode, "__mark_inode_dirty", Leave;
    JournalStart: Journal, "journal_start", Leave;
    JournalStop: Journal, "journal_stop", Leave;
    JournalDirty: Journal, "journal_dirty_metadata", Leave;
    BitmapAlloc: Journal, "ext3_new_block", Leave;
    SemDown: Wait, "__down", Disable;
    SemUp: Wait, "__up", Disable;
    TimerAdd: Timer, "__mod_timer", Disable;
    TimerRun: Timer, "__run_timers", Disable;
    BlockMake: Block, "__make_request", Disable;
    BlockUnplug: Block, "generic_unplug_device", Disable;
    BlockEnd: Block, "end_request", Disable;
    IdeDo: Ide, "ide_do_request", Disable;
    IdeIntr: Ide, "ide_intr", Disable;
    IdeBusy: Ide, "ide_busy", Disable;
    NetXmit: Net, "tg3_start_xmit", Disable;
    NetIntr: Net, "tg3_interrupt", Disable;
    NetStats: Net, "tg3_get_stats", Disable;
    TtyWrite: Tty, "opost_block", Leave;
    PitRead: Pit, "get_offset_pit", Disable;
    TaskFork: Tasklist, "copy_process", Disable;
    TaskExit: Tasklist, "release_task", Disable;
    TaskWait: Tasklist, "do_wait", Leave;
    SigSend: Signal, "send_sig_info", Disable;
    SigDequeue: Signal, "dequeue_signal", Disable;
    FdInstall: Fdtable, "fd_install", Leave;
    FdClose: Fdtable, "filp_close", Leave;
}

impl Site {
    /// Number of sites.
    pub const COUNT: usize = SITES.len();

    /// Its number.
    pub fn id(self) -> u16 {
        self as u16
    }

    /// Name of the site numbered `id`: the Linux function it stands for.
    pub fn name_of(id: usize) -> &'static str {
        SITES.get(id).map_or("?", |s| s.0)
    }

    /// Class of the site numbered `id`.
    pub fn class_of(id: usize) -> Option<Class> {
        SITES.get(id).map(|s| s.1)
    }

    /// Its lock's class.
    pub fn class(self) -> Class {
        SITES[self as usize].1
    }

    /// Whether it disables interrupts.
    pub fn irq(self) -> Irq {
        SITES[self as usize].2
    }

    /// First code line of its section: sites are laid out one after the other.
    pub fn code(self) -> u32 {
        64 + u32::from(self.id()) * 8
    }
}
