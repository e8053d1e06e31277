//! Threads that go on until their test has ended, however it ends.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped: a test that fails inside `thread::scope` would else wait for ever for
/// a thread that nobody tells.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
