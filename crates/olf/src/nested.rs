//! Reading inside a write section.
//!
//! A traversal that acquires each node it passes copies them all. A nested read walks them as a reader
//! does, with the section's own changes on top, and logs what it saw; at commit the log is checked.
//!
//! The nested read publishes its epoch in `L`, which may hold `R` back, for which an older writer
//! that is short of slots may wait; and this writer may wait for that one. So before any wait the
//! nested read is *suspended* (`L` inactive), and after it *resumed* at the newest committed epoch,
//! provided that all that was read and copied so far is unchanged there.
//!
//! A writer that is next to commit publishes nothing: nobody else moves `C` then, and `R` is no greater.
//!
//! A *glance* is a nested read that is not logged. It is of the same snapshot, but nobody checks at
//! commit that it still holds: the section has to acquire what its decision rests on. An acquired node
//! is never newer than the snapshot of a glance, or the attempt is lost. In a section that owns no slots yet,
//! glances are what long searches consist of; `glance_below` says that one need not look at anything but the
//! node. Whatever ends the snapshot, or takes a slot, sets it to 0.

use crate::epoch::STEP;
use crate::error::Error;
use crate::node::{Node, hint};
use crate::read;
use crate::seat::READ_ONLY;
use crate::sync::Ordering;
use crate::write::Write;
use core::ptr;

impl Write<'_, '_> {
    /// Appends a log record. Release, before any slot of the node is taken: `recover` must find in the
    /// log each slot that it finds taken.
    pub(crate) fn log<const K: usize>(
        &mut self,
        node: &Node<K>,
        slot: usize,
        seen: u64,
    ) -> Result<usize, Error> {
        let n = self.section().logged;
        let record = self.domain().log(self.member.seat).get(n).ok_or(Error::LogFull)?;
        record.write(node, slot, seen);
        self.section().logged = n + 1;
        self.member.published().logged.store(n + 1, Ordering::Release);
        Ok(n)
    }

    /// Begins (or continues) the nested read and returns its epoch.
    pub(crate) fn snapshot(&mut self) -> Result<u64, Error> {
        if self.section().need_retry {
            return Err(Error::Retry);
        }
        match self.section().snapshot {
            Some(e) => Ok(e),
            None => {
                self.resume()?;
                self.section().snapshot.ok_or(Error::Retry)
            }
        }
    }

    /// Reads as of the newest committed epoch from here on, if what is known so far still holds there.
    #[cold]
    pub(crate) fn resume(&mut self) -> Result<(), Error> {
        self.suspend();
        let c = self.member.d.counters.committed.0.load(Ordering::Acquire);
        if c >= self.section().my {
            return Err(self.lost());
        }
        let e = if c + STEP == self.section().my {
            // Next to commit: nobody else moves `C`, and `R <= C`, so nobody takes a slot that is read
            // here, and there is nothing to publish.
            c
        } else {
            // The slow way in would take a second epoch, behind our own. Trying for ever is safe: `C`
            // moves at most to `my - 2` while we are here.
            loop {
                if let Some(e) = read::try_enter(self.member.d, self.member.seat) {
                    break e;
                }
            }
        };
        self.section().snapshot = Some(e);
        let s = &self.member.section;
        if (s.glanced && s.glanced_at != e) || !self.holds_at(e) {
            self.suspend();
            return Err(self.lost());
        }
        self.section().validated = e;
        Ok(())
    }

    /// The links of `node`, next and previous: the section's own, else the snapshot's, which is logged.
    pub(crate) fn peek<const K: usize>(
        &mut self,
        node: &Node<K>,
    ) -> Result<(*mut Node<K>, *mut Node<K>), Error> {
        let (links, seen) = self.look(node)?;
        let Some((seen, e)) = seen else { return Ok(links) };
        let room = self.domain().log(self.member.seat).len() / 2;
        if self.section().logged < room {
            self.log(node, READ_ONLY, seen)?;
        } else {
            // Half of the log is kept for changes. Without a record only an unmoved `C` proves this
            // read; if it moves the section runs again, as the oldest, and nothing moves it then.
            let s = self.section();
            s.unlogged = true;
            s.unlogged_at = e;
        }
        Ok(links)
    }

    /// As [`Write::peek`], but not logged.
    #[cold]
    pub(crate) fn glance_links<const K: usize>(
        &mut self,
        node: &Node<K>,
    ) -> Result<(*mut Node<K>, *mut Node<K>), Error> {
        let (links, _) = self.look(node)?;
        let s = self.section();
        s.glanced = true;
        if let Some(e) = s.snapshot {
            s.glanced_at = e;
            // With slots of its own, the section has to look for them.
            s.glance_below = if s.owns { 0 } else { hint(e, 0) + hint(1, 0) };
        }
        Ok(links)
    }

    /// The links of `node`; and unless they are the section's own, their epoch and the snapshot's.
    #[inline]
    #[allow(clippy::type_complexity)] // Two pairs, named where they are taken apart.
    fn look<const K: usize>(
        &mut self,
        node: &Node<K>,
    ) -> Result<((*mut Node<K>, *mut Node<K>), Option<(u64, u64)>), Error> {
        let e = self.snapshot()?;
        let home = node.home.load(Ordering::Relaxed);
        if home != self.domain().id() {
            if home != 0 {
                return Err(Error::Foreign);
            }
            // Never written when we looked, so it was on no list at `e`; what stands in its slots by
            // now is of no concern.
            return Ok(((ptr::null_mut(), ptr::null_mut()), Some((0, e))));
        }
        let s = &self.member.section;
        let own = if s.owns { node.slot_of(s.my) } else { None };
        let i = own.unwrap_or_else(|| node.slot_at(e));
        let seen = node.epochs[i].load(Ordering::Relaxed);
        let links = (node.next_in(i), node.prev_in(i));
        Ok((links, own.is_none().then_some((seen, e))))
    }
}
