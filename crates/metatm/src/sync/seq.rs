//! Sequence locks as in Linux 2.6: readers retry when the counter moved or was odd.
//!
//! The counter is followed, on a line of its own, by the writers' spinlock. Both TxLinux kernels
//! use transactions instead (paper, section 3.3); see `kernel::region`.

use crate::guest::Cx;
use crate::mem::{Addr, LINE};

/// The writers' spinlock of the sequence lock at `seq`.
pub fn writer_lock(seq: Addr) -> Addr {
    seq + LINE
}

impl Cx {
    /// Runs `body` until it has seen no writer; readers write nothing.
    pub async fn seq_read<R>(&self, seq: Addr, body: impl AsyncFn() -> R) -> R {
        loop {
            let before = self.load(seq).await;
            self.alu(2).await;
            if before % 2 == 1 {
                // A writer is at work; the paper does not count this as spinning, nor do we.
                continue;
            }
            let r = body().await;
            let after = self.load(seq).await;
            self.alu(2).await;
            if before == after {
                return r;
            }
        }
    }

    /// `write_seqlock`.
    pub async fn seq_write_begin(&self, seq: Addr) {
        self.spin_lock(writer_lock(seq)).await;
        let v = self.load(seq).await;
        self.store(seq, v.wrapping_add(1)).await;
    }

    /// `write_sequnlock`.
    pub async fn seq_write_end(&self, seq: Addr) {
        let v = self.load(seq).await;
        self.store(seq, v.wrapping_add(1)).await;
        self.spin_unlock(writer_lock(seq)).await;
    }
}
