//! Epochs and the three counters that a group of lists shares.
//!
//! An epoch is a point in the single order in which the write sections of a group take effect. Valid
//! epochs are even; bit 0 says *inactive*: of a slot, that its writer gave it up; of a seat, that the
//! thread is not reading.
//!
//! ```text
//!      R (read)          C (committed)            M (max)
//!         |                 |                       |
//!  0  2   4   6   8   10   12   14   16   18   20  22      epochs, in steps of 2
//!         '------readers----'    '---- writers ----'
//!         every active L lies    each has one of these to itself;
//!         between R and C        only C + 2 may commit
//! ```

use crate::audit::Mirror;
use crate::sync::{AtomicU64, AtomicUsize, const_fn};

/// Bit 0 of an epoch: given up (a slot), not reading (a seat).
pub(crate) const INACTIVE: u64 = 1;
/// The distance between one writer's epoch and the next one's.
pub(crate) const STEP: u64 = 2;

/// Keeps its content on cache lines of its own (two of them, as adjacent lines are fetched in pairs).
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

/// The counters of a group. See the drawing above.
pub(crate) struct Counters {
    /// `C`, the epoch of the newest committed write section. Read by every reader.
    pub(crate) committed: Padded<AtomicU64>,
    /// `M`, the newest epoch handed to a writer.
    pub(crate) max: Padded<AtomicU64>,
    /// `R`, a lower bound of what active readers read: slots that were superseded before it are free.
    pub(crate) read: Padded<AtomicU64>,
    /// The group's number among all groups of the process; 0 until the first member joins.
    pub(crate) id: AtomicUsize,
    /// Where the drop of a node finds the group.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) entered: crate::register::Entered,
    /// The newest horizon that was found: what was unlinked up to here is out of sight for good.
    pub(crate) safe: AtomicU64,
    /// Seats below this index have been used; the others need not be looked at.
    pub(crate) high: AtomicUsize,
    /// Members that sleep until a commit (see `wait`).
    pub(crate) parked: AtomicUsize,
    /// Threads at work in `recover`, or `usize::MAX` while one of them clears seats.
    pub(crate) helpers: AtomicUsize,
    /// What the seats publish, for the audit of freed nodes in debug builds.
    pub(crate) mirror: Mirror,
}

impl Counters {
    const_fn! {
        pub(crate) const fn new() -> Self {
            Self {
                committed: Padded(AtomicU64::new(0)),
                max: Padded(AtomicU64::new(0)),
                read: Padded(AtomicU64::new(0)),
                id: AtomicUsize::new(0),
                #[cfg(not(any(loom, shuttle)))]
                entered: crate::register::Entered::new(),
                safe: AtomicU64::new(0),
                high: AtomicUsize::new(0),
                parked: AtomicUsize::new(0),
                helpers: AtomicUsize::new(0),
                mirror: Mirror::new(),
            }
        }
    }
}
