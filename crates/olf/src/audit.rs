//! In debug builds with `std`: panics when a node's memory is given back too early.
//!
//! A node knows the number of its group. A register maps that number to a mirror of what the group's
//! seats publish; it is a copy on the heap, because a node may outlive its group, and a group whose
//! members were leaked may move. An epoch is entered in the mirror once the seat has published it for
//! good, and taken out before the seat's release store. So a thread that has seen `may_free` say yes
//! finds nothing older in the mirror: a race may hide an error, never invent one.

#[cfg(not(all(debug_assertions, feature = "std", not(any(loom, shuttle)))))]
mod imp {
    use crate::epoch::Counters;
    #[cfg(not(any(loom, shuttle)))]
    use crate::node::Node;

    /// Nothing, in this build.
    pub(crate) struct Mirror;

    impl Mirror {
        crate::sync::const_fn! {
            pub(crate) const fn new() -> Self {
                Self
            }
        }
        pub(crate) fn open(&self, _id: usize, _seats: usize) {}
        pub(crate) fn note(&self, _seat: usize, _published: Published, _epoch: u64) {}
    }

    /// Which of a seat's two epochs.
    #[derive(Clone, Copy)]
    pub(crate) enum Published {
        Reading,
        Pin,
    }

    pub(crate) fn group_dropped(_: &Counters) {}
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn node_dropped<const K: usize>(_: &Node<K>) {}
}

#[cfg(all(debug_assertions, feature = "std", not(any(loom, shuttle))))]
mod imp {
    use crate::epoch::{Counters, INACTIVE};
    use crate::node::Node;
    use crate::sync::{AtomicU64, Ordering};
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
    use std::vec::Vec;

    type Seats = Vec<[AtomicU64; 2]>;

    /// Copies of the epochs that the seats of a group publish.
    pub(crate) struct Mirror(OnceLock<Arc<Seats>>);

    /// Which of a seat's two epochs.
    #[derive(Clone, Copy)]
    pub(crate) enum Published {
        Reading = 0,
        Pin = 1,
    }

    static REGISTER: Mutex<BTreeMap<usize, Arc<Seats>>> = Mutex::new(BTreeMap::new());

    fn register() -> MutexGuard<'static, BTreeMap<usize, Arc<Seats>>> {
        REGISTER.lock().unwrap_or_else(PoisonError::into_inner)
    }

    impl Mirror {
        pub(crate) const fn new() -> Self {
            Self(OnceLock::new())
        }

        /// Enters the group into the register, the first time.
        pub(crate) fn open(&self, id: usize, seats: usize) {
            self.0.get_or_init(|| {
                let idle = || [AtomicU64::new(INACTIVE), AtomicU64::new(INACTIVE)];
                let mirror: Arc<Seats> = Arc::new((0..seats).map(|_| idle()).collect());
                register().insert(id, Arc::clone(&mirror));
                mirror
            });
        }

        /// Copies what a seat is about to publish.
        pub(crate) fn note(&self, seat: usize, published: Published, epoch: u64) {
            if let Some(seats) = self.0.get() {
                seats[seat][published as usize].store(epoch, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn group_dropped(counters: &Counters) {
        register().remove(&counters.id.load(Ordering::Relaxed));
    }

    pub(crate) fn node_dropped<const K: usize>(node: &Node<K>) {
        let mirror = register().get(&node.home.load(Ordering::Relaxed)).cloned();
        // Without a group nobody can follow a link any more. A second panic would hide the first; then
        // what release builds do has to do.
        let Some(mirror) = mirror.filter(|_| !std::thread::panicking()) else { return };
        let (epoch, slot) = node.last();
        assert!(
            node.next_in(slot).is_null(),
            "olf: a node is freed while it is linked; unlink it first"
        );
        let seen = |l: &AtomicU64| {
            let l = l.load(Ordering::Relaxed);
            l & INACTIVE == 0 && l < epoch
        };
        let too_early = mirror.iter().flatten().any(seen);
        assert!(
            !too_early,
            "olf: a node is freed while a section may still see it; wait for Member::may_free"
        );
    }
}

pub(crate) use imp::*;
