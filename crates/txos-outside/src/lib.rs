//! What outsiders change while a transaction runs, as fanotify tells it.
//!
//! Whole-file-system marks report every creation, removal, rename, write and change of attributes on
//! the file systems of the machine, with the directory and the name, the object, and the process. A
//! change that contradicts what a running transaction has read dooms it at once; and a commit that
//! knows that nothing was missed has to look, inside its pause, only at what was touched since it
//! looked at everything.
//!
//! # Invariants
//!
//! 1. *An event proves nothing.* It says where to look. Whoever is told compares what is there now
//!    with what was read: an event may be older than the reading. So there is no false doom.
//! 2. *No event does not prove much either.* A store through a mapping gives none; the queue can
//!    overflow; a file system may be unable to carry marks; something may be mounted. Whatever of
//!    these was the case since a point in time is known, and [`Since::clean`] is `false` then:
//!    everything has to be looked at. Safety rests on that, never on an event having come.
//! 3. *What cannot be resolved is not dropped.* An object whose handle is stale is reported by the
//!    name that it had; a directory whose handle is stale has lost its own name, which is an event
//!    of its own. Any other failure makes the log unclean.
//! 4. *Outsiders do not wait.* Events are notifications: nobody asks permission. The reader sleeps
//!    between two looks, so that an outsider in a loop does not have to wake it each time.
//!
//! # What is not reported
//!
//! Changes that another machine makes on a network file system; asynchronous writes show when they
//! are done. Both are met by validation alone.
//!
//! Sources: `fanotify(7)`, `fanotify_init(2)`, `fanotify_mark(2)`, `open_by_handle_at(2)`.

mod error;
mod event;
mod log;
mod marks;
mod resolve;
mod sys;
mod watch;

pub use error::{OutsideError, Result};
pub use log::Since;
pub use watch::{Change, Listener, Outside, Who};
